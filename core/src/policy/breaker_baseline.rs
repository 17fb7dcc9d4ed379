//! An adaptive breaker's threshold: what is normal for a callee is not an outage.
//!
//! Over the last hour, outside of open times, it counts calls and failures: `b` is the part that failed. A window of `n` calls trips at
//! `max(rate, b + 3 * sqrt(b * (1 - b) / n))`: three standard deviations above what a callee that fails this often shows by chance.
//! So a callee of which half of the calls fail all day does not flap, and one that is usually well trips at `rate`, as without this.
//!
//! # State
//! Calls and failures of the hour in sixty slots. The caller counts only while the circuit is closed.
//!
//! # Invariants
//! - The threshold is never below `rate` and never above 100 percent.
//! - Below 100 calls in the hour it is `rate`: nothing is known yet.

use super::recent::Recent;
use crate::circuit_breaker::{Breaker, BreakerOutcome, Edit as BreakerEdit, Phase};
use crate::time::{Instant, Span};

const BASELINE: Span = Span::from_secs(3_600);

/// Calls that must have been seen.
const KNOWN_FROM: u64 = 100;

/// What was counted in the last hour.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Baseline {
    recent: Recent<60>,
}

impl Baseline {
    /// Calls that ended while the circuit was closed, and how many of them failed.
    pub fn count(&mut self, calls: u64, failures: u64, now: Instant) {
        self.recent.add(BASELINE, now, [calls, failures.min(calls)]);
    }

    /// The part of the calls that failed, in millionths; `None` while too little is known.
    pub fn failed_ppm(&self, now: Instant) -> Option<u32> {
        let [calls, failures] = self.recent.sums(now);
        (calls >= KNOWN_FROM).then(|| (u128::from(failures) * 1_000_000 / u128::from(calls)) as u32)
    }

    /// The part of `calls` that has to have failed for a trip, in millionths.
    pub fn threshold_ppm(&self, rate_pct: u32, calls: u64, now: Instant) -> u32 {
        let rate_ppm = rate_pct.min(100) * 10_000;
        let Some(b) = self.failed_ppm(now).map(u64::from) else { return rate_ppm };
        let deviation = (b * (1_000_000 - b) / calls.max(1)).isqrt();
        rate_ppm.max((b + 3 * deviation).min(1_000_000) as u32)
    }

    /// Whether `failures` of `calls` trip a breaker whose rate is `rate_pct`; 0 turns the rule off.
    pub fn trips(&self, rate_pct: u32, failures: u64, calls: u64, now: Instant) -> bool {
        let threshold_ppm = u128::from(self.threshold_ppm(rate_pct, calls, now));
        rate_pct > 0 && calls > 0 && u128::from(failures) * 1_000_000 >= threshold_ppm * u128::from(calls)
    }

    /// Takes a step of a breaker that is judged by this, and counts what it recorded while the circuit was closed. A step that fails changes nothing.
    pub fn judge<V, E>(
        &mut self,
        breaker: &mut Breaker,
        now: Instant,
        step: impl FnOnce(&mut Breaker) -> Result<BreakerOutcome<V>, E>,
    ) -> Result<BreakerOutcome<V>, E> {
        let was_closed = matches!(breaker.phase(), Phase::Closed);
        let (rate_pct, calls) = (breaker.config().rate_pct, breaker.totals(now).calls.into());
        let outcome = breaker.judged_by(self.threshold_ppm(rate_pct, calls, now), step)?;
        for edit in &outcome.edits {
            if let (true, BreakerEdit::Record { batch, .. }) = (was_closed, edit) {
                self.count(batch.calls().into(), batch.failures.into(), now);
            }
        }
        Ok(outcome)
    }
}
