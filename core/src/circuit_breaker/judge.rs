//! When a closed breaker trips.

use super::config::WindowKind;
use super::outcomes::Totals;
use super::state::Breaker;
use super::verdict::TransitionReason;
use crate::time::Instant;

/// The threshold that is met, if any.
pub(super) fn verdict(breaker: &Breaker, now: Instant) -> Option<TransitionReason> {
    let config = &breaker.config;
    let reason = if config.consecutive > 0 && breaker.failures_in_a_row >= config.consecutive {
        TransitionReason::Consecutive
    } else {
        let totals = breaker.outcomes.totals(now);
        if totals.calls < enough_calls(breaker) {
            return None;
        }
        let is_unusual =
            u64::from(totals.failures) * 1_000_000 >= u64::from(totals.calls) * u64::from(breaker.least_ppm);
        if is_unusual && reaches(totals.failures, totals, config.rate_pct) {
            TransitionReason::FailureRate
        } else if !config.slow.is_zero() && reaches(totals.slow, totals, config.slow_rate_pct) {
            TransitionReason::SlowRate
        } else {
            return None;
        }
    };
    has_quorum(breaker, now).then_some(reason)
}

/// A count window cannot hold more than its size, so it is enough then.
fn enough_calls(breaker: &Breaker) -> u32 {
    match breaker.config.window {
        WindowKind::Count(calls) => breaker.config.min_calls.min(calls),
        WindowKind::Time(_) => breaker.config.min_calls,
    }
}

fn reaches(part: u32, totals: Totals, percent: u32) -> bool {
    percent > 0 && part as u64 * 100 >= totals.calls as u64 * percent as u64
}

/// Enough distinct callers failed inside the window.
fn has_quorum(breaker: &Breaker, now: Instant) -> bool {
    let config = &breaker.config;
    if config.quorum <= 1 {
        return true;
    }
    let oldest = match config.window {
        WindowKind::Count(calls) => breaker.recorded as i64 - calls as i64,
        WindowKind::Time(length) => now.minus(length).as_us(),
    };
    let callers = breaker.evidence.iter().filter(|(_, mark)| *mark > oldest).count();
    callers >= config.quorum as usize
}
