//! The one tokio runtime of the process: connections, timers and renewals live on its threads.
//!
//! Calls are polled on the thread of JavaScript, which enters the runtime once and for good, so that whatever is polled
//! there finds its timers.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Runtime};

/// Enough for connections and timers: the work itself is on the threads of JavaScript. A second one would mostly be woken
/// to find nothing to do, at a sixth of a check's CPU time.
const THREADS: usize = 1;

static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();

/// `None` if the system has no threads left.
pub fn runtime() -> Option<&'static Runtime> {
    let make = || Builder::new_multi_thread().worker_threads(THREADS).thread_name("resil").enable_all().build().ok();
    RUNTIME.get_or_init(make).as_ref()
}

/// From now on this thread is inside of the runtime. Says whether it is.
pub fn enter_for_good() -> bool {
    let Some(runtime) = runtime() else { return false };
    std::mem::forget(runtime.enter());
    true
}
