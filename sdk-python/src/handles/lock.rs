//! Locks that a whole fleet shares: leases with a fence.

use std::time::Duration;

use resil::lock::{Held, Lock, LockGuard, Released};
use resil::settings::LockSettings;

use crate::client::PyClient;
use crate::leased::{ask, let_go};
use crate::prelude::*;

impl Leased for Lock {
    type Guard = LockGuard;
    const IS_REENTRANT: bool = true;

    async fn ask(self) -> Result<LockGuard, Error> {
        self.acquire().await
    }

    async fn let_go(guard: LockGuard) -> Result<Option<Duration>, Error> {
        Ok(match guard.release().await? {
            Released::Freed { held } => Some(held),
            Released::StillHeld => None,
        })
    }

    fn held(guard: &LockGuard) -> Held {
        guard.held()
    }

    fn shown(py: Python<'_>, cell: &Arc<GuardCell<LockGuard>>, held: Held) -> PyResult<Object> {
        let guard = PyLockGuard { fence: held.fence(), cell: Arc::clone(cell) };
        Ok(Py::new(py, PyHeld::new(cell, held).add_subclass(guard))?.into_any())
    }
}

impl Runs for Lock {
    fn run(&self, _py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let lock = self.clone();
        Ok(work.running(|work| async move { lock.with_lock(|_held| work.attempt()).await.map_err(flat) }))
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
pub struct PyLock(Owned<Lock>);

impl PyLock {
    pub fn make(py: Python<'_>, client: &resil::Client, name: &str, settings: LockSettings) -> PyResult<Py<Self>> {
        let keeps_running = settings.keep_running_when_lost;
        let lock = spelled(client.lock(name, settings))?;
        let leases = Leases::new(lock.clone(), keeps_running);
        let block = Block::around(
            "async with lock",
            Some(client),
            leases,
            Around::shared("a call under a lock", format!("{name:?}"), lock.clone()),
        );
        Py::new(py, block.add_subclass(Self(Owned::new(lock))))
    }
}

#[pymethods]
impl PyLock {
    #[getter]
    fn name(&self) -> &str {
        self.0.peek().name()
    }

    /// Waits for it, as long as the lock's `wait` says or `wait` here: a guard to release, or LockTimeoutError.
    #[pyo3(signature = (wait=None))]
    fn acquire(&self, wait: OptArg<'_>) -> PyResult<Pending> {
        let (lock, wait) = (self.0.get()?, optional_seconds("wait", wait)?);
        Ok(ask::<Lock>("lock.acquire()", async move {
            match wait {
                Some(wait) => lock.acquire_within(wait).await,
                None => lock.acquire().await,
            }
        }))
    }

    /// Asks once, and does not wait.
    fn try_acquire(&self) -> PyResult<Pending> {
        let lock = self.0.get()?;
        Ok(ask::<Lock>("lock.try_acquire()", async move { lock.try_acquire().await }))
    }

    /// Waits however long it takes, also while the server is away.
    fn until_acquired(&self) -> PyResult<Pending> {
        let lock = self.0.get()?;
        Ok(ask::<Lock>("lock.until_acquired()", async move { lock.until_acquired().await }))
    }

    /// Its holders and its waiters.
    fn info(&self) -> PyResult<Pending> {
        let lock = self.0.get()?;
        Ok(Pending::shown("lock.info()", async move { lock.info().await }))
    }

    /// Takes it from all its holders. How many there were.
    #[pyo3(signature = (actor=None, reason=None))]
    fn break_lock(&self, actor: OptArg<'_>, reason: OptArg<'_>) -> PyResult<Pending> {
        let (actor, reason) = (optional_text("actor", actor)?, optional_text("reason", reason)?);
        let (lock, actor, reason) = (self.0.get()?, actor.unwrap_or_default(), reason.unwrap_or_default());
        Ok(Pending::ask("lock.break_lock()", async move { lock.break_lock(&actor, &reason).await }))
    }

    /// Whether `owner` holds it, and under `fence` if one is named.
    #[pyo3(signature = (owner, fence=None))]
    fn check(&self, owner: Arg<'_>, fence: OptArg<'_>) -> PyResult<Pending> {
        let (lock, owner) = (self.0.get()?, text("owner", owner)?);
        let fence = fence.map(|fence| whole("fence", fence)).transpose()?;
        Ok(Pending::ask("lock.check()", async move { lock.check(&owner, fence).await }))
    }
}

/// A lock that is held. Forgotten, it is released in the background.
#[pyclass(module = "resil", name = "LockGuard", extends = PyHeld, frozen)]
pub struct PyLockGuard {
    /// Goes along with each write: the store refuses a number below the highest it has seen. None if the server is away.
    #[pyo3(get)]
    fence: Option<u64>,
    cell: Arc<GuardCell<LockGuard>>,
}

const RELEASED: &str = "this guard was released before";

#[pymethods]
impl PyLockGuard {
    /// The lease ends `lease` seconds from now, and is of that length from now on.
    fn extend(&self, lease: Arg<'_>) -> PyResult<Pending> {
        let (lease, guard) = (seconds("lease", lease)?, self.cell.get(RELEASED)?);
        Ok(Pending::done("guard.extend()", async move { guard.extend(lease).await.map(drop) }))
    }

    /// Asks the server whether it is held, under its fence.
    fn check(&self) -> PyResult<Pending> {
        let guard = self.cell.get(RELEASED)?;
        Ok(Pending::ask("guard.check()", async move { guard.check().await }))
    }

    /// Lets go. How long it was held, in seconds; None if the same task holds it still. LockLostError if it was lost.
    fn release(&self) -> PyResult<Pending> {
        let_go::<Lock>("guard.release()", &self.cell, RELEASED)
    }

    fn __repr__(&self) -> String {
        let fence = self.fence.map_or_else(|| "None".to_owned(), |fence| fence.to_string());
        format!("<resil.LockGuard fence={fence}>")
    }
}

#[pymethods]
impl PyClient {
    /// A lock under a name, for all who use the same server.
    #[pyo3(signature = (name, **settings))]
    fn lock(&self, py: Python<'_>, name: Arg<'_>, settings: Option<Kwargs<'_>>) -> PyResult<Py<PyLock>> {
        PyLock::make(py, &self.get()?, &text("name", name)?, read(settings)?)
    }
}
