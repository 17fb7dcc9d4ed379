//! The one runtime of the process: connections and timers live there; the language's own threads poll.
//!
//! It is made when it is first needed, so that importing the package starts no thread. A process that forks loses those
//! threads: the child gets a runtime of its own, and what was connected before the fork is refused there by name.

use std::sync::atomic::{AtomicU32, Ordering};

use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};

use crate::edge::PerProcess;
use crate::prelude::*;

/// How often this process came to be by a fork.
static FORKS: AtomicU32 = AtomicU32::new(0);
static RUNTIME: PerProcess<Runtime> = PerProcess::new();
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
    pub fn is_here(self) -> bool {
        self == Self::now()
    }

    /// Refuses what was made in another process.
    pub fn check(self) -> PyResult<()> {
        let text = "this client was connected before the process forked; connect again in the child";
        self.is_here().then_some(()).ok_or_else(|| PyRuntimeError::new_err(text))
    }
}

/// A handle of the SDK's that works only in the process it was made in.
#[derive(Clone)]
pub struct Owned<T> {
    handle: T,
    generation: Generation,
}

impl<T: Clone> Owned<T> {
    pub fn new(handle: T) -> Self {
        Self { handle, generation: Generation::now() }
    }

    /// Refused in another process.
    pub fn get(&self) -> PyResult<T> {
        self.generation.check()?;
        Ok(self.handle.clone())
    }

    /// For what is the same in every process: a name.
    pub fn peek(&self) -> &T {
        &self.handle
    }
}

/// Called by `os.register_at_fork` in the child.
#[pyfunction]
pub fn after_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    RUNTIME.leave_behind();
    crate::listeners::after_fork();
}

/// Timers, spawned tasks and connections made while this lives belong to the runtime.
pub fn enter() -> PyResult<EnterGuard<'static>> {
    Ok(runtime()?.enter())
}

pub fn handle() -> PyResult<Handle> {
    Ok(runtime()?.handle().clone())
}

fn runtime() -> PyResult<&'static Runtime> {
    RUNTIME.get_or_make(|| {
        let built = Builder::new_multi_thread().worker_threads(WORKERS).thread_name("resil").enable_all().build();
        built.map_err(|error| PyRuntimeError::new_err(format!("no threads can be started: {error}")))
    })
}
