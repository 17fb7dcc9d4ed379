//! A permit to make one call, which takes its outcome.

use std::sync::Arc;
use std::time::Duration;

use resil_core::circuit_breaker::{Permit as ServerPermit, Report};

use super::batch::CountedOutcome;
use super::core::Core;
use super::report_of;
use super::view::Tag;
use crate::clock::Moment;
use crate::correlation;
use crate::error::Failure;
use crate::policy::classify::Classify;

/// How a call was admitted, and so where its outcome goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    /// By this process, while closed: counted here, and sent in a batch.
    Here(Tag),
    /// By the server.
    Server(ServerPermit),
    /// By the machine in this process: the server is away.
    Local(ServerPermit),
    /// To nobody.
    Uncounted,
}

/// Leave to make one call. Say what came of it; dropped without a word, it was cancelled (or, while a panic unwinds, it
/// failed).
///
/// The time from [`admit`](super::Breaker::admit) to the report is how long the call took.
#[derive(Debug)]
#[must_use = "a permit that is dropped is a call that was cancelled"]
pub struct Permit {
    core: Arc<Core>,
    way: Way,
    started: Moment,
    is_done: bool,
}

impl Permit {
    pub(super) fn new(core: Arc<Core>, way: Way, started: Moment) -> Self {
        Self { core, way, started, is_done: false }
    }

    #[cfg(test)]
    pub(super) fn way(&self) -> Way {
        self.way
    }

    /// The call succeeded.
    pub async fn success(self) {
        self.report(Report::Ok).await;
    }

    /// The call failed.
    pub async fn failure(self) {
        self.report(Report::Fail).await;
    }

    /// The call says nothing about the health of what was called: not found, a bad request.
    pub async fn ignore(self) {
        self.report(Report::Ignore).await;
    }

    /// The call was not made after all, or nobody waited for it.
    pub async fn cancel(self) {
        self.report(Report::Cancel).await;
    }

    /// Reports what `result` says about the health of what was called, judged as [`Breaker::around`](super::Breaker::around)
    /// judges it.
    pub async fn finish<T, E>(self, classify: impl Classify<E>, result: &Result<T, Failure<E>>) {
        let report = report_of(&classify, result);
        self.report(report).await;
    }

    /// Once this is polled, the report is made, whether or not its end is awaited.
    pub(crate) async fn report(mut self, report: Report) {
        self.is_done = true;
        match self.way {
            Way::Server(permit) => Box::pin(self.core.report(permit, report, self.took())).await,
            _ => self.tell(report),
        }
    }

    /// The same without waiting where that can be. The permit back, if it cannot.
    #[inline]
    pub(crate) fn report_now(mut self, report: Report) -> Option<Self> {
        if matches!(self.way, Way::Server(_)) {
            return Some(self);
        }
        self.is_done = true;
        self.tell(report);
        None
    }

    fn took(&self) -> Duration {
        self.core.client.clock().now().saturating_sub(self.started)
    }

    /// Everything that needs no waiting.
    fn tell(&self, report: Report) {
        match self.way {
            Way::Here(tag) => self.core.count(tag, self.started, report),
            Way::Server(permit) => self.core.report_in_background(permit, report, self.took()),
            Way::Local(permit) => self.core.report_locally(permit, report, self.took()),
            Way::Uncounted => {}
        }
    }
}

impl Core {
    /// What the batch that a failure goes with is about: the last one that says so.
    #[cold]
    fn note_failure(&self) {
        if let Some(about) = correlation::current() {
            *self.about_failure.lock() = Some(about);
        }
    }

    /// What came of a call that was admitted here.
    #[inline]
    pub(super) fn count(self: &Arc<Self>, tag: Tag, started: Moment, report: Report) {
        let is_failure = match report {
            Report::Ok => false,
            Report::Fail => {
                self.note_failure();
                true
            }
            Report::Ignore | Report::Cancel => return,
        };
        let is_slow = self.options.patch.slow.is_some_and(|slow| {
            let took = self.client.clock().now().saturating_sub(started);
            took.as_micros() >= slow.as_us().unsigned_abs().into()
        });
        self.record(tag, CountedOutcome { is_failure, is_slow });
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.is_done {
            self.tell(if std::thread::panicking() { Report::Fail } else { Report::Cancel });
        }
    }
}

#[cfg(test)]
#[path = "tests/judged.rs"]
mod tests;
