//! Everything that can be said about a lock, a cache and the rest, as plain structures: for configuration, and for other
//! languages, whose options they are.
//!
//! # What is promised
//! - What is not said is as the builder has it: no default stands here a second time.
//! - Unknown fields are refused, and whatever is out of bounds is named by its field, before anything is made.
//! - What was written is read again as the same settings.
//!
//! In JSON and YAML fields are in camelCase, and durations are text such as `"250ms"` or whole milliseconds. A [`Dialect`] reads
//! them as another language says them: `lease=2.5` in Python, `{ lease: 2500 }` in JavaScript.
//!
//! ```
//! use resil::settings::{Dialect, LockSettings, Numbers, Spelling};
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! # let client = resil::connect("memory://").await?;
//! let python = Dialect { spelling: Spelling::Snake, numbers: Numbers::Seconds };
//! let settings: LockSettings = python.read(serde_json::json!({ "lease": 2.5, "when_away": "closed" }))?;
//! let guard = settings.lock(&client, "stock:42")?.acquire().await?;
//! # drop(guard);
//!
//! let wrong = python.read::<LockSettings>(serde_json::json!({ "lease": 0 })).unwrap_err();
//! assert!(wrong.to_string().starts_with("lease must be from 10 ms"));
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```

mod cached;
mod call;
mod connecting;
mod dialect;
mod dispatcher;
mod idempotency;
mod lock;
pub(crate) mod moment_text;
mod reading;
mod shared_bulkhead;
mod showing;
#[cfg(test)]
mod tests;

use serde::de::DeserializeOwned;

pub use self::cached::CacheSettings;
pub use self::call::CallSettings;
pub use self::connecting::ConnectSettings;
pub use self::dialect::{Dialect, Numbers, Spelling};
pub use self::dispatcher::DispatcherSettings;
pub use self::idempotency::IdempotencySettings;
pub use self::lock::LockSettings;
pub use self::shared_bulkhead::SharedBulkheadSettings;
pub use crate::policy::{
    BreakerSettings, BudgetSettings, BulkheadSettings, HedgeSettings, PartitionSettings, PolicyFile, PolicySettings,
    RateLimitSettings, RetrySettings, TierSettings, TimeoutSettings,
};

use crate::error::Error;

/// What the text of a duration says (`"250ms"`; units: us, ms, s, m, h, d), for those who are given one by itself. A number without its
/// unit is none: it would be seconds to some, and milliseconds to others.
pub fn duration(text: &str) -> Option<std::time::Duration> {
    let has_unit = text.ends_with(|last: char| last.is_ascii_alphabetic());
    crate::policy::span_text::read(text).filter(|_| has_unit)
}

/// What a [`Dialect`] can read.
pub trait Settings: DeserializeOwned {
    /// What stands before the names of its fields when it is part of a policy; to who says it by itself it says nothing.
    const PART: &'static str;

    /// Refuses what is out of bounds, by the name of its field in camelCase.
    fn validate(&self) -> Result<(), Error>;
}

macro_rules! settings {
    ($($name:ident => $part:literal),* $(,)?) => {
        $(impl Settings for $name {
            const PART: &'static str = $part;

            fn validate(&self) -> Result<(), Error> {
                // The method of the type itself.
                $name::validate(self)
            }
        })*
    };
}

settings! {
    BreakerSettings => "breaker",
    BudgetSettings => "budget",
    BulkheadSettings => "bulkhead",
    CacheSettings => "",
    CallSettings => "",
    ConnectSettings => "",
    DispatcherSettings => "",
    HedgeSettings => "hedge",
    IdempotencySettings => "",
    LockSettings => "",
    PolicyFile => "",
    PolicySettings => "",
    RateLimitSettings => "rateLimit",
    RetrySettings => "retry",
    SharedBulkheadSettings => "",
    TimeoutSettings => "timeout",
}

/// The same in camelCase, as fields are called here.
fn in_camel_case(error: Error) -> Error {
    error.of_field(|field| Spelling::Camel.spell(field))
}
