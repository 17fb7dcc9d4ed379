//! What can go wrong, as one family: a stable code, a reply to "may I retry?", and how long to wait before.
//!
//! [`Error`] is what Resil itself has to say. Whatever runs a function of yours returns [`Failure`], which is either
//! that or your own error, untouched. Messages never contain addresses, secrets or stack traces.

#[rustfmt::skip] // as it is generated
mod codes;
mod restored;

use std::sync::Arc;
use std::time::Duration;

pub use self::codes::Code;
use self::codes::TABLE;
use crate::grpc::StatusCode;

impl serde::Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}

/// What is known of a code.
pub(super) struct Row {
    code: Code,
    text: &'static str,
    grpc: StatusCode,
    http: u16,
    is_retryable: bool,
    meaning: &'static str,
}

impl Code {
    /// Every code there is.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.code)
    }

    fn row(self) -> &'static Row {
        // The table is in the order of the variants.
        &TABLE[self as usize]
    }

    pub fn text(self) -> &'static str {
        self.row().text
    }

    pub fn grpc(self) -> StatusCode {
        self.row().grpc
    }

    pub fn http(self) -> u16 {
        self.row().http
    }

    /// Whether the same call may succeed if it is made again, later.
    pub fn is_retryable(self) -> bool {
        self.row().is_retryable
    }

    /// What it means, in one sentence that names nothing and nobody: any caller may see it.
    pub fn meaning(self) -> &'static str {
        self.row().meaning
    }
}

/// How long what another holds is waited for before it is asked for again.
const HELD_FOR: Duration = Duration::from_secs(1);

/// What is held for a time, and can be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Leased {
    Lock,
    /// Of a shared bulkhead.
    Permit,
    /// The right to do a piece of idempotent work.
    Work,
    /// A message of a ledger.
    Message,
}

impl std::fmt::Display for Leased {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Lock => "the lock",
            Self::Permit => "the permit of the bulkhead",
            Self::Work => "the right to do the work",
            Self::Message => "the message",
        })
    }
}

/// What Resil itself has to say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("the circuit {name} is open")]
    CircuitOpen { name: Arc<str>, retry_after: Option<Duration> },
    #[error("the rate limit {name} is exceeded")]
    RateLimitExceeded { name: Arc<str>, retry_after: Option<Duration> },
    #[error("no result within {} ms", .after.as_millis())]
    Timeout { after: Duration },
    #[error("the bulkhead {name} is full")]
    BulkheadFull { name: Arc<str>, retry_after: Option<Duration> },
    #[error("the policy {name} refused the call: {layer}")]
    Refused {
        name: Arc<str>,
        /// `shed`, `throttle` or `chaos`.
        layer: &'static str,
    },
    #[error("all {attempts} attempts failed")]
    RetryExhausted { attempts: u32 },
    #[error("{field} {reason}")]
    InvalidPolicy { field: String, reason: String },
    #[error("{0}")]
    InvalidArgument(String),
    #[error("the lock {name} could not be had within {} ms", .waited.as_millis())]
    LockTimeout { name: Arc<str>, waited: Duration, retry_after: Option<Duration> },
    #[error("{what} {name} was lost: {reason}")]
    LockLost { what: Leased, name: Arc<str>, reason: &'static str },
    #[error("a reader of the lock {name} asked to write while others read or wait")]
    Deadlock { name: Arc<str> },
    #[error("the work {name} is being done by another caller")]
    IdempotencyBusy { name: Arc<str>, retry_after: Option<Duration> },
    #[error("the work {name} was asked for with another request before")]
    IdempotencyMismatch { name: Arc<str> },
    #[error(
        "the work {name} was begun {attempt} times and its outcome is not known; it is held for somebody to decide"
    )]
    IdempotencyHeld { name: Arc<str>, attempt: u32 },
    #[error("the work {name} has failed finally: {}", final_words(.error, .message))]
    IdempotencyFailed {
        name: Arc<str>,
        /// What the error was called where it happened; empty if what was recorded cannot be read here.
        error: String,
        message: String,
    },
    #[error("the work {name} is done, and its result could not be recorded: {reason}")]
    ResultUnrecorded { name: Arc<str>, reason: String },
    #[error("other bytes are known under this id in the ledger {name}; do not acknowledge the message")]
    LedgerConflict { name: Arc<str> },
    #[error("the ledger {name} has no room for another entry; do not acknowledge the message")]
    LedgerFull { name: Arc<str> },
    #[error("{0}")]
    PayloadTooBig(String),
    #[error("the ledger {name} refuses to redrive case {case}: {reason}")]
    RedriveRefused {
        name: Arc<str>,
        case: u32,
        /// `case`, `closed`, `poison`, `held`, `again`, `rate`, `running` or `nothing`.
        reason: &'static str,
    },
    #[error("loading {name} failed: {message}")]
    LoadFailed { name: Arc<str>, message: String },
    #[error("the backend cannot be reached: {0}")]
    BackendUnavailable(&'static str),
    #[error("the server does not have the Resil module loaded (MODULE LOAD libresil.so)")]
    ModuleMissing,
    #[error("the server does not allow this user {0}")]
    PermissionDenied(&'static str),
    #[error("cancelled")]
    Cancelled,
    #[error("shutting down: no new work is taken")]
    ShuttingDown,
    #[error("a task crashed: {0}")]
    Crashed(String),
    #[error("unexpected: {0}")]
    Internal(String),
}

fn final_words(error: &str, message: &str) -> String {
    match (error, message) {
        ("", "") => "its recorded error cannot be read here".to_owned(),
        ("", words) | (words, "") => words.to_owned(),
        (error, message) => format!("{error}: {message}"),
    }
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Self::CircuitOpen { .. } => Code::CircuitOpen,
            Self::RateLimitExceeded { .. } => Code::RateLimitExceeded,
            Self::Timeout { .. } => Code::Timeout,
            Self::BulkheadFull { .. } => Code::BulkheadFull,
            Self::Refused { .. } => Code::Refused,
            Self::RetryExhausted { .. } => Code::RetryExhausted,
            Self::InvalidPolicy { .. } => Code::InvalidPolicy,
            Self::InvalidArgument(_) => Code::InvalidArgument,
            Self::LockTimeout { .. } => Code::LockTimeout,
            Self::LockLost { .. } => Code::LockLost,
            Self::Deadlock { .. } => Code::Deadlock,
            Self::IdempotencyBusy { .. } => Code::IdempotencyBusy,
            Self::IdempotencyMismatch { .. } => Code::IdempotencyMismatch,
            Self::IdempotencyHeld { .. } => Code::IdempotencyHeld,
            Self::IdempotencyFailed { .. } => Code::IdempotencyFailed,
            Self::ResultUnrecorded { .. } => Code::ResultUnrecorded,
            Self::LedgerConflict { .. } => Code::LedgerConflict,
            Self::LedgerFull { .. } => Code::LedgerFull,
            Self::PayloadTooBig(_) => Code::PayloadTooBig,
            Self::RedriveRefused { .. } => Code::RedriveRefused,
            Self::LoadFailed { .. } => Code::LoadFailed,
            Self::BackendUnavailable(_) => Code::BackendUnavailable,
            Self::ModuleMissing => Code::ModuleMissing,
            Self::PermissionDenied(_) => Code::PermissionDenied,
            Self::Cancelled => Code::Cancelled,
            Self::ShuttingDown => Code::ShuttingDown,
            Self::Crashed(_) => Code::Crashed,
            Self::Internal(_) => Code::Internal,
        }
    }

    pub fn is_retryable(&self) -> bool {
        self.code().is_retryable()
    }

    /// The name of the limit, breaker, lock or other resource that the error is about, if it is about one.
    pub fn resource(&self) -> Option<&str> {
        match self {
            Self::CircuitOpen { name, .. }
            | Self::RateLimitExceeded { name, .. }
            | Self::BulkheadFull { name, .. }
            | Self::Refused { name, .. }
            | Self::LockTimeout { name, .. }
            | Self::LockLost { name, .. }
            | Self::Deadlock { name }
            | Self::IdempotencyBusy { name, .. }
            | Self::IdempotencyMismatch { name }
            | Self::IdempotencyHeld { name, .. }
            | Self::IdempotencyFailed { name, .. }
            | Self::ResultUnrecorded { name, .. }
            | Self::LedgerConflict { name }
            | Self::LedgerFull { name }
            | Self::RedriveRefused { name, .. }
            | Self::LoadFailed { name, .. } => Some(name),
            _ => None,
        }
    }

    /// How long to wait before the same call may succeed, if that is known.
    ///
    /// What somebody holds is free when its lease ends, which is what the field of the error says, but nearly always long
    /// before: so this is a second at most for a lock, a bulkhead and work that another does.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::CircuitOpen { retry_after, .. } | Self::RateLimitExceeded { retry_after, .. } => *retry_after,
            Self::BulkheadFull { retry_after, .. }
            | Self::LockTimeout { retry_after, .. }
            | Self::IdempotencyBusy { retry_after, .. } => retry_after.map(|lease| lease.min(HELD_FOR)),
            _ => None,
        }
    }

    /// What is said to somebody outside: nothing that a loader or a panic had to say, and no names, which are often made of
    /// keys that nobody else is to know.
    #[cfg(feature = "tonic")]
    pub(crate) fn said_outside(&self) -> String {
        match self {
            Self::InvalidPolicy { .. } | Self::InvalidArgument(_) => self.to_string(),
            Self::Timeout { .. } | Self::RetryExhausted { .. } => self.to_string(),
            _ => self.code().meaning().to_owned(),
        }
    }

    /// Whether it says that the server is no help, so that the caller decides without it: it cannot be reached, or it is there and
    /// lets nobody in, or lacks the module.
    pub(crate) fn says_away(&self) -> bool {
        matches!(
            self,
            Self::BackendUnavailable(_) | Self::Timeout { .. } | Self::PermissionDenied(_) | Self::ModuleMissing
        )
    }

    /// Why the server is away, without saying that it is.
    pub(crate) fn why_away(&self) -> String {
        match self {
            Self::BackendUnavailable(why) => (*why).to_owned(),
            other => other.to_string(),
        }
    }

    /// The error of a call that is refused because the server is away.
    pub(crate) fn as_unavailable(&self) -> Self {
        match self {
            Self::BackendUnavailable(_) | Self::PermissionDenied(_) | Self::ModuleMissing => self.clone(),
            _ => Self::BackendUnavailable("it did not reply in time"),
        }
    }

    /// What a server, or core, says no with: a code and a sentence. ERR says nothing that the sentence does not.
    pub(crate) fn refused_by_code(code: &str, text: &str) -> Self {
        let nameless = || Arc::from("");
        match (code, text) {
            ("CONFLICT", _) => Self::LedgerConflict { name: nameless() },
            ("FULL", _) => Self::LedgerFull { name: nameless() },
            ("TOOBIG", text) => Self::PayloadTooBig(text.to_owned()),
            ("INVALID", text) => {
                let (field, reason) = text.split_once(' ').unwrap_or(("document", text));
                Self::invalid(field, reason)
            }
            (code, "") => Self::InvalidArgument(code.to_owned()),
            ("ERR", text) => Self::InvalidArgument(text.to_owned()),
            (code, text) => Self::InvalidArgument(format!("{code} {text}")),
        }
    }

    /// The same about the ledger of this name, if it is about one.
    pub(crate) fn of_ledger(self, ledger: &Arc<str>) -> Self {
        match self {
            Self::LedgerConflict { .. } => Self::LedgerConflict { name: Arc::clone(ledger) },
            Self::LedgerFull { .. } => Self::LedgerFull { name: Arc::clone(ledger) },
            other => other,
        }
    }

    /// The same about another field, if it is about one.
    pub(crate) fn of_field(self, name: impl FnOnce(&str) -> String) -> Self {
        match self {
            Self::InvalidPolicy { field, reason } => Self::InvalidPolicy { field: name(&field), reason },
            other => other,
        }
    }

    pub(crate) fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::InvalidPolicy { field: field.into(), reason: reason.into() }
    }
}

/// How a call of yours, made through a policy, failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure<E> {
    /// It ran and returned this.
    Inner(E),
    /// It did not run, or was not waited for.
    Resil(Error),
    /// It failed `attempts` times; `last` is how it failed last.
    Exhausted { attempts: u32, last: Box<Failure<E>> },
}

impl<E> Failure<E> {
    /// `None` if it is the call's own error.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Inner(_) => None,
            Self::Resil(error) => Some(error.code()),
            Self::Exhausted { .. } => Some(Code::RetryExhausted),
        }
    }

    /// Whether the same call may succeed if it is made again, later: by its [`Code`], so never for the call's own error, of which
    /// nothing is known here.
    pub fn is_retryable(&self) -> bool {
        self.code().is_some_and(Code::is_retryable)
    }

    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Inner(_) => None,
            Self::Resil(error) => error.retry_after(),
            Self::Exhausted { last, .. } => last.retry_after(),
        }
    }

    /// The same with another error in place of the call's own.
    pub(crate) fn flat_map<F>(self, map: impl FnOnce(E) -> Failure<F>) -> Failure<F> {
        match self {
            Self::Inner(error) => map(error),
            Self::Resil(error) => Failure::Resil(error),
            Self::Exhausted { attempts, last } => Failure::Exhausted { attempts, last: Box::new(last.flat_map(map)) },
        }
    }

    /// The call's own error, if that is what it came to in the end.
    pub fn into_inner(self) -> Option<E> {
        match self {
            Self::Inner(error) => Some(error),
            Self::Resil(_) => None,
            Self::Exhausted { last, .. } => last.into_inner(),
        }
    }

    /// What Resil has to say of it, without the call's own error; `None` if there is nothing else.
    pub fn error(&self) -> Option<Error> {
        match self {
            Self::Inner(_) => None,
            Self::Resil(error) => Some(error.clone()),
            Self::Exhausted { attempts, .. } => Some(Error::RetryExhausted { attempts: *attempts }),
        }
    }

    pub fn inner(&self) -> Option<&E> {
        match self {
            Self::Inner(error) => Some(error),
            Self::Resil(_) => None,
            Self::Exhausted { last, .. } => last.inner(),
        }
    }
}

impl<E> From<Error> for Failure<E> {
    fn from(error: Error) -> Self {
        Self::Resil(error)
    }
}

impl<E: std::fmt::Display> std::fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Inner(error) => error.fmt(f),
            Self::Resil(error) => error.fmt(f),
            Self::Exhausted { attempts, last } => write!(f, "all {attempts} attempts failed; the last: {last}"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for Failure<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Inner(error) => Some(error),
            Self::Resil(error) => Some(error),
            Self::Exhausted { last, .. } => Some(last),
        }
    }
}

#[cfg(test)]
#[path = "tests/error.rs"]
mod tests;
