//! The same call again, later, while that makes sense.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};
use resil::policy::{Retry, RetrySettings};

use crate::around::{Around, Runs};
use crate::attempts::PyAttempts;
use crate::convert::{optional_text, whole};
use crate::drive::Running;
use crate::judge::Judge;
use crate::settings::{read, spelled};
use crate::testing::{Mode, PyClock};
use crate::work::Work;

struct Again {
    retry: Mode<Retry>,
    judge: Arc<Judge>,
}

impl Runs for Arc<Again> {
    fn run(&self, _py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let (retry, judge) = (self.retry.get(), Arc::clone(&self.judge));
        Ok(Arc::clone(&work).running(async move {
            let classify = |error: &PyErr| judge.classify(&work, error);
            retry.around(classify, || work.attempt()).await
        }))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.judge.traverse(visit)
    }
}

/// Retries what `on` names. Nothing is retried that was not named.
///
/// `on` is an exception class, a tuple of them, or a function of the exception: true, false, or the seconds to wait. When all
/// attempts have failed, RetryExhaustedError is raised from the last exception; with `reraise=True`, that one itself.
///
/// >>> import resil
/// >>> answers = iter([ConnectionError("down"), "up"])
/// >>> @resil.Retry(on=ConnectionError, max_attempts=3, initial_backoff=0.001)
/// ... def fetch():
/// ...     answer = next(answers)
/// ...     if isinstance(answer, Exception):
/// ...         raise answer
/// ...     return answer
/// >>> fetch()
/// 'up'
///
/// By hand, around a block (`async for` in a coroutine):
///
/// >>> failures = [ConnectionError("down"), ConnectionError("down")]
/// >>> for attempt in resil.Retry(on=ConnectionError, initial_backoff=0.001):
/// ...     with attempt:
/// ...         if failures:
/// ...             raise failures.pop()
/// >>> attempt.number
/// 3
#[pyclass(module = "resil", name = "Retry", extends = Around, frozen)]
pub struct PyRetry {
    settings: RetrySettings,
    again: Arc<Again>,
}

impl PyRetry {
    fn attempts(&self, py: Python<'_>) -> PyAttempts {
        PyAttempts::new(py, self.again.retry.get(), Arc::clone(&self.again.judge))
    }
}

#[pymethods]
impl PyRetry {
    #[new]
    #[pyo3(signature = (*, on, ignore=None, name=None, clock=None, seed=None, **settings))]
    fn new(
        on: &Bound<'_, PyAny>,
        ignore: Option<&Bound<'_, PyAny>>,
        name: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let judge = Judge::read(Some(on), ignore)?;
        let settings: RetrySettings = read(settings)?;
        let name = optional_text("name", name)?;
        let clock = PyClock::read(clock)?;
        let seed = seed.map(|seed| whole("seed", seed)).transpose()?;
        let build = move |settings: &RetrySettings| {
            let retry = name.iter().fold(Retry::new(settings)?, |retry, name| retry.named(name));
            let retry = clock.iter().cloned().fold(retry, Retry::with_clock);
            Ok(seed.into_iter().fold(retry, Retry::with_seed))
        };
        let (usual, kept) = (spelled(build(&settings))?, settings.clone());
        let retry = Mode::of(usual, move |attempts| build(&kept.at_once(attempts)).ok());
        let again = Arc::new(Again { retry, judge });
        let around = Around::new("a call that is retried", Arc::clone(&again));
        Ok(PyClassInitializer::from(around).add_subclass(Self { settings, again }))
    }

    /// Attempts in all, the first included.
    #[getter]
    fn max_attempts(&self) -> u32 {
        self.settings.max_attempts
    }

    fn __iter__(&self, py: Python<'_>) -> PyAttempts {
        self.attempts(py)
    }

    fn __aiter__(&self, py: Python<'_>) -> PyAttempts {
        self.attempts(py)
    }

    fn __repr__(&self) -> String {
        format!("<resil.Retry max_attempts={}>", self.settings.max_attempts)
    }
}
