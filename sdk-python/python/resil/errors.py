"""What can go wrong, as one family: a stable code, whether to retry, and how long to wait before.

Every class has its code in its name: ``CIRCUIT_OPEN`` is :class:`CircuitOpenError`. An exception of your own function is
never wrapped: it is raised as it is. Only when retries were given up :class:`RetryExhaustedError` is raised *from* the
last one (``error.__cause__``).

>>> import resil
>>> client = resil.connect("memory://").wait()
>>> logins = client.limiter("logins", limit=1, period=60)
>>> logins.acquire("ann").wait()
>>> try:
...     logins.acquire("ann").wait()
... except resil.RateLimitExceededError as refused:
...     print(refused.code, refused.retryable, refused.retry_after > 50)
RATE_LIMIT_EXCEEDED True True

Generated from commands/errors.json by `cargo run -p resil-harness --bin generate`. Do not edit.
"""

from __future__ import annotations

import builtins
from typing import Any

from ._resil_error import ResilError


class CircuitOpenError(ResilError):
    """The circuit breaker is open. Calls are rejected until it closes."""

    code = "CIRCUIT_OPEN"
    retryable = True
    http_status = 503
    grpc_status = "UNAVAILABLE"
    meaning = "The circuit breaker is open. Calls are rejected until it closes."


class RateLimitExceededError(ResilError):
    """The rate limit is exceeded."""

    code = "RATE_LIMIT_EXCEEDED"
    retryable = True
    http_status = 429
    grpc_status = "RESOURCE_EXHAUSTED"
    meaning = "The rate limit is exceeded."


class TimeoutError(ResilError, builtins.TimeoutError):
    """The call did not finish in time."""

    code = "TIMEOUT"
    retryable = True
    http_status = 504
    grpc_status = "DEADLINE_EXCEEDED"
    meaning = "The call did not finish in time."
    #: The time that was given, in seconds.
    after: float = 0.0


class BulkheadFullError(ResilError):
    """Too many calls are in progress, and no more can wait."""

    code = "BULKHEAD_FULL"
    retryable = True
    http_status = 503
    grpc_status = "RESOURCE_EXHAUSTED"
    meaning = "Too many calls are in progress, and no more can wait."


class RefusedError(ResilError):
    """The policy refused the call by itself: it was shed, throttled, or struck by chaos."""

    code = "REFUSED"
    retryable = True
    http_status = 503
    grpc_status = "UNAVAILABLE"
    meaning = "The policy refused the call by itself: it was shed, throttled, or struck by chaos."


class RetryExhaustedError(ResilError):
    """Every attempt failed."""

    code = "RETRY_EXHAUSTED"
    retryable = False
    http_status = 503
    grpc_status = "UNAVAILABLE"
    meaning = "Every attempt failed."
    #: How many attempts were made.
    attempts: int = 0


class InvalidPolicyError(ResilError, ValueError):
    """A setting of a policy is not valid."""

    code = "INVALID_POLICY"
    retryable = False
    http_status = 400
    grpc_status = "INVALID_ARGUMENT"
    meaning = "A setting of a policy is not valid."
    #: The setting that is not valid.
    field: str = ""


class InvalidArgumentError(ResilError, ValueError):
    """An argument is not valid."""

    code = "INVALID_ARGUMENT"
    retryable = False
    http_status = 400
    grpc_status = "INVALID_ARGUMENT"
    meaning = "An argument is not valid."


class LockTimeoutError(ResilError):
    """The lock could not be acquired in time."""

    code = "LOCK_TIMEOUT"
    retryable = True
    http_status = 409
    grpc_status = "ABORTED"
    meaning = "The lock could not be acquired in time."


class LockLostError(ResilError):
    """The lock, permit or lease was lost while the work was in progress."""

    code = "LOCK_LOST"
    retryable = False
    http_status = 409
    grpc_status = "ABORTED"
    meaning = "The lock, permit or lease was lost while the work was in progress."


class DeadlockError(ResilError):
    """A reader asked to write while others read or wait, which would deadlock."""

    code = "DEADLOCK"
    retryable = False
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    meaning = "A reader asked to write while others read or wait, which would deadlock."


class IdempotencyBusyError(ResilError):
    """The same request is already in progress."""

    code = "IDEMPOTENCY_BUSY"
    retryable = True
    http_status = 409
    grpc_status = "ABORTED"
    meaning = "The same request is already in progress."


class IdempotencyMismatchError(ResilError):
    """The idempotency key was used before with a different request."""

    code = "IDEMPOTENCY_MISMATCH"
    retryable = False
    http_status = 422
    grpc_status = "FAILED_PRECONDITION"
    meaning = "The idempotency key was used before with a different request."


class IdempotencyHeldError(ResilError):
    """The outcome of an earlier attempt is unknown. An operator has to decide."""

    code = "IDEMPOTENCY_HELD"
    retryable = False
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    meaning = "The outcome of an earlier attempt is unknown. An operator has to decide."


class IdempotencyFailedError(ResilError):
    """The work has failed finally in an earlier attempt. Do not repeat it."""

    code = "IDEMPOTENCY_FAILED"
    retryable = False
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    meaning = "The work has failed finally in an earlier attempt. Do not repeat it."
    #: What was recorded of the error: name, message, and args, code, properties if it has them; None if it cannot be read.
    recorded: Any = None


class ResultUnrecordedError(ResilError):
    """The work is done, but its result could not be recorded. Do not repeat it."""

    code = "RESULT_UNRECORDED"
    retryable = False
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    meaning = "The work is done, but its result could not be recorded. Do not repeat it."
    #: What the function returned, for its caller; missing for duplicates.
    result: Any = None


class RedriveRefusedError(ResilError):
    """The dead letters cannot be redriven under this case now."""

    code = "REDRIVE_REFUSED"
    retryable = False
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    meaning = "The dead letters cannot be redriven under this case now."
    #: case, closed, poison, held, again, rate, running or nothing.
    reason: str = ""


class LoadFailedError(ResilError):
    """The value could not be loaded."""

    code = "LOAD_FAILED"
    retryable = True
    http_status = 503
    grpc_status = "UNAVAILABLE"
    meaning = "The value could not be loaded."


class LedgerConflictError(ResilError):
    """Another message is in the ledger under the same id. Do not acknowledge this one."""

    code = "LEDGER_CONFLICT"
    retryable = False
    http_status = 409
    grpc_status = "ALREADY_EXISTS"
    meaning = "Another message is in the ledger under the same id. Do not acknowledge this one."


class LedgerFullError(ResilError):
    """The ledger has no room for another message. Do not acknowledge it."""

    code = "LEDGER_FULL"
    retryable = True
    http_status = 507
    grpc_status = "RESOURCE_EXHAUSTED"
    meaning = "The ledger has no room for another message. Do not acknowledge it."


class PayloadTooBigError(ResilError):
    """The payload is larger than the ledger accepts. Store it elsewhere and give a reference."""

    code = "PAYLOAD_TOO_BIG"
    retryable = False
    http_status = 413
    grpc_status = "INVALID_ARGUMENT"
    meaning = "The payload is larger than the ledger accepts. Store it elsewhere and give a reference."


class BackendUnavailableError(ResilError, ConnectionError):
    """The server with the shared state cannot be reached."""

    code = "BACKEND_UNAVAILABLE"
    retryable = True
    http_status = 503
    grpc_status = "UNAVAILABLE"
    meaning = "The server with the shared state cannot be reached."


class ModuleMissingError(ResilError):
    """The server does not have the Resil module loaded."""

    code = "MODULE_MISSING"
    retryable = False
    http_status = 500
    grpc_status = "FAILED_PRECONDITION"
    meaning = "The server does not have the Resil module loaded."


class PermissionDeniedError(ResilError, PermissionError):
    """The server does not allow this user to run the command."""

    code = "PERMISSION_DENIED"
    retryable = False
    http_status = 403
    grpc_status = "PERMISSION_DENIED"
    meaning = "The server does not allow this user to run the command."


class CancelledError(ResilError):
    """The caller cancelled the call."""

    code = "CANCELLED"
    retryable = False
    http_status = 499
    grpc_status = "CANCELLED"
    meaning = "The caller cancelled the call."


class ShuttingDownError(ResilError):
    """The service is shutting down and accepts no new work."""

    code = "SHUTTING_DOWN"
    retryable = True
    http_status = 503
    grpc_status = "UNAVAILABLE"
    meaning = "The service is shutting down and accepts no new work."


class CrashedError(ResilError):
    """The work crashed."""

    code = "CRASHED"
    retryable = False
    http_status = 500
    grpc_status = "INTERNAL"
    meaning = "The work crashed."


class InternalError(ResilError):
    """An internal error occurred."""

    code = "INTERNAL"
    retryable = False
    http_status = 500
    grpc_status = "INTERNAL"
    meaning = "An internal error occurred."


#: Every class by its code.
BY_CODE: dict[str, type[ResilError]] = {
    "CIRCUIT_OPEN": CircuitOpenError,
    "RATE_LIMIT_EXCEEDED": RateLimitExceededError,
    "TIMEOUT": TimeoutError,
    "BULKHEAD_FULL": BulkheadFullError,
    "REFUSED": RefusedError,
    "RETRY_EXHAUSTED": RetryExhaustedError,
    "INVALID_POLICY": InvalidPolicyError,
    "INVALID_ARGUMENT": InvalidArgumentError,
    "LOCK_TIMEOUT": LockTimeoutError,
    "LOCK_LOST": LockLostError,
    "DEADLOCK": DeadlockError,
    "IDEMPOTENCY_BUSY": IdempotencyBusyError,
    "IDEMPOTENCY_MISMATCH": IdempotencyMismatchError,
    "IDEMPOTENCY_HELD": IdempotencyHeldError,
    "IDEMPOTENCY_FAILED": IdempotencyFailedError,
    "RESULT_UNRECORDED": ResultUnrecordedError,
    "REDRIVE_REFUSED": RedriveRefusedError,
    "LOAD_FAILED": LoadFailedError,
    "LEDGER_CONFLICT": LedgerConflictError,
    "LEDGER_FULL": LedgerFullError,
    "PAYLOAD_TOO_BIG": PayloadTooBigError,
    "BACKEND_UNAVAILABLE": BackendUnavailableError,
    "MODULE_MISSING": ModuleMissingError,
    "PERMISSION_DENIED": PermissionDeniedError,
    "CANCELLED": CancelledError,
    "SHUTTING_DOWN": ShuttingDownError,
    "CRASHED": CrashedError,
    "INTERNAL": InternalError,
}

__all__ = [
    "BackendUnavailableError",
    "BulkheadFullError",
    "CancelledError",
    "CircuitOpenError",
    "CrashedError",
    "DeadlockError",
    "IdempotencyBusyError",
    "IdempotencyFailedError",
    "IdempotencyHeldError",
    "IdempotencyMismatchError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidPolicyError",
    "LedgerConflictError",
    "LedgerFullError",
    "LoadFailedError",
    "LockLostError",
    "LockTimeoutError",
    "ModuleMissingError",
    "PayloadTooBigError",
    "PermissionDeniedError",
    "RateLimitExceededError",
    "RedriveRefusedError",
    "RefusedError",
    "ResilError",
    "ResultUnrecordedError",
    "RetryExhaustedError",
    "ShuttingDownError",
    "TimeoutError",
]
