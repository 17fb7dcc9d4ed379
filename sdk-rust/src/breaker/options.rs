//! When a breaker trips, how it comes back, and how this process talks about it.

use std::time::Duration;

use resil_core::circuit_breaker::{Config, Patch, WindowKind, bounds};
use resil_core::{Span, circuit_breaker::ConfigError};
use resil_wire::breaker::Options;
use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::error::Error;
use crate::health::Away;
use crate::limiter::span;

/// How calls are counted while the circuit is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Admitted here, without a round trip; outcomes are sent in batches, failures at once. A call that begins while a
    /// failure of this process has not been answered waits for that answer.
    Batched,
    /// Every call asks, and reports.
    Exact,
}

/// The options of a breaker. What is not said is as the server has it: by CONFIG, or else the defaults (five failures in a
/// row, or half of the last hundred with at least ten calls; open for 30 s; three probes, three successes).
///
/// They apply to a breaker that nobody configured. To change them later, raise the [`version`](Self::version): then a
/// rolling deploy with two configurations does not flip between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerOptions {
    pub(super) patch: Patch,
    pub(super) version: Option<u64>,
    pub(super) mode: Mode,
    pub(super) when_away: Away,
    pub(super) flush_interval: Duration,
    batch: Option<u64>,
    pub(super) trust: Duration,
    /// The first number that was not one: kept until somebody can be told.
    wrong: Option<&'static str>,
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self {
            patch: Patch::default(),
            version: None,
            mode: Mode::Batched,
            when_away: Away::Local,
            flush_interval: Duration::from_millis(100),
            batch: None,
            trust: Duration::from_secs(1),
            wrong: None,
        }
    }
}

impl BreakerOptions {
    pub fn new() -> Self {
        Self::default()
    }

    /// Rates are taken over the last `calls` calls.
    pub fn window_calls(mut self, calls: u32) -> Self {
        self.patch.window = Some(WindowKind::Count(calls));
        self
    }

    /// Rates are taken over the calls of this last span.
    pub fn window_time(mut self, length: Duration) -> Self {
        self.patch.window = Some(WindowKind::Time(span(length)));
        self
    }

    /// Percent of failed calls at which it trips; 0 turns this rule off.
    pub fn failure_rate(mut self, percent: u32) -> Self {
        self.patch.rate_pct = Some(percent);
        self
    }

    /// A call that takes this long is slow, and this many percent of slow calls trip it.
    pub fn slow_calls(mut self, slower_than: Duration, percent: u32) -> Self {
        self.patch.slow = Some(span(slower_than));
        self.patch.slow_rate_pct = Some(percent);
        self
    }

    /// Failures in a row at which it trips; 0 turns this rule off.
    pub fn consecutive(mut self, failures: u32) -> Self {
        self.patch.consecutive = Some(failures);
        self
    }

    /// Calls in the window before a rate means anything.
    pub fn min_calls(mut self, calls: u32) -> Self {
        self.patch.min_calls = Some(calls);
        self
    }

    /// How long it stays open.
    pub fn open_for(mut self, length: Duration) -> Self {
        self.patch.open = Some(span(length));
        self
    }

    /// Each further trip multiplies the open time by `factor` (of three decimals), up to `most`.
    pub fn open_grows(mut self, factor: f64, most: Duration) -> Self {
        let milli = (factor * 1_000.0).round();
        if !(0.0..=f64::from(u32::MAX)).contains(&milli) {
            self.wrong = Some("factor");
        }
        self.patch.factor_milli = Some(milli as u32);
        self.patch.open_max = Some(span(most));
        self
    }

    /// Probes out at once while it is half-open.
    pub fn probes(mut self, probes: u32) -> Self {
        self.patch.probes = Some(probes);
        self
    }

    /// Successful probes that close it.
    pub fn successes(mut self, successes: u32) -> Self {
        self.patch.successes = Some(successes);
        self
    }

    /// How long a probe may be out before its place is free again.
    pub fn probe_lease(mut self, length: Duration) -> Self {
        self.patch.lease = Some(span(length));
        self
    }

    /// How many processes must have seen failures for a trip: one bad host does not open it for all.
    pub fn quorum(mut self, callers: u32) -> Self {
        self.patch.quorum = Some(callers);
        self
    }

    /// After half-open 10, 25, then 50 percent of the calls are admitted over this time.
    pub fn ramp(mut self, length: Duration) -> Self {
        self.patch.ramp = Some(span(length));
        self
    }

    /// After this long without a report everything counted is forgotten.
    pub fn idle(mut self, length: Duration) -> Self {
        self.patch.idle = Some(span(length));
        self
    }

    /// Which configuration this is: a higher one replaces what is stored.
    pub fn version(mut self, version: u64) -> Self {
        self.version = Some(version);
        self
    }

    /// [`Mode::Batched`] unless said.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// What happens while the server cannot be reached. [`Away::Local`] unless said.
    pub fn when_away(mut self, away: Away) -> Self {
        self.when_away = away;
        self
    }

    /// How long a success may stay unsent. 100 ms unless said; a failure is sent at once.
    pub fn flush_interval(mut self, interval: Duration) -> Self {
        self.flush_interval = interval;
        self
    }

    /// From how many unsent calls on they are sent before the flush interval is over. 50 unless said, in memory 250; under
    /// load more go together.
    pub fn batch(mut self, calls: u32) -> Self {
        self.batch = Some(u64::from(calls));
        self
    }

    /// In memory nobody else waits for what was counted here, and a batch takes as long whatever it counts.
    pub(super) fn batch_on(&self, backend: &Backend) -> u64 {
        self.batch.unwrap_or(if matches!(backend, Backend::Memory(_)) { 250 } else { 50 })
    }

    /// How long this process believes that the circuit is closed without having heard so again. One second unless said:
    /// that is how late it may be in seeing that others tripped it, and a few calls more where many come at once.
    pub fn trust(mut self, length: Duration) -> Self {
        self.trust = length;
        self
    }

    /// Checks every number, naming the one that is wrong.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(field) = self.wrong {
            return Err(Error::invalid(field, "must be a number from 1 to 100"));
        }
        let number = |field: &str, given: Option<u32>, allowed: std::ops::RangeInclusive<i64>| match given {
            Some(given) if !allowed.contains(&i64::from(given)) => {
                let (least, most) = allowed.into_inner();
                Err(Error::invalid(field, format!("must be from {least} to {most}, got {given}")))
            }
            _ => Ok(()),
        };
        let length = |field: &str, given: Option<Span>, (least, most): (Span, Span)| match given {
            Some(given) if given < least || given > most => {
                let text = |span: Span| resil_wire::duration::Shown(span).to_string();
                let (least, most, given) = (text(least), text(most), text(given));
                Err(Error::invalid(field, format!("must be from {least} to {most}, got {given}")))
            }
            _ => Ok(()),
        };
        let patch = &self.patch;
        match patch.window {
            Some(WindowKind::Count(calls)) => number("window_calls", Some(calls), bounds::WINDOW_CALLS)?,
            Some(WindowKind::Time(span)) => length("window_time", Some(span), bounds::WINDOW_SPAN)?,
            None => {}
        }
        number("failure_rate", patch.rate_pct, bounds::PERCENT)?;
        length("slow_calls", patch.slow, bounds::SLOW)?;
        number("slow_calls", patch.slow_rate_pct, bounds::PERCENT)?;
        number("consecutive", patch.consecutive, bounds::CONSECUTIVE)?;
        number("min_calls", patch.min_calls, bounds::MIN_CALLS)?;
        length("open_for", patch.open, bounds::OPEN)?;
        if patch.factor_milli.is_some_and(|milli| !bounds::FACTOR_MILLI.contains(&i64::from(milli))) {
            return Err(Error::invalid("factor", "must be a number from 1 to 100"));
        }
        length("open_grows", patch.open_max, bounds::OPEN)?;
        number("probes", patch.probes, bounds::PROBES)?;
        number("successes", patch.successes, bounds::SUCCESSES)?;
        length("probe_lease", patch.lease, bounds::LEASE)?;
        number("quorum", patch.quorum, bounds::QUORUM)?;
        length("ramp", patch.ramp, bounds::RAMP)?;
        length("idle", patch.idle, bounds::IDLE)?;
        if self.version == Some(0) || self.version > Some(i64::MAX as u64) {
            return Err(Error::invalid("version", "must be from 1 to 2^63 - 1"));
        }
        if let Some(batch) = self.batch.filter(|batch| !(1..=1_000).contains(batch)) {
            return Err(Error::invalid("batch", format!("must be from 1 to 1000, got {batch}")));
        }
        let sane = |field: &str, given: Duration| match given.as_millis() {
            1..=60_000 => Ok(()),
            _ => Err(Error::invalid(field, format!("must be from 1 ms to 60 s, got {given:?}"))),
        };
        sane("flush_interval", self.flush_interval)?;
        sane("trust", self.trust)?;
        Config::default().patched(patch).map(|_| ()).map_err(|error| {
            let field = match error {
                ConfigError::MaxBelowOpen | ConfigError::NoRoomToGrow => "open_grows",
                ConfigError::NeverTrips => "failure_rate",
            };
            Error::invalid(field, format!("contradicts another option: {error}"))
        })
    }

    pub(super) fn wire(&self) -> Option<Options> {
        let options = Options { patch: self.patch, version: self.version };
        (!options.is_empty()).then_some(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused_by_the_name_of_its_field() {
        let day = Duration::from_secs(86_400);
        let cases: [(BreakerOptions, &str); 14] = [
            (BreakerOptions::new().window_calls(0), "window_calls"),
            (BreakerOptions::new().window_time(Duration::ZERO), "window_time"),
            (BreakerOptions::new().failure_rate(101), "failure_rate"),
            (BreakerOptions::new().slow_calls(Duration::ZERO, 50), "slow_calls"),
            (BreakerOptions::new().probes(0), "probes"),
            (BreakerOptions::new().successes(0), "successes"),
            (BreakerOptions::new().open_grows(f64::NAN, day), "factor"),
            (BreakerOptions::new().open_grows(0.5, day), "factor"),
            (BreakerOptions::new().open_grows(2.0, Duration::from_secs(1)), "open_grows"),
            (BreakerOptions::new().failure_rate(0).consecutive(0), "failure_rate"),
            (BreakerOptions::new().version(0), "version"),
            (BreakerOptions::new().batch(0), "batch"),
            (BreakerOptions::new().flush_interval(Duration::ZERO), "flush_interval"),
            (BreakerOptions::new().trust(day), "trust"),
        ];
        for (options, expected) in cases {
            match options.check() {
                Err(Error::InvalidPolicy { field, .. }) => assert_eq!(field, expected),
                other => panic!("{expected}: {other:?}"),
            }
        }
        assert_eq!(BreakerOptions::new().open_grows(1.5, day).check(), Ok(()));
        assert_eq!(BreakerOptions::new().wire(), None, "nothing said is nothing sent");
    }
}
