//! Values that are loaded once: one caller of the fleet loads, everybody else gets what it loaded. With versions, or without.

use crate::client::PyClient;
use crate::loading::{Cache, Invalidation, PyKeyedCached, Store, value, versioned_value, with_details};
use crate::prelude::*;

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
pub struct PyCached(pub Owned<Store>);

#[pymethods]
impl PyCached {
    /// The value of `key`: the known one, or what `loader(key)` brings; None if there is no such thing.
    ///
    /// A plain loader runs in a thread, a coroutine function as a task of the loop that awaits.
    fn get(&self, key: Arg<'_>, loader: Arg<'_>) -> PyResult<Pending> {
        self.0.get()?.ask("cached.get()", key, loader, value)
    }

    /// The same, with how old it is.
    fn lookup(&self, key: Arg<'_>, loader: Arg<'_>) -> PyResult<Pending> {
        self.0.get()?.ask("cached.lookup()", key, loader, with_details)
    }

    /// As a decorator: the function is the loader of `key`, which is text or a function of its arguments.
    fn by(&self, key: Arg<'_>) -> PyResult<Py<PyKeyedCached>> {
        self.0.get()?.by(key, value)
    }

    /// What was loaded before is not returned to anybody who asks from now on. Whether there was anything.
    fn invalidate(&self, key: Arg<'_>) -> PyResult<Pending> {
        self.0.get()?.invalidate("cached.invalidate()", key, Invalidation::Hard)
    }

    /// The same; the old value is served as stale while it is loaded anew.
    fn invalidate_soft(&self, key: Arg<'_>) -> PyResult<Pending> {
        self.0.get()?.invalidate("cached.invalidate_soft()", key, Invalidation::Soft)
    }
}

/// Values that are loaded once, with versions: whole numbers that grow with every change, a row's counter for example.
/// `client.versioned_cached(...)` makes it.
///
/// A loader brings `(version, value)`, or None. A caller that knows which version to expect says so with `at_least`, and gets that
/// or a newer one: what is older is loaded anew, and is LoadFailedError if the source still lags behind.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> users = client.versioned_cached("user", ttl=60)
/// >>> users.get("42", lambda key: (7, {"name": "Ada"})).wait()
/// (7, {'name': 'Ada'})
/// >>> users.get("42", lambda key: (8, {"name": "Ada L."}), at_least=8).wait()
/// (8, {'name': 'Ada L.'})
#[pyclass(module = "resil", name = "VersionedCached", frozen)]
pub struct PyVersionedCached(pub Owned<Store>);

#[pymethods]
impl PyVersionedCached {
    /// `(version, value)` of `key`: the known ones, or what `loader(key)` brings; None if there is no such thing.
    ///
    /// A plain loader runs in a thread, a coroutine function as a task of the loop that awaits.
    #[pyo3(signature = (key, loader, *, at_least=None))]
    fn get(&self, key: Arg<'_>, loader: Arg<'_>, at_least: OptArg<'_>) -> PyResult<Pending> {
        self.0.get()?.at_least(at_least)?.ask("versioned.get()", key, loader, versioned_value)
    }

    /// The same, with how old it is.
    #[pyo3(signature = (key, loader, *, at_least=None))]
    fn lookup(&self, key: Arg<'_>, loader: Arg<'_>, at_least: OptArg<'_>) -> PyResult<Pending> {
        self.0.get()?.at_least(at_least)?.ask("versioned.lookup()", key, loader, with_details)
    }

    /// As a decorator: the function is the loader of `key`, which is text or a function of its arguments.
    fn by(&self, key: Arg<'_>) -> PyResult<Py<PyKeyedCached>> {
        self.0.get()?.by(key, versioned_value)
    }

    /// What was loaded before is not returned to anybody who asks from now on. Whether there was anything.
    fn invalidate(&self, key: Arg<'_>) -> PyResult<Pending> {
        self.0.get()?.invalidate("versioned.invalidate()", key, Invalidation::Hard)
    }

    /// The same; the old value is served as stale while it is loaded anew.
    fn invalidate_soft(&self, key: Arg<'_>) -> PyResult<Pending> {
        self.0.get()?.invalidate("versioned.invalidate_soft()", key, Invalidation::Soft)
    }
}

#[pymethods]
impl PyClient {
    /// Values that are loaded once; `name` says what they are. They are kept as JSON, or as
    /// `serializer` says; see `idempotent`.
    #[pyo3(signature = (name, *, serializer=None, **settings))]
    fn cached(&self, name: Arg<'_>, serializer: OptArg<'_>, settings: Option<Kwargs<'_>>) -> PyResult<PyCached> {
        Store::make(&self.get()?, name, serializer, settings, Cache::plain).map(PyCached)
    }

    /// The same with versions, for sources that lag behind a commit: what is known is never replaced by something older.
    #[pyo3(signature = (name, *, serializer=None, **settings))]
    fn versioned_cached(
        &self,
        name: Arg<'_>,
        serializer: OptArg<'_>,
        settings: Option<Kwargs<'_>>,
    ) -> PyResult<PyVersionedCached> {
        Store::make(&self.get()?, name, serializer, settings, Cache::versioned).map(PyVersionedCached)
    }
}
