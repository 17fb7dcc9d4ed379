//! Where connections are kept and leases are renewed: a runtime that no user's code runs on.
//!
//! A lease is renewed while the caller's function runs, and that function may occupy its thread for as long as it likes: it
//! computes, it sleeps, it waits for a foreign library. A task beside it on the same runtime would get no turn, the lease
//! would lapse, and another process would do the work a second time. So there is one thread for all clients of the process, named
//! `resil`, with a runtime of its own. It is started when it is first needed, and ends with the process.
//!
//! Two cases have another runtime:
//! - [`ConnectSettings::runtime`](crate::ConnectSettings::runtime) names one. The SDKs of other languages do: they know about forks.
//! - A driven clock belongs to a test, which expects its own runtime to run whatever the clock woke.

use std::future::pending;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle};

use crate::client::{Client, ConnectSettings};

const THREAD_NAME: &str = "resil";

/// The process' own background runtime. `None` if the system has no thread left.
fn shared() -> Option<&'static Handle> {
    static SHARED: OnceLock<Option<Handle>> = OnceLock::new();
    let start = || {
        let runtime = Builder::new_current_thread().enable_all().build().ok()?;
        let handle = runtime.handle().clone();
        let run = move || runtime.block_on(pending::<()>());
        std::thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(run).ok()?;
        Some(handle)
    };
    SHARED.get_or_init(start).as_ref()
}

impl ConnectSettings {
    /// Where the connection is kept and leases are renewed. `None` only where no thread can be started and no runtime runs.
    pub(crate) fn background(&self) -> Option<Handle> {
        let here = || Handle::try_current().ok();
        match &self.runtime {
            Some(runtime) => Some(runtime.clone()),
            None if self.clock.is_driven() => here().or_else(|| shared().cloned()),
            None => shared().cloned().or_else(here),
        }
    }
}

impl Client {
    /// See [`ConnectSettings::background`].
    pub(crate) fn background(&self) -> Option<Handle> {
        self.inner().options.background()
    }
}
