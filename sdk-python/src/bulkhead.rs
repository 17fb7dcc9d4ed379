//! The bulkhead of this process: at most so many calls at once, and so many in line.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use resil::policy::{BulkheadPermit, BulkheadSettings, LocalBulkhead};

use crate::answer::Answer;
use crate::around::{Around, Runs};
use crate::block::{Block, Enters, Entrant};
use crate::convert::text;
use crate::drive::Running;
use crate::entered::{Entered, Who};
use crate::errors::raised_later;
use crate::settings::{read, shown, spelled};
use crate::testing::PyClock;
use crate::work::Work;

struct Inside(LocalBulkhead);

impl Runs for Inside {
    fn run(&self, _py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let bulkhead = self.0.clone();
        Ok(Arc::clone(&work).running(async move { bulkhead.around(|| work.attempt()).await }))
    }
}

/// At most so many calls at once in this process; one more waits in line, or gets BulkheadFullError.
///
/// >>> import resil
/// >>> reports = resil.Bulkhead("reports", max_concurrent_calls=1)
/// >>> with reports:
/// ...     reports.metrics["active"]
/// 1
#[pyclass(module = "resil", name = "Bulkhead", extends = Block, frozen)]
pub struct PyBulkhead(LocalBulkhead);

fn around(bulkhead: LocalBulkhead) -> PyClassInitializer<PyBulkhead> {
    let around = Around::new("a call in a bulkhead", Inside(bulkhead.clone()));
    let places = Places { bulkhead: bulkhead.clone(), entered: Arc::default() };
    Block::around("async with bulkhead", places, around).add_subclass(PyBulkhead(bulkhead))
}

struct Places {
    bulkhead: LocalBulkhead,
    entered: Arc<Entered<BulkheadPermit>>,
}

impl Enters for Places {
    fn enter(&self, py: Python<'_>, _entrant: Entrant) -> PyResult<Running> {
        let (who, bulkhead, entered) = (Who::is_here(py)?, self.bulkhead.clone(), Arc::clone(&self.entered));
        Ok(Box::pin(async move {
            entered.push(who, raised_later(bulkhead.acquire().await)?);
            Python::attach(|py| Ok(py.None()))
        }))
    }

    fn leave(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) -> PyResult<Option<Running>> {
        drop(self.entered.pop(Who::is_here(py)?)?);
        Ok(None)
    }
}

#[pymethods]
impl PyBulkhead {
    #[new]
    #[pyo3(signature = (name, *, clock=None, **settings))]
    fn new(
        name: &Bound<'_, PyAny>,
        clock: Option<&Bound<'_, PyAny>>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let settings: BulkheadSettings = read(settings)?;
        let clock = PyClock::read(clock)?.unwrap_or_default();
        Ok(around(spelled(LocalBulkhead::from_settings(&text("name", name)?, &settings, clock))?))
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// How it is used.
    #[getter]
    fn metrics(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        shown(py, &self.0.metrics())
    }

    /// The places and the line of a partition.
    fn partition(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<Py<Self>> {
        Py::new(py, around(spelled(self.0.partition(&text("name", name)?))?))
    }

    /// A place, to be released.
    fn acquire(&self) -> Answer {
        let bulkhead = self.0.clone();
        Answer::new("bulkhead.acquire()", async move {
            let place = raised_later(bulkhead.acquire().await)?;
            Python::attach(|py| Ok(Py::new(py, PyBulkheadPlace(Mutex::new(Some(place))))?.into_any()))
        })
    }

    fn __repr__(&self) -> String {
        format!("<resil.Bulkhead {:?}>", self.0.name())
    }
}

/// A place in a bulkhead. Forgotten, it is free again.
#[pyclass(module = "resil", name = "BulkheadPlace", frozen)]
pub struct PyBulkheadPlace(Mutex<Option<BulkheadPermit>>);

#[pymethods]
impl PyBulkheadPlace {
    /// Gives it back; once is enough.
    fn release(&self) {
        drop(self.0.lock().take());
    }
}
