//! Bulkheads that a whole fleet shares: at most so many are inside at once.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use resil::shared_bulkhead::{BulkheadGuard, Held, Info, SharedBulkhead};

use crate::answer::Answer;
use crate::around::{Around, Runs};
use crate::block::Block;
use crate::convert::optional_seconds;
use crate::drive::Running;
use crate::held::PyHeld;
use crate::leased::{Leased, Leases, let_go};
use crate::runtime::Generation;
use crate::settings::{read, spelled};
use crate::slot::Slot;
use crate::work::{Work, flat};

impl Leased for SharedBulkhead {
    type Guard = BulkheadGuard;

    async fn ask(self) -> Result<BulkheadGuard, resil::Error> {
        self.enter().await
    }

    async fn let_go(guard: BulkheadGuard) -> Result<Option<Duration>, resil::Error> {
        guard.leave().await.map(Some)
    }

    async fn info(self) -> Result<Info, resil::Error> {
        SharedBulkhead::info(&self).await
    }

    fn held(guard: &BulkheadGuard) -> Held {
        guard.held()
    }

    fn shown(py: Python<'_>, slot: &Arc<Slot<BulkheadGuard>>, held: Held) -> PyResult<Py<PyAny>> {
        let guard = PyBulkheadGuard(Arc::clone(slot));
        Ok(Py::new(py, PyHeld::new(slot, held).add_subclass(guard))?.into_any())
    }
}

struct Inside(Arc<Leases<SharedBulkhead>>);

impl Runs for Inside {
    fn run(&self, _py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        self.0.generation.check()?;
        let bulkhead = self.0.leased.clone();
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
#[pyclass(module = "resil", name = "SharedBulkhead", extends = Block, frozen)]
pub struct PySharedBulkhead(Arc<Leases<SharedBulkhead>>);

pub fn make(
    py: Python<'_>,
    client: &resil::Client,
    generation: Generation,
    name: &str,
    max: &Bound<'_, PyAny>,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PySharedBulkhead>> {
    let said = settings.map_or_else(|| Ok(PyDict::new(py)), |settings| settings.copy())?;
    said.set_item("max_concurrent_calls", max)?;
    let settings: resil::settings::SharedBulkheadSettings = read(Some(&said))?;
    let bulkhead = spelled(client.shared_bulkhead(name, settings))?;
    let leases = Leases::new(bulkhead, generation, false);
    let around = Around::new("a call in a bulkhead", Inside(Arc::clone(&leases)));
    let block = Block::around("async with bulkhead", Arc::clone(&leases), around);
    Py::new(py, block.add_subclass(PySharedBulkhead(leases)))
}

#[pymethods]
impl PySharedBulkhead {
    #[getter]
    fn name(&self) -> &str {
        self.0.leased.name()
    }

    /// Goes in, or waits for that as long as the bulkhead's `wait` says or `wait` here; else BulkheadFullError.
    #[pyo3(signature = (wait=None))]
    fn enter(&self, wait: Option<&Bound<'_, PyAny>>) -> PyResult<Answer> {
        let wait = optional_seconds("wait", wait)?;
        self.0.ask("bulkhead.enter()", |bulkhead| async move {
            match wait {
                Some(wait) => bulkhead.enter_within(wait).await,
                None => bulkhead.enter().await,
            }
        })
    }

    /// Goes in if there is room now.
    fn try_enter(&self) -> PyResult<Answer> {
        self.0.ask("bulkhead.try_enter()", |bulkhead| async move { bulkhead.try_enter().await })
    }

    /// Who is inside and who waits.
    fn info(&self) -> PyResult<Answer> {
        self.0.info("bulkhead.info()")
    }

    fn __repr__(&self) -> String {
        format!("<resil.SharedBulkhead {:?}>", self.0.leased.name())
    }
}

/// A place inside. Forgotten, it is given back in the background.
#[pyclass(module = "resil", name = "BulkheadGuard", extends = PyHeld, frozen)]
pub struct PyBulkheadGuard(Arc<Slot<BulkheadGuard>>);

#[pymethods]
impl PyBulkheadGuard {
    /// Leaves. How long it was inside, in seconds.
    fn leave(&self) -> PyResult<Answer> {
        let_go::<SharedBulkhead>("guard.leave()", &self.0, "this place was left before")
    }

    fn __repr__(&self) -> &'static str {
        "<resil.BulkheadGuard>"
    }
}
