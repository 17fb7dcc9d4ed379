//! Errors as statuses of tonic, and which statuses are worth another attempt.
//!
//! A status made from an error carries its code (`resil-code`), and says when a gRPC client may come back, or not to
//! (`grpc-retry-pushback-ms`, gRFC A6): a caller that exhausted all attempts does not want the next hop to begin with them anew.
//! Going the other way, a server that says so is obeyed.

use std::time::Duration;

use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code as TonicCode, Status};

use super::StatusCode;
use super::service_config::AttemptPolicy;
use crate::error::{Error, Failure};
use crate::policy::{Class, Classify};

/// How long a server asks to wait, in milliseconds; negative: do not come back.
pub const PUSHBACK_KEY: &str = "grpc-retry-pushback-ms";
/// The code of one of our errors.
pub const CODE_KEY: &str = "resil-code";

impl From<StatusCode> for TonicCode {
    fn from(code: StatusCode) -> Self {
        Self::from_i32(i32::from(code.number()))
    }
}

impl From<TonicCode> for StatusCode {
    fn from(code: TonicCode) -> Self {
        usize::try_from(i32::from(code)).ok().and_then(|number| Self::ALL.get(number).copied()).unwrap_or(Self::Unknown)
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

impl From<&Error> for Status {
    fn from(error: &Error) -> Self {
        let code = error.code();
        let mut metadata = MetadataMap::new();
        metadata.insert(CODE_KEY, MetadataValue::from_static(code.text()));
        if !code.is_retryable() {
            metadata.insert(PUSHBACK_KEY, MetadataValue::from(-1_i32));
        } else if let Some(wait) = error.retry_after() {
            // Rounded up, so that no client comes too early.
            let wait_ms = wait.as_nanos().div_ceil(1_000_000);
            metadata.insert(PUSHBACK_KEY, MetadataValue::from(i32::try_from(wait_ms).unwrap_or(i32::MAX)));
        }
        Self::with_metadata(TonicCode::from_i32(code.grpc() as i32), error.said_outside(), metadata)
    }
}

impl From<Failure<Status>> for Status {
    /// The call's own status as it is. After exhausted attempts it is `UNAVAILABLE`, with what the last one said: its
    /// message, details and metadata. [`Failure::into_inner`] gives that one untouched.
    fn from(failure: Failure<Self>) -> Self {
        match failure {
            Failure::Inner(status) => status,
            Failure::Resil(error) => Self::from(error),
            Failure::Exhausted { attempts, last } => {
                let last = Self::from(*last);
                let exhausted = Self::from(Error::RetryExhausted { attempts });
                let last_code = StatusCode::from(last.code()).text();
                let message = format!("{}; the last: {last_code}: {}", exhausted.message(), last.message());
                let mut metadata = last.metadata().clone();
                for key in [CODE_KEY, PUSHBACK_KEY] {
                    metadata.remove(key);
                    if let Some(value) = exhausted.metadata().get(key) {
                        metadata.insert(key, value.clone());
                    }
                }
                let details = bytes::Bytes::copy_from_slice(last.details());
                Self::with_details_and_metadata(exhausted.code(), message, details, metadata)
            }
        }
    }
}

/// Which statuses are worth another attempt.
///
/// By default `UNAVAILABLE`, `RESOURCE_EXHAUSTED`, `ABORTED` and `DEADLINE_EXCEEDED`. After the last the server may have
/// done the work all the same: leave it out for calls that must not happen twice.
///
/// ```
/// use resil::grpc::{RetryStatuses, StatusCode};
/// use resil::policy::Class;
///
/// let statuses = RetryStatuses::default().without(StatusCode::DeadlineExceeded);
/// assert_eq!(statuses.class(&tonic::Status::unavailable("restarting")), Class::Retry);
/// assert_eq!(statuses.class(&tonic::Status::deadline_exceeded("slow")), Class::Permanent);
/// assert_eq!(statuses.class(&tonic::Status::not_found("no such order")), Class::Ignore);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryStatuses {
    /// A bit for each, by its number.
    bits: u32,
}

impl Default for RetryStatuses {
    fn default() -> Self {
        use StatusCode::{Aborted, DeadlineExceeded, ResourceExhausted, Unavailable};
        Self::of(&[Unavailable, ResourceExhausted, Aborted, DeadlineExceeded])
    }
}

impl RetryStatuses {
    /// These and no others.
    pub fn of(codes: &[StatusCode]) -> Self {
        codes.iter().fold(Self { bits: 0 }, |statuses, code| statuses.with(*code))
    }

    pub fn with(self, code: StatusCode) -> Self {
        Self { bits: self.bits | 1 << code.number() }
    }

    pub fn without(self, code: StatusCode) -> Self {
        Self { bits: self.bits & !(1 << code.number()) }
    }

    pub fn contains(self, code: StatusCode) -> bool {
        self.bits & 1 << code.number() != 0
    }

    /// What a status means for the call that got it. A server that asks not to be called again (a negative pushback, or one
    /// that cannot be read) is not; one that names a time is called after that. It cannot make a status retryable that is
    /// not among these.
    pub fn class(self, status: &Status) -> Class {
        let code = StatusCode::from(status.code());
        if !self.contains(code) {
            return if is_about_the_request(code) { Class::Ignore } else { Class::Permanent };
        }
        let mut pushback = status.metadata().get_all(PUSHBACK_KEY).iter();
        let Some(value) = pushback.next() else { return Class::Retry };
        let wait_ms = value.to_str().ok().and_then(|text| text.parse::<i32>().ok());
        match (wait_ms.and_then(|ms| u64::try_from(ms).ok()), pushback.next()) {
            (Some(wait_ms), None) => Class::RetryAfter(Duration::from_millis(wait_ms)),
            // Negative, unreadable, or said twice.
            _ => Class::Permanent,
        }
    }
}

impl Classify<Status> for RetryStatuses {
    fn classify(&self, status: &Status) -> Class {
        self.class(status)
    }
}

impl From<&AttemptPolicy> for RetryStatuses {
    /// Those that are retried; of hedging, those after which the other attempts go on.
    fn from(policy: &AttemptPolicy) -> Self {
        match policy {
            AttemptPolicy::Retry(policy) => Self::of(&policy.retryable_status_codes),
            AttemptPolicy::Hedge(policy) => Self::of(&policy.non_fatal_status_codes),
        }
    }
}

/// It says something about what was asked, or about who gave up, and nothing about the health of the server.
fn is_about_the_request(code: StatusCode) -> bool {
    matches!(
        code,
        StatusCode::Cancelled
            | StatusCode::InvalidArgument
            | StatusCode::NotFound
            | StatusCode::AlreadyExists
            | StatusCode::PermissionDenied
            | StatusCode::FailedPrecondition
            | StatusCode::OutOfRange
            | StatusCode::Unauthenticated
    )
}
