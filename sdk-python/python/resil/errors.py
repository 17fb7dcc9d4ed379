"""What can go wrong, as one family: a stable code, an answer to "may I retry?", and how long to wait before.

Every class has the code of ``commands/errors.json`` in its name: ``CIRCUIT_OPEN`` is :class:`CircuitOpenError`. An exception
of your own function is never wrapped: it comes out as it went in. Only when retries were given up
:class:`RetryExhaustedError` is raised *from* the last one (``error.__cause__``).

>>> import resil
>>> client = resil.connect("memory://").wait()
>>> logins = client.limiter("logins", limit=1, period=60)
>>> logins.acquire("ann").wait()
>>> try:
...     logins.acquire("ann").wait()
... except resil.RateLimitExceededError as refused:
...     print(refused.code, refused.retryable, refused.retry_after > 50)
RATE_LIMIT_EXCEEDED True True
"""

from __future__ import annotations

import builtins
from typing import Any, ClassVar


class ResilError(Exception):
    """What Resil itself has to say. Pickles, so that it survives process pools and queues."""

    #: The stable name, the same in every language.
    code: ClassVar[str] = "INTERNAL"
    #: Whether the same call may succeed if it is made again, later.
    retryable: ClassVar[bool] = False
    #: For an answer over HTTP.
    http_status: ClassVar[int] = 500
    #: For an answer over gRPC, by its name.
    grpc_status: ClassVar[str] = "INTERNAL"
    #: One sentence that names nothing and nobody: fit for any caller's eyes.
    meaning: ClassVar[str] = "Something happened that should not happen."

    def __init__(self, message: str, *, retry_after: float | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        #: Seconds after which the same call may succeed, if that is known.
        self.retry_after = retry_after
        #: The policy, lock or limit it is about; of :class:`RetryExhaustedError` also ``attempts``.
        self.details: dict[str, Any] = details

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.message, self.retry_after, self.details)


def _again(kind: type[ResilError], message: str, retry_after: float | None, details: dict[str, Any]) -> ResilError:
    made = kind(message, retry_after=retry_after)
    made.details.update(details)
    return made


class CircuitOpenError(ResilError):
    """The circuit breaker is open; no call is made until it closes."""

    code = "CIRCUIT_OPEN"
    retryable = True
    http_status = 503
    grpc_status = "UNAVAILABLE"
    meaning = "The circuit breaker is open; no call is made until it closes."


class RateLimitExceededError(ResilError):
    """The rate limit is used up for now."""

    code = "RATE_LIMIT_EXCEEDED"
    retryable = True
    http_status = 429
    grpc_status = "RESOURCE_EXHAUSTED"
    meaning = "The rate limit is used up for now."


class TimeoutError(ResilError, builtins.TimeoutError):
    """There was no answer in time."""

    code = "TIMEOUT"
    retryable = True
    http_status = 504
    grpc_status = "DEADLINE_EXCEEDED"
    meaning = "There was no answer in time."


class BulkheadFullError(ResilError):
    """Too many calls are running, and no more may wait."""

    code = "BULKHEAD_FULL"
    retryable = True
    http_status = 503
    grpc_status = "RESOURCE_EXHAUSTED"
    meaning = "Too many calls are running, and no more may wait."


class RetryExhaustedError(ResilError):
    """Every attempt failed."""

    code = "RETRY_EXHAUSTED"
    retryable = False
    http_status = 503
    grpc_status = "UNAVAILABLE"
    meaning = "Every attempt failed."


class InvalidPolicyError(ResilError, ValueError):
    """A policy has a field that cannot be used."""

    code = "INVALID_POLICY"
    retryable = False
    http_status = 400
    grpc_status = "INVALID_ARGUMENT"
    meaning = "A policy has a field that cannot be used."


class InvalidArgumentError(ResilError, ValueError):
    """An argument cannot be used."""

    code = "INVALID_ARGUMENT"
    retryable = False
    http_status = 400
    grpc_status = "INVALID_ARGUMENT"
    meaning = "An argument cannot be used."


class LockTimeoutError(ResilError):
    """The lock could not be had in time."""

    code = "LOCK_TIMEOUT"
    retryable = True
    http_status = 409
    grpc_status = "ABORTED"
    meaning = "The lock could not be had in time."


class LockLostError(ResilError):
    """The lock, permit or lease under which the work was done was lost meanwhile."""

    code = "LOCK_LOST"
    retryable = False
    http_status = 409
    grpc_status = "ABORTED"
    meaning = "The lock, permit or lease under which the work was done was lost meanwhile."


class DeadlockError(ResilError):
    """A reader asked to write while others read or wait: neither could ever go on."""

    code = "DEADLOCK"
    retryable = False
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    meaning = "A reader asked to write while others read or wait: neither could ever go on."


class IdempotencyBusyError(ResilError):
    """The same request is being worked on."""

    code = "IDEMPOTENCY_BUSY"
    retryable = True
    http_status = 409
    grpc_status = "ABORTED"
    meaning = "The same request is being worked on."


class IdempotencyMismatchError(ResilError):
    """The same key was used with another request before."""

    code = "IDEMPOTENCY_MISMATCH"
    retryable = False
    http_status = 422
    grpc_status = "FAILED_PRECONDITION"
    meaning = "The same key was used with another request before."


class IdempotencyHeldError(ResilError):
    """The outcome of earlier attempts is not known; somebody has to decide."""

    code = "IDEMPOTENCY_HELD"
    retryable = False
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    meaning = "The outcome of earlier attempts is not known; somebody has to decide."


class ResultUnrecordedError(ResilError):
    """The work is done, and its result could not be recorded; it must not be done again."""

    code = "RESULT_UNRECORDED"
    retryable = False
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    meaning = "The work is done, and its result could not be recorded; it must not be done again."
    #: What the function returned, for the one who called it. None for duplicates.
    result: Any = None


class LoadFailedError(ResilError):
    """What was asked for could not be loaded."""

    code = "LOAD_FAILED"
    retryable = True
    http_status = 503
    grpc_status = "UNAVAILABLE"
    meaning = "What was asked for could not be loaded."


class BackendUnavailableError(ResilError, ConnectionError):
    """The server that keeps the shared state cannot be reached."""

    code = "BACKEND_UNAVAILABLE"
    retryable = True
    http_status = 503
    grpc_status = "UNAVAILABLE"
    meaning = "The server that keeps the shared state cannot be reached."


class ModuleMissingError(ResilError):
    """The server does not have the Resil module loaded."""

    code = "MODULE_MISSING"
    retryable = False
    http_status = 500
    grpc_status = "FAILED_PRECONDITION"
    meaning = "The server does not have the Resil module loaded."


class PermissionDeniedError(ResilError, PermissionError):
    """The server does not allow this user to do that."""

    code = "PERMISSION_DENIED"
    retryable = False
    http_status = 403
    grpc_status = "PERMISSION_DENIED"
    meaning = "The server does not allow this user to do that."


class CancelledError(ResilError):
    """The caller gave up."""

    code = "CANCELLED"
    retryable = False
    http_status = 499
    grpc_status = "CANCELLED"
    meaning = "The caller gave up."


class ShuttingDownError(ResilError):
    """The service is shutting down and takes no new work."""

    code = "SHUTTING_DOWN"
    retryable = True
    http_status = 503
    grpc_status = "UNAVAILABLE"
    meaning = "The service is shutting down and takes no new work."


class PanickedError(ResilError):
    """The work panicked."""

    code = "PANICKED"
    retryable = False
    http_status = 500
    grpc_status = "INTERNAL"
    meaning = "The work panicked."


class InternalError(ResilError):
    """Something happened that should not happen."""

    code = "INTERNAL"
    retryable = False
    http_status = 500
    grpc_status = "INTERNAL"
    meaning = "Something happened that should not happen."


#: Every class by its code.
BY_CODE: dict[str, type[ResilError]] = {
    kind.code: kind
    for kind in (
        CircuitOpenError,
        RateLimitExceededError,
        TimeoutError,
        BulkheadFullError,
        RetryExhaustedError,
        InvalidPolicyError,
        InvalidArgumentError,
        LockTimeoutError,
        LockLostError,
        DeadlockError,
        IdempotencyBusyError,
        IdempotencyMismatchError,
        IdempotencyHeldError,
        ResultUnrecordedError,
        LoadFailedError,
        BackendUnavailableError,
        ModuleMissingError,
        PermissionDeniedError,
        CancelledError,
        ShuttingDownError,
        PanickedError,
        InternalError,
    )
}

__all__ = [
    "BY_CODE",
    "BackendUnavailableError",
    "BulkheadFullError",
    "CancelledError",
    "CircuitOpenError",
    "DeadlockError",
    "IdempotencyBusyError",
    "IdempotencyHeldError",
    "IdempotencyMismatchError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidPolicyError",
    "LoadFailedError",
    "LockLostError",
    "LockTimeoutError",
    "ModuleMissingError",
    "PanickedError",
    "PermissionDeniedError",
    "RateLimitExceededError",
    "ResilError",
    "ResultUnrecordedError",
    "RetryExhaustedError",
    "ShuttingDownError",
    "TimeoutError",
]
