//! A limit on extra load: how many retries and hedges a process may make for the calls it makes.
//!
//! Over the recent window (`ttl`, 10 s by default) at most `min_per_second * ttl + percent * calls` extra calls are
//! granted. The first part lets a quiet process retry at all; the second keeps three layers of callers from turning one
//! failure into dozens. Retry and hedging may share one budget: clones are one.
//!
//! An extra call that waits in its backoff counts from the moment it is granted until it begins, however long it waits,
//! and from then on for the window. One that is cancelled while it waits is given back. So the budget cannot be
//! overdrawn by a crowd that waits.
//!
//! The window is a ring of ten slots. Counting a call is one addition; only every sixteenth looks at the clock and puts
//! sixteen calls into their slot, so up to fifteen calls may count for longer than the window. Granting an extra call,
//! which happens only after a failure or a delay, takes a short lock, which makes the limit exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::clock::{Clock, Moment};
use crate::error::Error;
use crate::settings::span_text::{self, check_number, check_span};

const SLOTS: u64 = 10;

/// How many calls are put into a slot at once.
const BATCH: u64 = 16;

/// How much extra load is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct BudgetSettings {
    /// How far back calls and extra calls count: 1 s to 60 s.
    #[serde(with = "span_text")]
    pub ttl: Duration,
    /// Extra calls that are always allowed, per second: 0 to 10,000.
    pub min_per_second: u32,
    /// Extra calls for every hundred calls: 0 to 1,000.
    pub percent: u32,
}

impl Default for BudgetSettings {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(10), min_per_second: 10, percent: 20 }
    }
}

impl BudgetSettings {
    pub fn validate(&self) -> Result<(), Error> {
        check_span("ttl", self.ttl, Duration::from_secs(1), Duration::from_secs(60))?;
        check_number("minPerSecond", self.min_per_second, 0, 10_000)?;
        check_number("percent", self.percent, 0, 1_000)
    }
}

/// A count for one slot of time: which one in the upper 24 bits, the count below. A count of a slot that has passed
/// is overwritten by the first call in the next one that falls on it.
#[derive(Debug, Default)]
struct Slot(AtomicU64);

const COUNT_BITS: u32 = 40;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

fn stamp(slot: u64) -> u64 {
    // Never 0, which is what a slot that was never used carries.
    (slot % ((1 << (64 - COUNT_BITS)) - 1)) + 1
}

impl Slot {
    fn add(&self, slot: u64, count: u64) {
        let mut seen = self.0.load(Relaxed);
        while seen >> COUNT_BITS != stamp(slot) {
            match self.0.compare_exchange_weak(seen, stamp(slot) << COUNT_BITS | count, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(newer) => seen = newer,
            }
        }
        // Between the look and this the slot may have begun anew: these are then counted a little later.
        self.0.fetch_add(count, Relaxed);
    }

    fn count_at(&self, slot: u64) -> u64 {
        let seen = self.0.load(Relaxed);
        if seen >> COUNT_BITS == stamp(slot) { seen & COUNT_MASK } else { 0 }
    }
}

#[derive(Debug, Default)]
struct Ring([Slot; SLOTS as usize]);

impl Ring {
    fn at(&self, slot: u64) -> &Slot {
        &self.0[(slot % SLOTS) as usize]
    }

    /// The count of the last ten slots, the current one among them.
    fn recent(&self, slot: u64) -> u64 {
        (slot.saturating_sub(SLOTS - 1)..=slot).map(|slot| self.at(slot).count_at(slot)).sum()
    }
}

/// A limit on extra load. See [the module](self).
#[derive(Debug, Clone)]
pub struct Budget(Arc<BudgetInner>);

#[derive(Debug)]
struct BudgetInner {
    settings: BudgetSettings,
    slot_ns: u64,
    clock: Clock,
    /// Calls that are in no slot yet.
    unsorted: AtomicU64,
    calls: Ring,
    extra: Ring,
    /// Extra calls that were granted and have not begun.
    waiting: Mutex<u64>,
}

impl Budget {
    pub fn new(settings: &BudgetSettings) -> Result<Self, Error> {
        Self::with_clock(settings, Clock::system())
    }

    pub fn with_clock(settings: &BudgetSettings, clock: Clock) -> Result<Self, Error> {
        settings.validate()?;
        Ok(Self::new_by(settings.clone(), clock))
    }

    fn new_by(settings: BudgetSettings, clock: Clock) -> Self {
        let slot_ns = u64::try_from(settings.ttl.as_nanos()).unwrap_or(u64::MAX) / SLOTS;
        Self(Arc::new(BudgetInner {
            settings,
            slot_ns,
            clock,
            unsorted: AtomicU64::new(0),
            calls: Ring::default(),
            extra: Ring::default(),
            waiting: Mutex::new(0),
        }))
    }

    /// A new one with the same settings, by another clock.
    pub(super) fn anew(&self, clock: Clock) -> Self {
        Self::new_by(self.0.settings.clone(), clock)
    }

    pub fn settings(&self) -> &BudgetSettings {
        &self.0.settings
    }

    /// Counts a call (not its retries): it earns its percentage.
    pub fn count_call(&self) {
        if self.0.unsorted.fetch_add(1, Relaxed) + 1 >= BATCH {
            self.0.sort(self.0.slot(self.0.clock.now()));
        }
    }

    /// How many extra calls would be granted now.
    pub fn available(&self) -> u64 {
        self.0.available(self.0.slot(self.0.clock.now()), *self.0.waiting.lock())
    }

    /// Asks for an extra call. It counts from now on; see [`BudgetPermit`].
    pub fn try_take(&self) -> Option<BudgetPermit> {
        let slot = self.0.slot(self.0.clock.now());
        let mut waiting = self.0.waiting.lock();
        if self.0.available(slot, *waiting) == 0 {
            return None;
        }
        *waiting += 1;
        Some(BudgetPermit(Some(Arc::clone(&self.0))))
    }
}

impl BudgetInner {
    fn slot(&self, now: Moment) -> u64 {
        // Nanoseconds of a process fit 64 bits for 584 years.
        now.as_nanos() as u64 / self.slot_ns
    }

    /// Puts what is in no slot yet into this one.
    fn sort(&self, slot: u64) {
        let calls = self.unsorted.swap(0, Relaxed);
        if calls > 0 {
            self.calls.at(slot).add(slot, calls);
        }
    }

    fn available(&self, slot: u64, waiting: u64) -> u64 {
        self.sort(slot);
        let floor = u64::from(self.settings.min_per_second) * self.settings.ttl.as_millis() as u64 / 1_000;
        let earned = self.calls.recent(slot).saturating_mul(u64::from(self.settings.percent)) / 100;
        (floor + earned).saturating_sub(self.extra.recent(slot)).saturating_sub(waiting)
    }
}

/// An extra call that was granted. [`begin`](Self::begin) says that it begins; dropped before, it is given back.
#[derive(Debug)]
#[must_use = "an extra call that does not begin is given back"]
pub struct BudgetPermit(Option<Arc<BudgetInner>>);

impl BudgetPermit {
    pub fn begin(mut self) {
        let Some(inner) = self.0.take() else { return };
        let slot = inner.slot(inner.clock.now());
        // Under the lock, so that it is at no moment in neither count.
        let mut waiting = inner.waiting.lock();
        inner.extra.at(slot).add(slot, 1);
        *waiting -= 1;
    }
}

impl Drop for BudgetPermit {
    fn drop(&mut self) {
        if let Some(inner) = &self.0 {
            *inner.waiting.lock() -= 1;
        }
    }
}
#[cfg(test)]
#[path = "tests/budget.rs"]
mod tests;
