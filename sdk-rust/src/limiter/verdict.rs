//! What a limit says, and who said it.

use std::time::Duration;

use resil_core::rate_limit::Reading;
use resil_wire::gcra::Numbers;
use serde::Serialize;

use super::millis;
use crate::policy::span_text;

/// Who said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DecidedBy {
    Server,
    /// The server had denied it, and the time it named is not over.
    DenyCache,
    /// The machine in this process: the server is away.
    Local,
    /// Nobody: the server is away, and the limit says [`Away::Open`](crate::Away::Open).
    AwayOpen,
}

/// What came of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// Cells that were taken (by a refund: given back; by a peek: there to be taken).
    pub granted: u32,
    /// What the tightest tier holds when it is full.
    pub capacity: u32,
    /// What is left there. Not known to be more than this if nobody was asked.
    pub remaining: u32,
    /// How long until what was refused can be had, by who is alone; zero if nothing was refused. `None`: never, it costs
    /// more than the limit holds.
    #[serde(with = "span_text::optional")]
    pub retry_after: Option<Duration>,
    /// How long until it is full again.
    #[serde(with = "span_text")]
    pub reset_after: Duration,
    pub decided_by: DecidedBy,
}

impl Verdict {
    pub fn is_granted(&self) -> bool {
        self.granted > 0
    }

    /// What memory says.
    #[inline(always)]
    pub(super) fn of(granted: u32, reading: &Reading) -> Self {
        Self {
            granted,
            capacity: reading.capacity,
            remaining: reading.remaining,
            retry_after: millis(reading.retry_after.ms()),
            reset_after: millis(reading.reset_after.ceil_ms()).unwrap_or_default(),
            decided_by: DecidedBy::Server,
        }
    }

    pub(super) fn read(granted: i64, numbers: &Numbers, decided_by: DecidedBy) -> Self {
        let cells = |number: i64| u32::try_from(number.max(0)).unwrap_or(u32::MAX);
        Self {
            granted: cells(granted),
            capacity: cells(numbers.capacity),
            remaining: cells(numbers.remaining),
            retry_after: millis(numbers.retry_after_ms),
            reset_after: millis(numbers.reset_after_ms).unwrap_or_default(),
            decided_by,
        }
    }
}
