//! One circuit breaker for the whole fleet.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use resil::breaker::{Breaker, Force, Permit};

use crate::answer::{Answer, Running, drive, refuse_to_block};
use crate::around::{Around, Runs};
use crate::convert::{flag, optional_seconds, text};
use crate::entered::{Entered, Who};
use crate::errors::{raised_later, wrong_value};
use crate::judge::Judge;
use crate::runtime::Generation;
use crate::settings::{read, shown, spelled};
use crate::work::Work;

struct Circuit {
    breaker: Breaker,
    generation: Generation,
    judge: Arc<Judge>,
}

impl Runs for Circuit {
    fn run(&self, _py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        self.generation.check()?;
        let (breaker, judge) = (self.breaker.clone(), Arc::clone(&self.judge));
        Ok(Arc::clone(&work).running(async move {
            let classify = |error: &PyErr| judge.classify(&work, error);
            breaker.around(classify, || work.attempt()).await
        }))
    }
}

/// A breaker under a name; `client.breaker(...)` makes it.
///
/// A decorator, a block, a call, or two steps by hand (`admit`). Every exception is a failure but those to `ignore`.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> bank = client.breaker("bank", consecutive_failures=1, ignore=KeyError)
/// >>> @bank
/// ... def pay():
/// ...     raise ConnectionError("down")
/// >>> for _ in range(2):
/// ...     try:
/// ...         pay()
/// ...     except (ConnectionError, resil.CircuitOpenError) as error:
/// ...         print(error)
/// down
/// the circuit bank is open
#[pyclass(module = "resil", name = "Breaker", extends = Around, frozen)]
pub struct PyBreaker {
    pub breaker: Breaker,
    generation: Generation,
    judge: Arc<Judge>,
    entered: Arc<Entered<Permit>>,
}

pub fn make(
    py: Python<'_>,
    client: &resil::Client,
    generation: Generation,
    name: &str,
    ignore: Option<&Bound<'_, PyAny>>,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyBreaker>> {
    let judge = Judge::read(None, ignore)?;
    let settings: resil::settings::BreakerSettings = read(settings)?;
    let breaker = spelled(client.breaker(name, spelled(settings.options(None))?))?;
    let around = Around::new(
        "a call through a breaker",
        Circuit { breaker: breaker.clone(), generation, judge: Arc::clone(&judge) },
    );
    let entered = Arc::default();
    Py::new(py, PyClassInitializer::from(around).add_subclass(PyBreaker { breaker, generation, judge, entered }))
}

/// What came of a block or a call.
#[derive(Debug, Clone, Copy)]
enum Report {
    Success,
    Failure,
    Ignore,
    Cancel,
}

async fn report(permit: Permit, report: Report) {
    match report {
        Report::Success => permit.success().await,
        Report::Failure => permit.failure().await,
        Report::Ignore => permit.ignore().await,
        Report::Cancel => permit.cancel().await,
    }
}

impl PyBreaker {
    fn enter(&self, py: Python<'_>) -> PyResult<Running> {
        self.generation.check()?;
        let (who, breaker, entered) = (Who::is_here(py)?, self.breaker.clone(), Arc::clone(&self.entered));
        Ok(Box::pin(async move {
            let permit = raised_later(breaker.admit().await)?;
            entered.push(who, permit);
            Python::attach(|py| Ok(py.None()))
        }))
    }

    fn leave(&self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<Running> {
        let permit = self.entered.pop(Who::is_here(py)?)?;
        let came_of_it = self.judged(py, error)?;
        Ok(Box::pin(async move {
            report(permit, came_of_it).await;
            Python::attach(|py| Ok(py.None()))
        }))
    }

    fn judged(&self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<Report> {
        if error.is_none() {
            return Ok(Report::Success);
        }
        if !error.is_instance_of::<PyException>() {
            return Ok(Report::Cancel);
        }
        let error = PyErr::from_value(error.clone());
        if let Some(ours) = crate::errors::ours(py, &error) {
            use resil::Code;
            let failed =
                matches!(ours.code(), Code::Timeout | Code::Panicked | Code::LoadFailed | Code::RetryExhausted);
            return Ok(if failed { Report::Failure } else { Report::Cancel });
        }
        let ignored = self.judge.ignore.as_ref().map_or(Ok(false), |ignore| ignore.matches(py, &error))?;
        Ok(if ignored { Report::Ignore } else { Report::Failure })
    }
}

#[pymethods]
impl PyBreaker {
    #[getter]
    fn name(&self) -> &str {
        self.breaker.name()
    }

    /// The two steps by hand: may a call be made? Raises CircuitOpenError if not. Report what came of it to the permit.
    fn admit(&self) -> PyResult<Answer> {
        self.generation.check()?;
        let breaker = self.breaker.clone();
        Ok(Answer::new("breaker.admit()", async move {
            let permit = raised_later(breaker.admit().await)?;
            Python::attach(|py| Ok(Py::new(py, PyPermit(Mutex::new(Some(permit))))?.into_any()))
        }))
    }

    /// Where the circuit stood when this process last heard of it; None before the first call.
    #[getter]
    fn last_known_state(&self) -> Option<&'static str> {
        self.breaker.last_known_state().map(|state| state.text())
    }

    /// Everything the server knows.
    fn state(&self) -> PyResult<Answer> {
        self.generation.check()?;
        let breaker = self.breaker.clone();
        Ok(Answer::new("breaker.state()", async move {
            let state = raised_later(breaker.state().await)?;
            Python::attach(|py| shown(py, &state))
        }))
    }

    /// Puts the breaker into a state by hand ("open", "closed", "disabled", "metrics", or "auto" again), for all who share
    /// it: for a time, or until it is lifted.
    #[pyo3(signature = (state, *, length=None, reason=None))]
    fn force(
        &self,
        state: &Bound<'_, PyAny>,
        length: Option<&Bound<'_, PyAny>>,
        reason: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Answer> {
        self.generation.check()?;
        let force = match text("state", state)?.as_str() {
            "open" => Force::Open,
            "closed" => Force::Closed,
            "disabled" => Force::Disabled,
            "metrics" => Force::Metrics,
            "auto" => Force::Auto,
            _ => return Err(wrong_value("state", "must be open, closed, disabled, metrics or auto")),
        };
        let length = optional_seconds("length", length)?;
        let reason = crate::convert::optional_text("reason", reason)?.unwrap_or_default();
        let breaker = self.breaker.clone();
        Ok(Answer::new("breaker.force()", async move {
            let state = raised_later(breaker.force(force, length, &reason).await)?;
            Python::attach(|py| Ok(state.text().into_pyobject(py)?.into_any().unbind()))
        }))
    }

    /// Closes the circuit, with nothing counted. Whether there was anything to reset.
    fn reset(&self) -> PyResult<Answer> {
        self.generation.check()?;
        let breaker = self.breaker.clone();
        Ok(Answer::new("breaker.reset()", async move { flag(raised_later(breaker.reset().await)?) }))
    }

    /// Changes the options that are named, for all who share the breaker. Whether anything changed.
    #[pyo3(signature = (**settings))]
    fn configure(&self, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Answer> {
        self.generation.check()?;
        let settings: resil::settings::BreakerSettings = read(settings)?;
        let (breaker, options) = (self.breaker.clone(), spelled(settings.options(None))?);
        Ok(Answer::new("breaker.configure()", async move { flag(raised_later(breaker.configure(&options).await)?) }))
    }

    /// Calls `listener(previous, new, generation)` for each transition this process sees. It must not block.
    fn on_transition(&self, listener: Bound<'_, PyAny>) -> PyResult<()> {
        if !listener.is_callable() {
            return Err(crate::errors::wrong_type("listener", "callable", &listener));
        }
        let listener = listener.unbind();
        self.breaker.on_transition(move |seen| {
            let (previous, new, generation) = (seen.previous.text(), seen.new.text(), seen.generation);
            let told = Python::attach(|py| listener.call1(py, (previous, new, generation)).map(drop));
            if let Err(error) = told {
                Python::attach(|py| error.write_unraisable(py, None));
            }
        });
        Ok(())
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        refuse_to_block(py, "use async with")?;
        drive(py, self.enter(py)?).map(drop)
    }

    #[pyo3(signature = (_type, value, _traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _type: Bound<'_, PyAny>,
        value: Bound<'_, PyAny>,
        _traceback: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        drive(py, self.leave(py, &value)?).map(drop)
    }

    fn __aenter__(&self, py: Python<'_>) -> PyResult<Answer> {
        Ok(Answer::on_stage("async with breaker", None, self.enter(py)?))
    }

    #[pyo3(signature = (_type, value, _traceback, /))]
    fn __aexit__(
        &self,
        py: Python<'_>,
        _type: Bound<'_, PyAny>,
        value: Bound<'_, PyAny>,
        _traceback: Bound<'_, PyAny>,
    ) -> PyResult<Answer> {
        Ok(Answer::on_stage("async with breaker", None, self.leave(py, &value)?))
    }

    fn __repr__(&self) -> String {
        format!("<resil.Breaker {:?}>", self.breaker.name())
    }
}

/// Leave to make one call. Forgotten without a word, the call was cancelled.
#[pyclass(module = "resil", name = "Permit", frozen)]
pub struct PyPermit(Mutex<Option<Permit>>);

impl PyPermit {
    fn report(&self, what: &'static str, came_of_it: Report) -> PyResult<Answer> {
        let permit = self.0.lock().take();
        let permit = permit.ok_or_else(|| PyRuntimeError::new_err("what came of this permit was reported before"))?;
        Ok(Answer::new(what, async move {
            report(permit, came_of_it).await;
            Python::attach(|py| Ok(py.None()))
        }))
    }
}

#[pymethods]
impl PyPermit {
    /// The call succeeded.
    fn success(&self) -> PyResult<Answer> {
        self.report("permit.success()", Report::Success)
    }

    /// The call failed.
    fn failure(&self) -> PyResult<Answer> {
        self.report("permit.failure()", Report::Failure)
    }

    /// The call says nothing about the health of what was called.
    fn ignore(&self) -> PyResult<Answer> {
        self.report("permit.ignore()", Report::Ignore)
    }

    /// The call was not made after all.
    fn cancel(&self) -> PyResult<Answer> {
        self.report("permit.cancel()", Report::Cancel)
    }
}
