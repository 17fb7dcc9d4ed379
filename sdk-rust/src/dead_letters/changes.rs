//! By which numbers a ledger retries and redrives, and changing them.

use std::time::{Duration, SystemTime};

use resil_core::dead_letters::{Class, ConfigChange, Jitter, Pause, Rate, RetriesChange};
use resil_wire::command::{Command, Reply};
use resil_wire::dead_letters::LedgerConfigCall;
use resil_wire::reply::Unexpected;
use serde::{Deserialize, Serialize};

use super::DeadLetters;
use super::rows::{FromRow, RowFields};
use crate::correlation;
use crate::error::Error;
use crate::holding::span;
use crate::idempotency::token::odd;
use crate::settings::{moment_text, setters, span_text};

/// So many in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RedriveRate {
    pub count: u32,
    #[serde(with = "span_text")]
    pub period: Duration,
}

impl From<RedriveRate> for Rate {
    fn from(rate: RedriveRate) -> Self {
        Self { count: rate.count, period: span(rate.period) }
    }
}

/// The retries of one class of failures. What is omitted stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ClassChange {
    /// How many failures are retried; the next one kills. 0 to 1,000.
    pub retries: Option<u32>,
    /// What the first one waits, each later one twice as long: 100 ms to 1 day.
    #[serde(with = "span_text::optional")]
    pub base: Option<Duration>,
    /// The longest wait: 100 ms to 1 day.
    #[serde(with = "span_text::optional")]
    pub cap: Option<Duration>,
}

setters! { ClassChange {} { retries: u32, base: Duration, cap: Duration } }

impl From<ClassChange> for RetriesChange {
    fn from(change: ClassChange) -> Self {
        Self { most: change.retries, base: change.base.map(span), cap: change.cap.map(span) }
    }
}

/// A change of a ledger's numbers. What is omitted stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LedgerChange {
    /// Networks, timeouts: 5 retries from 500 ms to 30 s by default.
    pub transient: ClassChange,
    /// Rules, validation: 3 retries by default.
    pub business: ClassChange,
    /// Other people's services: 5 retries to 5 min by default.
    pub external: ClassChange,
    /// How waits are spread: `"full"` (the default), `"none"`, or `"plus 20"` for up to 20 percent more.
    pub jitter: Option<String>,
    /// After so many lapses a message dies; 3 by default.
    pub crashes: Option<u32>,
    /// The highest rate of a redrive; 1,000 per minute by default.
    pub rate_max: Option<RedriveRate>,
    /// The longest `after` of a failure that counts; 1 h by default.
    #[serde(with = "span_text::optional")]
    pub after_max: Option<Duration>,
    /// True: nobody takes anything, until it is false.
    pub paused: Option<bool>,
    /// Nobody takes anything for so long.
    #[serde(with = "span_text::optional")]
    pub paused_for: Option<Duration>,
}

setters! {
    LedgerChange { transient: ClassChange, business: ClassChange, external: ClassChange }
    { crashes: u32, rate_max: RedriveRate, after_max: Duration, paused: bool, paused_for: Duration }
}

super::letter::texts! { LedgerChange { jitter } }

impl LedgerChange {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn validate(&self) -> Result<(), Error> {
        self.change().map(drop)
    }

    fn change(&self) -> Result<ConfigChange, Error> {
        let paused = match (self.paused, self.paused_for) {
            (None, None) => None,
            (Some(false), None) => Some(Pause::Off),
            (Some(true), None) => Some(Pause::On),
            (Some(true) | None, Some(length)) => Some(Pause::For(span(length))),
            (Some(false), Some(_)) => {
                return Err(Error::invalid("pausedFor", "must be left out where paused is false"));
            }
        };
        Ok(ConfigChange {
            retries: [self.transient.into(), self.business.into(), self.external.into()],
            jitter: self.jitter.as_deref().map(read_jitter).transpose()?,
            crashes: self.crashes,
            rate_max: self.rate_max.map(Into::into),
            after_max: self.after_max.map(span),
            paused,
        })
    }
}

fn read_jitter(text: &str) -> Result<Jitter, Error> {
    let percent = |text: &str| text.strip_prefix("plus ").and_then(|percent| percent.parse().ok());
    match text {
        "full" => Ok(Jitter::Full),
        "none" => Ok(Jitter::None),
        _ => percent(text).map(Jitter::Plus).ok_or_else(|| {
            Error::invalid("jitter", format!("must be \"full\", \"none\" or such as \"plus 20\", got {text:?}"))
        }),
    }
}

/// The retries of one class of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassConfig {
    pub retries: u32,
    #[serde(with = "span_text")]
    pub base: Duration,
    #[serde(with = "span_text")]
    pub cap: Duration,
}

/// By which numbers a ledger retries and redrives: see [`LedgerChange`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerConfig {
    pub transient: ClassConfig,
    pub business: ClassConfig,
    pub external: ClassConfig,
    pub jitter: String,
    pub crashes: u32,
    pub rate_max: RedriveRate,
    #[serde(with = "span_text")]
    pub after_max: Duration,
    #[serde(serialize_with = "moment_text::optional::serialize")]
    pub paused_until: Option<SystemTime>,
}

impl FromRow for LedgerConfig {
    fn from_row(row: &RowFields<'_>) -> Result<Self, Unexpected> {
        let length = |name: &str| row.text(name)?.as_deref().and_then(span_text::read).ok_or(Unexpected("a duration"));
        let of_class = |class: Class| {
            let name = |part: &str| format!("{}_{part}", class.text());
            Ok(ClassConfig {
                retries: row.number(&name("retries"))?,
                base: length(&name("base"))?,
                cap: length(&name("cap"))?,
            })
        };
        let rate_max = row.text("ratemax")?.and_then(|text| {
            let (count, period) = text.split_once(' ')?;
            Some(RedriveRate { count: count.parse().ok()?, period: span_text::read(period)? })
        });
        Ok(Self {
            transient: of_class(Class::Transient)?,
            business: of_class(Class::Business)?,
            external: of_class(Class::External)?,
            jitter: row.text("jitter")?.unwrap_or_default(),
            crashes: row.number("crashes")?,
            rate_max: rate_max.ok_or(Unexpected("a rate"))?,
            after_max: length("aftermax")?,
            paused_until: row.moment("paused_until")?,
        })
    }
}

impl DeadLetters {
    /// Changes by which numbers the ledger retries and redrives, for everybody who uses it.
    pub async fn configure(&self, change: &LedgerChange) -> Result<(), Error> {
        let _pass = self.0.client.inner().gate.enter()?;
        let (change, correlation) = (change.change()?, correlation::current());
        let call = LedgerConfigCall { key: self.0.key.as_bytes(), change, by: self.0.by(&correlation) };
        match self.0.ask_again(&Command::DlqConfig(call)).await? {
            Reply::Configured(_) => Ok(()),
            other => Err(odd(&other)),
        }
    }
}
