//! The one runtime of the process: connections and timers live there; the language's own threads poll.
//!
//! It is made when it is first needed, so that importing the package starts no thread. A process that forks loses those
//! threads: the child gets a runtime of its own, and what was connected before the fork is refused there by name.
//!
//! # While the process forks
//! The threads of the runtime stand still, so that none of them holds a lock which the child would find locked for ever: of the
//! table of threads that wait for locks, of pyo3's references, of whatever all runtimes of a process share.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
// Not parking_lot's: see `listeners`.
use std::sync::{Condvar, Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};

use crate::edge::{OfProcess, PerProcess};
use crate::prelude::*;

/// How often this process came to be by a fork.
static FORKS: AtomicU32 = AtomicU32::new(0);
static RUNTIME: PerProcess<Runtime> = PerProcess::new();
/// More would only wait for each other: a runtime like this carries commands, not work.
const WORKERS: usize = 2;
/// A fork is not held up for longer by a thread that does not come to rest, nor a thread by a fork that does not happen.
const UNTIL_AT_REST: Duration = Duration::from_millis(200);
const AT_REST_MAX: Duration = Duration::from_secs(2);

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
pub struct Owned<T>(OfProcess<T>);

impl<T: Clone> Owned<T> {
    pub fn new(handle: T) -> Self {
        Self(OfProcess::new(handle))
    }

    /// Refuses another process.
    pub fn check(&self) -> PyResult<()> {
        self.0.generation().check()
    }

    /// Refused in another process.
    pub fn get(&self) -> PyResult<T> {
        self.check()?;
        Ok(self.0.clone_value())
    }

    /// For what is the same in every process: a name.
    pub fn peek(&self) -> &T {
        &self.0
    }
}

/// Where the threads of the runtime stand still.
#[derive(Default)]
struct Standstill {
    state: StdMutex<StandstillState>,
    moved: Condvar,
}

#[derive(Default)]
struct StandstillState {
    at_rest: usize,
    is_over: bool,
}

impl Standstill {
    fn wait(&self, longest: Duration, is_over: impl Fn(&StandstillState) -> bool) {
        let until = Instant::now() + longest;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while let (false, Some(left)) = (is_over(&state), until.checked_duration_since(Instant::now())) {
            state = self.moved.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn change(&self, change: impl FnOnce(&mut StandstillState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.moved.notify_all();
    }
}

thread_local! {
    /// While this thread forks.
    static RESTING: RefCell<Option<OfProcess<Arc<Standstill>>>> = const { RefCell::new(None) };
}

/// Called by `os.register_at_fork`, before.
#[pyfunction]
pub fn before_fork() {
    let Some(runtime) = RUNTIME.get() else { return };
    let rest = Arc::new(Standstill::default());
    for _ in 0..WORKERS {
        let rest = Arc::clone(&rest);
        // It occupies its thread, so that each comes to another one.
        runtime.spawn(async move {
            rest.change(|state| state.at_rest += 1);
            rest.wait(AT_REST_MAX, |state| state.is_over);
        });
    }
    rest.wait(UNTIL_AT_REST, |state| state.at_rest == WORKERS);
    RESTING.set(Some(OfProcess::new(rest)));
}

/// Called by `os.register_at_fork` in the parent.
#[pyfunction]
pub fn after_fork_in_parent() {
    if let Some(rest) = RESTING.take() {
        rest.change(|state| state.is_over = true);
    }
}

/// Called by `os.register_at_fork` in the child.
#[pyfunction]
pub fn after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    RESTING.set(None);
    RUNTIME.leave_behind();
    listeners::after_fork();
    resil::fork::after_fork();
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
