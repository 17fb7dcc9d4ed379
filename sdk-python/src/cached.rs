//! Values that are loaded once: one caller of the fleet loads, everybody else gets what it loaded.

use std::sync::Arc;

use bytes::Bytes;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use resil::Failure;
use resil::cache::{Cached, Loaded};

use crate::answer::{Answer, Running};
use crate::around::{Around, Runs};
use crate::codec::Codec;
use crate::convert::text;
use crate::errors::{exception, raised_later, wrong_type};
use crate::event_loop::EventLoop;
use crate::kind::Kind;
use crate::runtime::Generation;
use crate::settings::{read, spelled};
use crate::task::{LoopTask, Prepared, Threaded};
use crate::work::{How, Work};

/// What was found, if anything.
#[pyclass(module = "resil", name = "Loaded", frozen, generic)]
pub struct PyLoaded {
    value: Option<Py<PyAny>>,
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
}

type Brought = Result<Option<Bytes>, Trouble>;

fn written(codec: Codec, py: Python<'_>, result: PyResult<Py<PyAny>>) -> Brought {
    let value = result.map_err(|error| Trouble::new(py, error))?;
    if value.is_none(py) {
        return Ok(None);
    }
    codec.write(value.bind(py)).map(Some).map_err(|error| Trouble::new(py, error))
}

/// Runs where no thread of the runtime waits for the GIL.
async fn load(home: Option<Arc<EventLoop>>, prepared: Prepared, codec: Codec) -> Brought {
    let look = Box::new(move |py: Python<'_>, result| written(codec, py, result));
    let brought = match home {
        Some(home) => LoopTask::start(&home, prepared, look).await,
        None => match Threaded::start(prepared, look) {
            Ok(threaded) => threaded.await,
            Err(error) => Err(error),
        },
    };
    brought.unwrap_or_else(|error| Err(Trouble { words: "the loader was lost".to_owned(), error }))
}

/// A cache and how its values are written.
#[derive(Clone)]
struct Store {
    cached: Cached,
    codec: Codec,
    generation: Generation,
}

impl Store {
    async fn fetch(self, key: String, kind: Kind, prepared: Prepared) -> PyResult<Loaded<Py<PyAny>>> {
        let home = match kind {
            Kind::Plain => None,
            Kind::Coroutine => Some(Python::attach(|py| EventLoop::current(py).map(|(_, home)| home))?),
        };
        let codec = self.codec;
        let loaded = self.cached.get(&key, move |_key| load(home, prepared, codec)).await;
        Python::attach(|py| match loaded {
            Ok(Loaded::NotFound) => Ok(Loaded::NotFound),
            Ok(Loaded::Found { value, age, stale }) => {
                Ok(Loaded::Found { value: codec.read_back(py, &value)?, age, stale })
            }
            Err(Failure::Inner(trouble)) => Err(trouble.error.clone_ref(py)),
            Err(Failure::Resil(error)) => Err(exception(py, &error)),
            Err(Failure::Exhausted { .. }) => Err(PyRuntimeError::new_err("a load is not retried")),
        })
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
pub struct PyCached(Store);

pub fn make(
    client: &resil::Client,
    generation: Generation,
    name: &str,
    codec: Option<&Bound<'_, PyAny>>,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<PyCached> {
    let codec = Codec::read(codec)?;
    let settings: resil::settings::CacheSettings = read(settings)?;
    Ok(PyCached(Store { cached: spelled(settings.cached(client, name))?, codec, generation }))
}

impl PyCached {
    fn asked(&self, key: &Bound<'_, PyAny>, loader: &Bound<'_, PyAny>) -> PyResult<(Store, String, Kind, Prepared)> {
        let py = key.py();
        self.0.generation.check()?;
        let text = text("key", key)?;
        if !loader.is_callable() {
            return Err(wrong_type("loader", "callable", loader));
        }
        let bound = py.import("functools")?.call_method1("partial", (loader, key))?;
        Ok((self.0.clone(), text, Kind::of(loader)?, Prepared::new(py, bound.unbind())?))
    }

    fn invalidated(&self, what: &'static str, key: &Bound<'_, PyAny>, is_soft: bool) -> PyResult<Answer> {
        self.0.generation.check()?;
        let (cached, key) = (self.0.cached.clone(), text("key", key)?);
        Ok(Answer::new(what, async move {
            let done = if is_soft { cached.invalidate_soft(&key).await } else { cached.invalidate(&key).await };
            let done = raised_later(done)?;
            Python::attach(|py| Ok(done.into_pyobject(py)?.to_owned().into_any().unbind()))
        }))
    }
}

#[pymethods]
impl PyCached {
    /// The value of `key`: the known one, or what `loader(key)` brings; None if there is no such thing.
    ///
    /// A plain loader runs in a thread, a coroutine function as a task of the loop that awaits.
    fn get(&self, key: &Bound<'_, PyAny>, loader: &Bound<'_, PyAny>) -> PyResult<Answer> {
        let (store, key, kind, prepared) = self.asked(key, loader)?;
        Ok(Answer::new("cached.get()", async move {
            let loaded = store.fetch(key, kind, prepared).await?;
            Ok(loaded.into_value().unwrap_or_else(|| Python::attach(|py| py.None())))
        }))
    }

    /// The same, with how old it is.
    fn lookup(&self, key: &Bound<'_, PyAny>, loader: &Bound<'_, PyAny>) -> PyResult<Answer> {
        let (store, key, kind, prepared) = self.asked(key, loader)?;
        Ok(Answer::new("cached.lookup()", async move {
            let loaded = match store.fetch(key, kind, prepared).await? {
                Loaded::NotFound => PyLoaded { value: None, is_stale: false, age: None },
                Loaded::Found { value, age, stale } => {
                    PyLoaded { value: Some(value), is_stale: stale, age: age.map(|age| age.as_secs_f64()) }
                }
            };
            Python::attach(|py| Ok(Py::new(py, loaded)?.into_any()))
        }))
    }

    /// As a decorator: the function is the loader of `key`, which is text or a function of its arguments.
    fn by(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Py<PyKeyedCached>> {
        let keyed = KeyedStore { store: self.0.clone(), key: KeyOf::read("key", key)? };
        let around = Around::new("a cached call", keyed);
        Py::new(py, PyClassInitializer::from(around).add_subclass(PyKeyedCached))
    }

    /// What was loaded before is not returned to anybody who asks from now on. Whether there was anything.
    fn invalidate(&self, key: &Bound<'_, PyAny>) -> PyResult<Answer> {
        self.invalidated("cached.invalidate()", key, false)
    }

    /// The same; the old value is served as stale while it is loaded anew.
    fn invalidate_soft(&self, key: &Bound<'_, PyAny>) -> PyResult<Answer> {
        self.invalidated("cached.invalidate_soft()", key, true)
    }
}

/// A key as text, or as a function of a call's arguments.
pub enum KeyOf {
    Is(String),
    Function(Py<PyAny>),
}

impl KeyOf {
    pub fn read(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Self> {
        match text(name, given) {
            Ok(text) => Ok(Self::Is(text)),
            Err(_) if given.is_callable() => Ok(Self::Function(given.clone().unbind())),
            Err(_) => Err(wrong_type(name, "str, or a function of the arguments", given)),
        }
    }

    pub fn of(&self, py: Python<'_>, work: &Work) -> PyResult<String> {
        match self {
            Self::Is(text) => Ok(text.clone()),
            Self::Function(function) => {
                let (args, kwargs) = work.arguments(py);
                text("what key= returned", &function.bind(py).call(args, kwargs)?)
            }
        }
    }
}

struct KeyedStore {
    store: Store,
    key: KeyOf,
}

impl Runs for KeyedStore {
    fn run(&self, py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        self.store.generation.check()?;
        let key = self.key.of(py, &work)?;
        let kind = if matches!(work.how(), How::Inside(_)) { Kind::Coroutine } else { Kind::Plain };
        let prepared = Prepared::new(py, work.bound(py, None)?)?;
        let store = self.store.clone();
        Ok(Box::pin(async move {
            let loaded = store.fetch(key, kind, prepared).await?;
            Ok(loaded.into_value().unwrap_or_else(|| Python::attach(|py| py.None())))
        }))
    }
}

/// A cache for one key; `cached.by(key)` makes it.
#[pyclass(module = "resil", name = "KeyedCached", extends = Around, frozen)]
pub struct PyKeyedCached;
