//! Going away without leaving a mess.
//!
//! [`Client::shutdown`] goes through these steps, each only once, in this order:
//!
//! 1. Nothing new begins: new calls get [`Error::ShuttingDown`].
//! 2. What is in flight is waited for, until the deadline. Whatever is still there then is cut off.
//! 3. What is held (locks, permits of bulkheads) is given back, and its holders learn that it is lost.
//! 4. Watchdogs and refreshes stop, and what else was left to be given back is.
//! 5. The connections close.
//!
//! Steps 3 to 5 get as long as one command may take, each, and calls that were cut off a quarter of a second to drop what they have: with
//! a server that does not reply, a shutdown takes its deadline, that, and three command timeouts, and not longer. Once begun it goes on by
//! itself, even if nobody waits for it any more. Calling it again waits for the same end; a shorter deadline brings it forward, a longer one changes nothing.
//!
//! # What is in flight
//! Every call that may have to wait takes a pass at a gate, which says whether it is closing or shut. What is answered without
//! waiting (a limit in memory) only looks whether it is open. A request of a service is often many calls. [`Client::in_flight`] makes them one: it is waited for as a whole, and
//! the calls it makes are let in while the rest of it is waited for.

pub(crate) mod gate;

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::client::Client;
use crate::clock::{Clock, Moment};
use crate::error::Error;

pub use gate::CallInFlight;
pub(crate) use gate::Gate;

/// How long calls that were cut off may take to notice it. Blocks between two functions of a user never do.
const CUT_OFF_WITHIN: Duration = Duration::from_millis(250);

/// What a shutdown came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// How many calls were in flight and ended by themselves.
    pub drained: usize,
    /// How many calls were still in flight at the deadline.
    pub cut_off: usize,
    /// What was held and is given back, for example `lock:orders`.
    pub released: Vec<String>,
    /// What was held and could not be given back, and why. Its lease ends it.
    pub unreleased: Vec<(String, String)>,
    /// How many watchdogs and refreshes did not stop when they should have.
    pub stragglers: usize,
}

impl ShutdownReport {
    /// Whether nothing was cut off, nothing is left held, nothing still runs.
    pub fn is_clean(&self) -> bool {
        self.cut_off == 0 && self.unreleased.is_empty() && self.stragglers == 0
    }
}

impl Client {
    /// Stops taking calls, waits at most `deadline` for those in flight, gives back what is held, and closes the
    /// connections. See [`shutdown`](crate::shutdown) for the steps.
    ///
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use std::time::Duration;
    ///
    /// let client = resil::connect("memory://").await?;
    /// let report = client.shutdown(Duration::from_secs(5)).await;
    /// assert!(report.is_clean());
    /// # Ok::<(), resil::Error>(()) }).unwrap();
    /// ```
    pub async fn shutdown(&self, deadline: Duration) -> ShutdownReport {
        let until = self.clock().now().saturating_add(deadline);
        let inner = self.inner();
        inner.shutdown.bring_forward(until);
        let Some(runtime) = Handle::try_current().ok().or_else(|| self.background()) else {
            inner.gate.close();
            inner.closing.cancel();
            inner.caches.close();
            let cut_off = inner.gate.shut();
            return ShutdownReport { cut_off, stragglers: inner.tasks.len(), ..ShutdownReport::default() };
        };
        let mut report = inner.shutdown.report.subscribe();
        loop {
            if let Some(report) = &*report.borrow_and_update() {
                return report.clone();
            }
            if !inner.shutdown.is_under_way.swap(true, Ordering::AcqRel) {
                // A task of its own: if the caller is dropped, what is held is still given back.
                let under_way = ShutdownTask(self.clone());
                runtime.spawn(async move {
                    let report = under_way.0.go_away().await;
                    under_way.0.inner().shutdown.report.send_replace(Some(report));
                });
            }
            // The sender lives as long as this client: a change always comes: the end, or that no task works on it.
            let _ = report.changed().await;
        }
    }

    /// Counts `future` as one call in flight: a shutdown waits for the whole of it, and lets in the calls it makes
    /// meanwhile. At the deadline of the shutdown it is dropped, and this returns [`Error::ShuttingDown`].
    ///
    /// For what a service does per request. What the future spawns is not counted.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let client = resil::connect("memory://").await?;
    /// let reply = client.in_flight(async { 6 * 7 }).await?;
    /// assert_eq!(reply, 42);
    /// # Ok::<(), resil::Error>(()) }).unwrap();
    /// ```
    pub async fn in_flight<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.inner().gate.pass_through(|| future).await
    }

    /// The same for a call that is no future, such as a block between two functions of yours: it is in flight until what this returns is
    /// dropped. At the deadline of the shutdown nothing drops it; it is counted as cut off.
    pub fn begin_call(&self) -> Result<CallInFlight, Error> {
        self.inner().gate.begin()
    }

    /// Whether a shutdown has begun. For readiness probes.
    pub fn is_shutting_down(&self) -> bool {
        self.inner().closing.is_cancelled()
    }

    async fn go_away(&self) -> ShutdownReport {
        let inner = self.inner();
        let in_flight = inner.gate.close();
        inner.closing.cancel();
        inner.caches.close();
        self.drain().await;
        let cut_off = inner.gate.shut();

        let grace = inner.options.command_timeout;
        inner.stopped.cancel();
        // Before the watchdog is waited for: it stays while something is held.
        let holdings = inner.holdings.release_all(grace).await;
        if cut_off > 0 {
            // They give back what they have of the server when their tasks drop them, which the connection has to see.
            let left = std::pin::pin!(inner.gate.emptied());
            futures_util::future::select(left, std::pin::pin!(Clock::system().sleep(CUT_OFF_WITHIN))).await;
        }
        inner.tasks.close();
        self.within(grace, inner.tasks.wait()).await;
        let stragglers = inner.tasks.len();

        let (mut released, mut unreleased) = (Vec::new(), Vec::new());
        for (name, outcome) in holdings {
            match outcome {
                Ok(()) => released.push(name),
                Err(error) => unreleased.push((name, error.to_string())),
            }
        }
        self.within(grace, inner.backend.close()).await;
        ShutdownReport { drained: in_flight.saturating_sub(cut_off), cut_off, released, unreleased, stragglers }
    }

    /// Until nothing is in flight, or the deadline, which may be brought forward meanwhile.
    async fn drain(&self) {
        let inner = self.inner();
        let mut deadline = inner.shutdown.deadline.subscribe();
        loop {
            let until = deadline.borrow_and_update().unwrap_or_default();
            tokio::select! {
                biased;
                () = inner.gate.emptied() => return,
                () = self.clock().sleep(until.saturating_sub(self.clock().now())) => return,
                _ = deadline.changed() => {}
            }
        }
    }

    async fn within(&self, span: Duration, future: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = future => {}
            () = self.clock().sleep(span) => {}
        }
    }
}

/// That a shutdown was asked for, until when it may wait, and what it came to.
#[derive(Debug)]
pub(crate) struct Shutdown {
    deadline: watch::Sender<Option<Moment>>,
    report: watch::Sender<Option<ShutdownReport>>,
    is_under_way: AtomicBool,
}

/// A shutdown that is under way. If its runtime ends before it, those that wait for it notice, and begin it again.
struct ShutdownTask(Client);

impl Drop for ShutdownTask {
    fn drop(&mut self) {
        let shutdown = &self.0.inner().shutdown;
        if shutdown.report.borrow().is_none() {
            shutdown.is_under_way.store(false, Ordering::Release);
            shutdown.report.send_modify(|_| {});
        }
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        let (deadline, report) = (watch::Sender::new(None), watch::Sender::new(None));
        Self { deadline, report, is_under_way: AtomicBool::new(false) }
    }
}

impl Shutdown {
    /// It waits no longer than until then.
    fn bring_forward(&self, until: Moment) {
        self.deadline.send_if_modified(|deadline| {
            let is_earlier = deadline.is_none_or(|current| until < current);
            if is_earlier {
                *deadline = Some(until);
            }
            is_earlier
        });
    }
}

#[cfg(test)]
mod tests;
