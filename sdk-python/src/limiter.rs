//! Rate limits that a fleet shares.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};
use resil::limiter::{Limiter, Verdict};

use crate::answer::Answer;
use crate::around::{Around, Runs};
use crate::block::{Block, Enters, Entrant};
use crate::convert::{key, optional_seconds, whole};
use crate::drive::Running;
use crate::errors::{raised_later, wrong_type};
use crate::runtime::Generation;
use crate::verdict::{PyVerdict, PyVerdicts};
use crate::work::Work;

pub fn check_all(
    client: &resil::Client,
    limits: &Bound<'_, PyAny>,
    cost: Option<&Bound<'_, PyAny>>,
) -> PyResult<Answer> {
    let expected = "pairs of a resil.Limiter and a key";
    let mut asked = Vec::new();
    for pair in limits.try_iter().map_err(|_| wrong_type("limits", expected, limits))? {
        let pair = pair?;
        let (limiter, key): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
            pair.extract().map_err(|_| wrong_type("limits", expected, &pair))?;
        let limiter = limiter.cast::<PyLimiter>().map_err(|_| wrong_type("limits", expected, &limiter))?;
        asked.push((limiter.get().limiter.clone(), crate::convert::key("limits", &key)?));
    }
    let (client, cost) = (client.clone(), cells("cost", cost)?);
    Ok(Answer::new("client.check_all()", async move {
        let asked: Vec<(&Limiter, &[u8])> = asked.iter().map(|(limiter, key)| (limiter, &key[..])).collect();
        let verdicts = raised_later(client.check_all(&asked, cost).await)?;
        Python::attach(|py| Ok(Py::new(py, PyVerdicts(verdicts))?.into_any()))
    }))
}

/// A limit under a name; `client.limiter(...)` makes it.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> logins = client.limiter("logins", limit=2, period=60)
/// >>> verdict = logins.check("ann").wait()
/// >>> bool(verdict), verdict.remaining
/// (True, 1)
/// >>> with logins.by("ann"):
/// ...     pass
/// >>> bool(logins.check("ann").wait())
/// False
#[pyclass(module = "resil", name = "Limiter", frozen)]
pub struct PyLimiter {
    pub limiter: Limiter,
    pub generation: Generation,
}

impl PyLimiter {
    /// A question with its key, answered later.
    fn ask<F, T>(
        &self,
        what: &'static str,
        given: &Bound<'_, PyAny>,
        question: impl FnOnce(Limiter, Vec<u8>) -> F,
    ) -> PyResult<Answer>
    where
        F: Future<Output = Result<T, resil::Error>> + Send + 'static,
        T: Told,
    {
        self.generation.check()?;
        let asked = question(self.limiter.clone(), key("key", given)?);
        Ok(Answer::new(what, async move {
            let told = raised_later(asked.await)?;
            Python::attach(|py| told.told(py))
        }))
    }
}

/// What an answer is in Python.
trait Told {
    fn told(self, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

impl Told for Verdict {
    fn told(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, PyVerdict(self))?.into_any())
    }
}

impl Told for () {
    fn told(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(py.None())
    }
}

fn cells(name: &str, given: Option<&Bound<'_, PyAny>>) -> PyResult<u32> {
    given.map_or(Ok(1), |given| whole(name, given))
}

#[pymethods]
impl PyLimiter {
    #[getter]
    fn name(&self) -> &str {
        self.limiter.name()
    }

    /// Takes `cost` cells if they are there. A refusal is a verdict, not an error.
    #[pyo3(signature = (key, cost=None))]
    fn check(&self, key: &Bound<'_, PyAny>, cost: Option<&Bound<'_, PyAny>>) -> PyResult<Answer> {
        let cost = cells("cost", cost)?;
        self.ask("limiter.check()", key, |limiter, key| async move { limiter.check_n(key, cost).await })
    }

    /// Takes `cost` cells, or raises RateLimitExceededError.
    #[pyo3(signature = (key, cost=None))]
    fn acquire(&self, key: &Bound<'_, PyAny>, cost: Option<&Bound<'_, PyAny>>) -> PyResult<Answer> {
        let cost = cells("cost", cost)?;
        self.ask("limiter.acquire()", key, |limiter, key| async move { limiter.acquire_n(key, cost).await })
    }

    /// Takes as many cells as there are, up to `most`; `granted` says how many.
    fn up_to(&self, key: &Bound<'_, PyAny>, most: &Bound<'_, PyAny>) -> PyResult<Answer> {
        let most = whole("most", most)?;
        self.ask("limiter.up_to()", key, move |limiter, key| async move { limiter.up_to(key, most).await })
    }

    /// What is there, taking nothing.
    fn peek(&self, key: &Bound<'_, PyAny>) -> PyResult<Answer> {
        self.ask("limiter.peek()", key, |limiter, key| async move { limiter.peek(key).await })
    }

    /// Gives cells back, for work that was not done after all.
    #[pyo3(signature = (key, cells=None))]
    fn refund(&self, key: &Bound<'_, PyAny>, cells: Option<&Bound<'_, PyAny>>) -> PyResult<Answer> {
        let back = self::cells("cells", cells)?;
        self.ask("limiter.refund()", key, move |limiter, key| async move { limiter.refund(key, back).await })
    }

    /// Waits for one's turn, for at most `max_wait` seconds; else raises RateLimitExceededError at once.
    fn until_ready(&self, key: &Bound<'_, PyAny>, max_wait: &Bound<'_, PyAny>) -> PyResult<Answer> {
        let max_wait = crate::convert::seconds("max_wait", max_wait)?;
        self.ask(
            "limiter.until_ready()",
            key,
            move |limiter, key| async move { limiter.until_ready(key, max_wait).await },
        )
    }

    /// The limit for one key, to put around functions and blocks. For a decorator `key` may also be a function of the
    /// decorated function's arguments. With `max_wait` it waits for its turn.
    #[pyo3(signature = (key, *, cost=None, max_wait=None))]
    fn by(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        cost: Option<&Bound<'_, PyAny>>,
        max_wait: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyKeyed>> {
        let cost = cost.map(|cost| whole("cost", cost)).transpose()?;
        let max_wait = optional_seconds("max_wait", max_wait)?;
        if cost.is_some() && max_wait.is_some() {
            return Err(PyTypeError::new_err("cost does not go with max_wait: one cell is waited for"));
        }
        let key = match crate::convert::key("key", key) {
            Ok(bytes) => Key::Is(bytes.into()),
            Err(_) if key.is_callable() => Key::Of(key.clone().unbind()),
            Err(_) => return Err(wrong_type("key", "str, bytes, or a function of the arguments", key)),
        };
        let (limiter, generation) = (self.limiter.clone(), self.generation);
        let keyed = Arc::new(Keyed { limiter, generation, key, cost: cost.unwrap_or(1), max_wait });
        let around = Around::new("a call under a limit", Under(Arc::clone(&keyed)));
        Py::new(py, Block::around("async with limiter", Under(keyed), around).add_subclass(PyKeyed))
    }

    fn __repr__(&self) -> String {
        format!("<resil.Limiter {:?}>", self.limiter.name())
    }
}

enum Key {
    Is(Box<[u8]>),
    Of(Py<PyAny>),
}

struct Keyed {
    limiter: Limiter,
    generation: Generation,
    key: Key,
    cost: u32,
    max_wait: Option<std::time::Duration>,
}

impl Keyed {
    async fn acquire(&self, key: &[u8]) -> Result<(), resil::Error> {
        match self.max_wait {
            Some(max_wait) => self.limiter.until_ready(key, max_wait).await,
            None => self.limiter.acquire_n(key, self.cost).await,
        }
    }
}

struct Under(Arc<Keyed>);

impl Runs for Under {
    fn run(&self, py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        self.0.generation.check()?;
        let key = match &self.0.key {
            Key::Is(key) => key.clone(),
            Key::Of(function) => crate::convert::key("what key= returned", &work.asked(py, function)?)?.into(),
        };
        let keyed = Arc::clone(&self.0);
        Ok(Arc::clone(&work).running(async move {
            keyed.acquire(&key).await?;
            work.attempt().await
        }))
    }

    // Calls in flight have asked the function already.
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.0.key {
            Key::Is(_) => Ok(()),
            Key::Of(function) => visit.call(function),
        }
    }
}

impl Enters for Under {
    fn enter(&self, _py: Python<'_>, _entrant: Entrant) -> PyResult<Running> {
        self.0.generation.check()?;
        let Key::Is(key) = &self.0.key else {
            return Err(PyTypeError::new_err("key is a function of arguments, and a block has none"));
        };
        let (keyed, key) = (Arc::clone(&self.0), key.clone());
        Ok(Box::pin(async move {
            raised_later(keyed.acquire(&key).await)?;
            Python::attach(|py| Ok(py.None()))
        }))
    }

    fn leave(&self, _py: Python<'_>, _error: &Bound<'_, PyAny>) -> PyResult<Option<Running>> {
        Ok(None)
    }
}

/// A limit for one key; `limiter.by(key)` makes it.
#[pyclass(module = "resil", name = "KeyedLimiter", extends = Block, frozen)]
pub struct PyKeyed;

pub fn make(
    client: &resil::Client,
    generation: Generation,
    name: &str,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<PyLimiter> {
    let limit: resil::limiter::Limit = crate::settings::read(settings)?;
    Ok(PyLimiter { limiter: crate::settings::spelled(client.limiter(name, limit))?, generation })
}
