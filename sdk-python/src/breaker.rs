//! One circuit breaker for the whole fleet.

use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};
use resil::Failure;
use resil::breaker::{Breaker, Force, Permit};
use resil::policy::Class;

use crate::answer::Answer;
use crate::around::{Around, Runs};
use crate::block::{Block, Enters, Entrant};
use crate::convert::{flag, optional_seconds, optional_text, text};
use crate::drive::Running;
use crate::entered::{Entered, Who};
use crate::errors::{raised_later, wrong_type, wrong_value};
use crate::judge::Judge;
use crate::listeners::Listener;
use crate::runtime::Generation;
use crate::settings::{read, shown, spelled};
use crate::slot::{IsGone, Slot};
use crate::trace::traced;
use crate::work::{Work, failure};

struct Circuit {
    breaker: Breaker,
    generation: Generation,
    judge: Arc<Judge>,
    entered: Arc<Entered<Permit>>,
}

impl Runs for Arc<Circuit> {
    fn run(&self, py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        self.generation.check()?;
        let (breaker, judge) = (self.breaker.clone(), Arc::clone(&self.judge));
        let running = Arc::clone(&work).running(async move {
            let classify = |error: &PyErr| judge.classify(&work, error);
            breaker.around(classify, || work.attempt()).await
        });
        Ok(traced(py, running))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.judge.traverse(visit)
    }
}

impl Enters for Arc<Circuit> {
    fn enter(&self, py: Python<'_>, _entrant: Entrant) -> PyResult<Running> {
        self.generation.check()?;
        let (who, breaker, entered) = (Who::is_here(py)?, self.breaker.clone(), Arc::clone(&self.entered));
        Ok(Box::pin(async move {
            entered.push(who, raised_later(breaker.admit().await)?);
            Python::attach(|py| Ok(py.None()))
        }))
    }

    fn leave(&self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<Option<Running>> {
        let permit = self.entered.pop(Who::is_here(py)?)?;
        if let Err(forked) = self.generation.check() {
            std::mem::forget(permit);
            return if error.is_none() { Err(forked) } else { Ok(None) };
        }
        let ended = if error.is_none() { Ok(()) } else { Err(failure(py, PyErr::from_value(error.clone())).0) };
        // Asked here, where there is somebody to tell if the function that judges fails.
        let class = match &ended {
            Err(Failure::Inner(error)) => self.judge.class(py, error)?,
            _ => Class::Permanent,
        };
        let leaving = Box::pin(async move {
            permit.finish(|_: &PyErr| class, &ended).await;
            Python::attach(|py| Ok(py.None()))
        });
        Ok(Some(traced(py, leaving)))
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
#[pyclass(module = "resil", name = "Breaker", extends = Block, frozen)]
pub struct PyBreaker(Arc<Circuit>);

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
    let breaker = spelled(client.breaker(name, settings))?;
    let circuit = Arc::new(Circuit { breaker, generation, judge, entered: Arc::default() });
    let around = Around::new("a call through a breaker", Arc::clone(&circuit));
    let block = Block::around("async with breaker", Arc::clone(&circuit), around);
    Py::new(py, block.add_subclass(PyBreaker(circuit)))
}

#[pymethods]
impl PyBreaker {
    #[getter]
    fn name(&self) -> &str {
        self.0.breaker.name()
    }

    /// The two steps by hand: may a call be made? Raises CircuitOpenError if not. Report what came of it to the permit.
    fn admit(&self) -> PyResult<Answer> {
        self.0.generation.check()?;
        let breaker = self.0.breaker.clone();
        Ok(Answer::new("breaker.admit()", async move {
            let permit = raised_later(breaker.admit().await)?;
            Python::attach(|py| Ok(Py::new(py, PyPermit(Slot::new(permit)))?.into_any()))
        }))
    }

    /// Where the circuit stood when this process last heard of it; None before the first call.
    #[getter]
    fn last_known_state(&self) -> Option<&'static str> {
        self.0.breaker.last_known_state().map(|state| state.text())
    }

    /// Everything the server knows.
    fn state(&self) -> PyResult<Answer> {
        self.0.generation.check()?;
        let breaker = self.0.breaker.clone();
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
        self.0.generation.check()?;
        let force = match text("state", state)?.as_str() {
            "open" => Force::Open,
            "closed" => Force::Closed,
            "disabled" => Force::Disabled,
            "metrics" => Force::Metrics,
            "auto" => Force::Auto,
            _ => return Err(wrong_value("state", "must be open, closed, disabled, metrics or auto")),
        };
        let length = optional_seconds("length", length)?;
        let reason = optional_text("reason", reason)?.unwrap_or_default();
        let breaker = self.0.breaker.clone();
        Ok(Answer::new("breaker.force()", async move {
            let state = raised_later(breaker.force(force, length, &reason).await)?;
            Python::attach(|py| Ok(state.text().into_pyobject(py)?.into_any().unbind()))
        }))
    }

    /// Closes the circuit, with nothing counted. Whether there was anything to reset.
    fn reset(&self) -> PyResult<Answer> {
        self.0.generation.check()?;
        let breaker = self.0.breaker.clone();
        Ok(Answer::new("breaker.reset()", async move { flag(raised_later(breaker.reset().await)?) }))
    }

    /// Changes the options that are named, for all who share the breaker. Whether anything changed.
    #[pyo3(signature = (**settings))]
    fn configure(&self, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Answer> {
        self.0.generation.check()?;
        let settings: resil::settings::BreakerSettings = read(settings)?;
        let breaker = self.0.breaker.clone();
        Ok(Answer::new("breaker.configure()", async move { flag(raised_later(breaker.configure(&settings).await)?) }))
    }

    /// Calls `listener(previous, new, generation)` for each transition this process sees, in a thread that all listeners share.
    /// It lives as long as the breaker.
    fn on_transition(&self, listener: Bound<'_, PyAny>) -> PyResult<()> {
        self.0.generation.check()?;
        if !listener.is_callable() {
            return Err(wrong_type("listener", "callable", &listener));
        }
        let listener = Listener::new(listener)?;
        self.0.breaker.on_transition(move |seen| listener.tell(seen));
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<resil.Breaker {:?}>", self.0.breaker.name())
    }
}

/// Leave to make one call. Forgotten without a word, the call was cancelled.
#[pyclass(module = "resil", name = "Permit", frozen)]
pub struct PyPermit(Arc<Slot<Permit>>);

impl PyPermit {
    fn report<F>(&self, py: Python<'_>, what: &'static str, report: impl FnOnce(Permit) -> F) -> PyResult<Answer>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.generation().check()?;
        let permit =
            self.0.take().ok_or_else(|| PyRuntimeError::new_err("what came of this permit was reported before"))?;
        let reporting = report(permit);
        let running = Box::pin(async move {
            reporting.await;
            Python::attach(|py| Ok(py.None()))
        });
        Ok(Answer::on_stage(what, None, traced(py, running)))
    }
}

#[pymethods]
impl PyPermit {
    /// The call succeeded.
    fn success(&self, py: Python<'_>) -> PyResult<Answer> {
        self.report(py, "permit.success()", Permit::success)
    }

    /// The call failed.
    fn failure(&self, py: Python<'_>) -> PyResult<Answer> {
        self.report(py, "permit.failure()", Permit::failure)
    }

    /// The call says nothing about the health of what was called.
    fn ignore(&self, py: Python<'_>) -> PyResult<Answer> {
        self.report(py, "permit.ignore()", Permit::ignore)
    }

    /// The call was not made after all.
    fn cancel(&self, py: Python<'_>) -> PyResult<Answer> {
        self.report(py, "permit.cancel()", Permit::cancel)
    }
}
