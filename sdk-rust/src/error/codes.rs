//! Generated from commands/errors.json by `cargo run -p resil-harness --bin generate`. Do not edit.

use super::Row;
use crate::grpc::StatusCode;

/// The stable names of errors, the same in every language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The circuit breaker is open. Calls are rejected until it closes.
    CircuitOpen,
    /// The rate limit is exceeded.
    RateLimitExceeded,
    /// The call did not finish in time.
    Timeout,
    /// Too many calls are in progress, and no more can wait.
    BulkheadFull,
    /// The policy refused the call by itself: it was shed, throttled, or struck by chaos.
    Refused,
    /// Every attempt failed.
    RetryExhausted,
    /// A setting of a policy is not valid.
    InvalidPolicy,
    /// An argument is not valid.
    InvalidArgument,
    /// The lock could not be acquired in time.
    LockTimeout,
    /// The lock, permit or lease was lost while the work was in progress.
    LockLost,
    /// A reader asked to write while others read or wait, which would deadlock.
    Deadlock,
    /// The same request is already in progress.
    IdempotencyBusy,
    /// The idempotency key was used before with a different request.
    IdempotencyMismatch,
    /// The outcome of an earlier attempt is unknown. An operator has to decide.
    IdempotencyHeld,
    /// The work has failed finally in an earlier attempt. Do not repeat it.
    IdempotencyFailed,
    /// The work is done, but its result could not be recorded. Do not repeat it.
    ResultUnrecorded,
    /// The dead letters cannot be redriven under this case now.
    RedriveRefused,
    /// The value could not be loaded.
    LoadFailed,
    /// Another message is in the ledger under the same id. Do not acknowledge this one.
    LedgerConflict,
    /// The ledger has no room for another message. Do not acknowledge it.
    LedgerFull,
    /// The payload is larger than the ledger accepts. Store it elsewhere and give a reference.
    PayloadTooBig,
    /// The server with the shared state cannot be reached.
    BackendUnavailable,
    /// The server does not have the Resil module loaded.
    ModuleMissing,
    /// The server does not allow this user to run the command.
    PermissionDenied,
    /// The caller cancelled the call.
    Cancelled,
    /// The service is shutting down and accepts no new work.
    ShuttingDown,
    /// The work crashed.
    Crashed,
    /// An internal error occurred.
    Internal,
}

/// Every code with what is known of it, in the order of the variants.
pub(super) const TABLE: [Row; 28] = [
    Row { code: Code::CircuitOpen, text: "CIRCUIT_OPEN", grpc: StatusCode::Unavailable, http: 503, is_retryable: true, meaning: "The circuit breaker is open. Calls are rejected until it closes." },
    Row { code: Code::RateLimitExceeded, text: "RATE_LIMIT_EXCEEDED", grpc: StatusCode::ResourceExhausted, http: 429, is_retryable: true, meaning: "The rate limit is exceeded." },
    Row { code: Code::Timeout, text: "TIMEOUT", grpc: StatusCode::DeadlineExceeded, http: 504, is_retryable: true, meaning: "The call did not finish in time." },
    Row { code: Code::BulkheadFull, text: "BULKHEAD_FULL", grpc: StatusCode::ResourceExhausted, http: 503, is_retryable: true, meaning: "Too many calls are in progress, and no more can wait." },
    Row { code: Code::Refused, text: "REFUSED", grpc: StatusCode::Unavailable, http: 503, is_retryable: true, meaning: "The policy refused the call by itself: it was shed, throttled, or struck by chaos." },
    Row { code: Code::RetryExhausted, text: "RETRY_EXHAUSTED", grpc: StatusCode::Unavailable, http: 503, is_retryable: false, meaning: "Every attempt failed." },
    Row { code: Code::InvalidPolicy, text: "INVALID_POLICY", grpc: StatusCode::InvalidArgument, http: 400, is_retryable: false, meaning: "A setting of a policy is not valid." },
    Row { code: Code::InvalidArgument, text: "INVALID_ARGUMENT", grpc: StatusCode::InvalidArgument, http: 400, is_retryable: false, meaning: "An argument is not valid." },
    Row { code: Code::LockTimeout, text: "LOCK_TIMEOUT", grpc: StatusCode::Aborted, http: 409, is_retryable: true, meaning: "The lock could not be acquired in time." },
    Row { code: Code::LockLost, text: "LOCK_LOST", grpc: StatusCode::Aborted, http: 409, is_retryable: false, meaning: "The lock, permit or lease was lost while the work was in progress." },
    Row { code: Code::Deadlock, text: "DEADLOCK", grpc: StatusCode::FailedPrecondition, http: 409, is_retryable: false, meaning: "A reader asked to write while others read or wait, which would deadlock." },
    Row { code: Code::IdempotencyBusy, text: "IDEMPOTENCY_BUSY", grpc: StatusCode::Aborted, http: 409, is_retryable: true, meaning: "The same request is already in progress." },
    Row { code: Code::IdempotencyMismatch, text: "IDEMPOTENCY_MISMATCH", grpc: StatusCode::FailedPrecondition, http: 422, is_retryable: false, meaning: "The idempotency key was used before with a different request." },
    Row { code: Code::IdempotencyHeld, text: "IDEMPOTENCY_HELD", grpc: StatusCode::FailedPrecondition, http: 409, is_retryable: false, meaning: "The outcome of an earlier attempt is unknown. An operator has to decide." },
    Row { code: Code::IdempotencyFailed, text: "IDEMPOTENCY_FAILED", grpc: StatusCode::FailedPrecondition, http: 409, is_retryable: false, meaning: "The work has failed finally in an earlier attempt. Do not repeat it." },
    Row { code: Code::ResultUnrecorded, text: "RESULT_UNRECORDED", grpc: StatusCode::FailedPrecondition, http: 409, is_retryable: false, meaning: "The work is done, but its result could not be recorded. Do not repeat it." },
    Row { code: Code::RedriveRefused, text: "REDRIVE_REFUSED", grpc: StatusCode::FailedPrecondition, http: 409, is_retryable: false, meaning: "The dead letters cannot be redriven under this case now." },
    Row { code: Code::LoadFailed, text: "LOAD_FAILED", grpc: StatusCode::Unavailable, http: 503, is_retryable: true, meaning: "The value could not be loaded." },
    Row { code: Code::LedgerConflict, text: "LEDGER_CONFLICT", grpc: StatusCode::AlreadyExists, http: 409, is_retryable: false, meaning: "Another message is in the ledger under the same id. Do not acknowledge this one." },
    Row { code: Code::LedgerFull, text: "LEDGER_FULL", grpc: StatusCode::ResourceExhausted, http: 507, is_retryable: true, meaning: "The ledger has no room for another message. Do not acknowledge it." },
    Row { code: Code::PayloadTooBig, text: "PAYLOAD_TOO_BIG", grpc: StatusCode::InvalidArgument, http: 413, is_retryable: false, meaning: "The payload is larger than the ledger accepts. Store it elsewhere and give a reference." },
    Row { code: Code::BackendUnavailable, text: "BACKEND_UNAVAILABLE", grpc: StatusCode::Unavailable, http: 503, is_retryable: true, meaning: "The server with the shared state cannot be reached." },
    Row { code: Code::ModuleMissing, text: "MODULE_MISSING", grpc: StatusCode::FailedPrecondition, http: 500, is_retryable: false, meaning: "The server does not have the Resil module loaded." },
    Row { code: Code::PermissionDenied, text: "PERMISSION_DENIED", grpc: StatusCode::PermissionDenied, http: 403, is_retryable: false, meaning: "The server does not allow this user to run the command." },
    Row { code: Code::Cancelled, text: "CANCELLED", grpc: StatusCode::Cancelled, http: 499, is_retryable: false, meaning: "The caller cancelled the call." },
    Row { code: Code::ShuttingDown, text: "SHUTTING_DOWN", grpc: StatusCode::Unavailable, http: 503, is_retryable: true, meaning: "The service is shutting down and accepts no new work." },
    Row { code: Code::Crashed, text: "CRASHED", grpc: StatusCode::Internal, http: 500, is_retryable: false, meaning: "The work crashed." },
    Row { code: Code::Internal, text: "INTERNAL", grpc: StatusCode::Internal, http: 500, is_retryable: false, meaning: "An internal error occurred." },
];
