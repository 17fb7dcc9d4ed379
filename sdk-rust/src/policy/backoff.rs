//! How long to wait between attempts.
//!
//! Before retry `n` (the first is 0) the nominal delay is `d = min(initial * multiplier^n, max)`. Jitter spreads it, so
//! that callers who failed together do not come back together; `u` is drawn evenly from 0 to 1:
//!
//! | jitter | delay |
//! | --- | --- |
//! | none | `d` |
//! | full | `u * d` |
//! | equal | `d/2 + u * d/2` |
//! | decorrelated | `min(max, initial + u * (3 * previous - initial))`, `previous` being the delay before, at first `initial` |
//! | plus-minus `j` | `d * (1 - j + 2 * j * u)` |
//!
//! The result is never above `max` and never below `min`, under any jitter: full jitter alone would let some callers
//! come back at once.

use std::str::FromStr;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::settings::span_text::{check_number, check_span};

/// The longest delay that can be asked for.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(3600);

/// How delays are spread. In settings: `none`, `full`, `equal`, `decorrelated`, or a percentage: `20%`, or `{"plusMinus": 20}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "JitterForm", into = "String")]
pub enum Jitter {
    None,
    #[default]
    Full,
    Equal,
    Decorrelated,
    /// By this many percent (0 to 100) up and down.
    PlusMinus(u8),
}

impl FromStr for Jitter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let percent = |digits: &str| digits.parse().ok().filter(|percent| *percent <= 100).map(Self::PlusMinus);
        match text {
            "none" => Some(Self::None),
            "full" => Some(Self::Full),
            "equal" => Some(Self::Equal),
            "decorrelated" => Some(Self::Decorrelated),
            _ => text.strip_suffix('%').and_then(percent),
        }
        .ok_or_else(|| {
            Error::invalid(
                "jitter",
                format!("must be none, full, equal, decorrelated or a percentage from 0% to 100%, got {text:?}"),
            )
        })
    }
}

/// The two ways to say it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "must be text such as full or 20%, or an object such as {plusMinus: 20}")]
enum JitterForm {
    Text(String),
    Object(PlusMinus),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlusMinus {
    #[serde(rename = "plusMinus", alias = "plus_minus")]
    percent: f64,
}

impl TryFrom<JitterForm> for Jitter {
    type Error = Error;

    fn try_from(said: JitterForm) -> Result<Self, Error> {
        match said {
            JitterForm::Text(text) => text.parse(),
            JitterForm::Object(PlusMinus { percent }) => {
                let is_whole = (0.0..=100.0).contains(&percent) && percent.fract() == 0.0;
                let refused = || format!("must be a whole percentage from 0 to 100, got {percent}");
                is_whole.then_some(Self::PlusMinus(percent as u8)).ok_or_else(|| Error::invalid("jitter", refused()))
            }
        }
    }
}

impl From<Jitter> for String {
    fn from(jitter: Jitter) -> Self {
        match jitter {
            Jitter::None => "none".to_owned(),
            Jitter::Full => "full".to_owned(),
            Jitter::Equal => "equal".to_owned(),
            Jitter::Decorrelated => "decorrelated".to_owned(),
            Jitter::PlusMinus(percent) => format!("{percent}%"),
        }
    }
}

/// A rule for delays.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    pub initial: Duration,
    pub max: Duration,
    pub multiplier: f64,
    pub jitter: Jitter,
    /// No delay is shorter.
    pub min: Duration,
}

impl Backoff {
    pub(crate) fn validate(&self) -> Result<(), Error> {
        check_span("initialBackoff", self.initial, Duration::from_micros(1), MAX_DELAY)?;
        check_span("maxBackoff", self.max, self.initial, MAX_DELAY)?;
        check_span("minBackoff", self.min, Duration::ZERO, self.max)?;
        check_number("backoffMultiplier", self.multiplier, 1.0, 100.0)?;
        if let Jitter::PlusMinus(percent) = self.jitter {
            check_number("jitter", percent, 0, 100)?;
        }
        Ok(())
    }

    /// What retry `n` (the first is 0) waits for before jitter: `min(initial * multiplier^n, max)`.
    pub fn nominal(&self, n: u32) -> Duration {
        let factor = self.multiplier.powi(i32::try_from(n).unwrap_or(i32::MAX));
        let ns = self.initial.as_nanos() as f64 * factor;
        if ns < self.max.as_nanos() as f64 { Duration::from_nanos(ns as u64) } else { self.max }
    }

    /// The delay before retry `n` for one draw `unit` from 0 to 1; `previous` is the delay before the retry before it.
    fn delay(&self, n: u32, previous: Duration, unit: f64) -> Duration {
        let spread = |from: Duration, to: Duration| from + to.saturating_sub(from).mul_f64(unit);
        let nominal = self.nominal(n);
        let delay = match self.jitter {
            Jitter::None => nominal,
            Jitter::Full => spread(Duration::ZERO, nominal),
            Jitter::Equal => spread(nominal / 2, nominal),
            Jitter::Decorrelated => spread(self.initial, previous.saturating_mul(3)),
            Jitter::PlusMinus(percent) => {
                let part = nominal.mul_f64(f64::from(percent) / 100.0);
                spread(nominal.saturating_sub(part), nominal + part)
            }
        };
        delay.min(self.max).max(self.min)
    }

    /// Delays, one after the other, without end.
    pub fn delays(&self) -> Delays {
        Delays { backoff: *self, n: 0, previous: self.initial }
    }
}

/// See [`Backoff::delays`].
#[derive(Debug, Clone)]
pub struct Delays {
    backoff: Backoff,
    n: u32,
    previous: Duration,
}

impl Delays {
    /// The next delay, its jitter drawn from `random`.
    pub fn next(&mut self, random: &Random) -> Duration {
        let delay = self.backoff.delay(self.n, self.previous, random.unit());
        self.n = self.n.saturating_add(1);
        self.previous = delay;
        delay
    }
}

/// Where jitter comes from: the thread's own generator, or a seeded one that repeats itself for tests.
#[derive(Debug, Default)]
pub struct Random(Option<Mutex<Xoshiro256PlusPlus>>);

impl Random {
    pub fn seeded(seed: u64) -> Self {
        Self(Some(Mutex::new(Xoshiro256PlusPlus::seed_from_u64(seed))))
    }

    /// Evenly from 0 (included) to 1 (excluded).
    pub fn unit(&self) -> f64 {
        match &self.0 {
            None => rand::random(),
            Some(seeded) => seeded.lock().random(),
        }
    }
}

#[cfg(test)]
#[path = "tests/backoff.rs"]
mod tests;
