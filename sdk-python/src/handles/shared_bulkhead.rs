//! Bulkheads that a whole fleet shares: at most so many are inside at once.

use std::time::Duration;

use resil::settings::SharedBulkheadSettings;
use resil::shared_bulkhead::{BulkheadGuard, Held, SharedBulkhead};

use crate::client::PyClient;
use crate::leased::{ask, let_go};
use crate::prelude::*;

impl Leased for SharedBulkhead {
    type Guard = BulkheadGuard;
    const IS_REENTRANT: bool = false;

    async fn ask(self) -> Result<BulkheadGuard, Error> {
        self.enter().await
    }

    async fn let_go(guard: BulkheadGuard) -> Result<Option<Duration>, Error> {
        guard.leave().await.map(Some)
    }

    fn held(guard: &BulkheadGuard) -> Held {
        guard.held()
    }

    fn shown(py: Python<'_>, cell: &Arc<GuardCell<BulkheadGuard>>, held: Held) -> PyResult<Object> {
        let guard = PyBulkheadGuard(Arc::clone(cell));
        Ok(Py::new(py, PyHeld::new(cell, held).add_subclass(guard))?.into_any())
    }
}

impl Runs for SharedBulkhead {
    fn run(&self, _py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let bulkhead = self.clone();
        Ok(work.running(|work| async move { SharedBulkhead::run(&bulkhead, || work.attempt()).await.map_err(flat) }))
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
pub struct PySharedBulkhead(Owned<SharedBulkhead>);

impl PySharedBulkhead {
    pub fn make(
        py: Python<'_>,
        client: &resil::Client,
        name: &str,
        settings: SharedBulkheadSettings,
    ) -> PyResult<Py<Self>> {
        let bulkhead = spelled(client.shared_bulkhead(name, settings))?;
        let around = Around::shared("a call in a bulkhead", format!("{name:?}"), bulkhead.clone());
        let block = Block::around("async with bulkhead", Some(client), Leases::new(bulkhead.clone(), false), around);
        Py::new(py, block.add_subclass(Self(Owned::new(bulkhead))))
    }
}

#[pymethods]
impl PySharedBulkhead {
    #[getter]
    fn name(&self) -> &str {
        self.0.peek().name()
    }

    /// Enters, or waits for that as long as the bulkhead's `wait` says or `wait` here; else BulkheadFullError.
    #[pyo3(signature = (wait=None))]
    fn enter(&self, wait: OptArg<'_>) -> PyResult<Pending> {
        let (bulkhead, wait) = (self.0.get()?, optional_seconds("wait", wait)?);
        Ok(ask::<SharedBulkhead>("bulkhead.enter()", async move {
            match wait {
                Some(wait) => bulkhead.enter_within(wait).await,
                None => bulkhead.enter().await,
            }
        }))
    }

    /// Enters if a permit is free now.
    fn try_enter(&self) -> PyResult<Pending> {
        let bulkhead = self.0.get()?;
        Ok(ask::<SharedBulkhead>("bulkhead.try_enter()", async move { bulkhead.try_enter().await }))
    }

    /// Its holders and its waiters.
    fn info(&self) -> PyResult<Pending> {
        let bulkhead = self.0.get()?;
        Ok(Pending::shown("bulkhead.info()", async move { bulkhead.info().await }))
    }
}

/// A permit of the bulkhead. Forgotten, it is given back in the background.
#[pyclass(module = "resil", name = "BulkheadGuard", extends = PyHeld, frozen)]
pub struct PyBulkheadGuard(Arc<GuardCell<BulkheadGuard>>);

#[pymethods]
impl PyBulkheadGuard {
    /// Leaves. How long it was inside, in seconds.
    fn leave(&self) -> PyResult<Pending> {
        let_go::<SharedBulkhead>("guard.leave()", &self.0, "this guard was left before")
    }

    fn __repr__(&self) -> &'static str {
        "<resil.BulkheadGuard>"
    }
}

#[pymethods]
impl PyClient {
    /// A bulkhead under a name, with at most `max_concurrent_calls` inside at once, of all who use the same server.
    #[pyo3(signature = (name, max_concurrent_calls, **settings))]
    fn shared_bulkhead(
        &self,
        py: Python<'_>,
        name: Arg<'_>,
        max_concurrent_calls: Arg<'_>,
        settings: Option<Kwargs<'_>>,
    ) -> PyResult<Py<PySharedBulkhead>> {
        let settings = settings.map_or_else(|| Ok(PyDict::new(py)), |settings| settings.copy())?;
        settings.set_item("max_concurrent_calls", max_concurrent_calls)?;
        PySharedBulkhead::make(py, &self.get()?, &text("name", name)?, read(Some(&settings))?)
    }
}
