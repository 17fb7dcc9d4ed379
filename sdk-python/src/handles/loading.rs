//! Loads that one caller of the fleet does: where the loader runs, and what caches with and without versions have in common.

use resil::Client;
use resil::cache::{CacheSettings, Cached, Loaded, Versioned, VersionedCached};

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

    /// What a loader brought, which is not None. Without versions it has none to speak of.
    fn written(&self, codec: &Codec, brought: Arg<'_>) -> PyResult<Versioned> {
        let Self::Versioned(..) = self else { return Ok(Versioned { version: 0, bytes: codec.write(brought)? }) };
        let (version, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
            brought.extract().map_err(|_| wrong_type("what loader returned", "(version, value) or None", brought))?;
        Ok(Versioned { version: whole("the version", &version)?, bytes: codec.write(&value)? })
    }

    async fn get(&self, key: &str, loading: Loading) -> Result<Loaded<Versioned>, Failure<Arc<Trouble>>> {
        let cached = match self {
            Self::Versioned(cached, at_least) => return cached.get_at_least(key, *at_least, |_| loading.load()).await,
            Self::Plain(cached) => cached,
        };
        let load = |_| async { Ok(loading.load().await?.map(|brought| brought.bytes)) };
        Ok(match cached.get(key, load).await? {
            Loaded::NotFound => Loaded::NotFound,
            Loaded::Found { value, age, stale } => {
                Loaded::Found { value: Versioned { version: 0, bytes: value }, age, stale }
            }
        })
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
type Brought = Result<Option<Versioned>, Trouble>;

/// A load, begun where no thread of the runtime waits for the GIL.
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

    async fn fetch(self, key: String, kind: Kind, prepared: Arc<Prepared>, give: Give) -> PyResult<Object> {
        let home = Python::attach(|py| EventLoop::of(py, kind))?;
        let loaded = self.cache.get(&key, Loading { home, prepared, store: self.clone() }).await;
        Python::attach(|py| match loaded {
            Ok(Loaded::NotFound) => give(py, PyLoaded::default()),
            Ok(Loaded::Found { value: Versioned { version, bytes }, age, stale: is_stale }) => {
                let version = matches!(self.cache, Cache::Versioned(..)).then_some(version);
                let (value, age) = (Some(self.codec.read_back(py, &bytes)?), age.map(|age| age.as_secs_f64()));
                give(py, PyLoaded { value, is_found: true, version, is_stale, age })
            }
            Err(Failure::Inner(trouble)) => Err(trouble.error.clone_ref(py)),
            Err(Failure::Resil(error)) => Err(exception(py, &error)),
            Err(Failure::Exhausted { .. }) => Err(PyRuntimeError::new_err("a load is not retried")),
        })
    }

    /// What is known of `key`, or what `loader(key)` brings.
    pub fn ask(self, what: &'static str, key: Arg<'_>, loader: Arg<'_>, give: Give) -> PyResult<Pending> {
        let name = text("key", key)?;
        if !loader.is_callable() {
            return Err(wrong_type("loader", "callable", loader));
        }
        let (kind, prepared) = (Kind::of(loader)?, Prepared::with(loader, key)?);
        Ok(Pending::new(what, self.fetch(name, kind, prepared, give)))
    }

    /// Around a function, which is the loader.
    pub fn by(self, key: Arg<'_>, give: Give) -> PyResult<Py<PyKeyedCached>> {
        let keyed = KeyedStore { store: self, key: OfCall::read("key", key, text)?, give };
        Py::new(key.py(), Around::shared("a cached call", "of a cache".to_owned(), keyed).alone(PyKeyedCached))
    }

    pub fn invalidate(self, what: &'static str, key: Arg<'_>, how: Invalidation) -> PyResult<Pending> {
        let key = text("key", key)?;
        Ok(Pending::ask(what, async move {
            match (self.cache, how) {
                (Cache::Plain(cached), Invalidation::Hard) => cached.invalidate(&key).await,
                (Cache::Plain(cached), Invalidation::Soft) => cached.invalidate_soft(&key).await,
                (Cache::Versioned(cached, _), Invalidation::Hard) => cached.invalidate(&key).await,
                (Cache::Versioned(cached, _), Invalidation::Soft) => cached.invalidate_soft(&key).await,
            }
        }))
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
    give: Give,
}

impl Runs for KeyedStore {
    fn check(&self, func: Arg<'_>) -> PyResult<()> {
        self.store.codec.check(func)
    }

    fn run(&self, py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let key = self.key.of(py, "key", &work, text)?;
        let kind = if matches!(work.how(), How::Inside(_)) { Kind::Coroutine } else { Kind::Plain };
        let prepared = Prepared::new(py, work.bound(py, None)?)?;
        Ok(Box::pin(self.store.clone().fetch(key, kind, prepared, self.give)))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.key.traverse(visit)
    }
}

/// A cache for one key; `cached.by(key)` makes it.
#[pyclass(module = "resil", name = "KeyedCached", extends = Around, frozen)]
pub struct PyKeyedCached;
