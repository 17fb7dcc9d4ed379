//! Loads that one caller of the fleet does: what caches with and without versions have in common.

use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::{PyTraverseError, PyVisit};
use resil::cache::Loaded;
use resil::{Error, Failure};

use crate::answer::Answer;
use crate::around::{Around, Runs};
use crate::codec::Codec;
use crate::convert::{flag, text};
use crate::drive::Running;
use crate::errors::{exception, raised_later, wrong_type};
use crate::event_loop::EventLoop;
use crate::key_of::KeyOf;
use crate::kind::Kind;
use crate::runtime::Generation;
use crate::task::{LoopTask, Prepared, Threaded};
use crate::work::{How, Work};

/// Where values are kept, and in which form.
pub trait Shelf: Clone + Send + Sync + 'static {
    type Kept: Send + 'static;

    fn get<L, Fut>(
        &self,
        key: &str,
        loader: L,
    ) -> impl Future<Output = Result<Loaded<Self::Kept>, Failure<Arc<Trouble>>>> + Send
    where
        L: FnOnce(String) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Option<Self::Kept>, Trouble>> + Send + 'static;

    /// What a loader brought, which is not None.
    fn write(codec: &Codec, brought: &Bound<'_, PyAny>) -> PyResult<Self::Kept>;

    /// The value, and its version if there are versions.
    fn read(codec: &Codec, py: Python<'_>, kept: &Self::Kept) -> PyResult<(Py<PyAny>, Option<u64>)>;

    fn invalidate(&self, key: &str) -> impl Future<Output = Result<bool, Error>> + Send;

    fn invalidate_soft(&self, key: &str) -> impl Future<Output = Result<bool, Error>> + Send;
}

/// A loader's exception, with its words for the other processes.
pub struct Trouble {
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
}

fn written<S: Shelf>(codec: &Codec, py: Python<'_>, result: PyResult<Py<PyAny>>) -> Result<Option<S::Kept>, Trouble> {
    let brought = result.map_err(|error| Trouble::new(py, error))?;
    if brought.is_none(py) {
        return Ok(None);
    }
    S::write(codec, brought.bind(py)).map(Some).map_err(|error| Trouble::new(py, error))
}

/// A load, begun where no thread of the runtime waits for the GIL.
struct Loading {
    /// Of a coroutine function.
    home: Option<Arc<EventLoop>>,
    prepared: Arc<Prepared>,
    codec: Codec,
}

/// What came of a load on a loop.
enum Came<K> {
    Over(Result<Option<K>, Trouble>),
    /// Perhaps by its loop, which is about to end.
    Cancelled(Trouble),
}

impl Loading {
    async fn load<S: Shelf>(self) -> Result<Option<S::Kept>, Trouble> {
        let Self { home, prepared, codec } = self;
        let lost = |error| Trouble { words: "the loader was lost".to_owned(), error };
        let theirs = codec.clone();
        let look = Box::new(move |py: Python<'_>, result| written::<S>(&theirs, py, result));
        let Some(home) = home else {
            return Threaded::start(prepared, look).map_err(lost)?.await.unwrap_or_else(|error| Err(lost(error)));
        };
        let look_there = move |py: Python<'_>, result: PyResult<Py<PyAny>>| match result {
            Err(error) if is_cancelled(py, &error) => Came::Cancelled(Trouble::new(py, error)),
            result => Came::Over(written::<S>(&codec, py, result)),
        };
        match LoopTask::start(&home, Arc::clone(&prepared), Box::new(look_there)).await {
            Ok(Came::Over(brought)) => return brought,
            Ok(Came::Cancelled(trouble)) if !home.ends_soon().await => return Err(trouble),
            Ok(Came::Cancelled(_)) | Err(_) => {}
        }
        // The loop ended before the load did, as with an `asyncio.run` for each request. Others may wait for it, and somebody has to
        // load what is stale: it is loaded in a thread, on a loop of its own.
        Threaded::start_loop(prepared, look).map_err(lost)?.await.unwrap_or_else(|error| Err(lost(error)))
    }
}

fn is_cancelled(py: Python<'_>, error: &PyErr) -> bool {
    static CANCELLED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = CANCELLED.import(py, "asyncio", "CancelledError");
    class.is_ok_and(|class| error.matches(py, class).unwrap_or(false))
}

/// What was found, if anything.
#[pyclass(module = "resil", name = "Loaded", frozen, generic)]
pub struct PyLoaded {
    value: Option<Py<PyAny>>,
    version: Option<u64>,
    is_stale: bool,
    age: Option<f64>,
}

#[pymethods]
impl PyLoaded {
    /// None if there is no such thing.
    #[getter]
    fn value(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.value.as_ref().map(|value| value.clone_ref(py))
    }

    #[getter]
    fn is_found(&self) -> bool {
        self.value.is_some()
    }

    /// Its version, if these values have versions.
    #[getter]
    fn version(&self) -> Option<u64> {
        self.version
    }

    /// Past its ttl; somebody loads it anew.
    #[getter]
    fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// How long ago it was loaded, in seconds, if that is known.
    #[getter]
    fn age(&self) -> Option<f64> {
        self.age
    }

    fn __repr__(&self) -> String {
        format!("<resil.Loaded found={} stale={}>", self.value.is_some(), self.is_stale)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.value)
    }
}

/// What is given for what was found.
pub type Give = fn(Python<'_>, PyLoaded) -> PyResult<Py<PyAny>>;

/// The value alone.
pub fn value(py: Python<'_>, loaded: PyLoaded) -> PyResult<Py<PyAny>> {
    Ok(loaded.value.unwrap_or_else(|| py.None()))
}

/// Version and value, as the loader brought them.
pub fn with_version(py: Python<'_>, loaded: PyLoaded) -> PyResult<Py<PyAny>> {
    match loaded.value {
        None => Ok(py.None()),
        Some(value) => Ok((loaded.version, value).into_pyobject(py)?.into_any().unbind()),
    }
}

/// Everything.
pub fn whole(py: Python<'_>, loaded: PyLoaded) -> PyResult<Py<PyAny>> {
    Ok(Py::new(py, loaded)?.into_any())
}

/// A cache, and how its values are written.
#[derive(Clone)]
pub struct Store<S> {
    pub shelf: S,
    pub codec: Codec,
    pub generation: Generation,
}

impl<S: Shelf> Store<S> {
    /// The same cache on another shelf.
    pub fn on(&self, shelf: S) -> Self {
        Self { shelf, ..self.clone() }
    }

    async fn fetch(self, key: String, kind: Kind, prepared: Arc<Prepared>, give: Give) -> PyResult<Py<PyAny>> {
        let home = match kind {
            Kind::Plain => None,
            Kind::Coroutine => Some(Python::attach(|py| EventLoop::current(py).map(|(_, home)| home))?),
        };
        let (codec, loading) = (self.codec.clone(), Loading { home, prepared, codec: self.codec.clone() });
        let loaded = self.shelf.get(&key, |_key| loading.load::<S>()).await;
        Python::attach(|py| match loaded {
            Ok(Loaded::NotFound) => give(py, PyLoaded { value: None, version: None, is_stale: false, age: None }),
            Ok(Loaded::Found { value, age, stale: is_stale }) => {
                let (value, version) = S::read(&codec, py, &value)?;
                let age = age.map(|age| age.as_secs_f64());
                give(py, PyLoaded { value: Some(value), version, is_stale, age })
            }
            Err(Failure::Inner(trouble)) => Err(trouble.error.clone_ref(py)),
            Err(Failure::Resil(error)) => Err(exception(py, &error)),
            Err(Failure::Exhausted { .. }) => Err(PyRuntimeError::new_err("a load is not retried")),
        })
    }

    /// What is known of `key`, or what `loader(key)` brings.
    pub fn ask(
        &self,
        what: &'static str,
        key: &Bound<'_, PyAny>,
        loader: &Bound<'_, PyAny>,
        give: Give,
    ) -> PyResult<Answer> {
        let py = key.py();
        self.generation.check()?;
        let text = text("key", key)?;
        if !loader.is_callable() {
            return Err(wrong_type("loader", "callable", loader));
        }
        let bound = py.import("functools")?.call_method1("partial", (loader, key))?;
        let (kind, prepared) = (Kind::of(loader)?, Prepared::new(py, bound.unbind())?);
        Ok(Answer::new(what, self.clone().fetch(text, kind, prepared, give)))
    }

    /// Around a function, which is the loader.
    pub fn by(&self, key: &Bound<'_, PyAny>, give: Give) -> PyResult<Py<PyKeyedCached>> {
        let keyed = Keyed { store: self.clone(), key: KeyOf::read("key", key)?, give };
        let around = Around::new("a cached call", keyed);
        Py::new(key.py(), PyClassInitializer::from(around).add_subclass(PyKeyedCached))
    }

    pub fn invalidated(&self, what: &'static str, key: &Bound<'_, PyAny>) -> PyResult<Answer> {
        self.generation.check()?;
        let (shelf, key) = (self.shelf.clone(), text("key", key)?);
        Ok(Answer::new(what, async move { flag(raised_later(shelf.invalidate(&key).await)?) }))
    }

    pub fn invalidated_softly(&self, what: &'static str, key: &Bound<'_, PyAny>) -> PyResult<Answer> {
        self.generation.check()?;
        let (shelf, key) = (self.shelf.clone(), text("key", key)?);
        Ok(Answer::new(what, async move { flag(raised_later(shelf.invalidate_soft(&key).await)?) }))
    }
}

/// A cache around a function, which is the loader.
struct Keyed<S> {
    store: Store<S>,
    key: KeyOf,
    give: Give,
}

impl<S: Shelf> Runs for Keyed<S> {
    fn check(&self, func: &Bound<'_, PyAny>) -> PyResult<()> {
        self.store.codec.check(func)
    }

    fn run(&self, py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        self.store.generation.check()?;
        let key = self.key.of(py, &work)?;
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
