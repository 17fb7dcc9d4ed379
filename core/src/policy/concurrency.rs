//! Adaptive concurrency: the number of places follows what the callee can bear, between `min` and `max`.
//!
//! **Gradient.** Durations of a round of calls are compared with those of an idle callee. While they are at most half as long again,
//! the callee has no queue to speak of, and the limit grows by its square root (at least one). When they are longer, it shrinks by the same
//! ratio, at most by half in one round. What an idle callee takes falls quickly to shorter durations. It rises only while less than half of
//! the places are taken or the limit is at `min`: longer durations may otherwise be a queue of our own making, and a long overload would
//! become normal.
//!
//! **AIMD.** Each good call adds `1/limit`: one place more per round. A failure, or a call that took longer than the attempt
//! timeout, takes a tenth away, once per round: calls that fail together say one thing, not many.
//!
//! A round is as many ended calls as there are places, at least ten. The limit grows only while at least half of the places are
//! taken: an idle caller learns nothing. Shrinking evicts no call; places that are taken are given back as calls end.
//!
//! # State
//! The limit in thousandths, the sums of this round, what an idle callee takes.
//!
//! # Invariants
//! - `min <= limit <= max`, also after the bounds change.
//! - The gradient begins at `max`; AIMD, which shrinks slowly, at 20 or the nearest bound.

use super::document::{Adaptive, AdaptiveKind};
use crate::time::Span;

/// The rules of adaptive concurrency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConcurrencyRules {
    pub kind: AdaptiveKind,
    pub min: u32,
    pub max: u32,
}

impl Adaptive {
    pub fn rules(&self, max: u32) -> ConcurrencyRules {
        ConcurrencyRules { kind: self.kind(), min: self.min().min(max), max }
    }
}

/// How a call ended, to the machine that adapts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub took: Span,
    /// It failed, or took longer than the attempt timeout.
    pub is_overload: bool,
    /// Places taken while it ran, its own included.
    pub in_flight: u32,
}

/// The fewest calls that a round has.
const ROUND_LEAST: u64 = 10;

/// Where AIMD begins: from a large limit it would need many rounds to come down, and a callee that is overloaded by then has no time.
const AIMD_FIRST_MILLI: u64 = 20_000;

/// What was learnt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Concurrency {
    /// In thousandths; `None` before the first call.
    limit_milli: Option<u64>,
    /// Of this round.
    calls: u64,
    sum_us: u64,
    busiest: u32,
    /// What an idle callee takes; 0 before the first round.
    long_us: u64,
    /// Whether this round took a tenth away.
    has_shrunk: bool,
}

impl Concurrency {
    /// How many places there are now.
    pub fn limit(&self, rules: &ConcurrencyRules) -> u32 {
        ((self.limit_milli(rules) / 1_000) as u32).clamp(rules.min, rules.max)
    }

    fn limit_milli(&self, rules: &ConcurrencyRules) -> u64 {
        let (min, max) = (u64::from(rules.min) * 1_000, u64::from(rules.max) * 1_000);
        let first = if rules.kind == AdaptiveKind::Aimd { AIMD_FIRST_MILLI } else { max };
        self.limit_milli.unwrap_or(first).clamp(min, max)
    }

    /// A call ended.
    pub fn ended(&mut self, rules: &ConcurrencyRules, sample: Sample) {
        let limit = self.limit(rules);
        self.calls += 1;
        self.sum_us = self.sum_us.saturating_add(sample.took.as_us().unsigned_abs());
        self.busiest = self.busiest.max(sample.in_flight);
        if rules.kind == AdaptiveKind::Aimd {
            self.add_or_cut(rules, &sample);
        }
        if self.calls >= u64::from(limit).max(ROUND_LEAST) {
            if rules.kind == AdaptiveKind::Gradient {
                self.compare(rules);
            }
            (self.calls, self.sum_us, self.busiest, self.has_shrunk) = (0, 0, 0, false);
        }
    }

    fn is_busy(&self, in_flight: u32, limit_milli: u64) -> bool {
        u64::from(in_flight) * 2_000 >= limit_milli
    }

    fn add_or_cut(&mut self, rules: &ConcurrencyRules, sample: &Sample) {
        let limit_milli = self.limit_milli(rules);
        let moved = if sample.is_overload && !self.has_shrunk {
            self.has_shrunk = true;
            limit_milli - limit_milli / 10
        } else if !sample.is_overload && self.is_busy(sample.in_flight, limit_milli) {
            limit_milli + (1_000_000 / limit_milli.max(1)).max(1)
        } else {
            limit_milli
        };
        self.limit_milli = Some(moved);
        self.limit_milli = Some(self.limit_milli(rules));
    }

    /// The end of a round.
    fn compare(&mut self, rules: &ConcurrencyRules) {
        let (limit_milli, short_us) = (self.limit_milli(rules), (self.sum_us / self.calls).max(1));
        let is_busy = self.is_busy(self.busiest, limit_milli);
        let long_us = match self.long_us {
            0 => short_us,
            long_us if short_us < long_us => long_us - (long_us - short_us) / 4,
            // A queue at the callee may be of our own making, and must not become normal.
            long_us if is_busy && limit_milli > u64::from(rules.min) * 1_000 => long_us,
            long_us => long_us + (short_us - long_us) / 10,
        };
        self.long_us = long_us.max(1);
        let bearable_us = self.long_us + self.long_us / 2;
        let moved = if short_us > bearable_us {
            let shrunk = (u128::from(limit_milli) * u128::from(bearable_us) / u128::from(short_us)) as u64;
            shrunk.max(limit_milli / 2)
        } else if is_busy {
            limit_milli + ((limit_milli / 1_000).isqrt() * 1_000).max(1_000)
        } else {
            limit_milli
        };
        self.limit_milli = Some(moved);
        self.limit_milli = Some(self.limit_milli(rules));
    }
}
