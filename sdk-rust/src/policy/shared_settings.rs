//! Settings of what a fleet shares: breaker, rate limit, shared bulkhead. Each has the policy's name unless it says another;
//! policies that name the same one share it.

use std::time::Duration;

use resil_core::limits::{HOLDERS_MAX, WAITERS_CEILING};
use serde::{Deserialize, Serialize};

use super::span_text::{self, check_number, check_span, optional};
use crate::breaker::{BreakerOptions, Mode};
use crate::error::Error;
use crate::health::Away;
use crate::limiter::Limit;
use crate::settings;

/// A breaker: see [`BreakerOptions`] for what each means. What is not said is as the server has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct BreakerSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Over how many calls rates are taken; not together with `window_time`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_calls: Option<u32>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub window_time: Option<Duration>,
    /// In percent; 0 is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_rate: Option<u32>,
    /// Goes with `slow_call_rate`.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub slow_call_duration: Option<Duration>,
    /// In percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_call_rate: Option<u32>,
    /// 0 is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consecutive_failures: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_calls: Option<u32>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub open_for: Option<Duration>,
    /// From 1 to 100, in thousandths; goes with `open_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_factor: Option<f64>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub open_max: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub successes: Option<u32>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub probe_lease: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quorum: Option<u32>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub ramp: Option<Duration>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub idle: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_away: Option<Away>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub flush_interval: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub trust: Option<Duration>,
}

/// What an option is called here.
fn settings_name(option: &str) -> &str {
    match option {
        "window_calls" => "windowCalls",
        "window_time" => "windowTime",
        "failure_rate" => "failureRate",
        "slow_calls" => "slowCallDuration",
        "consecutive" => "consecutiveFailures",
        "min_calls" => "minCalls",
        "open_for" => "openFor",
        "factor" => "openFactor",
        "open_grows" => "openMax",
        "probe_lease" => "probeLease",
        "flush_interval" => "flushInterval",
        other => other,
    }
}

/// Both or none: `field` is the one that is missing.
fn together<A, B>(one: (&str, Option<A>), other: (&str, Option<B>)) -> Result<Option<(A, B)>, Error> {
    match (one.1, other.1) {
        (Some(a), Some(b)) => Ok(Some((a, b))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Error::invalid(format!("breaker.{}", other.0), format!("goes with {}", one.0))),
        (None, Some(_)) => Err(Error::invalid(format!("breaker.{}", one.0), format!("goes with {}", other.0))),
    }
}

impl BreakerSettings {
    pub fn validate(&self) -> Result<(), Error> {
        self.options(None).map(drop)
    }

    /// As options, checked. `when_away` is what holds if nothing is said here.
    pub fn options(&self, when_away: Option<Away>) -> Result<BreakerOptions, Error> {
        check_name("breaker.name", self.name.as_deref())?;
        let mut options = BreakerOptions::new();
        macro_rules! set {
            ($($field:ident => $method:ident),* $(,)?) => {
                $(if let Some(value) = self.$field { options = options.$method(value); })*
            };
        }
        if self.window_calls.is_some() && self.window_time.is_some() {
            return Err(Error::invalid("breaker.windowTime", "does not go with windowCalls"));
        }
        set! {
            window_calls => window_calls,
            window_time => window_time,
            failure_rate => failure_rate,
            consecutive_failures => consecutive,
            min_calls => min_calls,
            open_for => open_for,
            probes => probes,
            successes => successes,
            probe_lease => probe_lease,
            quorum => quorum,
            ramp => ramp,
            idle => idle,
            version => version,
            mode => mode,
            flush_interval => flush_interval,
            batch => batch,
            trust => trust,
        }
        let slow = together(("slowCallDuration", self.slow_call_duration), ("slowCallRate", self.slow_call_rate))?;
        if let Some((slower_than, percent)) = slow {
            check_number("breaker.slowCallRate", percent, 0, 100)?;
            options = options.slow_calls(slower_than, percent);
        }
        if let Some((factor, most)) = together(("openFactor", self.open_factor), ("openMax", self.open_max))? {
            check_number("breaker.openFactor", factor, 1.0, 100.0)?;
            options = options.open_grows(factor, most);
        }
        if let Some(away) = self.when_away.or(when_away) {
            options = options.when_away(away);
        }
        options.check().map_err(|error| error.of_field(|field| format!("breaker.{}", settings_name(field))))?;
        Ok(options)
    }
}

/// How a rate is limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitKind {
    /// It fills evenly, and holds a burst.
    #[default]
    Bucket,
    /// Never more than the limit in any period, at the price of memory for each call.
    Window,
}

/// A rate limit: see [`Limit`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RateLimitSettings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "is_bucket")]
    pub kind: LimitKind,
    /// Cells per `period`.
    pub limit: u32,
    #[serde(with = "span_text")]
    pub period: Duration,
    /// How many cells the bucket holds; as many as `limit` unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Further limits that must all agree, each with a period of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<TierSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_away: Option<Away>,
}

/// A further tier of a rate limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TierSettings {
    pub limit: u32,
    #[serde(with = "span_text")]
    pub period: Duration,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

fn is_bucket(kind: &LimitKind) -> bool {
    *kind == LimitKind::Bucket
}

impl RateLimitSettings {
    pub fn validate(&self) -> Result<(), Error> {
        self.limit(None).map(drop)
    }

    /// As a limit, checked. `when_away` is what holds if nothing is said here.
    pub fn limit(&self, when_away: Option<Away>) -> Result<Limit, Error> {
        check_name("rateLimit.name", self.name.as_deref())?;
        if self.name.as_deref().is_some_and(|name| name.contains(['{', '}'])) {
            return Err(Error::invalid("rateLimit.name", "must not contain { or }"));
        }
        let tier = |kind: LimitKind, limit: u32, period: Duration, burst: Option<u32>| {
            let made = match kind {
                LimitKind::Bucket => Limit::new(limit, period),
                LimitKind::Window => Limit::window(limit, period),
            };
            burst.into_iter().fold(made, Limit::burst)
        };
        // Each by itself first, so that the one that is wrong is named.
        let mut whole = tier(self.kind, self.limit, self.period, self.burst);
        whole.check(1).map_err(|error| error.of_field(|field| format!("rateLimit.{field}")))?;
        for (index, further) in self.tiers.iter().enumerate() {
            let further = tier(LimitKind::Bucket, further.limit, further.period, further.burst);
            further.check(1).map_err(|error| error.of_field(|field| format!("rateLimit.tiers[{index}].{field}")))?;
            whole = whole.and(further);
        }
        whole.check(1).map_err(|error| error.of_field(|_| "rateLimit.tiers".to_owned()))?;
        Ok(self.when_away.or(when_away).into_iter().fold(whole, Limit::when_away))
    }
}

/// A bulkhead of the fleet: see [`SharedBulkhead`](crate::shared_bulkhead::SharedBulkhead).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SharedBulkheadSettings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Calls at once in the whole fleet: 1 to 100,000.
    pub max_concurrent_calls: u32,
    /// How many may wait; as many as may be inside unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_queue: Option<u32>,
    /// How long one may wait: up to 10 min; not at all unless said.
    #[serde(default, with = "optional", skip_serializing_if = "Option::is_none")]
    pub max_wait: Option<Duration>,
    /// 10 ms to 1 d; 10 s unless said.
    #[serde(default, with = "optional", skip_serializing_if = "Option::is_none")]
    pub lease: Option<Duration>,
    /// 0 is served first, 9 last; 5 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// `open` or `closed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_away: Option<Away>,
}

impl SharedBulkheadSettings {
    /// The same by itself.
    pub(super) fn terms(&self, when_away: Option<Away>) -> settings::SharedBulkheadSettings {
        settings::SharedBulkheadSettings {
            max: self.max_concurrent_calls,
            queue: self.max_queue,
            wait: self.max_wait,
            priority: self.priority,
            lease: self.lease,
            bound: None,
            grace: None,
            when_away,
        }
    }

    pub fn validate(&self) -> Result<(), Error> {
        let of = |field: &str| format!("sharedBulkhead.{field}");
        check_name(&of("name"), self.name.as_deref())?;
        check_number(&of("maxConcurrentCalls"), self.max_concurrent_calls, 1, HOLDERS_MAX as u32)?;
        check_number(&of("maxQueue"), self.max_queue.unwrap_or(0), 0, WAITERS_CEILING)?;
        check_span(&of("maxWait"), self.max_wait.unwrap_or_default(), Duration::ZERO, Duration::from_secs(600))?;
        if let Some(lease) = self.lease {
            check_span(&of("lease"), lease, Duration::from_millis(10), Duration::from_secs(86_400))?;
        }
        check_number(&of("priority"), self.priority.unwrap_or(0), 0, 9)?;
        let away = self.when_away.unwrap_or(Away::Closed).not_local("a shared bulkhead");
        away.map(drop).map_err(|error| error.of_field(|_| of("whenAway")))
    }
}

fn check_name(field: &str, name: Option<&str>) -> Result<(), Error> {
    match name {
        Some("") => Err(Error::invalid(field, "must not be empty")),
        _ => Ok(()),
    }
}
