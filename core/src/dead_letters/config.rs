//! How a ledger retries: how often and how long apart, for each class of failure; and what bounds a redrive.

use crate::limits::{BACKOFF_LEAST, REDRIVE_RATE, REDRIVE_RATE_MAX};
use crate::time::{Instant, Span};

/// What kind of failure it was. Each class has retries of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Class {
    /// Networks, timeouts.
    #[default]
    Transient,
    /// Rules, validation.
    Business,
    /// Other people's services: their limits, their outages.
    External,
}

impl Class {
    pub const ALL: [Self; 3] = [Self::Transient, Self::Business, Self::External];

    /// The inverse of [`Self::text`].
    pub fn from_text(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.text().as_bytes() == text)
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Business => "business",
            Self::External => "external",
        }
    }
}

/// The retries of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// How many failures are retried; the next one is final.
    pub most: u32,
    /// What the first one waits; each later one twice as long.
    pub base: Span,
    pub cap: Span,
}

impl Retries {
    /// What attempt `attempt` waits before jitter: `base * 2^(attempt - 1)`, within the least delay and the cap.
    fn backoff(&self, attempt: u32) -> Span {
        let doublings = attempt.saturating_sub(1).min(62);
        let delay = i128::from(self.base.as_us()) << doublings;
        let most = self.cap.max(BACKOFF_LEAST);
        i64::try_from(delay).map_or(most, |us| Span::from_us(us).clamp(BACKOFF_LEAST, most))
    }
}

/// How delays are spread, so that what failed together does not come back together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Jitter {
    /// Anywhere between the least delay and the backoff.
    #[default]
    Full,
    None,
    /// Up to so many percent more.
    Plus(u8),
}

/// How many entries a redrive may give out in a period, one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub count: u32,
    pub period: Span,
}

impl Rate {
    /// The time between two of them, rounded up.
    pub fn interval(self) -> Span {
        let count = i64::from(self.count.max(1));
        Span::from_us(self.period.as_us().saturating_add(count - 1) / count)
    }

    pub fn is_above(self, other: Self) -> bool {
        self.interval() < other.interval()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// By class.
    pub retries: [Retries; 3],
    pub jitter: Jitter,
    /// After so many lapses an entry dies.
    pub crashes: u32,
    /// The highest rate that a redrive can ask for.
    pub rate_max: Rate,
    /// The longest AFTER that counts.
    pub after_max: Span,
    /// Nobody takes before this instant.
    pub paused_until: Option<Instant>,
}

impl Default for Config {
    fn default() -> Self {
        let retries = |most, cap| Retries { most, base: Span::from_ms(500), cap };
        let usual = Span::from_secs(30);
        Self {
            retries: [retries(5, usual), retries(3, usual), retries(5, Span::from_secs(300))],
            jitter: Jitter::Full,
            crashes: 3,
            rate_max: REDRIVE_RATE_MAX,
            after_max: Span::from_secs(3_600),
            paused_until: None,
        }
    }
}

impl Config {
    pub fn of(&self, class: Class) -> &Retries {
        &self.retries[class as usize]
    }

    /// What attempt `attempt` of `class` waits. `random` is spread evenly over its whole range.
    pub fn delay(&self, class: Class, attempt: u32, random: u64) -> Span {
        let retries = self.of(class);
        let backoff = retries.backoff(attempt);
        let part = |span: Span| Span::from_us(((span.as_us() as u128 * u128::from(random)) >> 64) as i64);
        match self.jitter {
            Jitter::None => backoff,
            Jitter::Full => Span::from_us(BACKOFF_LEAST.as_us() + part(BACKOFF_LEAST.less(backoff)).as_us()),
            Jitter::Plus(percent) => {
                let more = Span::from_us((backoff.as_us() as i128 * i128::from(percent) / 100) as i64);
                Span::from_us(backoff.as_us().saturating_add(part(more).as_us())).min(retries.cap.max(BACKOFF_LEAST))
            }
        }
    }

    pub fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.is_some_and(|until| until > now)
    }
}

impl Span {
    /// How much longer `longer` is.
    fn less(self, longer: Self) -> Self {
        Self::from_us(longer.as_us() - self.as_us())
    }
}

/// The rate of a redrive that names none.
pub fn default_rate(config: &Config) -> Rate {
    if REDRIVE_RATE.is_above(config.rate_max) { config.rate_max } else { REDRIVE_RATE }
}
