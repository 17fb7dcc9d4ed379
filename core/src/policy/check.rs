//! What concerns more than one field of a document. The bounds of each field are checked before, by the walk.

use alloc::format;
use alloc::string::ToString;

use super::document::{
    Adaptive, Breaker, Bulkhead, Chaos, ChaosKind, Document, LimitKind, RateLimit, Retry, SharedBulkhead, Shedding,
    Timeout,
};
use super::order::{Stage, arrange};
use super::{Invalid, duration};
use crate::circuit_breaker::{Config, ConfigError, Patch, WindowKind};
use crate::limits::WINDOW_LIMIT_CEILING;
use crate::rate_limit::Quota;
use crate::time::Span;

/// All of a policy.
pub(super) fn whole(document: &Document) -> Result<(), Invalid> {
    parts(document)?;
    arrange(document.order.as_deref(), |stage| document.has(stage)).map_err(|text| Invalid::new("order", text))?;
    if document.shedding.is_some() && document.bulkhead.is_none() && document.shared_bulkhead.is_none() {
        return Err(Invalid::new("shedding", "needs a bulkhead or a sharedBulkhead: it looks at the places taken"));
    }
    Ok(())
}

/// Each part by itself.
pub(super) fn parts(document: &Document) -> Result<(), Invalid> {
    fn part<T>(part: &Option<T>, name: &str, check: fn(&T) -> Result<(), Invalid>) -> Result<(), Invalid> {
        part.as_ref().map_or(Ok(()), check).map_err(|wrong| wrong.inside(name))
    }
    part(&document.timeout, "timeout", timeout)?;
    part(&document.retry, "retry", retry)?;
    part(&document.breaker, "breaker", |breaker| breaker.config().map(drop))?;
    part(&document.rate_limit, "rateLimit", rate_limit)?;
    part(&document.bulkhead, "bulkhead", bulkhead)?;
    part(&document.shared_bulkhead, "sharedBulkhead", shared_bulkhead)?;
    part(&document.shedding, "shedding", shedding)?;
    part(&document.chaos, "chaos", chaos)
}

fn spans(path: &str, least: Span, most: Span, given: Span) -> Result<(), Invalid> {
    if (least..=most).contains(&given) {
        return Ok(());
    }
    let [least, most, given] = [least, most, given].map(duration::shown);
    Err(Invalid::new(path, format!("must be from {least} to {most}, got {given}")))
}

fn timeout(timeout: &Timeout) -> Result<(), Invalid> {
    match timeout.attempt.zip(timeout.total) {
        Some((attempt, total)) => spans("total", attempt, Span::from_secs(300), total),
        None => Ok(()),
    }
}

fn retry(retry: &Retry) -> Result<(), Invalid> {
    spans("maxBackoff", retry.initial_backoff(), Span::from_secs(3_600), retry.max_backoff())?;
    spans("minBackoff", Span::ZERO, retry.max_backoff(), retry.min_backoff())
}

/// Both or none.
fn together(one: (&str, bool), other: (&str, bool)) -> Result<(), Invalid> {
    match (one.1, other.1) {
        (true, false) => Err(Invalid::new(other.0, format!("goes with {}", one.0))),
        (false, true) => Err(Invalid::new(one.0, format!("goes with {}", other.0))),
        _ => Ok(()),
    }
}

impl Breaker {
    /// The configuration that it asks for, of a breaker that nobody else configured.
    pub fn config(&self) -> Result<Config, Invalid> {
        if self.window_calls.is_some() && self.window_time.is_some() {
            return Err(Invalid::new("windowTime", "does not go with windowCalls"));
        }
        together(
            ("slowCallDuration", self.slow_call_duration.is_some()),
            ("slowCallRate", self.slow_call_rate.is_some()),
        )?;
        together(("openFactor", self.open_factor.is_some()), ("openMax", self.open_max.is_some()))?;
        Config::default().patched(&self.patch()).map_err(|error| {
            let (field, text) = match error {
                ConfigError::MaxBelowOpen => ("openMax", "must not be shorter than openFor"),
                ConfigError::NoRoomToGrow => {
                    ("openMax", "must be longer than openFor: otherwise openFactor could not grow it")
                }
                ConfigError::NeverTrips => {
                    ("failureRate", "is off, and so are slowCallRate and consecutiveFailures: nothing could trip it")
                }
            };
            Invalid::new(field, text)
        })
    }

    /// What it names, as a change to a breaker's configuration.
    pub fn patch(&self) -> Patch {
        Patch {
            window: self.window_calls.map(WindowKind::Count).or(self.window_time.map(WindowKind::Time)),
            rate_pct: self.failure_rate,
            slow: self.slow_call_duration,
            slow_rate_pct: self.slow_call_rate,
            consecutive: self.consecutive_failures,
            min_calls: self.min_calls,
            open: self.open_for,
            factor_milli: self.open_factor.map(|factor| (factor * 1_000.0 + 0.5) as u32),
            open_max: self.open_max,
            probes: self.probes,
            successes: self.successes,
            lease: self.probe_lease,
            quorum: self.quorum,
            ramp: self.ramp,
            idle: self.idle,
        }
    }
}

fn rate_limit(rate: &RateLimit) -> Result<(), Invalid> {
    let tiers = rate.tiers.as_deref().unwrap_or_default();
    if rate.kind() == LimitKind::Window {
        if !tiers.is_empty() {
            return Err(Invalid::new("tiers", "do not go with an exact window: it has one tier"));
        }
        if rate.burst.is_some() {
            return Err(Invalid::new("burst", "does not go with an exact window: nothing is saved up there"));
        }
        if rate.limit() > WINDOW_LIMIT_CEILING {
            let text = format!("must be from 1 to {WINDOW_LIMIT_CEILING}, got {}", rate.limit());
            return Err(Invalid::new("limit", text));
        }
        return Ok(());
    }
    let quota = |limit: u32, period: Span, burst: Option<u32>| {
        let made = Quota::new(limit, period, burst.unwrap_or(limit));
        made.map_err(|reason| {
            let reason = reason.to_string();
            let (field, rest) = reason.split_once(' ').unwrap_or(("limit", &reason));
            Invalid::new(field, rest)
        })
    };
    quota(rate.limit(), rate.period(), rate.burst)?;
    for (index, tier) in tiers.iter().enumerate() {
        quota(tier.limit(), tier.period(), tier.burst).map_err(|wrong| wrong.inside(&format!("tiers[{index}]")))?;
        let before = tiers[..index].iter().map(|other| other.period()).chain([rate.period()]);
        if before.into_iter().any(|period| period == tier.period()) {
            return Err(Invalid::new("tiers", "names a period twice; tiers are distinguished by it"));
        }
    }
    Ok(())
}

fn adaptive(adaptive: &Option<Adaptive>, most: u32) -> Result<(), Invalid> {
    match adaptive {
        Some(adaptive) if adaptive.min() > most => {
            Err(Invalid::new("adaptive.min", format!("must be from 1 to {most}, got {}", adaptive.min())))
        }
        _ => Ok(()),
    }
}

fn bulkhead(bulkhead: &Bulkhead) -> Result<(), Invalid> {
    adaptive(&bulkhead.adaptive, bulkhead.max_concurrent_calls())
}

fn shared_bulkhead(shared: &SharedBulkhead) -> Result<(), Invalid> {
    adaptive(&shared.adaptive, shared.max_concurrent_calls())
}

fn shedding(shedding: &Shedding) -> Result<(), Invalid> {
    let classes = [
        ("low", shedding.low(), shedding.background()),
        ("normal", shedding.normal(), shedding.low()),
        ("high", shedding.high(), shedding.normal()),
    ];
    if let Some((class, at, below)) = classes.into_iter().find(|(_, at, below)| at < below) {
        return Err(Invalid::new(
            class,
            format!("must be from {below} to 100, got {at}: lower classes are shed first"),
        ));
    }
    if shedding.hysteresis() >= shedding.background() {
        let most = shedding.background() - 1;
        return Err(Invalid::new("hysteresis", format!("must be from 0 to {most}, got {}", shedding.hysteresis())));
    }
    Ok(())
}

fn chaos(chaos: &Chaos) -> Result<(), Invalid> {
    match (chaos.kind(), chaos.latency) {
        (ChaosKind::Latency, None) => Err(Invalid::new("latency", "must be there: the kind is latency")),
        (ChaosKind::Error | ChaosKind::Drop, Some(_)) => Err(Invalid::new("latency", "goes with the kind latency")),
        _ => Ok(()),
    }
}

impl Document {
    /// Whether it has this stage.
    pub fn has(&self, stage: Stage) -> bool {
        match stage {
            Stage::Total => self.timeout.as_ref().is_some_and(|timeout| timeout.total.is_some()),
            Stage::Shed => self.shed.is_some(),
            Stage::Retry => self.retry.is_some(),
            Stage::Hedge => self.hedge.is_some(),
            Stage::Breaker => self.breaker.is_some(),
            Stage::RateLimit => self.rate_limit.is_some(),
            Stage::Bulkhead => self.bulkhead.is_some(),
            Stage::SharedBulkhead => self.shared_bulkhead.is_some(),
            Stage::Attempt => self.timeout.as_ref().is_some_and(|timeout| timeout.attempt.is_some()),
        }
    }
}
