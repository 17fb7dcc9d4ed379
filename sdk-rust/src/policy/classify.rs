//! Which failures are worth another attempt.
//!
//! Nothing is retried by default: the caller says which of its errors may go away by themselves, with a function
//! or a [`Classify`] of their own. [`retry_all`] and [`retry_none`] are there as explicit choices.
//!
//! What Resil itself has to say is classified here, the same for everybody:
//! - an open circuit is never retried: the breaker knows better when to come back;
//! - a rate limit, a full bulkhead, a lock that is held or work that is busy elsewhere is retried after `retry_after`;
//! - a timeout, a failed load and a backend that is away are retried;
//! - everything else is not. Attempts that were already exhausted further in are not multiplied further out.

use std::time::Duration;

use crate::error::{Error, Failure};

/// What an error means for the call that got it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It may go away: worth another attempt after the usual delay.
    Retry,
    /// It may go away, but not before this has passed.
    RetryAfter(Duration),
    /// It will not go away.
    Permanent,
    /// It says nothing about the health of what was called (not found, a bad request): not retried, and not held against
    /// it by breakers.
    Ignore,
}

impl Class {
    /// Whether another attempt may succeed.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Retry | Self::RetryAfter(_))
    }
}

/// Says what an error means. Every `Fn(&E) -> Class` does; write the type of a closure's argument
/// (`|error: &MyError| ...`).
pub trait Classify<E> {
    fn classify(&self, error: &E) -> Class;
}

impl<E, F: Fn(&E) -> Class> Classify<E> for F {
    fn classify(&self, error: &E) -> Class {
        self(error)
    }
}

/// Every error may go away. Only for calls that may be made twice and whose errors are all of that kind.
pub fn retry_all<E>(_error: &E) -> Class {
    Class::Retry
}

/// No error of the call's own goes away; what Resil itself says is still classified as usual.
pub fn retry_none<E>(_error: &E) -> Class {
    Class::Permanent
}

/// What one of Resil's own errors means.
pub fn classify_own(error: &Error) -> Class {
    match error {
        Error::RateLimitExceeded { .. }
        | Error::BulkheadFull { .. }
        | Error::LockTimeout { .. }
        | Error::IdempotencyBusy { .. } => error.retry_after().map_or(Class::Retry, Class::RetryAfter),
        // Chaos is to look like a failure of the callee.
        Error::Timeout { .. }
        | Error::LoadFailed { .. }
        | Error::BackendUnavailable(_)
        | Error::Refused { layer: "chaos", .. } => Class::Retry,
        // An open circuit among them, and what was shed or throttled.
        _ => Class::Permanent,
    }
}

/// What a failure means: the call's own errors by `classify`, Resil's by [`classify_own`].
pub fn classify_failure<E>(classify: &impl Classify<E>, failure: &Failure<E>) -> Class {
    match failure {
        Failure::Inner(error) => classify.classify(error),
        Failure::Resil(error) => classify_own(error),
        Failure::Exhausted { .. } => Class::Permanent,
    }
}

#[cfg(test)]
#[path = "tests/classify.rs"]
mod tests;
