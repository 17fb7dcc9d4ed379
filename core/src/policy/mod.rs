//! Policies as data: one schema for the server, the SDKs and files, and the small machines that adapt to what happens.
//!
//! A document says what protects a call: timeouts, retry, breaker, rate limit, bulkheads, shedding. [`read`] takes its JSON and
//! gives a typed [`Document`], or the one thing that is wrong with it and its path: `retry.maxAttempts must be from 1 to 100,
//! got 0`. [`Document::canonical`] writes it in one way only, so that equal documents are equal texts.
//!
//! # The way of a document
//! 1. [`text`]: JSON to a tree; syntax, size, depth and duplicate keys end here, with the path `document`.
//! 2. [`fields`] and [`walk`]: every field has one row with its bounds, default and meaning. The walk knows a field by its
//!    camelCase or snake_case name, or by the name another well-known layout gives it ([`fields::Other`]); everything leaves it in camelCase.
//! 3. [`document`]: the typed form. [`check`]: what concerns more than one field.
//!
//! The JSON Schema and the reference page are made from the same rows: [`schema`].
//!
//! # The machines
//! [`retry_budget`], [`throttle`], [`shedding`], [`concurrency`], [`breaker_baseline`], [`chaos`] and [`backoff`] are pure: the
//! caller hands in the time and the random numbers. What they learn is volatile.
//!
//! # Invariants
//! - `read(canonical(d)) == d` for every document `d` that was read.
//! - A document that was read makes every part it names: nothing is found to be wrong only later.
//! - A path is in camelCase, whatever spelling the document used.

pub mod backoff;
pub mod breaker_baseline;
pub mod chaos;
mod check;
pub mod concurrency;
pub mod document;
mod duration;
pub mod fields;
mod moment;
pub mod order;
pub mod recent;
pub mod retry_budget;
pub mod schema;
pub mod shedding;
mod text;
pub mod throttle;
pub mod walk;

use alloc::string::String;
use core::fmt;

pub use self::backoff::JitterKind;
pub use self::document::{
    Adaptive, AdaptiveKind, Away, Breaker, Budget, Bulkhead, Chaos, ChaosKind, CountingMode, Document, Hedge,
    LimitKind, Partition, PolicyFile, RateLimit, Retry, SharedBulkhead, Shedding, Throttle, Tier, Timeout,
};
pub use self::duration::SPAN;
pub use self::order::Stage;
pub use self::shedding::Priority;
pub use self::walk::{read_file_value, read_part, read_parts, read_value};
use crate::limits::POLICY_BYTES_MAX;

/// What is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// Which field, in camelCase: `retry.maxAttempts`. `document` for what is wrong with the text itself.
    pub path: String,
    /// What is wrong with it: `must be from 1 to 100, got 0`.
    pub text: String,
}

impl Invalid {
    pub(crate) fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// The same, found inside of `part`.
    #[must_use]
    pub fn inside(mut self, part: &str) -> Self {
        if self.path != WHOLE {
            self.path.insert(0, '.');
            self.path.insert_str(0, part);
        }
        self
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.text)
    }
}

impl core::error::Error for Invalid {}

/// The path of what is wrong with the text itself.
pub const WHOLE: &str = "document";

/// Reads the JSON of a policy.
///
/// ```
/// let document = resil_core::policy::read(r#"{"retry": {"max_attempts": 4}, "timeout": {"attempt": "250ms"}}"#)?;
/// assert_eq!(document.canonical(), r#"{"timeout":{"attempt":"250ms"},"retry":{"maxAttempts":4}}"#);
/// let wrong = resil_core::policy::read(r#"{"retry": {"maxAttempts": 0}}"#).unwrap_err();
/// assert_eq!(wrong.to_string(), "retry.maxAttempts must be from 1 to 100, got 0");
/// # Ok::<(), resil_core::policy::Invalid>(())
/// ```
pub fn read(json: &str) -> Result<Document, Invalid> {
    read_value(text::tree(json, POLICY_BYTES_MAX)?)
}

/// Reads the JSON of a file of policies. What concerns a policy and the defaults together is left to the caller, who merges them.
pub fn read_file(json: &str) -> Result<PolicyFile, Invalid> {
    read_file_value(text::tree(json, FILE_BYTES_MAX)?)
}

/// Bytes of a file of policies.
const FILE_BYTES_MAX: usize = 16 * POLICY_BYTES_MAX;
