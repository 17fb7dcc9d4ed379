//! Values that are loaded once: one caller of the fleet loads, everybody else gets what it loaded. With versions, or without.

use resil::cache::CallOptions;

use crate::cache_entry::{options, texts};
use crate::client::PyClient;
use crate::loading::{Asking, Cache, Invalidation, PyKeyedCached, Store, value, versioned_value, with_details};
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
    /// A plain loader runs in a thread, a coroutine function as a task of the loop that awaits. A loader may return a CacheEntry to say
    /// what is special about its value. `ttl`, `tags` and `soft_timeout` are for this call; omitted options are those of the cache.
    #[pyo3(signature = (key, loader, *, ttl=None, tags=None, soft_timeout=None))]
    fn get(
        &self,
        key: Arg<'_>,
        loader: Arg<'_>,
        ttl: OptArg<'_>,
        tags: OptArg<'_>,
        soft_timeout: OptArg<'_>,
    ) -> PyResult<Pending> {
        self.0.get()?.ask("cached.get()", key, Asking::Get(options(ttl, tags, soft_timeout)?), loader, value)
    }

    /// The same, with how old it is.
    #[pyo3(signature = (key, loader, *, ttl=None, tags=None, soft_timeout=None))]
    fn lookup(
        &self,
        key: Arg<'_>,
        loader: Arg<'_>,
        ttl: OptArg<'_>,
        tags: OptArg<'_>,
        soft_timeout: OptArg<'_>,
    ) -> PyResult<Pending> {
        self.0.get()?.ask("cached.lookup()", key, Asking::Get(options(ttl, tags, soft_timeout)?), loader, with_details)
    }

    /// The values of several keys as a list, in their order, asked for at once; `loader(key)` is called for each that nobody has.
    #[pyo3(signature = (keys, loader, *, ttl=None, tags=None, soft_timeout=None))]
    fn get_many(
        &self,
        keys: Arg<'_>,
        loader: Arg<'_>,
        ttl: OptArg<'_>,
        tags: OptArg<'_>,
        soft_timeout: OptArg<'_>,
    ) -> PyResult<Pending> {
        self.0.get()?.ask_many(keys, options(ttl, tags, soft_timeout)?, loader)
    }

    /// Loads `key` anew and returns what was loaded, while everybody else has the known value as a stale one.
    #[pyo3(signature = (key, loader, *, ttl=None, tags=None))]
    fn refresh(&self, key: Arg<'_>, loader: Arg<'_>, ttl: OptArg<'_>, tags: OptArg<'_>) -> PyResult<Pending> {
        self.0.get()?.ask("cached.refresh()", key, Asking::Refresh(options(ttl, tags, None)?), loader, value)
    }

    /// As a decorator: the function is the loader of `key`, which is text or a function of its arguments. The decorated function has
    /// `invalidate(...)`, with the same arguments.
    #[pyo3(signature = (key, *, ttl=None, tags=None, soft_timeout=None))]
    fn by(
        &self,
        key: Arg<'_>,
        ttl: OptArg<'_>,
        tags: OptArg<'_>,
        soft_timeout: OptArg<'_>,
    ) -> PyResult<Py<PyKeyedCached>> {
        self.0.get()?.by(key, options(ttl, tags, soft_timeout)?, value)
    }

    /// Keeps a value that is known without a load. Call it after the change is committed. A load under way is void.
    #[pyo3(signature = (key, value, *, ttl=None, tags=None))]
    fn set(&self, key: Arg<'_>, value: Arg<'_>, ttl: OptArg<'_>, tags: OptArg<'_>) -> PyResult<Pending> {
        self.0.get()?.set(key, value, options(ttl, tags, None)?)
    }

    /// What was loaded before is not returned to anybody who asks from now on. Whether there was anything.
    fn invalidate(&self, key: Arg<'_>) -> PyResult<Pending> {
        self.0.get()?.invalidate("cached.invalidate()", key, Invalidation::Hard)
    }

    /// The same; the old value is served as stale while it is loaded anew.
    fn invalidate_soft(&self, key: Arg<'_>) -> PyResult<Pending> {
        self.0.get()?.invalidate("cached.invalidate_soft()", key, Invalidation::Soft)
    }

    /// As `invalidate`; while the server is away it is tried again, until a value would have gone by itself. Whether the server knows.
    fn invalidate_eventually(&self, key: Arg<'_>) -> PyResult<Pending> {
        let (cached, key) = (self.0.get()?.plain()?, text("key", key)?);
        Ok(Pending::ask("cached.invalidate_eventually()", async move { cached.invalidate_eventually(&key).await }))
    }

    /// As `invalidate`, for several keys at once: of how many anything was known.
    fn invalidate_many(&self, keys: Arg<'_>) -> PyResult<Pending> {
        let (cached, keys) = (self.0.get()?.plain()?, texts("keys", keys)?);
        Ok(Pending::ask("cached.invalidate_many()", async move { cached.invalidate_many(keys).await }))
    }

    /// Everything that was kept with this tag is out of date, and so is every load under way that is to be kept with it.
    fn invalidate_tag(&self, tag: Arg<'_>) -> PyResult<Pending> {
        let (cached, tag) = (self.0.get()?.plain()?, text("tag", tag)?);
        Ok(Pending::done("cached.invalidate_tag()", async move { cached.invalidate_tag(&tag).await }))
    }

    /// Everything under this name is out of date, and so is every load under way.
    fn clear(&self) -> PyResult<Pending> {
        let cached = self.0.get()?.plain()?;
        Ok(Pending::done("cached.clear()", async move { cached.clear().await }))
    }

    /// Invalidates every key that `keys` gives, an iterable or an async iterable, until it ends: how many. The next key is asked for when
    /// the server knows the last, so an event can be acknowledged behind the `yield` of its key.
    fn invalidate_on(&self, keys: Arg<'_>) -> PyResult<Pending> {
        self.0.get()?.invalidate_on(keys)
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
        self.0.get()?.at_least(at_least)?.ask("versioned.get()", key, Asking::default(), loader, versioned_value)
    }

    /// The same, with how old it is.
    #[pyo3(signature = (key, loader, *, at_least=None))]
    fn lookup(&self, key: Arg<'_>, loader: Arg<'_>, at_least: OptArg<'_>) -> PyResult<Pending> {
        self.0.get()?.at_least(at_least)?.ask("versioned.lookup()", key, Asking::default(), loader, with_details)
    }

    /// As a decorator: the function is the loader of `key`, which is text or a function of its arguments.
    fn by(&self, key: Arg<'_>) -> PyResult<Py<PyKeyedCached>> {
        self.0.get()?.by(key, CallOptions::default(), versioned_value)
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
