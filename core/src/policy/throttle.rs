//! Adaptive throttling: a caller whose calls are not accepted stops making most of them.
//!
//! Over the window it counts calls and how many of them were accepted. A call is refused with the probability
//! `max(0, (calls - k * accepted) / (calls + 1))`: nothing while at least one of `k` calls is accepted, nearly everything while none
//! is. What it refuses counts as a call that was not accepted, so it holds as long as callers keep coming.
//!
//! # State
//! Calls and accepted calls of the window in ten slots; when a call was last let through.
//!
//! # Invariants
//! - While `calls <= k * accepted` nothing is refused.
//! - At least one call a second passes, if one comes: otherwise it could not see that things are well again.
//! - The same state, time and random number give the same decision.

use super::document::Throttle;
use super::recent::Recent;
use crate::time::{Instant, Span};

/// A call is let through at least this often.
const ALWAYS: Span = Span::from_secs(1);

/// The rules of a throttle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThrottleRules {
    /// In thousandths.
    pub k_milli: u32,
    pub window: Span,
}

impl Throttle {
    pub fn rules(&self) -> ThrottleRules {
        ThrottleRules { k_milli: (self.k() * 1_000.0 + 0.5) as u32, window: self.window() }
    }
}

/// What was counted lately.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Throttler {
    recent: Recent<10>,
    passed: Option<Instant>,
}

impl Throttler {
    /// How many of a million calls are refused now.
    pub fn refused_ppm(&self, rules: &ThrottleRules, now: Instant) -> u32 {
        let [calls, accepted] = self.recent.sums(now).map(u128::from);
        let beyond = (calls * 1_000).saturating_sub(accepted * u128::from(rules.k_milli));
        (beyond * 1_000 / (calls + 1)) as u32
    }

    /// Whether a call may be made, by a number drawn evenly from all. One that may not is counted here; one that may, by
    /// [`ended`](Self::ended).
    #[must_use]
    pub fn admit(&mut self, rules: &ThrottleRules, random: u64, now: Instant) -> bool {
        let is_due = self.passed.is_none_or(|passed| passed.until(now) >= ALWAYS || now < passed);
        // A random number from 0 to 999,999.
        let drawn = ((u128::from(random) * 1_000_000) >> 64) as u32;
        let is_admitted = is_due || drawn >= self.refused_ppm(rules, now);
        if is_admitted {
            self.passed = Some(now);
        } else {
            self.recent.add(rules.window, now, [1, 0]);
        }
        is_admitted
    }

    /// A call that was let through has ended.
    pub fn ended(&mut self, rules: &ThrottleRules, is_accepted: bool, now: Instant) {
        self.recent.add(rules.window, now, [1, u64::from(is_accepted)]);
    }
}
