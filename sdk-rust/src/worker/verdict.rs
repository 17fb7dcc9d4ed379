//! What a handler's error means for its message.
//!
//! | verdict | the message |
//! | --- | --- |
//! | `Retry` | failed, counted, retried by the ledger with backoff |
//! | `RetryAfter` | the same, not before then |
//! | `NotCounted` | failed, not counted; the worker takes nothing until then |
//! | `Permanent` | dead at once |
//! | `Drop` | acknowledged, counted and logged, and gone |
//! | `GiveBack` | not tried: delivered again |

use std::error::Error as StdError;
use std::io::ErrorKind;
use std::time::Duration;

use crate::dead_letters::{FailureClass, FailureNote};
use crate::error::{Code, Error, Failure};

/// When a message that was not tried is due again: soon, but not in the same moment for ever. What is cancelled by somebody else than the worker was tried,
/// and counts.
pub(super) const GIVEN_BACK_FOR: Duration = Duration::from_secs(1);
/// How long nothing is taken where an error does not say.
const PAUSE: Duration = Duration::from_secs(1);

/// What becomes of a message whose handler failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkVerdict {
    /// It failed, and is retried. The ledger decides how often, by class.
    Retry(FailureClass),
    /// The same, and not before this has passed.
    RetryAfter(FailureClass, Duration),
    /// It was not the message's fault, and would be the next one's: nothing is counted, and the worker takes nothing for this long.
    NotCounted(Option<Duration>),
    /// No use in another attempt: it is dead.
    Permanent,
    /// It is of no use to anybody: counted, logged, and gone.
    Drop,
    /// It was not tried: due again after this.
    GiveBack(Duration),
}

impl WorkVerdict {
    /// The default of an error: by the first cause that is known, else a transient failure.
    pub fn of(error: &(dyn StdError + 'static)) -> Self {
        let mut cause = Some(error);
        while let Some(current) = cause {
            if let Some(verdict) = Self::of_cause(current) {
                return verdict;
            }
            cause = current.source();
        }
        Self::Retry(FailureClass::Transient)
    }

    fn of_cause(error: &(dyn StdError + 'static)) -> Option<Self> {
        if let Some(ours) = error.downcast_ref::<Error>() {
            return Some(Self::of_code(ours.code(), ours.retry_after()));
        }
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return Self::of_io(io.kind());
        }
        if error.is::<serde_json::Error>() || error.is::<std::str::Utf8Error>() || error.is::<std::num::ParseIntError>()
        {
            return Some(Self::Permanent);
        }
        if error.is::<tokio::time::error::Elapsed>() {
            return Some(Self::Permanent);
        }
        #[cfg(feature = "postgres")]
        if let Some(postgres) = error.downcast_ref::<tokio_postgres::Error>() {
            return super::postgres::verdict_of(postgres);
        }
        None
    }

    /// By an error of Resil's, also in the form of another language.
    pub fn of_code(code: Code, retry_after: Option<Duration>) -> Self {
        match code {
            // Not ours: a worker that shuts down asks for no verdict.
            Code::ShuttingDown => Self::NotCounted(retry_after),
            Code::CircuitOpen | Code::RateLimitExceeded | Code::BulkheadFull | Code::BackendUnavailable => {
                Self::NotCounted(retry_after)
            }
            Code::Timeout
            | Code::InvalidArgument
            | Code::InvalidPolicy
            | Code::PermissionDenied
            | Code::IdempotencyMismatch
            | Code::IdempotencyFailed => Self::Permanent,
            Code::IdempotencyBusy | Code::LockTimeout => {
                Self::RetryAfter(FailureClass::Transient, retry_after.unwrap_or(PAUSE))
            }
            _ => Self::Retry(FailureClass::Transient),
        }
    }

    /// By the status of an HTTP response that is no success.
    pub fn of_status(status: u16, retry_after: Option<Duration>) -> Self {
        match (status, retry_after) {
            (408 | 425 | 429 | 500..=599, Some(after)) => Self::RetryAfter(FailureClass::External, after),
            (408 | 425 | 429 | 500..=599, None) => Self::Retry(FailureClass::External),
            (400..=499, _) => Self::Permanent,
            _ => Self::Retry(FailureClass::Transient),
        }
    }

    fn of_io(kind: ErrorKind) -> Option<Self> {
        Some(match kind {
            ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected
            | ErrorKind::BrokenPipe
            | ErrorKind::TimedOut
            | ErrorKind::UnexpectedEof
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown => Self::Retry(FailureClass::External),
            ErrorKind::InvalidData
            | ErrorKind::InvalidInput
            | ErrorKind::AlreadyExists
            | ErrorKind::PermissionDenied => Self::Permanent,
            _ => return None,
        })
    }

    /// What is recorded of it in the ledger. `None`: nothing.
    pub(super) fn note(self, error: String) -> Option<FailureNote> {
        let note = FailureNote::new(error);
        Some(match self {
            Self::Retry(class) => note.failure_class(class),
            Self::RetryAfter(class, after) => note.failure_class(class).after(after),
            Self::NotCounted(after) => FailureNote { after, ..note.not_counted() },
            Self::Permanent => note.dead_at_once(),
            Self::Drop | Self::GiveBack(_) => return None,
        })
    }

    /// For how long the worker takes nothing.
    pub(super) fn pause(self) -> Option<Duration> {
        match self {
            Self::NotCounted(after) => Some(after.unwrap_or(PAUSE)),
            _ => None,
        }
    }
}

/// How a handler failed: any error, which the worker classifies, or one with a verdict of its own.
///
/// ```
/// # use resil::worker::{WorkError, WorkVerdict};
/// fn handle(payload: &[u8]) -> Result<(), WorkError> {
///     let order: serde_json::Value = serde_json::from_slice(payload)?; // what cannot be read will not be readable later: dead at once
///     if order["pieces"] == 0 {
///         return Err(WorkError::permanent("an order of nothing"));
///     }
///     Ok(())
/// }
/// assert_eq!(handle(b"{").unwrap_err().verdict(), None);
/// assert_eq!(handle(br#"{"pieces": 0}"#).unwrap_err().verdict(), Some(WorkVerdict::Permanent));
/// ```
#[derive(Debug)]
pub struct WorkError {
    error: Box<dyn StdError + Send + Sync>,
    verdict: Option<WorkVerdict>,
}

impl WorkError {
    pub fn new(verdict: WorkVerdict, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { error: error.into(), verdict: Some(verdict) }
    }

    /// See [`WorkVerdict::Retry`].
    pub fn retry(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(WorkVerdict::Retry(FailureClass::Transient), error)
    }

    /// See [`WorkVerdict::RetryAfter`].
    pub fn retry_after(after: Duration, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(WorkVerdict::RetryAfter(FailureClass::Transient, after), error)
    }

    /// See [`WorkVerdict::NotCounted`].
    pub fn not_counted(after: Option<Duration>, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(WorkVerdict::NotCounted(after), error)
    }

    /// See [`WorkVerdict::Permanent`].
    pub fn permanent(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(WorkVerdict::Permanent, error)
    }

    /// See [`WorkVerdict::Drop`].
    pub fn drop_message(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(WorkVerdict::Drop, error)
    }

    /// An HTTP response that is no success: see [`WorkVerdict::of_status`].
    pub fn status(status: u16, retry_after: Option<Duration>) -> Self {
        Self::new(WorkVerdict::of_status(status, retry_after), format!("status {status}"))
    }

    /// That of the handler, if it has one.
    pub fn verdict(&self) -> Option<WorkVerdict> {
        self.verdict
    }

    pub fn error(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.error
    }

    /// What the ledger keeps: the error and its causes.
    pub(super) fn text(&self) -> String {
        let (mut text, mut cause) = (self.error.to_string(), self.error.source());
        while let Some(current) = cause {
            let said = current.to_string();
            if !text.contains(&said) {
                text = format!("{text}: {said}");
            }
            cause = current.source();
        }
        text
    }

    /// What a policy around the handler had to say.
    pub(super) fn of_policy(failure: Failure<Self>) -> Self {
        match failure {
            Failure::Inner(own) => own,
            Failure::Resil(error) => error.into(),
            Failure::Exhausted { last, .. } => Self::of_policy(*last),
        }
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for WorkError {
    fn from(error: E) -> Self {
        Self { error: Box::new(error), verdict: None }
    }
}

#[cfg(test)]
#[path = "tests/verdict.rs"]
mod tests;
