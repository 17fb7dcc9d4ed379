//! How many retries a fleet may make for the calls it makes.
//!
//! Over the last `ttl` at most `floor(min_per_second * ttl) + calls * percent / 100` retries are granted. A call is an admitted first
//! attempt. A retry counts from the moment EXIT grants it: while its ticket waits, however long, and from then on for the window.
//! One whose ticket lapses is given back.
//!
//! # The window
//! Time is cut into slots of a tenth of `ttl`. Calls are counted over the last ten slots, which are never more than `ttl`; retries
//! over the last eleven, which are never less. So at every grant the promise holds for the exact window, too.

use crate::limits::CLOCK_JITTER;
use crate::policy::retry_budget::BudgetRules;
use crate::time::{Instant, Span};

/// Slots of calls that count, and of retries.
const CALL_SLOTS: u64 = 10;
pub(super) const SLOTS: usize = 11;

/// What was counted in the slot of this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FleetSlot {
    pub number: u64,
    pub calls: u64,
    pub retries: u64,
}

/// What was counted lately, oldest first. Slots in which nothing was counted are not there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetBudget {
    pub(super) slots: alloc::vec::Vec<FleetSlot>,
}

fn slot_at(rule: &BudgetRules, at: Instant) -> u64 {
    let width = (rule.ttl.as_us() / CALL_SLOTS as i64).max(1);
    (at.as_us() / width).cast_unsigned()
}

impl FleetBudget {
    /// An admitted first attempt.
    pub fn count_call(&mut self, rule: &BudgetRules, at: Instant) {
        if let Some(slot) = self.slot(rule, at) {
            slot.calls += 1;
        }
    }

    /// A retry begins.
    pub fn count_retry(&mut self, rule: &BudgetRules, at: Instant) {
        if let Some(slot) = self.slot(rule, at) {
            slot.retries += 1;
        }
    }

    /// The slot of `at`, or the newest if that is a little later: time never runs backwards. If it is much later, the clock was set
    /// back: what was counted is as old as it was, counted from `at`.
    fn slot(&mut self, rule: &BudgetRules, at: Instant) -> Option<&mut FleetSlot> {
        let number = slot_at(rule, at);
        let newest = self.slots.last().map(|slot| slot.number);
        if let Some(newest) = newest.filter(|newest| *newest > slot_at(rule, at.plus(CLOCK_JITTER))) {
            let back = newest - number;
            self.slots.retain(|slot| slot.number >= back);
            self.slots.iter_mut().for_each(|slot| slot.number -= back);
        }
        let newest = self.slots.last().map(|slot| slot.number);
        if newest.is_none_or(|newest| newest < number) {
            self.slots.retain(|slot| slot.number + SLOTS as u64 > number);
            self.slots.push(FleetSlot { number, ..FleetSlot::default() });
        }
        self.slots.last_mut()
    }

    /// How many retries would be granted now, beside those that wait.
    pub fn available(&self, rule: &BudgetRules, waiting: usize, now: Instant) -> u64 {
        let current = slot_at(rule, now);
        // A clock that was set back: what lies ahead counts as if it were now.
        let within = |slot: &&FleetSlot, slots: u64| slot.number + slots > current;
        let calls: u64 = self.slots.iter().filter(|slot| within(slot, CALL_SLOTS)).map(|slot| slot.calls).sum();
        let retries: u64 = self.slots.iter().filter(|slot| within(slot, SLOTS as u64)).map(|slot| slot.retries).sum();
        let least = i64::from(rule.min_per_second).saturating_mul(rule.ttl.as_us()) / Span::from_secs(1).as_us();
        let most = least.cast_unsigned() + calls.saturating_mul(u64::from(rule.percent)) / 100;
        most.saturating_sub(retries + waiting as u64)
    }

    /// Another `ttl`: what is counted counts on, from now.
    pub fn resize(&mut self, from: &BudgetRules, to: &BudgetRules, at: Instant) {
        if from.ttl == to.ttl || self.slots.is_empty() {
            return;
        }
        let total = |count: fn(&FleetSlot) -> u64| self.slots.iter().map(count).sum();
        let (calls, retries) = (total(|slot| slot.calls), total(|slot| slot.retries));
        self.slots.clear();
        self.slots.push(FleetSlot { number: slot_at(to, at), calls, retries });
    }

    pub(super) fn is_sound(&self) -> bool {
        let in_order = self.slots.windows(2).all(|pair| pair[0].number < pair[1].number);
        // Only where they are in order has the last one the largest number.
        let span = || self.slots.first().zip(self.slots.last()).map_or(0, |(first, last)| last.number - first.number);
        self.slots.len() <= SLOTS && in_order && span() < SLOTS as u64
    }
}
