//! What is counted of idempotent calls: each once, by how it ended, also if nobody waited for its end.

use std::sync::Arc;

use metrics::{Counter, Histogram};

use super::outcome::Outcome;
use crate::error::{Error, Failure};
use crate::telemetry;

/// How a call ended; see [`telemetry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallEnd {
    Ran,
    Unrecorded,
    Failed,
    Replayed,
    Busy,
    Mismatch,
    Held,
    Lost,
    Unavailable,
    Error,
    Cancelled,
}

/// In the order of [`CallEnd`].
const TEXTS: [&str; 11] = [
    "ran",
    "unrecorded",
    "failed",
    "replayed",
    "busy",
    "mismatch",
    "held",
    "lost",
    "unavailable",
    "error",
    "cancelled",
];

#[derive(Debug)]
pub(super) struct IdempotencyMeters {
    calls: [Counter; TEXTS.len()],
    pub run_seconds: Histogram,
    pub first: Counter,
    pub again: Counter,
}

impl IdempotencyMeters {
    pub fn new(name: &str) -> Self {
        let name: Arc<str> = name.into();
        Self {
            calls: TEXTS.map(|outcome| telemetry::idempotent_calls(&name, outcome)),
            run_seconds: telemetry::idempotent_run_seconds(&name),
            first: telemetry::once(&name, "first"),
            again: telemetry::once(&name, "again"),
        }
    }

    pub fn begin(&self) -> Tally<'_> {
        Tally { meters: self, ended: CallEnd::Cancelled }
    }
}

/// A call that is counted when this is dropped: as cancelled, unless it ended.
pub(super) struct Tally<'a> {
    meters: &'a IdempotencyMeters,
    ended: CallEnd,
}

impl Tally<'_> {
    /// `ran` says whether its own function was called: if not, its error is one that was recorded before.
    pub fn ended<T, E>(mut self, outcome: &Result<Outcome<T>, Failure<E>>, ran: bool) {
        self.ended = match outcome {
            Ok(Outcome { replayed: true, .. }) => CallEnd::Replayed,
            Ok(Outcome { recorded: true, .. }) => CallEnd::Ran,
            Ok(_) => CallEnd::Unrecorded,
            Err(Failure::Inner(_)) if ran => CallEnd::Failed,
            Err(Failure::Inner(_)) => CallEnd::Replayed,
            Err(Failure::Resil(Error::IdempotencyBusy { .. })) => CallEnd::Busy,
            Err(Failure::Resil(Error::IdempotencyMismatch { .. })) => CallEnd::Mismatch,
            Err(Failure::Resil(Error::IdempotencyHeld { .. })) => CallEnd::Held,
            Err(Failure::Resil(Error::ResultUnrecorded { .. })) if ran => CallEnd::Unrecorded,
            Err(Failure::Resil(Error::ResultUnrecorded { .. } | Error::IdempotencyFailed { .. })) => CallEnd::Replayed,
            Err(Failure::Resil(Error::LockLost { .. })) => CallEnd::Lost,
            Err(Failure::Resil(Error::BackendUnavailable(_))) => CallEnd::Unavailable,
            Err(_) => CallEnd::Error,
        };
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        if let Some(counter) = self.meters.calls.get(self.ended as usize) {
            counter.increment(1);
        }
    }
}
