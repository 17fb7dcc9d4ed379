//! The bulkhead of this process: at most so many calls at once, and so many in the queue.

use resil::policy::{BulkheadPermit, BulkheadSettings, LocalBulkhead};

use crate::prelude::*;

impl Runs for LocalBulkhead {
    fn run(&self, _py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let bulkhead = self.clone();
        Ok(work.running(|work| async move { bulkhead.around(|| work.attempt()).await }))
    }
}

struct Permits {
    bulkhead: LocalBulkhead,
    entered: Arc<Entered<BulkheadPermit>>,
}

impl Enters for Permits {
    fn enter(&self, py: Python<'_>, _entrant: Entrant) -> PyResult<Running> {
        let (who, bulkhead, entered) = (Who::is_here(py)?, self.bulkhead.clone(), Arc::clone(&self.entered));
        Ok(Box::pin(async move {
            entered.push(who, raised_later(bulkhead.acquire().await)?);
            none()
        }))
    }

    fn leave(&self, py: Python<'_>, _error: Arg<'_>) -> PyResult<Option<Running>> {
        drop(self.entered.pop_any(Who::is_here(py)?)?);
        Ok(None)
    }
}

/// At most so many calls at once in this process; one more waits in the queue, or gets BulkheadFullError.
///
/// >>> import resil
/// >>> reports = resil.Bulkhead("reports", max_concurrent_calls=1)
/// >>> with reports:
/// ...     reports.metrics["active"]
/// 1
#[pyclass(module = "resil", name = "Bulkhead", extends = Block, frozen)]
pub struct PyBulkhead(LocalBulkhead);

fn around(bulkhead: LocalBulkhead) -> PyClassInitializer<PyBulkhead> {
    let around = Around::local("a call in a bulkhead", format!("{:?}", bulkhead.name()), bulkhead.clone());
    let permits = Permits { bulkhead: bulkhead.clone(), entered: Arc::default() };
    Block::around("async with bulkhead", None, permits, around).add_subclass(PyBulkhead(bulkhead))
}

#[pymethods]
impl PyBulkhead {
    #[new]
    #[pyo3(signature = (name, *, clock=None, **settings))]
    fn new(name: Arg<'_>, clock: OptArg<'_>, settings: Option<Kwargs<'_>>) -> PyResult<PyClassInitializer<Self>> {
        let settings: BulkheadSettings = read_beside(&["clock"], settings)?;
        let clock = PyClock::read(clock)?.unwrap_or_default();
        Ok(around(spelled(LocalBulkhead::from_settings(&text("name", name)?, &settings, clock))?))
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// How it is used.
    #[getter]
    fn metrics(&self, py: Python<'_>) -> PyResult<Object> {
        shown(py, &self.0.metrics())
    }

    /// The permits and the queue of a partition.
    fn partition(&self, py: Python<'_>, name: Arg<'_>) -> PyResult<Py<Self>> {
        Py::new(py, around(spelled(self.0.partition(&text("name", name)?))?))
    }

    /// A permit, to be released, if one is free now; else BulkheadFullError.
    fn try_acquire(&self, py: Python<'_>) -> PyResult<PyBulkheadPermit> {
        raised(py, self.0.try_acquire()).map(|permit| PyBulkheadPermit(Mutex::new(Some(permit))))
    }

    /// A permit, to be released.
    fn acquire(&self) -> Pending {
        let bulkhead = self.0.clone();
        Pending::ask("bulkhead.acquire()", async move {
            bulkhead.acquire().await.map(|permit| PyBulkheadPermit(Mutex::new(Some(permit))))
        })
    }
}

/// A permit of a bulkhead. Forgotten, it is free again.
#[pyclass(module = "resil", name = "BulkheadPermit", frozen)]
pub struct PyBulkheadPermit(Mutex<Option<BulkheadPermit>>);

#[pymethods]
impl PyBulkheadPermit {
    /// Gives it back; once is enough.
    fn release(&self) {
        drop(self.0.lock().take());
    }
}
