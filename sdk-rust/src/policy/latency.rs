//! How long calls take, as far as hedging has to know: one quantile of the recent ones.
//!
//! A call is counted in two histograms: of this turn, and of this turn and the one before. Every [`TURN`] the first takes
//! the place of the second and begins anew. The quantile is that of the second, so it forgets what is older than two
//! turns. It is worked out anew every [`REFRESH`] calls and read from one atomic. Calls that would have to wait for the
//! lock are not counted: a sample is as good without them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::clock::Moment;
use crate::error::Error;

const TURN: Duration = Duration::from_secs(30);
const REFRESH: u64 = 64;
const LONGEST: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(crate) struct Latencies {
    quantile: f64,
    warm_up: u64,
    recent: Mutex<Recent>,
    /// In microseconds; 0 until there were enough calls.
    current_us: AtomicU64,
}

#[derive(Debug)]
struct Recent {
    this_turn: Histogram<u32>,
    both_turns: Histogram<u32>,
    turn_began: Option<Moment>,
    until_refresh: u64,
}

impl Latencies {
    /// `percentile` of the recent calls, once there were `warm_up` of them.
    pub fn new(percentile: f64, warm_up: u32) -> Result<Self, Error> {
        let empty = || {
            Histogram::new_with_bounds(1, LONGEST.as_micros() as u64, 2)
                .map_err(|error| Error::Internal(error.to_string()))
        };
        let recent = Recent { this_turn: empty()?, both_turns: empty()?, turn_began: None, until_refresh: 0 };
        let (quantile, warm_up) = (percentile / 100.0, u64::from(warm_up));
        Ok(Self { quantile, warm_up, recent: Mutex::new(recent), current_us: AtomicU64::new(0) })
    }

    pub fn record(&self, now: Moment, latency: Duration) {
        let Some(mut recent) = self.recent.try_lock() else { return };
        let recent = &mut *recent;
        let elapsed = now.saturating_sub(*recent.turn_began.get_or_insert(now));
        if elapsed >= TURN {
            std::mem::swap(&mut recent.this_turn, &mut recent.both_turns);
            recent.this_turn.reset();
            if elapsed >= TURN * 2 {
                recent.both_turns.reset();
            }
            recent.turn_began = Some(now);
            recent.until_refresh = 0;
        }
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(1);
        recent.this_turn.saturating_record(us);
        recent.both_turns.saturating_record(us);
        if recent.until_refresh > 0 {
            recent.until_refresh -= 1;
            return;
        }
        if recent.both_turns.len() >= self.warm_up {
            recent.until_refresh = REFRESH - 1;
            self.current_us.store(recent.both_turns.value_at_quantile(self.quantile), Relaxed);
        } else {
            self.current_us.store(0, Relaxed);
        }
    }

    /// `None` until there were enough calls.
    pub fn quantile(&self) -> Option<Duration> {
        match self.current_us.load(Relaxed) {
            0 => None,
            us => Some(Duration::from_micros(us)),
        }
    }
}

#[cfg(test)]
#[path = "tests/latency.rs"]
mod tests;
