//! The one runtime of the process: connections and timers live there; the language's own threads poll.
//!
//! It is made when it is first needed, so that importing the package starts no thread. A process that forks loses those
//! threads: the child gets a runtime of its own, and what was connected before the fork is refused there by name.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};

/// How often this process came to be by a fork.
static FORKS: AtomicU32 = AtomicU32::new(0);
static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(std::ptr::null_mut());
/// More would only wait for each other: a runtime like this carries commands, not work.
const WORKERS: usize = 2;

/// The age of the process, in forks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(u32);

impl Generation {
    pub fn now() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether what was made then belongs to this process. What a child inherits is never dropped either: a lock of the parent's
    /// other threads would be held in it for ever.
    #[inline]
    pub fn is_here(self) -> bool {
        self == Self::now()
    }

    /// Refuses what was made in another process.
    #[inline]
    pub fn check(self) -> PyResult<()> {
        if self.is_here() { Ok(()) } else { Err(forked()) }
    }
}

#[cold]
fn forked() -> PyErr {
    PyRuntimeError::new_err("this client was connected before the process forked; connect again in the child")
}

/// Called by `os.register_at_fork` in the child.
#[pyfunction]
pub fn after_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    // The old one's threads are gone with the parent, so it can be neither used nor dropped: it is left where it is.
    RUNTIME.store(std::ptr::null_mut(), Ordering::Release);
    crate::listeners::after_fork();
}

/// Timers, spawned tasks and connections made while this lives belong to the runtime.
#[inline]
pub fn enter() -> PyResult<EnterGuard<'static>> {
    Ok(runtime()?.enter())
}

pub fn handle() -> PyResult<Handle> {
    Ok(runtime()?.handle().clone())
}

#[inline]
fn runtime() -> PyResult<&'static Runtime> {
    let made = RUNTIME.load(Ordering::Acquire);
    if made.is_null() {
        return start();
    }
    // SAFETY: what is stored came from `Box::into_raw` and is never freed.
    Ok(unsafe { &*made })
}

#[cold]
fn start() -> PyResult<&'static Runtime> {
    let built = Builder::new_multi_thread().worker_threads(WORKERS).thread_name("resil").enable_all().build();
    let runtime = built.map_err(|error| PyRuntimeError::new_err(format!("no threads can be started: {error}")))?;
    let ours = Box::into_raw(Box::new(runtime));
    match RUNTIME.compare_exchange(std::ptr::null_mut(), ours, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: as above.
        Ok(_) => Ok(unsafe { &*ours }),
        Err(theirs) => {
            // SAFETY: nobody else has seen ours; theirs came the same way.
            unsafe { Box::from_raw(ours) }.shutdown_background();
            Ok(unsafe { &*theirs })
        }
    }
}
