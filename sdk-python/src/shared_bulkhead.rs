//! Bulkheads that a whole fleet shares: at most so many are inside at once.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use resil::shared_bulkhead::{BulkheadGuard, Held, SharedBulkhead};

use crate::answer::{Answer, Running, drive, refuse_to_block};
use crate::around::{Around, Runs};
use crate::convert::optional_seconds;
use crate::entered::{Entered, Who};
use crate::errors::{exception, raised_later};
use crate::lost::{Lost, Watch, held};
use crate::runtime::Generation;
use crate::settings::{read, shown, spelled};
use crate::work::{Work, flat};

struct Inside {
    bulkhead: SharedBulkhead,
    generation: Generation,
}

impl Runs for Inside {
    fn run(&self, _py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        self.generation.check()?;
        let bulkhead = self.bulkhead.clone();
        Ok(Arc::clone(&work).running(async move { bulkhead.run(|| work.attempt()).await.map_err(flat) }))
    }
}

/// A bulkhead of the fleet, and on which terms it is entered; `client.shared_bulkhead(...)` makes it.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> reports = client.shared_bulkhead("reports", 1)
/// >>> with reports:
/// ...     try:
/// ...         reports.call(print)
/// ...     except resil.BulkheadFullError as error:
/// ...         print(error)
/// the bulkhead reports is full
#[pyclass(module = "resil", name = "SharedBulkhead", extends = Around, frozen)]
pub struct PySharedBulkhead {
    bulkhead: SharedBulkhead,
    generation: Generation,
    entered: Arc<Entered<(Py<PyBulkheadGuard>, Option<Watch>)>>,
}

pub fn make(
    py: Python<'_>,
    client: &resil::Client,
    generation: Generation,
    name: &str,
    max: &Bound<'_, PyAny>,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PySharedBulkhead>> {
    let said = settings.map_or_else(|| Ok(PyDict::new(py)), |settings| settings.copy())?;
    said.set_item("max", max)?;
    let settings: resil::settings::SharedBulkheadSettings = read(Some(&said))?;
    let bulkhead = spelled(settings.shared_bulkhead(client, name))?;
    let around = Around::new("a call in a bulkhead", Inside { bulkhead: bulkhead.clone(), generation });
    let bulkhead = PySharedBulkhead { bulkhead, generation, entered: Arc::default() };
    Py::new(py, PyClassInitializer::from(around).add_subclass(bulkhead))
}

impl PySharedBulkhead {
    fn go_in(&self, py: Python<'_>, is_task: bool) -> PyResult<Running> {
        self.generation.check()?;
        let (who, bulkhead, entered) = (Who::is_here(py)?, self.bulkhead.clone(), Arc::clone(&self.entered));
        Ok(Box::pin(async move {
            let guard = raised_later(bulkhead.enter().await)?;
            Python::attach(|py| {
                let watch = is_task.then(|| Watch::begin(py, guard.lost())).transpose()?;
                let guard = PyBulkheadGuard::new(py, guard)?;
                entered.push(who, (guard.clone_ref(py), watch));
                Ok(guard.into_any())
            })
        }))
    }

    fn leave(&self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<Running> {
        let (guard, watch) = self.entered.pop(Who::is_here(py)?)?;
        let is_ours = watch.map_or(Ok(false), |watch| watch.end(py, error))?;
        let tells = is_ours || error.is_none();
        let guard = guard.get().guard.lock().take();
        Ok(Box::pin(async move {
            if let Some(guard) = guard {
                match guard.leave().await {
                    Err(lost @ resil::Error::LockLost { .. }) if tells => {
                        return Err(Python::attach(|py| exception(py, &lost)));
                    }
                    // An unanswered leave goes on in the background.
                    _ => {}
                }
            }
            Python::attach(|py| Ok(py.None()))
        }))
    }
}

#[pymethods]
impl PySharedBulkhead {
    #[getter]
    fn name(&self) -> &str {
        self.bulkhead.name()
    }

    /// Goes in, or waits for that as long as the bulkhead's `wait` says or `wait` here; else BulkheadFullError.
    #[pyo3(signature = (wait=None))]
    fn enter(&self, wait: Option<&Bound<'_, PyAny>>) -> PyResult<Answer> {
        self.generation.check()?;
        let (bulkhead, wait) = (self.bulkhead.clone(), optional_seconds("wait", wait)?);
        Ok(Answer::new("bulkhead.enter()", async move {
            let entered = match wait {
                Some(wait) => bulkhead.enter_within(wait).await,
                None => bulkhead.enter().await,
            };
            let guard = raised_later(entered)?;
            Python::attach(|py| Ok(PyBulkheadGuard::new(py, guard)?.into_any()))
        }))
    }

    /// Goes in if there is room now.
    fn try_enter(&self) -> PyResult<Answer> {
        self.generation.check()?;
        let bulkhead = self.bulkhead.clone();
        Ok(Answer::new("bulkhead.try_enter()", async move {
            let guard = raised_later(bulkhead.try_enter().await)?;
            Python::attach(|py| Ok(PyBulkheadGuard::new(py, guard)?.into_any()))
        }))
    }

    /// Who is inside and who waits.
    fn info(&self) -> PyResult<Answer> {
        self.generation.check()?;
        let bulkhead = self.bulkhead.clone();
        Ok(Answer::new("bulkhead.info()", async move {
            let info = raised_later(bulkhead.info().await)?;
            Python::attach(|py| shown(py, &info))
        }))
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        refuse_to_block(py, "use async with")?;
        drive(py, self.go_in(py, false)?)
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
        Ok(Answer::on_stage("async with bulkhead", None, self.go_in(py, true)?))
    }

    #[pyo3(signature = (_type, value, _traceback, /))]
    fn __aexit__(
        &self,
        py: Python<'_>,
        _type: Bound<'_, PyAny>,
        value: Bound<'_, PyAny>,
        _traceback: Bound<'_, PyAny>,
    ) -> PyResult<Answer> {
        Ok(Answer::on_stage("async with bulkhead", None, self.leave(py, &value)?))
    }

    fn __repr__(&self) -> String {
        format!("<resil.SharedBulkhead {:?}>", self.bulkhead.name())
    }
}

/// A place inside. Forgotten, it is given back in the background.
#[pyclass(module = "resil", name = "BulkheadGuard", frozen)]
pub struct PyBulkheadGuard {
    guard: Mutex<Option<BulkheadGuard>>,
    held: Held,
}

impl PyBulkheadGuard {
    fn new(py: Python<'_>, guard: BulkheadGuard) -> PyResult<Py<Self>> {
        let held = guard.held();
        Py::new(py, Self { guard: Mutex::new(Some(guard)), held })
    }
}

#[pymethods]
impl PyBulkheadGuard {
    /// Whether this process may believe that it is inside.
    #[getter]
    fn is_held(&self) -> bool {
        self.guard.lock().is_some() && self.held.is_held()
    }

    /// Seconds until it has to be heard of again.
    #[getter]
    fn remaining(&self) -> f64 {
        self.held.remaining().as_secs_f64()
    }

    /// Set when the place is lost.
    #[getter]
    fn lost(&self) -> Lost {
        Lost(self.held.lost())
    }

    /// Leaves. How long it was inside, in seconds.
    fn leave(&self) -> PyResult<Answer> {
        let guard = self.guard.lock().take();
        let guard = guard.ok_or_else(|| PyRuntimeError::new_err("this place was left before"))?;
        Ok(Answer::new("guard.leave()", async move { held(raised_later(guard.leave().await)?) }))
    }

    fn __repr__(&self) -> &'static str {
        "<resil.BulkheadGuard>"
    }
}
