//! A limit on extra load: how many retries and hedges there may be for the calls that are made.
//!
//! Over the recent window (`ttl`) at most `floor(min_per_second * ttl) + calls * percent / 100` extra calls are granted. The
//! first part lets a quiet caller retry at all; the second keeps three layers of callers from turning one failure into dozens.
//!
//! # State
//! Calls and extra calls of the window in ten slots, and how many extra calls were granted and have not begun.
//!
//! # Transitions
//! | event | change |
//! | --- | --- |
//! | `count_calls` | a call earns its percentage |
//! | `try_take` | if there is one left, it waits |
//! | `begin` | one that waited counts for the window from now on |
//! | `give_back` | one that waited is free again |
//!
//! # Invariants
//! - An extra call counts from its grant until it begins, however long it waits, and from then on for the window: a crowd that
//!   waits cannot overdraw.
//! - Extra calls begun in any nine tenths of a window (the grain of the slots) are never more than what was allowed.

use super::document::Budget;
use super::recent::{Recent, RecentSlot};
use crate::time::{Instant, Span};

/// The rules of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetRules {
    pub ttl: Span,
    pub min_per_second: u32,
    pub percent: u32,
}

impl Budget {
    pub fn rules(&self) -> BudgetRules {
        BudgetRules { ttl: self.ttl(), min_per_second: self.min_per_second(), percent: self.percent() }
    }
}

/// What was counted lately.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetryBudget {
    recent: Recent<10>,
    /// Extra calls that were granted and have not begun.
    waiting: u64,
}

impl RetryBudget {
    /// One made of what [`slots`](Self::slots) and [`waiting`](Self::waiting) gave.
    pub fn from_slots(ttl: Span, slots: impl IntoIterator<Item = RecentSlot>, waiting: u64) -> Self {
        Self { recent: Recent::from_slots(ttl, slots), waiting }
    }

    pub fn slots(&self) -> impl Iterator<Item = RecentSlot> + '_ {
        self.recent.slots()
    }

    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Calls that are not extra: each earns its percentage.
    pub fn count_calls(&mut self, rules: &BudgetRules, calls: u64, now: Instant) {
        self.recent.add(rules.ttl, now, [calls, 0]);
    }

    /// How many extra calls would be granted now.
    pub fn available(&self, rules: &BudgetRules, now: Instant) -> u64 {
        let [calls, extra] = self.recent.sums(now);
        let floor = u64::from(rules.min_per_second) * rules.ttl.floor_ms().unsigned_abs() / 1_000;
        let earned = calls.saturating_mul(rules.percent.into()) / 100;
        floor.saturating_add(earned).saturating_sub(extra).saturating_sub(self.waiting)
    }

    /// Asks for an extra call. If it is granted it waits, until it begins or is given back.
    #[must_use]
    pub fn try_take(&mut self, rules: &BudgetRules, now: Instant) -> bool {
        let is_granted = self.available(rules, now) > 0;
        self.waiting += u64::from(is_granted);
        is_granted
    }

    /// One that waited begins.
    pub fn begin(&mut self, rules: &BudgetRules, now: Instant) {
        self.waiting = self.waiting.saturating_sub(1);
        self.recent.add(rules.ttl, now, [0, 1]);
    }

    /// One that waited does not begin.
    pub fn give_back(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }
}
