//! The replies of redis-cell's CL.THROTTLE, from our machine.
//!
//! `CL.THROTTLE key max_burst count period_seconds [quantity]`: a bucket of `max_burst + 1` cells; quantity 0 peeks, a
//! negative one refunds. Five integers come back: limited, capacity, remaining, retry_after and reset_after in seconds.
//! redis-cell rounds seconds up only if at least one whole millisecond is left over, and says -1 for "no need to wait"
//! as well as for "never"; clients depend on it, so it stays.

use super::gcra::{Ask, Verdict, Wait};
use super::quota::{Quota, QuotaError};
use crate::limits::{CELLS_MAX, COST_MAX};
use crate::time::Span;

/// A CL.THROTTLE call in our terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttle {
    pub quota: Quota,
    pub ask: Ask,
}

/// The largest `max_burst`: one less than the largest capacity.
pub const MAX_BURST_MAX: u32 = CELLS_MAX - 1;

impl Throttle {
    /// `quantity` must be within +-[`COST_MAX`], `max_burst` at most [`MAX_BURST_MAX`].
    pub fn new(max_burst: u32, count: u32, period: Span, quantity: i64) -> Result<Self, QuotaError> {
        let quota = Quota::new(count, period, max_burst.saturating_add(1))?;
        let cells = quantity.unsigned_abs().min(COST_MAX as u64) as u32;
        let ask = match quantity.signum() {
            1 => Ask::Take(cells),
            0 => Ask::Peek,
            _ => Ask::Refund(cells),
        };
        Ok(Self { quota, ask })
    }

    /// `[limited, limit, remaining, retry_after, reset_after]`.
    pub fn reply(&self, verdict: &Verdict) -> [i64; 5] {
        let reading = verdict.binding();
        let limited = matches!(self.ask, Ask::Take(_)) && verdict.granted == 0;
        let retry_after = match reading.retry_after {
            Wait::For(span) if limited => seconds(span),
            _ => -1,
        };
        [limited as i64, reading.capacity as i64, reading.remaining as i64, retry_after, seconds(reading.reset_after)]
    }
}

fn seconds(span: Span) -> i64 {
    let whole = span.as_us() / 1_000_000;
    let ms_left = span.as_us() % 1_000_000 / 1_000;
    whole + (ms_left > 0) as i64
}
