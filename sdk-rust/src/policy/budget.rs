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
//! The window is a ring of ten slots behind a lock. Counting a call is one addition; only every sixteenth looks at the clock and puts
//! sixteen calls into their slot, so up to fifteen calls may count for longer than the window.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
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

/// What was counted in one slot of time: the one of this number.
#[derive(Debug, Default)]
struct BudgetSlot {
    number: u64,
    calls: u64,
    extra: u64,
}

/// What was counted lately, and the number of the slot that is now.
#[derive(Debug, Default)]
struct BudgetWindow {
    slots: [BudgetSlot; SLOTS as usize],
    now: u64,
    /// Extra calls that were granted and have not begun.
    waiting: u64,
}

impl BudgetWindow {
    /// The slot that is now; what was counted in its place before is over.
    fn current(&mut self) -> &mut BudgetSlot {
        let slot = &mut self.slots[(self.now % SLOTS) as usize];
        if slot.number != self.now {
            *slot = BudgetSlot { number: self.now, ..BudgetSlot::default() };
        }
        slot
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
    window: Mutex<BudgetWindow>,
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
        let (unsorted, window) = (AtomicU64::new(0), Mutex::default());
        Self(Arc::new(BudgetInner { settings, slot_ns, clock, unsorted, window }))
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
            drop(self.0.window());
        }
    }

    /// How many extra calls would be granted now.
    pub fn available(&self) -> u64 {
        self.0.available(&self.0.window())
    }

    /// Asks for an extra call. It counts from now on; see [`BudgetPermit`].
    pub fn try_take(&self) -> Option<BudgetPermit> {
        let mut window = self.0.window();
        if self.0.available(&window) == 0 {
            return None;
        }
        window.waiting += 1;
        Some(BudgetPermit(Some(Arc::clone(&self.0))))
    }
}

impl BudgetInner {
    /// The window as it is now, with every call in it.
    fn window(&self) -> MutexGuard<'_, BudgetWindow> {
        let mut window = self.window.lock();
        // Nanoseconds of a process fit 64 bits for 584 years.
        window.now = self.clock.now().as_nanos() as u64 / self.slot_ns;
        window.current().calls += self.unsorted.swap(0, Relaxed);
        window
    }

    fn available(&self, window: &BudgetWindow) -> u64 {
        let recent = window.slots.iter().filter(|slot| slot.number + SLOTS > window.now);
        let (calls, extra) = recent.fold((0, 0), |(calls, extra), slot| (calls + slot.calls, extra + slot.extra));
        let floor = u64::from(self.settings.min_per_second) * self.settings.ttl.as_millis() as u64 / 1_000;
        let earned = u64::saturating_mul(calls, self.settings.percent.into()) / 100;
        (floor + earned).saturating_sub(extra).saturating_sub(window.waiting)
    }
}

/// An extra call that was granted. [`begin`](Self::begin) says that it begins; dropped before, it is given back.
#[derive(Debug)]
#[must_use = "an extra call that does not begin is given back"]
pub struct BudgetPermit(Option<Arc<BudgetInner>>);

impl BudgetPermit {
    pub fn begin(mut self) {
        if let Some(inner) = self.0.take() {
            let mut window = inner.window();
            window.current().extra += 1;
            window.waiting -= 1;
        }
    }
}

impl Drop for BudgetPermit {
    fn drop(&mut self) {
        if let Some(inner) = &self.0 {
            inner.window().waiting -= 1;
        }
    }
}

#[cfg(test)]
#[path = "tests/budget.rs"]
mod tests;
