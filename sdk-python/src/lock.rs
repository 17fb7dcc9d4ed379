//! Locks that a whole fleet shares: leases with a fence.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use resil::lock::{Held, Info, Lock, LockGuard, Released};

use crate::answer::Answer;
use crate::around::{Around, Runs};
use crate::block::Block;
use crate::convert::{flag, optional_seconds, seconds, text, whole};
use crate::drive::Running;
use crate::errors::raised_later;
use crate::held::PyHeld;
use crate::held_here::Mark;
use crate::leased::{Leased, Leases, let_go};
use crate::runtime::Generation;
use crate::settings::{read, spelled};
use crate::slot::{IsGone, Lent, Slot};
use crate::work::{Work, flat};

impl Leased for Lock {
    type Guard = LockGuard;

    async fn ask(self) -> Result<LockGuard, resil::Error> {
        self.acquire().await
    }

    async fn let_go(guard: LockGuard) -> Result<Option<Duration>, resil::Error> {
        Ok(match guard.release().await? {
            Released::Freed { held } => Some(held),
            Released::StillHeld => None,
        })
    }

    async fn info(self) -> Result<Info, resil::Error> {
        Lock::info(&self).await
    }

    fn held(guard: &LockGuard) -> Held {
        guard.held()
    }

    fn shown(py: Python<'_>, slot: &Arc<Slot<LockGuard>>, held: Held) -> PyResult<Py<PyAny>> {
        let guard = PyLockGuard { slot: Arc::clone(slot), fence: held.fence() };
        Ok(Py::new(py, PyHeld::new(slot, held).add_subclass(guard))?.into_any())
    }

    fn mark(py: Python<'_>, slot: &Arc<Slot<LockGuard>>, held: Held) -> PyResult<Option<Mark>> {
        Mark::new(py, held, Arc::downgrade(slot)).map(Some)
    }
}

struct Locked(Arc<Leases<Lock>>);

impl Runs for Locked {
    fn run(&self, _py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        self.0.generation.check()?;
        let lock = self.0.leased.clone();
        Ok(Arc::clone(&work).running(async move { lock.with_lock(|_held| work.attempt()).await.map_err(flat) }))
    }
}

/// A lock, and on which terms it is asked for; `client.lock(...)` makes it. It holds nothing.
///
/// A block (`with`, `async with`), a decorator, a call, or by hand (`acquire`, `release`). When it is lost, a block of
/// `async with` is cancelled and raises LockLostError, unless `keep_running_when_lost`.
///
/// Inside of its block, and inside of a function it is put around, the same task (or thread) may come in again: at once, and
/// without the server. What a task starts is another task, and has to wait.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> with client.lock("stock:42") as held:
/// ...     held.is_held, held.fence > 0, held.lost.is_set()
/// (True, True, False)
/// >>> with client.lock("stock:42") as outer, client.lock("stock:42") as inner:
/// ...     outer.fence == inner.fence
/// True
/// >>> guard = client.lock("stock:42").acquire().wait()
/// >>> guard.release().wait() >= 0
/// True
#[pyclass(module = "resil", name = "Lock", extends = Block, frozen)]
pub struct PyLock(Arc<Leases<Lock>>);

pub fn make(
    py: Python<'_>,
    client: &resil::Client,
    generation: Generation,
    name: &str,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyLock>> {
    let settings: resil::settings::LockSettings = read(settings)?;
    let keeps_running = settings.keep_running_when_lost;
    let leases = Leases::new(spelled(client.lock(name, settings))?, generation, keeps_running);
    let around = Around::new("a call under a lock", Locked(Arc::clone(&leases)));
    let block = Block::around("async with lock", Arc::clone(&leases), around);
    Py::new(py, block.add_subclass(PyLock(leases)))
}

#[pymethods]
impl PyLock {
    #[getter]
    fn name(&self) -> &str {
        self.0.leased.name()
    }

    /// Waits for it, as long as the lock's `wait` says or `wait` here: a guard to release, or LockTimeoutError.
    #[pyo3(signature = (wait=None))]
    fn acquire(&self, wait: Option<&Bound<'_, PyAny>>) -> PyResult<Answer> {
        let wait = optional_seconds("wait", wait)?;
        self.0.ask("lock.acquire()", |lock| async move {
            match wait {
                Some(wait) => lock.acquire_within(wait).await,
                None => lock.acquire().await,
            }
        })
    }

    /// Asks once, and does not wait.
    fn try_acquire(&self) -> PyResult<Answer> {
        self.0.ask("lock.try_acquire()", |lock| async move { lock.try_acquire().await })
    }

    /// Waits however long it takes, also while the server is away.
    fn until_acquired(&self) -> PyResult<Answer> {
        self.0.ask("lock.until_acquired()", |lock| async move { lock.until_acquired().await })
    }

    /// Who holds it and who waits for it.
    fn info(&self) -> PyResult<Answer> {
        self.0.info("lock.info()")
    }

    /// Takes it from whoever holds it. How many held it.
    fn break_lock(&self, actor: &Bound<'_, PyAny>, reason: &Bound<'_, PyAny>) -> PyResult<Answer> {
        self.0.generation.check()?;
        let (lock, actor, reason) = (self.0.leased.clone(), text("actor", actor)?, text("reason", reason)?);
        Ok(Answer::new("lock.break_lock()", async move {
            let held = raised_later(lock.break_lock(&actor, &reason).await)?;
            Python::attach(|py| Ok(held.into_pyobject(py)?.into_any().unbind()))
        }))
    }

    /// Whether `owner` holds it, and under `fence` if one is named.
    #[pyo3(signature = (owner, fence=None))]
    fn check(&self, owner: &Bound<'_, PyAny>, fence: Option<&Bound<'_, PyAny>>) -> PyResult<Answer> {
        self.0.generation.check()?;
        let (lock, owner) = (self.0.leased.clone(), text("owner", owner)?);
        let fence = fence.map(|fence| whole("fence", fence)).transpose()?;
        Ok(Answer::new("lock.check()", async move { flag(raised_later(lock.check(&owner, fence).await)?) }))
    }

    fn __repr__(&self) -> String {
        format!("<resil.Lock {:?}>", self.0.leased.name())
    }
}

/// A lock that is held. Forgotten, it is released in the background.
#[pyclass(module = "resil", name = "LockGuard", extends = PyHeld, frozen)]
pub struct PyLockGuard {
    slot: Arc<Slot<LockGuard>>,
    fence: Option<u64>,
}

const RELEASED: &str = "this guard was released before";

impl PyLockGuard {
    fn lend(&self) -> PyResult<Lent<LockGuard>> {
        self.slot.generation().check()?;
        self.slot.lend().ok_or_else(|| PyRuntimeError::new_err(RELEASED))
    }
}

#[pymethods]
impl PyLockGuard {
    /// Goes along with each write: the store refuses a number below the highest it has seen. None if the server is away.
    #[getter]
    fn fence(&self) -> Option<u64> {
        self.fence
    }

    /// The lease ends `lease` seconds from now, and is of that length from now on.
    fn extend(&self, lease: &Bound<'_, PyAny>) -> PyResult<Answer> {
        let (lease, lent) = (seconds("lease", lease)?, self.lend()?);
        Ok(Answer::new("guard.extend()", async move {
            if let Some(guard) = lent.guard() {
                raised_later(guard.extend(lease).await)?;
            }
            Python::attach(|py| Ok(py.None()))
        }))
    }

    /// Asks the server whether it is held, under its fence.
    fn check(&self) -> PyResult<Answer> {
        let lent = self.lend()?;
        Ok(Answer::new("guard.check()", async move {
            match lent.guard() {
                Some(guard) => flag(raised_later(guard.check().await)?),
                None => flag(false),
            }
        }))
    }

    /// Lets go. How long it was held, in seconds; None if the same task holds it still. LockLostError if it was lost.
    fn release(&self) -> PyResult<Answer> {
        let_go::<Lock>("guard.release()", &self.slot, RELEASED)
    }

    fn __repr__(&self) -> String {
        format!("<resil.LockGuard fence={:?}>", self.fence)
    }
}
