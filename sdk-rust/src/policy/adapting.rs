//! What a policy refuses by itself: shedding by priority, throttling, chaos.
//!
//! The machines are those of [`resil_core::policy`]; this is one of each for a process. Shedding and throttling come before
//! everything else of an attempt: what they refuse takes no place, no cell and no probe. Chaos is innermost, so breaker, retry and
//! throttle see what it does as they would see a failure of the callee.
//!
//! Shedding looks at the places of the policy's bulkhead in this process; without one, at how many of the shared bulkhead's places
//! this process has taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use resil_core::Instant;
use resil_core::circuit_breaker::Report;
use resil_core::policy::Chaos;
use resil_core::policy::chaos::Strike;
use resil_core::policy::shedding::{Priority, Shedder, SheddingRules};
use resil_core::policy::throttle::{ThrottleRules, Throttler};

use super::backoff::Random;
use super::settings::PolicySettings;
use crate::clock::Clock;
use crate::error::Error;

/// The machines that a policy has.
#[derive(Debug)]
pub(super) struct Adapting {
    name: Arc<str>,
    clock: Clock,
    random: Random,
    shedding: Option<(SheddingRules, Mutex<Shedder>)>,
    throttle: Option<(ThrottleRules, Mutex<Throttler>)>,
    chaos: Option<(Chaos, AtomicU64)>,
}

impl Adapting {
    /// `None` if the settings have none of them: then calls pay nothing.
    pub fn of(settings: &PolicySettings, name: &Arc<str>, clock: &Clock, seed: Option<u64>) -> Option<Self> {
        let PolicySettings { shedding, throttle, chaos, .. } = settings;
        if shedding.is_none() && throttle.is_none() && chaos.is_none() {
            return None;
        }
        Some(Self {
            name: Arc::clone(name),
            clock: clock.clone(),
            random: seed.map_or_else(Random::default, Random::seeded),
            shedding: shedding.as_ref().map(|own| (own.rules(), Mutex::default())),
            throttle: throttle.as_ref().map(|own| (own.rules(), Mutex::default())),
            chaos: chaos.clone().map(|own| (own, AtomicU64::new(0))),
        })
    }

    fn now(&self) -> Instant {
        Instant::from_us(i64::try_from(self.clock.now().as_micros()).unwrap_or(i64::MAX))
    }

    #[cold]
    fn refused(&self, layer: &'static str) -> Error {
        tracing::debug!(name: "resil.reject", policy = &*self.name, layer, "refused");
        Error::Refused { name: Arc::clone(&self.name), layer }
    }

    /// Whether an attempt may be made. `usage` is how many places are taken, and how many there are.
    pub fn admit(&self, priority: Option<Priority>, usage: impl FnOnce() -> (u32, u32)) -> Result<(), Error> {
        if let Some((rules, shedder)) = &self.shedding {
            let (taken, places) = usage();
            if shedder.lock().refuses(rules, priority.unwrap_or_default(), taken, places) {
                return Err(self.refused("shed"));
            }
        }
        if let Some((rules, throttler)) = &self.throttle {
            let random = (self.random.unit() * 2f64.powi(64)) as u64;
            if !throttler.lock().admit(rules, random, self.now()) {
                return Err(self.refused("throttle"));
            }
        }
        Ok(())
    }

    /// An attempt that was admitted has ended. One that was not made says nothing about the callee.
    pub fn ended(&self, report: Report) {
        if let Some((rules, throttler)) = self.throttle.as_ref().filter(|_| report != Report::Cancel) {
            throttler.lock().ended(rules, report != Report::Fail, self.now());
        }
    }

    /// What is done to the next call for `subject`. By the wall clock: the end of chaos is a date.
    pub fn strike(&self, subject: &str) -> Option<Strike> {
        let (chaos, calls) = self.chaos.as_ref()?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Instant::from_us(i64::try_from(since.as_micros()).unwrap_or(i64::MAX));
        let strike = chaos.strike(subject, calls.fetch_add(1, Relaxed), now)?;
        tracing::info!(name: "resil.chaos", policy = &*self.name, kind = strike.text(), subject, "struck");
        Some(strike)
    }

    pub fn struck(&self) -> Error {
        self.refused("chaos")
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}
