//! The configuration of a breaker: when to trip, how long to stay open, how to come back.

use core::fmt;

use crate::time::Span;

/// Which calls a rate is taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowKind {
    /// The last `n` calls.
    Count(u32),
    /// The calls of the last span.
    Time(Span),
}

/// A complete configuration; [`Config::default`] is what a breaker has that nobody configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    pub window: WindowKind,
    /// Percent of failed calls at which it trips; 0: this rule is off.
    pub rate_pct: u32,
    /// A call that takes this long is slow; zero: nothing is.
    pub slow: Span,
    /// Percent of slow calls at which it trips; 0: this rule is off.
    pub slow_rate_pct: u32,
    /// Failures in a row at which it trips; 0: this rule is off.
    pub consecutive: u32,
    /// Calls in the window before a rate means anything.
    pub min_calls: u32,
    pub open: Span,
    /// Each further trip multiplies the open time by this, in thousandths.
    pub factor_milli: u32,
    /// The longest open time, and how long it must have been closed for the growth to start over.
    pub open_max: Span,
    /// Probes out at once in half-open.
    pub probes: u32,
    /// Successful probes that close it.
    pub successes: u32,
    /// How long a probe may be out.
    pub lease: Span,
    /// Distinct callers that must have failed for a trip.
    pub quorum: u32,
    /// How long after half-open only a part of the calls is admitted; zero: closed at once.
    pub ramp: Span,
    /// After this long without a report counts and growth are forgotten.
    pub idle: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            window: WindowKind::Count(100),
            rate_pct: 50,
            slow: Span::ZERO,
            slow_rate_pct: 100,
            consecutive: 5,
            min_calls: 10,
            open: Span::from_secs(30),
            factor_milli: 1_000,
            open_max: Span::from_secs(30),
            probes: 3,
            successes: 3,
            lease: Span::from_secs(30),
            quorum: 1,
            ramp: Span::ZERO,
            idle: Span::from_secs(3_600),
        }
    }
}

/// Bounds of every option. `wire` holds what is typed against them, the codec what is loaded.
pub mod bounds {
    use crate::time::Span;
    use core::ops::RangeInclusive;

    pub const WINDOW_CALLS: RangeInclusive<i64> = 1..=10_000;
    pub const WINDOW_SPAN: (Span, Span) = (Span::from_ms(100), Span::from_days(1));
    pub const PERCENT: RangeInclusive<i64> = 0..=100;
    pub const SLOW: (Span, Span) = (Span::from_us(1), Span::from_days(1));
    pub const CONSECUTIVE: RangeInclusive<i64> = 0..=10_000;
    pub const MIN_CALLS: RangeInclusive<i64> = 1..=1_000_000;
    pub const OPEN: (Span, Span) = (Span::from_ms(1), Span::from_days(1));
    pub const FACTOR_MILLI: RangeInclusive<i64> = 1_000..=100_000;
    pub const PROBES: RangeInclusive<i64> = 1..=100;
    pub const SUCCESSES: RangeInclusive<i64> = 1..=1_000;
    pub const LEASE: (Span, Span) = (Span::from_ms(10), Span::from_days(1));
    pub const QUORUM: RangeInclusive<i64> = 1..=64;
    pub const RAMP: (Span, Span) = (Span::ZERO, Span::from_days(1));
    pub const IDLE: (Span, Span) = (Span::from_secs(1), Span::from_days(30));
}

/// Options that contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigError {
    /// MAX is shorter than OPEN.
    MaxBelowOpen,
    /// FACTOR is above 1, and MAX leaves no room to grow.
    NoRoomToGrow,
    /// Every rule is off.
    NeverTrips,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MaxBelowOpen => "MAX must not be shorter than OPEN",
            Self::NoRoomToGrow => "FACTOR needs a MAX above OPEN: otherwise the open time could not grow",
            Self::NeverTrips => {
                "RATE, SLOWRATE (with SLOW) and CONSECUTIVE are all off: nothing could trip it (FORCE key METRICS only counts)"
            }
        })
    }
}

/// The options a call names. What it does not name stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Patch {
    pub window: Option<WindowKind>,
    pub rate_pct: Option<u32>,
    pub slow: Option<Span>,
    pub slow_rate_pct: Option<u32>,
    pub consecutive: Option<u32>,
    pub min_calls: Option<u32>,
    pub open: Option<Span>,
    pub factor_milli: Option<u32>,
    pub open_max: Option<Span>,
    pub probes: Option<u32>,
    pub successes: Option<u32>,
    pub lease: Option<Span>,
    pub quorum: Option<u32>,
    pub ramp: Option<Span>,
    pub idle: Option<Span>,
}

impl Patch {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Config {
    /// This configuration with what `patch` names changed.
    pub fn patched(&self, patch: &Patch) -> Result<Self, ConfigError> {
        let open = patch.open.unwrap_or(self.open);
        // A maximum that is not named stays, and rises with the open time.
        let open_max = patch.open_max.unwrap_or(self.open_max.max(open));
        let config = Self {
            window: patch.window.unwrap_or(self.window),
            rate_pct: patch.rate_pct.unwrap_or(self.rate_pct),
            slow: patch.slow.unwrap_or(self.slow),
            slow_rate_pct: patch.slow_rate_pct.unwrap_or(self.slow_rate_pct),
            consecutive: patch.consecutive.unwrap_or(self.consecutive),
            min_calls: patch.min_calls.unwrap_or(self.min_calls),
            open,
            factor_milli: patch.factor_milli.unwrap_or(self.factor_milli),
            open_max,
            probes: patch.probes.unwrap_or(self.probes),
            successes: patch.successes.unwrap_or(self.successes),
            lease: patch.lease.unwrap_or(self.lease),
            quorum: patch.quorum.unwrap_or(self.quorum),
            ramp: patch.ramp.unwrap_or(self.ramp),
            idle: patch.idle.unwrap_or(self.idle),
        };
        config.check()?;
        // Harmless where it is stored already: only a caller that names one of the three gets the error.
        let growth_named = patch.factor_milli.is_some() || patch.open.is_some() || patch.open_max.is_some();
        if growth_named && config.factor_milli > 1_000 && config.open_max == config.open {
            return Err(ConfigError::NoRoomToGrow);
        }
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.open_max < self.open {
            return Err(ConfigError::MaxBelowOpen);
        }
        let slow_counts = !self.slow.is_zero() && self.slow_rate_pct > 0;
        if self.rate_pct == 0 && self.consecutive == 0 && !slow_counts {
            return Err(ConfigError::NeverTrips);
        }
        Ok(())
    }

    /// Whether every number is in its bounds: for what was decoded.
    pub(crate) fn is_sound(&self) -> bool {
        let number = |value: u32, bounds: core::ops::RangeInclusive<i64>| bounds.contains(&(value as i64));
        let span = |value: Span, (least, most): (Span, Span)| (least..=most).contains(&value);
        let window = match self.window {
            WindowKind::Count(calls) => number(calls, bounds::WINDOW_CALLS),
            WindowKind::Time(length) => span(length, bounds::WINDOW_SPAN),
        };
        window
            && number(self.rate_pct, bounds::PERCENT)
            && (self.slow.is_zero() || span(self.slow, bounds::SLOW))
            && number(self.slow_rate_pct, bounds::PERCENT)
            && number(self.consecutive, bounds::CONSECUTIVE)
            && number(self.min_calls, bounds::MIN_CALLS)
            && span(self.open, bounds::OPEN)
            && number(self.factor_milli, bounds::FACTOR_MILLI)
            && span(self.open_max, bounds::OPEN)
            && number(self.probes, bounds::PROBES)
            && number(self.successes, bounds::SUCCESSES)
            && span(self.lease, bounds::LEASE)
            && number(self.quorum, bounds::QUORUM)
            && span(self.ramp, bounds::RAMP)
            && span(self.idle, bounds::IDLE)
            && self.check().is_ok()
    }

    /// How long the `trips`-th trip in a row stays open.
    pub(crate) fn open_time(&self, trips: u32) -> Span {
        let mut length = self.open.as_us();
        // Without growth there is nothing to step through, however many trips there were.
        let grows = self.factor_milli > 1_000;
        for _ in 1..if grows { trips } else { 1 } {
            if length >= self.open_max.as_us() {
                break;
            }
            length = length.saturating_mul(self.factor_milli as i64) / 1_000;
        }
        Span::from_us(length.min(self.open_max.as_us()))
    }
}
