//! Locks that a whole fleet shares: leases with a fence.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use resil::lock::{Held, Lock, LockGuard, Released};

use crate::answer::{Answer, Running, drive, refuse_to_block};
use crate::around::{Around, Runs};
use crate::convert::{flag, optional_seconds, seconds, text, whole};
use crate::entered::{Entered, Who};
use crate::errors::{exception, raised_later};
use crate::lost::{Lost, Watch, held};
use crate::runtime::Generation;
use crate::settings::{read, shown, spelled};
use crate::work::{Work, flat};

struct Locked {
    lock: Lock,
    generation: Generation,
}

impl Runs for Locked {
    fn run(&self, _py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        self.generation.check()?;
        let lock = self.lock.clone();
        Ok(Arc::clone(&work).running(async move { lock.with_lock(|_held| work.attempt()).await.map_err(flat) }))
    }
}

/// A lock, and on which terms it is asked for; `client.lock(...)` makes it. It holds nothing.
///
/// A block (`with`, `async with`), a decorator, a call, or by hand (`acquire`, `release`). When it is lost, a block of
/// `async with` is cancelled and raises LockLostError, unless `keep_running_when_lost`.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> with client.lock("stock:42") as held:
/// ...     held.is_held, held.fence > 0, held.lost.is_set()
/// (True, True, False)
/// >>> guard = client.lock("stock:42").acquire().wait()
/// >>> guard.release().wait() >= 0
/// True
#[pyclass(module = "resil", name = "Lock", extends = Around, frozen)]
pub struct PyLock {
    lock: Lock,
    generation: Generation,
    keeps_running: bool,
    entered: Arc<Entered<(Py<PyLockGuard>, Option<Watch>)>>,
}

pub fn make(
    py: Python<'_>,
    client: &resil::Client,
    generation: Generation,
    name: &str,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyLock>> {
    let settings: resil::settings::LockSettings = read(settings)?;
    let lock = spelled(settings.lock(client, name))?;
    let around = Around::new("a call under a lock", Locked { lock: lock.clone(), generation });
    let keeps_running = settings.keep_running_when_lost == Some(true);
    let lock = PyLock { lock, generation, keeps_running, entered: Arc::default() };
    Py::new(py, PyClassInitializer::from(around).add_subclass(lock))
}

impl PyLock {
    fn ask<F>(&self, what: &'static str, asking: impl FnOnce(Lock) -> F) -> PyResult<Answer>
    where
        F: Future<Output = Result<LockGuard, resil::Error>> + Send + 'static,
    {
        self.generation.check()?;
        let asking = asking(self.lock.clone());
        Ok(Answer::new(what, async move {
            let guard = raised_later(asking.await)?;
            Python::attach(|py| Ok(PyLockGuard::new(py, guard)?.into_any()))
        }))
    }

    fn enter(&self, py: Python<'_>, is_task: bool) -> PyResult<Running> {
        self.generation.check()?;
        let (who, lock, entered) = (Who::is_here(py)?, self.lock.clone(), Arc::clone(&self.entered));
        let watches = is_task && !self.keeps_running;
        Ok(Box::pin(async move {
            let guard = raised_later(lock.acquire().await)?;
            Python::attach(|py| {
                let watch = watches.then(|| Watch::begin(py, guard.lost())).transpose()?;
                let guard = PyLockGuard::new(py, guard)?;
                entered.push(who, (guard.clone_ref(py), watch));
                Ok(guard.into_any())
            })
        }))
    }

    fn leave(&self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<Running> {
        let (guard, watch) = self.entered.pop(Who::is_here(py)?)?;
        let is_ours = watch.map_or(Ok(false), |watch| watch.end(py, error))?;
        // Whoever was not cancelled is told at the end; an error of the block itself comes first.
        let tells = is_ours || (error.is_none() && !self.keeps_running);
        let guard = guard.get().guard.lock().take();
        Ok(Box::pin(async move {
            if let Some(guard) = guard {
                match guard.release().await {
                    Err(lost @ resil::Error::LockLost { .. }) if tells => {
                        return Err(Python::attach(|py| exception(py, &lost)));
                    }
                    // An unanswered release goes on in the background.
                    _ => {}
                }
            }
            Python::attach(|py| Ok(py.None()))
        }))
    }
}

#[pymethods]
impl PyLock {
    #[getter]
    fn name(&self) -> &str {
        self.lock.name()
    }

    /// Waits for it, as long as the lock's `wait` says or `wait` here: a guard to release, or LockTimeoutError.
    #[pyo3(signature = (wait=None))]
    fn acquire(&self, wait: Option<&Bound<'_, PyAny>>) -> PyResult<Answer> {
        let wait = optional_seconds("wait", wait)?;
        self.ask("lock.acquire()", |lock| async move {
            match wait {
                Some(wait) => lock.acquire_within(wait).await,
                None => lock.acquire().await,
            }
        })
    }

    /// Asks once, and does not wait.
    fn try_acquire(&self) -> PyResult<Answer> {
        self.ask("lock.try_acquire()", |lock| async move { lock.try_acquire().await })
    }

    /// Waits however long it takes, also while the server is away.
    fn until_acquired(&self) -> PyResult<Answer> {
        self.ask("lock.until_acquired()", |lock| async move { lock.until_acquired().await })
    }

    /// Who holds it and who waits for it.
    fn info(&self) -> PyResult<Answer> {
        self.generation.check()?;
        let lock = self.lock.clone();
        Ok(Answer::new("lock.info()", async move {
            let info = raised_later(lock.info().await)?;
            Python::attach(|py| shown(py, &info))
        }))
    }

    /// Takes it from whoever holds it. How many held it.
    fn break_lock(&self, actor: &Bound<'_, PyAny>, reason: &Bound<'_, PyAny>) -> PyResult<Answer> {
        self.generation.check()?;
        let (lock, actor, reason) = (self.lock.clone(), text("actor", actor)?, text("reason", reason)?);
        Ok(Answer::new("lock.break_lock()", async move {
            let held = raised_later(lock.break_lock(&actor, &reason).await)?;
            Python::attach(|py| Ok(held.into_pyobject(py)?.into_any().unbind()))
        }))
    }

    /// Whether `owner` holds it, and under `fence` if one is named.
    #[pyo3(signature = (owner, fence=None))]
    fn check(&self, owner: &Bound<'_, PyAny>, fence: Option<&Bound<'_, PyAny>>) -> PyResult<Answer> {
        self.generation.check()?;
        let (lock, owner) = (self.lock.clone(), text("owner", owner)?);
        let fence = fence.map(|fence| whole("fence", fence)).transpose()?;
        Ok(Answer::new("lock.check()", async move { flag(raised_later(lock.check(&owner, fence).await)?) }))
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        refuse_to_block(py, "use async with")?;
        drive(py, self.enter(py, false)?)
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
        Ok(Answer::on_stage("async with lock", None, self.enter(py, true)?))
    }

    #[pyo3(signature = (_type, value, _traceback, /))]
    fn __aexit__(
        &self,
        py: Python<'_>,
        _type: Bound<'_, PyAny>,
        value: Bound<'_, PyAny>,
        _traceback: Bound<'_, PyAny>,
    ) -> PyResult<Answer> {
        Ok(Answer::on_stage("async with lock", None, self.leave(py, &value)?))
    }

    fn __repr__(&self) -> String {
        format!("<resil.Lock {:?}>", self.lock.name())
    }
}

/// A lock that is held. Forgotten, it is released in the background.
#[pyclass(module = "resil", name = "LockGuard", frozen)]
pub struct PyLockGuard {
    guard: Arc<Mutex<Option<LockGuard>>>,
    held: Held,
}

impl PyLockGuard {
    fn new(py: Python<'_>, guard: LockGuard) -> PyResult<Py<Self>> {
        let held = guard.held();
        Py::new(py, Self { guard: Arc::new(Mutex::new(Some(guard))), held })
    }

    fn take(&self) -> PyResult<LockGuard> {
        self.guard.lock().take().ok_or_else(released)
    }
}

fn released() -> PyErr {
    PyRuntimeError::new_err("this guard was released before")
}

/// Lends the guard to a question and puts it back.
struct Lent {
    home: Arc<Mutex<Option<LockGuard>>>,
    guard: Option<LockGuard>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        *self.home.lock() = self.guard.take();
    }
}

#[pymethods]
impl PyLockGuard {
    /// Goes along with each write: the store refuses a number below the highest it has seen. None if the server is away.
    #[getter]
    fn fence(&self) -> Option<u64> {
        self.held.fence()
    }

    /// Whether this process may believe that it holds it.
    #[getter]
    fn is_held(&self) -> bool {
        self.guard.lock().is_some() && self.held.is_held()
    }

    /// Seconds until it has to be heard of again.
    #[getter]
    fn remaining(&self) -> f64 {
        self.held.remaining().as_secs_f64()
    }

    /// Set when it is lost.
    #[getter]
    fn lost(&self) -> Lost {
        Lost(self.held.lost())
    }

    /// The lease ends `lease` seconds from now, and is of that length from now on.
    fn extend(&self, lease: &Bound<'_, PyAny>) -> PyResult<Answer> {
        let lease = seconds("lease", lease)?;
        let lent = Lent { home: Arc::clone(&self.guard), guard: Some(self.take()?) };
        Ok(Answer::new("guard.extend()", async move {
            if let Some(guard) = &lent.guard {
                raised_later(guard.extend(lease).await)?;
            }
            Python::attach(|py| Ok(py.None()))
        }))
    }

    /// Asks the server whether it is held, under its fence.
    fn check(&self) -> PyResult<Answer> {
        let lent = Lent { home: Arc::clone(&self.guard), guard: Some(self.take()?) };
        Ok(Answer::new("guard.check()", async move {
            match &lent.guard {
                Some(guard) => flag(raised_later(guard.check().await)?),
                None => flag(false),
            }
        }))
    }

    /// Lets go. How long it was held, in seconds; None if the same task holds it still. LockLostError if it was lost.
    fn release(&self) -> PyResult<Answer> {
        let guard = self.take()?;
        Ok(Answer::new("guard.release()", async move {
            match raised_later(guard.release().await)? {
                Released::Freed { held: span } => held(span),
                Released::StillHeld => Python::attach(|py| Ok(py.None())),
            }
        }))
    }

    fn __repr__(&self) -> String {
        format!("<resil.LockGuard fence={:?}>", self.held.fence())
    }
}
