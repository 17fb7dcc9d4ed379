//! The bulkhead of this process: at most so many calls at once, and so many in line.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use resil::policy::{BulkheadPermit, BulkheadSettings, LocalBulkhead};

use crate::answer::{Answer, Running, drive, refuse_to_block};
use crate::around::{Around, Runs};
use crate::convert::text;
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
#[pyclass(module = "resil", name = "Bulkhead", extends = Around, frozen)]
pub struct PyBulkhead {
    bulkhead: LocalBulkhead,
    entered: Arc<Entered<BulkheadPermit>>,
}

fn around(bulkhead: LocalBulkhead) -> PyClassInitializer<PyBulkhead> {
    let around = Around::new("a call in a bulkhead", Inside(bulkhead.clone()));
    PyClassInitializer::from(around).add_subclass(PyBulkhead { bulkhead, entered: Arc::default() })
}

impl PyBulkhead {
    fn go_in(&self, py: Python<'_>) -> PyResult<Running> {
        let (who, bulkhead, entered) = (Who::is_here(py)?, self.bulkhead.clone(), Arc::clone(&self.entered));
        Ok(Box::pin(async move {
            entered.push(who, raised_later(bulkhead.acquire().await)?);
            Python::attach(|py| Ok(py.None()))
        }))
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
        self.bulkhead.name()
    }

    /// How it is used.
    #[getter]
    fn metrics(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        shown(py, &self.bulkhead.metrics())
    }

    /// The places and the line of a partition.
    fn partition(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<Py<Self>> {
        Py::new(py, around(spelled(self.bulkhead.partition(&text("name", name)?))?))
    }

    /// A place, to be released.
    fn acquire(&self) -> Answer {
        let bulkhead = self.bulkhead.clone();
        Answer::new("bulkhead.acquire()", async move {
            let place = raised_later(bulkhead.acquire().await)?;
            Python::attach(|py| Ok(Py::new(py, PyBulkheadPlace(Mutex::new(Some(place))))?.into_any()))
        })
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        refuse_to_block(py, "use async with")?;
        drive(py, self.go_in(py)?).map(drop)
    }

    #[pyo3(signature = (_type, _value, _traceback, /))]
    fn __exit__(&self, py: Python<'_>, _type: Py<PyAny>, _value: Py<PyAny>, _traceback: Py<PyAny>) -> PyResult<()> {
        self.entered.pop(Who::is_here(py)?).map(drop)
    }

    fn __aenter__(&self, py: Python<'_>) -> PyResult<Answer> {
        Ok(Answer::on_stage("async with bulkhead", None, self.go_in(py)?))
    }

    #[pyo3(signature = (_type, _value, _traceback, /))]
    fn __aexit__(
        &self,
        py: Python<'_>,
        _type: Py<PyAny>,
        _value: Py<PyAny>,
        _traceback: Py<PyAny>,
    ) -> PyResult<Answer> {
        drop(self.entered.pop(Who::is_here(py)?)?);
        Ok(Answer::new("async with bulkhead", async { Python::attach(|py| Ok(py.None())) }))
    }

    fn __repr__(&self) -> String {
        format!("<resil.Bulkhead {:?}>", self.bulkhead.name())
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
