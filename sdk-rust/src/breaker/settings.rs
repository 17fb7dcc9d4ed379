//! When a breaker trips, how it comes back, and how this process talks about it.

use std::time::Duration;

use resil_core::Span;
use resil_core::circuit_breaker::{Config, ConfigError, Patch, WindowKind, bounds};
use resil_wire::breaker::Options;
use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::error::Error;
use crate::health::Away;
use crate::limiter::span;
use crate::settings::setters;
use crate::settings::span_text::{check_number, check_span, optional};

/// How calls are counted while the circuit is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountingMode {
    /// Admitted here, without a round trip; outcomes are sent in batches, failures at once. A call that begins while a
    /// failure of this process has not been answered waits for that reply.
    Batched,
    /// Every call asks, and reports.
    Exact,
}

/// When a breaker trips and how it comes back. Omitted fields are as the server has them: by CONFIG, or else the defaults (five
/// failures in a row, or half of the last hundred with at least ten calls; open for 30 s; three probes, three successes).
///
/// They apply to a breaker that nobody configured. To change them later, raise the [`version`](Self#structfield.version): then a
/// rolling deploy with two configurations does not flip between them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct BreakerSettings {
    /// In a policy: which breaker it is, by default the one of the policy's name. Policies that name the same one share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Rates are taken over so many calls; not together with `window_time`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_calls: Option<u32>,
    /// Rates are taken over the calls of this last span.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub window_time: Option<Duration>,
    /// Percent of failed calls at which it trips; 0 turns this rule off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_rate: Option<u32>,
    /// A call that takes this long is slow. Goes with `slow_call_rate`.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub slow_call_duration: Option<Duration>,
    /// Percent of slow calls at which it trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_call_rate: Option<u32>,
    /// Failures in a row at which it trips; 0 turns this rule off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consecutive_failures: Option<u32>,
    /// Calls in the window before a rate means anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_calls: Option<u32>,
    /// How long it stays open.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub open_for: Option<Duration>,
    /// Each further trip multiplies the open time by this, up to `open_max`. From 1 to 100, in thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_factor: Option<f64>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub open_max: Option<Duration>,
    /// Probes out at once while it is half-open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<u32>,
    /// Successful probes that close it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub successes: Option<u32>,
    /// How long a probe may be out before another one may take its position.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub probe_lease: Option<Duration>,
    /// How many processes must have seen failures for a trip: one bad host does not open it for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quorum: Option<u32>,
    /// After half-open 10, 25, then 50 percent of the calls are admitted over this time.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub ramp: Option<Duration>,
    /// After this long without a report everything counted is forgotten.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub idle: Option<Duration>,
    /// Trips at the higher of `failure_rate` and three standard deviations above the failure rate of the last hour. What is usual is learned, so
    /// such a breaker is one of this process; the whole fleet shares that of a stored policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<bool>,
    /// Which configuration this is: a higher one replaces what is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// [`CountingMode::Batched`] by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<CountingMode>,
    /// What happens while the server cannot be reached. [`Away::Local`] by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_away: Option<Away>,
    /// How long a success may stay unsent: 1 ms to 60 s; 100 ms by default. A failure is sent at once.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub flush_interval: Option<Duration>,
    /// From how many unsent calls on they are sent before the flush interval ends: 1 to 1,000. 50 by default, in memory 250; under
    /// load more go together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    /// How long this process believes that the circuit is closed without having heard so again: 1 ms to 60 s. One second by default:
    /// that is how late it may be in seeing that others tripped it, and a few calls more where many come at once.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub trust: Option<Duration>,
}

setters! {
    BreakerSettings {} {
        window_calls: u32, window_time: Duration, failure_rate: u32, slow_call_duration: Duration, slow_call_rate: u32,
        consecutive_failures: u32, min_calls: u32, open_for: Duration, open_factor: f64, open_max: Duration, probes: u32,
        successes: u32, probe_lease: Duration, quorum: u32, ramp: Duration, idle: Duration, adaptive: bool, version: u64, mode: CountingMode,
        when_away: Away, flush_interval: Duration, batch: u32, trust: Duration,
    }
}

/// Settings that were checked, as this process uses them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckedSettings {
    pub patch: Patch,
    pub is_adaptive: bool,
    version: Option<u64>,
    pub mode: CountingMode,
    pub when_away: Away,
    pub flush_interval: Duration,
    batch: Option<u32>,
    pub trust: Duration,
}

impl BreakerSettings {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn validate(&self) -> Result<(), Error> {
        self.check().map(drop)
    }

    /// Everything is in bounds, and nothing contradicts anything else.
    pub(crate) fn check(&self) -> Result<CheckedSettings, Error> {
        if self.name.as_deref() == Some("") {
            return Err(Error::invalid("name", "must not be empty"));
        }
        if self.window_calls.is_some() && self.window_time.is_some() {
            return Err(Error::invalid("windowTime", "does not go with windowCalls"));
        }
        together(
            ("slowCallDuration", self.slow_call_duration.is_some()),
            ("slowCallRate", self.slow_call_rate.is_some()),
        )?;
        together(("openFactor", self.open_factor.is_some()), ("openMax", self.open_max.is_some()))?;
        for (field, given, allowed) in [
            ("windowCalls", self.window_calls, bounds::WINDOW_CALLS),
            ("failureRate", self.failure_rate, bounds::PERCENT),
            ("slowCallRate", self.slow_call_rate, bounds::PERCENT),
            ("consecutiveFailures", self.consecutive_failures, bounds::CONSECUTIVE),
            ("minCalls", self.min_calls, bounds::MIN_CALLS),
            ("probes", self.probes, bounds::PROBES),
            ("successes", self.successes, bounds::SUCCESSES),
            ("quorum", self.quorum, bounds::QUORUM),
            ("batch", self.batch, 1..=1_000),
        ] {
            if let Some(number) = given {
                check_number(field, i64::from(number), *allowed.start(), *allowed.end())?;
            }
        }
        for (field, given, allowed) in [
            ("windowTime", self.window_time, bounds::WINDOW_SPAN),
            ("slowCallDuration", self.slow_call_duration, bounds::SLOW),
            ("openFor", self.open_for, bounds::OPEN),
            ("openMax", self.open_max, bounds::OPEN),
            ("probeLease", self.probe_lease, bounds::LEASE),
            ("ramp", self.ramp, bounds::RAMP),
            ("idle", self.idle, bounds::IDLE),
            ("flushInterval", self.flush_interval, (Span::from_ms(1), Span::from_secs(60))),
            ("trust", self.trust, (Span::from_ms(1), Span::from_secs(60))),
        ] {
            if let Some(length) = given {
                let duration = |span: Span| Duration::from_micros(span.as_us().unsigned_abs());
                check_span(field, length, duration(allowed.0), duration(allowed.1))?;
            }
        }
        if let Some(factor) = self.open_factor {
            check_number("openFactor", factor, 1.0, 100.0)?;
        }
        if self.version == Some(0) || self.version > Some(i64::MAX as u64) {
            return Err(Error::invalid("version", "must be from 1 to 2^63 - 1"));
        }
        let patch = self.patch();
        Config::default().patched(&patch).map_err(|error| {
            // By the names of settings; the server says the same by those of its options.
            let (field, reason) = match error {
                ConfigError::MaxBelowOpen => ("openMax", "must not be shorter than openFor"),
                ConfigError::NoRoomToGrow => {
                    ("openMax", "must be longer than openFor: otherwise openFactor could not grow it")
                }
                ConfigError::NeverTrips => {
                    ("failureRate", "is off, and so are slowCallRate and consecutiveFailures: nothing could trip it")
                }
            };
            Error::invalid(field, reason)
        })?;
        Ok(CheckedSettings {
            patch,
            is_adaptive: self.adaptive.unwrap_or(false),
            version: self.version,
            mode: self.mode.unwrap_or(CountingMode::Batched),
            when_away: self.when_away.unwrap_or(Away::Local),
            flush_interval: self.flush_interval.unwrap_or(Duration::from_millis(100)),
            batch: self.batch,
            trust: self.trust.unwrap_or(Duration::from_secs(1)),
        })
    }

    fn patch(&self) -> Patch {
        let window = self.window_calls.map(WindowKind::Count);
        Patch {
            window: window.or(self.window_time.map(|length| WindowKind::Time(span(length)))),
            rate_pct: self.failure_rate,
            slow: self.slow_call_duration.map(span),
            slow_rate_pct: self.slow_call_rate,
            consecutive: self.consecutive_failures,
            min_calls: self.min_calls,
            open: self.open_for.map(span),
            factor_milli: self.open_factor.map(|factor| (factor * 1_000.0).round() as u32),
            open_max: self.open_max.map(span),
            probes: self.probes,
            successes: self.successes,
            lease: self.probe_lease.map(span),
            quorum: self.quorum,
            ramp: self.ramp.map(span),
            idle: self.idle.map(span),
        }
    }
}

/// Both or none.
fn together(one: (&str, bool), other: (&str, bool)) -> Result<(), Error> {
    match (one.1, other.1) {
        (true, false) => Err(Error::invalid(other.0, format!("goes with {}", one.0))),
        (false, true) => Err(Error::invalid(one.0, format!("goes with {}", other.0))),
        _ => Ok(()),
    }
}

impl CheckedSettings {
    /// In memory no other process waits for what was counted here, and a batch takes as long whatever it counts.
    pub(super) fn batch_on(&self, backend: &Backend) -> u64 {
        self.batch.unwrap_or(if matches!(backend, Backend::Memory(_)) { 250 } else { 50 }).into()
    }

    /// What is sent, unless everything was omitted.
    pub(super) fn wire(&self) -> Option<Options> {
        let options = Options { patch: self.patch, version: self.version };
        (!options.is_empty()).then_some(options)
    }
}

#[cfg(test)]
#[path = "tests/settings.rs"]
mod tests;
