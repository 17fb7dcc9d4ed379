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

use alloc::format;
use alloc::string::{String, ToString};

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

use super::document::Retry;
use crate::time::Span;

/// How delays are spread. In documents: `none`, `full`, `equal`, `decorrelated`, or a percentage: `20%`, or `{"plusMinus": 20}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JitterKind {
    None,
    #[default]
    Full,
    Equal,
    Decorrelated,
    /// By this many percent (0 to 100) up and down.
    PlusMinus(u8),
}

impl JitterKind {
    /// What its text says.
    pub fn parse(text: &str) -> Option<Self> {
        let percent = |digits: &str| digits.parse().ok().filter(|percent| *percent <= 100).map(Self::PlusMinus);
        match text {
            "none" => Some(Self::None),
            "full" => Some(Self::Full),
            "equal" => Some(Self::Equal),
            "decorrelated" => Some(Self::Decorrelated),
            _ => text.strip_suffix('%').and_then(percent),
        }
    }

    pub fn text(self) -> String {
        match self {
            Self::None => "none".to_string(),
            Self::Full => "full".to_string(),
            Self::Equal => "equal".to_string(),
            Self::Decorrelated => "decorrelated".to_string(),
            Self::PlusMinus(percent) => format!("{percent}%"),
        }
    }
}

impl Serialize for JitterKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for JitterKind {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is no jitter")))
    }
}

/// A rule for delays.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    pub initial: Span,
    pub max: Span,
    pub multiplier: f64,
    pub jitter: JitterKind,
    /// No delay is shorter.
    pub min: Span,
}

impl Backoff {
    /// What retry `n` (the first is 0) waits for before jitter: `min(initial * multiplier^n, max)`.
    pub fn nominal(&self, n: u32) -> Span {
        let max_us = self.max.as_us() as f64;
        let mut us = self.initial.as_us() as f64;
        // A multiplier of 1 changes nothing, however often; any other reaches the longest delay soon.
        for _ in 0..if self.multiplier > 1.0 { n } else { 0 } {
            us *= self.multiplier;
            if us >= max_us {
                return self.max;
            }
        }
        Span::from_us(us as i64).min(self.max)
    }

    /// The delay before retry `n` for one draw `unit` from 0 to 1; `previous` is the delay before the retry before it.
    pub fn delay(&self, n: u32, previous: Span, unit: f64) -> Span {
        let spread = |from_us: i64, to_us: i64| from_us + (to_us.saturating_sub(from_us).max(0) as f64 * unit) as i64;
        let nominal_us = self.nominal(n).as_us();
        let us = match self.jitter {
            JitterKind::None => nominal_us,
            JitterKind::Full => spread(0, nominal_us),
            JitterKind::Equal => spread(nominal_us / 2, nominal_us),
            JitterKind::Decorrelated => spread(self.initial.as_us(), previous.as_us().saturating_mul(3)),
            JitterKind::PlusMinus(percent) => {
                let part_us = nominal_us / 100 * i64::from(percent) + nominal_us % 100 * i64::from(percent) / 100;
                spread(nominal_us - part_us, nominal_us + part_us)
            }
        };
        Span::from_us(us).min(self.max).max(self.min)
    }
}

impl Retry {
    pub fn backoff(&self) -> Backoff {
        Backoff {
            initial: self.initial_backoff(),
            max: self.max_backoff(),
            multiplier: self.backoff_multiplier(),
            jitter: self.jitter(),
            min: self.min_backoff(),
        }
    }
}
