//! A limit on extra load: how many retries and hedges a process may make for the calls it makes.
//!
//! The machine is [`resil_core::policy::retry_budget`]; this is one of it for a process. Retry and hedging may share one: clones are
//! one.
//!
//! Counting a call is one addition; only every sixteenth takes the lock and looks at the clock, so up to fifteen calls may count for
//! longer than the window.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use resil_core::Instant;
use resil_core::policy::retry_budget::{BudgetRules, RetryBudget};
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::error::Error;
use crate::limiter::span;
use crate::settings::span_text::{self, check_number, check_span};

/// How many calls are counted at once.
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

/// A limit on extra load. See [the module](self).
#[derive(Debug, Clone)]
pub struct Budget(Arc<BudgetInner>);

#[derive(Debug)]
struct BudgetInner {
    settings: BudgetSettings,
    rules: BudgetRules,
    clock: Clock,
    /// Calls that were not counted yet.
    uncounted: AtomicU64,
    machine: Mutex<RetryBudget>,
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
        let BudgetSettings { ttl, min_per_second, percent } = settings;
        let rules = BudgetRules { ttl: span(ttl), min_per_second, percent };
        let (uncounted, machine) = (AtomicU64::new(0), Mutex::default());
        Self(Arc::new(BudgetInner { settings, rules, clock, uncounted, machine }))
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
        if self.0.uncounted.fetch_add(1, Relaxed) + 1 >= BATCH {
            drop(self.0.counted());
        }
    }

    /// How many extra calls would be granted now.
    pub fn available(&self) -> u64 {
        let (machine, now) = self.0.counted();
        machine.available(&self.0.rules, now)
    }

    /// Asks for an extra call. It counts from now on; see [`BudgetPermit`].
    pub fn try_take(&self) -> Option<BudgetPermit> {
        let (mut machine, now) = self.0.counted();
        machine.try_take(&self.0.rules, now).then(|| BudgetPermit(Some(Arc::clone(&self.0))))
    }
}

impl BudgetInner {
    /// The machine with every call counted, and the time.
    fn counted(&self) -> (MutexGuard<'_, RetryBudget>, Instant) {
        let mut machine = self.machine.lock();
        let now = Instant::from_us(i64::try_from(self.clock.now().as_micros()).unwrap_or(i64::MAX));
        let calls = self.uncounted.swap(0, Relaxed);
        if calls > 0 {
            machine.count_calls(&self.rules, calls, now);
        }
        (machine, now)
    }
}

/// An extra call that was granted. [`begin`](Self::begin) says that it begins; dropped before, it is given back.
#[derive(Debug)]
#[must_use = "an extra call that does not begin is given back"]
pub struct BudgetPermit(Option<Arc<BudgetInner>>);

impl BudgetPermit {
    pub fn begin(mut self) {
        if let Some(inner) = self.0.take() {
            let (mut machine, now) = inner.counted();
            machine.begin(&inner.rules, now);
        }
    }
}

impl Drop for BudgetPermit {
    fn drop(&mut self) {
        if let Some(inner) = &self.0 {
            inner.machine.lock().give_back();
        }
    }
}

#[cfg(test)]
#[path = "tests/budget.rs"]
mod tests;
