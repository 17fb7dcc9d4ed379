//! Values that are loaded once, each with the version of what it was made from.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use resil::cache::{Loaded, Versioned, VersionedCached};
use resil::{Error, Failure};

use crate::answer::Answer;
use crate::codec::Codec;
use crate::convert::{text, whole as whole_number};
use crate::errors::wrong_type;
use crate::loading::{PyKeyedCached, Shelf, Store, Trouble, whole, with_version};
use crate::runtime::Generation;
use crate::settings::{read, spelled};

/// A cache with versions, of which those from `at_least` on will do.
#[derive(Clone)]
struct Versions {
    cached: VersionedCached,
    at_least: u64,
}

impl Shelf for Versions {
    type Kept = Versioned;

    async fn get<L, Fut>(&self, key: &str, loader: L) -> Result<Loaded<Versioned>, Failure<Arc<Trouble>>>
    where
        L: FnOnce(String) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Option<Versioned>, Trouble>> + Send + 'static,
    {
        self.cached.get_at_least(key, self.at_least, loader).await
    }

    fn write(codec: &Codec, brought: &Bound<'_, PyAny>) -> PyResult<Versioned> {
        let (version, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
            brought.extract().map_err(|_| wrong_type("what loader returned", "(version, value) or None", brought))?;
        Ok(Versioned { version: whole_number("the version", &version)?, bytes: codec.write(&value)? })
    }

    fn read(codec: &Codec, py: Python<'_>, kept: &Versioned) -> PyResult<(Py<PyAny>, Option<u64>)> {
        Ok((codec.read_back(py, &kept.bytes)?, Some(kept.version)))
    }

    async fn invalidate(&self, key: &str) -> Result<bool, Error> {
        self.cached.invalidate(key).await
    }

    async fn invalidate_soft(&self, key: &str) -> Result<bool, Error> {
        self.cached.invalidate_soft(key).await
    }
}

/// Values that are loaded once, with versions: whole numbers that grow with every change, a row's counter for example.
/// `client.versioned(...)` makes it.
///
/// A loader brings `(version, value)`, or None. Whoever knows which version to expect says so with `at_least`, and gets that or a
/// newer one: what is older is loaded anew, and is LoadFailedError if the source still lags behind.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> users = client.versioned("user", ttl=60)
/// >>> users.get("42", lambda key: (7, {"name": "Ada"})).wait()
/// (7, {'name': 'Ada'})
/// >>> users.get("42", lambda key: (8, {"name": "Ada L."}), at_least=8).wait()
/// (8, {'name': 'Ada L.'})
#[pyclass(module = "resil", name = "VersionedCached", frozen)]
pub struct PyVersionedCached(Store<Versions>);

pub fn make(
    client: &resil::Client,
    generation: Generation,
    name: &Bound<'_, PyAny>,
    serializer: Option<&Bound<'_, PyAny>>,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<PyVersionedCached> {
    let (codec, name) = (Codec::read(name.py(), serializer)?, text("name", name)?);
    let settings: resil::settings::CacheSettings = read(settings)?;
    let shelf = Versions { cached: spelled(client.versioned_cached(&name, settings))?, at_least: 0 };
    Ok(PyVersionedCached(Store { shelf, codec, generation }))
}

impl PyVersionedCached {
    fn from(&self, at_least: Option<&Bound<'_, PyAny>>) -> PyResult<Store<Versions>> {
        let at_least = at_least.map_or(Ok(0), |given| whole_number("at_least", given))?;
        Ok(self.0.on(Versions { cached: self.0.shelf.cached.clone(), at_least }))
    }
}

#[pymethods]
impl PyVersionedCached {
    /// `(version, value)` of `key`: the known ones, or what `loader(key)` brings; None if there is no such thing.
    ///
    /// A plain loader runs in a thread, a coroutine function as a task of the loop that awaits.
    #[pyo3(signature = (key, loader, *, at_least=None))]
    fn get(
        &self,
        key: &Bound<'_, PyAny>,
        loader: &Bound<'_, PyAny>,
        at_least: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Answer> {
        self.from(at_least)?.ask("versioned.get()", key, loader, with_version)
    }

    /// The same, with how old it is.
    #[pyo3(signature = (key, loader, *, at_least=None))]
    fn lookup(
        &self,
        key: &Bound<'_, PyAny>,
        loader: &Bound<'_, PyAny>,
        at_least: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Answer> {
        self.from(at_least)?.ask("versioned.lookup()", key, loader, whole)
    }

    /// As a decorator: the function is the loader of `key`, which is text or a function of its arguments.
    fn by(&self, key: &Bound<'_, PyAny>) -> PyResult<Py<PyKeyedCached>> {
        self.0.by(key, with_version)
    }

    /// What was loaded before is not returned to anybody who asks from now on. Whether there was anything.
    fn invalidate(&self, key: &Bound<'_, PyAny>) -> PyResult<Answer> {
        self.0.invalidated("versioned.invalidate()", key)
    }

    /// The same; the old value is served as stale while it is loaded anew.
    fn invalidate_soft(&self, key: &Bound<'_, PyAny>) -> PyResult<Answer> {
        self.0.invalidated_softly("versioned.invalidate_soft()", key)
    }
}
