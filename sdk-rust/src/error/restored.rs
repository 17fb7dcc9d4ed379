//! An error that went through another language, and comes back as what a binding knows of it.
//!
//! A policy around a policy judges an error by its code and by when to come back. Both survive; numbers that nobody judges
//! by (how long it was waited, how many attempts there were) do not.

use std::sync::Arc;
use std::time::Duration;

use super::{Code, Error, Leased};

impl Error {
    /// The error of this code. `name` is what it is about, `message` its whole text.
    pub fn restored(code: Code, name: &str, message: &str, retry_after: Option<Duration>) -> Self {
        let (name, message): (Arc<str>, String) = (name.into(), message.to_owned());
        match code {
            Code::CircuitOpen => Self::CircuitOpen { name, retry_after },
            Code::RateLimitExceeded => Self::RateLimitExceeded { name, retry_after },
            Code::Timeout => Self::Timeout { after: Duration::ZERO },
            Code::BulkheadFull => Self::BulkheadFull { name, retry_after },
            Code::Refused => Self::Refused { name, layer: layer_of(&message) },
            Code::RetryExhausted => Self::RetryExhausted { attempts: 0 },
            Code::InvalidPolicy => {
                let (field, reason) = message.split_once(' ').unwrap_or((&message, ""));
                Self::InvalidPolicy { field: field.to_owned(), reason: reason.to_owned() }
            }
            Code::InvalidArgument => Self::InvalidArgument(message),
            Code::LockTimeout => Self::LockTimeout { name, waited: Duration::ZERO, retry_after },
            Code::LockLost => Self::LockLost { what: Leased::Lock, name, reason: "it was lost" },
            Code::Deadlock => Self::Deadlock { name },
            Code::IdempotencyBusy => Self::IdempotencyBusy { name, retry_after },
            Code::IdempotencyMismatch => Self::IdempotencyMismatch { name },
            Code::IdempotencyHeld => Self::IdempotencyHeld { name, attempt: 0 },
            Code::IdempotencyFailed => Self::IdempotencyFailed { name, error: String::new(), message },
            Code::ResultUnrecorded => Self::ResultUnrecorded { name, reason: message },
            Code::LedgerConflict => Self::LedgerConflict { name },
            Code::LedgerFull => Self::LedgerFull { name },
            Code::PayloadTooBig => Self::PayloadTooBig(message),
            Code::RedriveRefused => Self::RedriveRefused { name, case: 0, reason: "it was refused" },
            Code::LoadFailed => Self::LoadFailed { name, message },
            Code::BackendUnavailable => Self::BackendUnavailable("it was away"),
            Code::ModuleMissing => Self::ModuleMissing,
            Code::PermissionDenied => Self::PermissionDenied("that"),
            Code::Cancelled => Self::Cancelled,
            Code::ShuttingDown => Self::ShuttingDown,
            Code::Crashed => Self::Crashed(message),
            Code::Internal => Self::Internal(message),
        }
    }
}

/// A policy around a policy judges by it: chaos looks like a failure of the callee.
fn layer_of(message: &str) -> &'static str {
    let layers = ["shed", "throttle", "chaos"];
    layers.into_iter().find(|layer| message.ends_with(layer)).unwrap_or("shed")
}

#[cfg(test)]
#[path = "tests/restored.rs"]
mod tests;
