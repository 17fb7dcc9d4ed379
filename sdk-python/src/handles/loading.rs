//! Loads that one caller of the fleet does: where the loader runs, and what caches with and without versions have in common.

use std::collections::HashMap;

use bytes::Bytes;
use resil::Client;
use resil::cache::{CacheEntry, CacheSettings, Cached, CallOptions, Loaded, Versioned, VersionedCached};

use crate::cache_entry::{LoadedValue, PyCacheEntry, refuse_none, texts};
use crate::items::Iterated;
use crate::prelude::*;

/// Where values are kept.
#[derive(Clone)]
pub enum Cache {
    Plain(Cached),
    /// With versions, of which those from this one on will do.
    Versioned(VersionedCached, u64),
}

impl Cache {
    pub fn plain(client: &Client, name: &str, settings: CacheSettings) -> Result<Self, Error> {
        client.cached(name, settings).map(Self::Plain)
    }

    pub fn versioned(client: &Client, name: &str, settings: CacheSettings) -> Result<Self, Error> {
        client.versioned_cached(name, settings).map(|cached| Self::Versioned(cached, 0))
    }

    /// What a loader brought, which is not None.
    fn written(&self, codec: &Codec, brought: Arg<'_>) -> PyResult<LoadedValue> {
        if let Self::Plain(_) = self {
            return match brought.cast::<PyCacheEntry>() {
                Ok(entry) => entry.get().written(brought.py(), codec),
                Err(_) => Ok(LoadedValue { version: 0, entry: CacheEntry::new(codec.write(brought)?) }),
            };
        }
        let (version, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
            brought.extract().map_err(|_| wrong_type("what loader returned", "(version, value) or None", brought))?;
        Ok(LoadedValue { version: whole("the version", &version)?, entry: CacheEntry::new(codec.write(&value)?) })
    }

    async fn get(&self, key: &str, how: Asking, loading: Loading) -> Result<Loaded<Versioned>, Failure<Arc<Trouble>>> {
        let cached = match self {
            Self::Versioned(cached, at_least) => {
                let load = |_| async { Ok(loading.load().await?.map(LoadedValue::versioned)) };
                return cached.get_at_least(key, *at_least, load).await;
            }
            Self::Plain(cached) => cached,
        };
        let load = |_| async { Ok(loading.load().await?.map(|brought| brought.entry)) };
        let loaded = match how {
            Asking::Get(options) => cached.get_with(key, options, load).await,
            Asking::Refresh(options) => cached.refresh_with(key, options, load).await,
        };
        loaded.map(unversioned)
    }
}

fn unversioned(loaded: Loaded) -> Loaded<Versioned> {
    match loaded {
        Loaded::NotFound => Loaded::NotFound,
        Loaded::Found { value, age, stale } => {
            Loaded::Found { value: Versioned { version: 0, bytes: value }, age, stale }
        }
    }
}

/// How a value is asked for.
#[derive(Clone)]
pub enum Asking {
    Get(CallOptions),
    /// Loaded anew, also if it is known.
    Refresh(CallOptions),
}

impl Default for Asking {
    fn default() -> Self {
        Self::Get(CallOptions::default())
    }
}

/// A loader's exception, with its words for the other processes.
struct Trouble {
    error: PyErr,
    words: String,
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.words)
    }
}

impl Trouble {
    fn new(py: Python<'_>, error: PyErr) -> Self {
        let words = error.value(py).str().map_or_else(|_| "an exception".to_owned(), |words| words.to_string());
        Self { error, words }
    }

    fn lost(error: PyErr) -> Self {
        Self { words: "the loader was lost".to_owned(), error }
    }
}

/// What a loader brought.
type Brought = Result<Option<LoadedValue>, Trouble>;

/// A load, begun where no thread of the runtime waits for the GIL.
#[derive(Clone)]
struct Loading {
    /// Of a coroutine function.
    home: Option<Arc<EventLoop>>,
    prepared: Arc<Prepared>,
    store: Store,
}

/// What came of a load on a loop.
enum Came {
    Over(Brought),
    /// Perhaps by its loop, which is about to end.
    Cancelled(Trouble),
}

impl Loading {
    async fn load(self) -> Brought {
        let Self { home, prepared, store } = self;
        let there = store.clone();
        let look = Box::new(move |py: Python<'_>, result| store.brought(py, result));
        let Some(home) = home else {
            return task::in_thread(prepared, Prepared::call, look).await.map_err(Trouble::lost)?;
        };
        let look_there = move |py: Python<'_>, result: PyResult<Object>| match result {
            Err(error) if is_cancelled(py, &error) => Came::Cancelled(Trouble::new(py, error)),
            result => Came::Over(there.brought(py, result)),
        };
        match LoopTask::start(&home, Arc::clone(&prepared), Box::new(look_there)).await {
            Ok(Came::Over(brought)) => return brought,
            Ok(Came::Cancelled(trouble)) if !home.ends_soon().await => return Err(trouble),
            Ok(Came::Cancelled(_)) | Err(_) => {}
        }
        // The loop ended before the load did, as with an `asyncio.run` for each request. Others may wait for it, and somebody has to
        // load what is stale: it is loaded in a thread, on a loop of its own.
        task::in_thread(prepared, Prepared::run, look).await.map_err(Trouble::lost)?
    }
}

fn is_cancelled(py: Python<'_>, error: &PyErr) -> bool {
    let class = imported!(py, "asyncio", "CancelledError");
    class.is_ok_and(|class| error.matches(py, class).unwrap_or(false))
}

/// What was found, if anything.
#[pyclass(module = "resil", name = "Loaded", frozen, generic, get_all)]
#[derive(Default)]
pub struct PyLoaded {
    /// None if there is no such thing.
    value: Option<Object>,
    is_found: bool,
    /// Its version, if these values have versions.
    version: Option<u64>,
    /// Past its ttl; somebody loads it anew.
    is_stale: bool,
    /// How long ago it was loaded, in seconds, if that is known.
    age: Option<f64>,
}

#[pymethods]
impl PyLoaded {
    fn __repr__(&self) -> String {
        format!("<resil.Loaded found={} stale={}>", python_bool(self.is_found), python_bool(self.is_stale))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.value)
    }
}

/// What is given for what was found.
pub type Give = fn(Python<'_>, PyLoaded) -> PyResult<Object>;

/// The value alone.
pub fn value(py: Python<'_>, loaded: PyLoaded) -> PyResult<Object> {
    Ok(loaded.value.unwrap_or_else(|| py.None()))
}

/// Version and value, as the loader brought them.
pub fn versioned_value(py: Python<'_>, loaded: PyLoaded) -> PyResult<Object> {
    loaded.value.map_or_else(|| Ok(py.None()), |value| (loaded.version, value).into_py_any(py))
}

/// Everything.
pub fn with_details(py: Python<'_>, loaded: PyLoaded) -> PyResult<Object> {
    loaded.into_py_any(py)
}

/// A cache, and how its values are written.
#[derive(Clone)]
pub struct Store {
    cache: Cache,
    codec: Codec,
}

impl Store {
    pub fn make(
        client: &Client,
        name: Arg<'_>,
        serializer: OptArg<'_>,
        settings: Option<Kwargs<'_>>,
        make: fn(&Client, &str, CacheSettings) -> Result<Cache, Error>,
    ) -> PyResult<Owned<Self>> {
        let (codec, name) = (Codec::read(name.py(), serializer)?, text("name", name)?);
        Ok(Owned::new(Self { cache: spelled(make(client, &name, read_beside(&["serializer"], settings)?))?, codec }))
    }

    pub fn at_least(mut self, given: OptArg<'_>) -> PyResult<Self> {
        if let (Cache::Versioned(_, at_least), Some(given)) = (&mut self.cache, given) {
            *at_least = whole("at_least", given)?;
        }
        Ok(self)
    }

    fn brought(&self, py: Python<'_>, result: PyResult<Object>) -> Brought {
        let written = result.and_then(|brought| match brought.is_none(py) {
            true => Ok(None),
            false => self.cache.written(&self.codec, brought.bind(py)).map(Some),
        });
        written.map_err(|error| Trouble::new(py, error))
    }

    async fn fetch(
        self,
        key: String,
        how: Asking,
        kind: Kind,
        prepared: Arc<Prepared>,
        give: Give,
    ) -> PyResult<Object> {
        let home = Python::attach(|py| EventLoop::of(py, kind))?;
        let loaded = self.cache.get(&key, how, Loading { home, prepared, store: self.clone() }).await;
        Python::attach(|py| self.found(py, loaded.map_err(|failure| raised_by(py, failure))?, give))
    }

    fn found(&self, py: Python<'_>, loaded: Loaded<Versioned>, give: Give) -> PyResult<Object> {
        let Loaded::Found { value: Versioned { version, bytes }, age, stale: is_stale } = loaded else {
            return give(py, PyLoaded::default());
        };
        let version = matches!(self.cache, Cache::Versioned(..)).then_some(version);
        let (value, age) = (Some(self.codec.read_back(py, &bytes)?), age.map(|age| age.as_secs_f64()));
        give(py, PyLoaded { value, is_found: true, version, is_stale, age })
    }

    /// What is known of `key`, or what `loader(key)` brings.
    pub fn ask(self, what: &'static str, key: Arg<'_>, how: Asking, loader: Arg<'_>, give: Give) -> PyResult<Pending> {
        let name = text("key", key)?;
        let (kind, prepared) = (loader_kind(loader)?, Prepared::with(loader, key)?);
        Ok(Pending::new(what, self.fetch(name, how, kind, prepared, give)))
    }

    /// The same for several keys: a list, in their order.
    pub fn ask_many(self, keys: Arg<'_>, options: CallOptions, loader: Arg<'_>) -> PyResult<Pending> {
        let (py, kind, all) = (loader.py(), loader_kind(loader)?, texts("keys", keys)?);
        // A key that is named twice is asked for once: its loader has one context to run in.
        let (mut places, mut keys, mut prepared) = (HashMap::new(), Vec::new(), Vec::new());
        for key in &all {
            if !places.contains_key(key) {
                places.insert(key.clone(), keys.len());
                keys.push(key.clone());
                prepared.push(Prepared::with(loader, key.into_pyobject(py)?.as_any())?);
            }
        }
        let cached = self.plain()?;
        Ok(Pending::new("cached.get_many()", async move {
            let home = Python::attach(|py| EventLoop::of(py, kind))?;
            let loading = |prepared| Loading { home: home.clone(), prepared, store: self.clone() };
            let loads: HashMap<_, _> = keys.iter().cloned().zip(prepared.into_iter().map(loading)).collect();
            let loads = Arc::new(loads);
            let load = move |key: String| {
                let loading = loads.get(&key).cloned();
                async move {
                    let Some(loading) = loading else { return Ok(None) };
                    Ok::<_, Trouble>(loading.load().await?.map(|brought| brought.entry))
                }
            };
            let found = cached.get_many_with(&keys, options, load).await;
            Python::attach(|py| {
                let found = found.map_err(|failure| raised_by(py, failure))?;
                let found = found.into_iter().map(|loaded| self.found(py, unversioned(loaded), value));
                let found = found.collect::<PyResult<Vec<Object>>>()?;
                let values = all.iter().filter_map(|key| found.get(*places.get(key)?).map(|value| value.clone_ref(py)));
                values.collect::<Vec<_>>().into_py_any(py)
            })
        }))
    }

    /// The cache itself, of a handle that has no versions.
    pub fn plain(&self) -> PyResult<Cached> {
        match &self.cache {
            Cache::Plain(cached) => Ok(cached.clone()),
            Cache::Versioned(..) => Err(PyTypeError::new_err("values with versions have no such method")),
        }
    }

    /// The bytes of a value that is an argument.
    fn given(&self, value: Arg<'_>) -> PyResult<Bytes> {
        let py = value.py();
        self.codec.write(value).map_err(|error| match self.codec.is_refusal(py, &error) {
            false => error,
            true => {
                let named = PyTypeError::new_err(format!("value cannot be written: {}", error.value(py)));
                named.set_cause(py, Some(error));
                named
            }
        })
    }

    pub fn set(self, key: Arg<'_>, value: Arg<'_>, options: CallOptions) -> PyResult<Pending> {
        refuse_none(value, "invalidate the key")?;
        let (key, bytes, cached) = (text("key", key)?, self.given(value)?, self.plain()?);
        Ok(Pending::done("cached.set()", async move { cached.set(&key, bytes, options).await }))
    }

    /// Around a function, which is the loader.
    pub fn by(self, key: Arg<'_>, options: CallOptions, give: Give) -> PyResult<Py<PyKeyedCached>> {
        let keyed = Arc::new(KeyedStore { store: self, key: OfCall::read("key", key, text)?, options, give });
        let around = Around::shared("a cached call", "of a cache".to_owned(), Arc::clone(&keyed));
        Py::new(key.py(), around.alone(PyKeyedCached(keyed)))
    }

    pub fn invalidate(self, what: &'static str, key: Arg<'_>, how: Invalidation) -> PyResult<Pending> {
        Ok(self.invalidate_named(what, text("key", key)?, how))
    }

    fn invalidate_named(self, what: &'static str, key: String, how: Invalidation) -> Pending {
        Pending::ask(what, async move {
            match (self.cache, how) {
                (Cache::Plain(cached), Invalidation::Hard) => cached.invalidate(&key).await,
                (Cache::Plain(cached), Invalidation::Soft) => cached.invalidate_soft(&key).await,
                (Cache::Versioned(cached, _), Invalidation::Hard) => cached.invalidate(&key).await,
                (Cache::Versioned(cached, _), Invalidation::Soft) => cached.invalidate_soft(&key).await,
            }
        })
    }

    /// Every key that `keys` gives, one after another. The next one is asked for when the server knows the last.
    pub fn invalidate_on(self, keys: Arg<'_>) -> PyResult<Pending> {
        let (keys, cached) = (Iterated::read("keys", keys)?, self.plain()?);
        Ok(Pending::new("cached.invalidate_on()", async move {
            let mut invalidated = 0_u64;
            while let Some(key) = keys.next().await? {
                let key = Python::attach(|py| text("a key of keys", key.bind(py)))?;
                invalidated += u64::from(raised_later(cached.invalidate_eventually(&key).await)?);
            }
            Python::attach(|py| invalidated.into_py_any(py))
        }))
    }
}

fn loader_kind(loader: Arg<'_>) -> PyResult<Kind> {
    if !loader.is_callable() {
        return Err(wrong_type("loader", "callable", loader));
    }
    Kind::of(loader)
}

fn raised_by(py: Python<'_>, failure: Failure<Arc<Trouble>>) -> PyErr {
    match failure {
        Failure::Inner(trouble) => trouble.error.clone_ref(py),
        Failure::Resil(error) => exception(py, &error),
        Failure::Exhausted { .. } => PyRuntimeError::new_err("a load is not retried"),
    }
}

/// Whether the old value is served as stale meanwhile.
pub enum Invalidation {
    Hard,
    Soft,
}

/// A cache around a function, which is the loader.
struct KeyedStore {
    store: Store,
    key: OfCall<String>,
    options: CallOptions,
    give: Give,
}

impl Runs for Arc<KeyedStore> {
    fn check(&self, func: Arg<'_>) -> PyResult<()> {
        self.store.codec.check(func)
    }

    fn run(&self, py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let key = self.key.of(py, "key", &work, text)?;
        let kind = if matches!(work.how(), How::Inside(_)) { Kind::Coroutine } else { Kind::Plain };
        let prepared = Prepared::new(py, work.bound(py, None)?)?;
        let how = Asking::Get(self.options.clone());
        Ok(Box::pin(self.store.clone().fetch(key, how, kind, prepared, self.give)))
    }

    fn decorated(&self, around: Arg<'_>, function: Arg<'_>) -> PyResult<()> {
        let name = intern!(function.py(), "invalidate");
        function.setattr(name, around.getattr(name)?)
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.key.traverse(visit)
    }
}

/// A cache for one key; `cached.by(key)` makes it.
#[pyclass(module = "resil", name = "KeyedCached", extends = Around, frozen)]
pub struct PyKeyedCached(Arc<KeyedStore>);

#[pymethods]
impl PyKeyedCached {
    /// The value of the key of these arguments is out of date; see `cached.invalidate`. A decorated function has it, too.
    #[pyo3(signature = (*args, **kwargs))]
    fn invalidate(slf: &Bound<'_, Self>, args: Args<'_>, kwargs: Option<Kwargs<'_>>) -> PyResult<Pending> {
        let py = slf.py();
        slf.as_super().get().check_process()?;
        let keyed = &slf.get().0;
        let work = Work::new(py.None().bind(py), args, kwargs, How::Here);
        let key = keyed.key.of(py, "key", &work, text)?;
        Ok(keyed.store.clone().invalidate_named("cached.invalidate()", key, Invalidation::Hard))
    }
}
