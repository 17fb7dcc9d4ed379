//! How everything is configured: one plain structure for each primitive, with builder methods on itself. A structure is checked once,
//! when the handle is made of it.
//!
//! # What is promised
//! - Omitted fields have their defaults, and a default is written down once.
//! - Unknown fields are refused. What is out of bounds is named by its field before anything is made.
//! - What was written is read again as the same settings.
//!
//! In JSON and YAML fields are in camelCase, and durations are text such as `"250ms"`; policies refuse bare numbers. A [`Dialect`] reads
//! them as another language writes them: `lease=2.5` in Python, `{ lease: 2500 }` in JavaScript.
//!
//! ```
//! use std::time::Duration;
//! use resil::settings::{Dialect, LockSettings, Numbers, Spelling};
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! # let client = resil::connect("memory://").await?;
//! let python = Dialect { spelling: Spelling::Snake, numbers: Numbers::Seconds };
//! let settings: LockSettings = python.read(serde_json::json!({ "lease": 2.5, "when_away": "closed" }))?;
//! assert_eq!(settings, LockSettings::new().lease(Duration::from_millis(2_500)));
//! let guard = client.lock("stock:42", settings)?.acquire().await?;
//! # drop(guard);
//!
//! let wrong = python.read::<LockSettings>(serde_json::json!({ "lease": 0 })).unwrap_err();
//! assert_eq!(wrong.to_string(), "lease must be from 10ms to 30d, got 0");
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```

mod dialect;
pub(crate) mod moment_text;
mod reading;
mod showing;
pub(crate) mod span_text;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::de::DeserializeOwned;

pub use self::dialect::{Dialect, Numbers, Spelling};
pub use crate::breaker::BreakerSettings;
pub use crate::cache::{CacheSettings, CallOptions};
pub use crate::client::ConnectSettings;
pub use crate::dead_letters::{
    DeadLettersSettings, Diagnosis, FailureNote, LedgerChange, Letter, LetterFilter, RedriveSettings,
};
pub use crate::dispatcher::DispatcherSettings;
pub use crate::idempotency::IdempotencySettings;
pub use crate::limiter::{Limit, LimitKind, LimitTier};
pub use crate::lock::LockSettings;
pub use crate::policy::{
    BudgetSettings, BulkheadSettings, CallSettings, HedgeSettings, PartitionSettings, PolicyFile, PolicySettings,
    RetrySettings, TimeoutSettings,
};
pub use crate::shared_bulkhead::SharedBulkheadSettings;
pub use crate::worker::{OutgoingSettings, VerdictSettings, WorkerSettings};

use crate::error::Error;

/// What the text of a duration says (`"250ms"`; units: us, ms, s, m, h, d). A number without its unit is refused: some would read it as
/// seconds, others as milliseconds.
pub fn duration(text: &str) -> Option<Duration> {
    let has_unit = text.ends_with(|last: char| last.is_ascii_alphabetic());
    span_text::read(text).filter(|_| has_unit)
}

/// What a [`Dialect`] can read.
pub trait Settings: DeserializeOwned {
    /// Refuses what is out of bounds, by the name of its field in camelCase.
    fn validate(&self) -> Result<(), Error>;
}

macro_rules! settings {
    ($($name:ty),* $(,)?) => {
        $(impl Settings for $name {
            fn validate(&self) -> Result<(), Error> {
                // The method of the type itself.
                <$name>::validate(self)
            }
        })*
    };
}

settings! {
    BreakerSettings, BudgetSettings, BulkheadSettings, CacheSettings, CallOptions, CallSettings<'static>, ConnectSettings, DeadLettersSettings,
    Diagnosis, DispatcherSettings, FailureNote, LedgerChange, Letter, LetterFilter, RedriveSettings,
    HedgeSettings, IdempotencySettings, Limit, LockSettings, PolicyFile, PolicySettings, RetrySettings, SharedBulkheadSettings,
    TimeoutSettings, VerdictSettings, OutgoingSettings, WorkerSettings,
}
#[cfg(feature = "amqp")]
settings! { crate::worker::rabbit::RabbitSettings }
#[cfg(feature = "postgres")]
settings! { crate::worker::postgres::OutboxSettings }
#[cfg(feature = "redis")]
settings! { crate::worker::streams::StreamSettings }

/// Builder methods: one for each field that is named, which sets that field. Those of the second list set an `Option`.
macro_rules! setters {
    ($type:ident { $($field:ident: $value:ty),* $(,)? } $({ $($option:ident: $inner:ty),* $(,)? })?) => {
        impl $type {
            $(#[doc = concat!("Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
            #[must_use]
            pub fn $field(mut self, $field: $value) -> Self {
                self.$field = $field;
                self
            })*
            $($(#[doc = concat!("Sets [`", stringify!($option), "`](Self#structfield.", stringify!($option), ").")]
            #[must_use]
            pub fn $option(mut self, $option: $inner) -> Self {
                self.$option = Some($option);
                self
            })*)?
        }
    };
}
pub(crate) use setters;

/// The part of a whole that is wrong, in what its own check says.
pub(crate) trait InPart {
    fn in_part(self, part: &str) -> Self;
}

impl<T> InPart for Result<T, Error> {
    fn in_part(self, part: &str) -> Self {
        self.map_err(|error| error.of_field(|field| format!("{part}.{field}")))
    }
}
