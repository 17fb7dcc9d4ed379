//! Values that are loaded once: one caller of the fleet loads, everybody else gets what it loaded.

use std::sync::Arc;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use resil::cache::{Cached, Loaded};
use resil::{Error, Failure};

use crate::answer::Answer;
use crate::codec::Codec;
use crate::convert::text;
use crate::loading::{PyKeyedCached, Shelf, Store, Trouble, value, whole};
use crate::runtime::Generation;
use crate::settings::{read, spelled};

impl Shelf for Cached {
    type Kept = Bytes;

    async fn get<L, Fut>(&self, key: &str, loader: L) -> Result<Loaded<Bytes>, Failure<Arc<Trouble>>>
    where
        L: FnOnce(String) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Option<Bytes>, Trouble>> + Send + 'static,
    {
        Cached::get(self, key, loader).await
    }

    fn write(codec: &Codec, brought: &Bound<'_, PyAny>) -> PyResult<Bytes> {
        codec.write(brought)
    }

    fn read(codec: &Codec, py: Python<'_>, kept: &Bytes) -> PyResult<(Py<PyAny>, Option<u64>)> {
        Ok((codec.read_back(py, kept)?, None))
    }

    async fn invalidate(&self, key: &str) -> Result<bool, Error> {
        Cached::invalidate(self, key).await
    }

    async fn invalidate_soft(&self, key: &str) -> Result<bool, Error> {
        Cached::invalidate_soft(self, key).await
    }
}

/// Values that are loaded once; `client.cached(...)` makes it.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> users = client.cached("user", ttl=60)
/// >>> users.get("42", lambda key: {"name": "Ada"}).wait()
/// {'name': 'Ada'}
/// >>> users.get("42", lambda key: "never loaded").wait()
/// {'name': 'Ada'}
/// >>> users.invalidate("42").wait()
/// True
#[pyclass(module = "resil", name = "Cached", frozen)]
pub struct PyCached(Store<Cached>);

pub fn make(
    client: &resil::Client,
    generation: Generation,
    name: &Bound<'_, PyAny>,
    serializer: Option<&Bound<'_, PyAny>>,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<PyCached> {
    let (codec, name) = (Codec::read(name.py(), serializer)?, text("name", name)?);
    let settings: resil::settings::CacheSettings = read(settings)?;
    Ok(PyCached(Store { shelf: spelled(client.cached(&name, settings))?, codec, generation }))
}

#[pymethods]
impl PyCached {
    /// The value of `key`: the known one, or what `loader(key)` brings; None if there is no such thing.
    ///
    /// A plain loader runs in a thread, a coroutine function as a task of the loop that awaits.
    fn get(&self, key: &Bound<'_, PyAny>, loader: &Bound<'_, PyAny>) -> PyResult<Answer> {
        self.0.ask("cached.get()", key, loader, value)
    }

    /// The same, with how old it is.
    fn lookup(&self, key: &Bound<'_, PyAny>, loader: &Bound<'_, PyAny>) -> PyResult<Answer> {
        self.0.ask("cached.lookup()", key, loader, whole)
    }

    /// As a decorator: the function is the loader of `key`, which is text or a function of its arguments.
    fn by(&self, key: &Bound<'_, PyAny>) -> PyResult<Py<PyKeyedCached>> {
        self.0.by(key, value)
    }

    /// What was loaded before is not returned to anybody who asks from now on. Whether there was anything.
    fn invalidate(&self, key: &Bound<'_, PyAny>) -> PyResult<Answer> {
        self.0.invalidated("cached.invalidate()", key)
    }

    /// The same; the old value is served as stale while it is loaded anew.
    fn invalidate_soft(&self, key: &Bound<'_, PyAny>) -> PyResult<Answer> {
        self.0.invalidated_softly("cached.invalidate_soft()", key)
    }
}
