"""Distributed resilience in one round trip: limits, breakers, locks, idempotency and single flight that a whole fleet shares,
and the policies around them.

The state is in a Redis or Valkey server with the Resil module, or in this process: ``memory://`` runs the same state
machines, with no set-up.

>>> import asyncio, resil
>>> async def main():
...     client = await resil.connect("memory://")       # or redis://, rediss://, unix://, redis+cluster://, ...
...     api = client.limiter("api", limit=10, period=1.0, burst=20)
...     await api.acquire("user:42")
...     async with client.lock("stock:42") as held:     # one at a time, in the whole fleet
...         return held.fence > 0                       # goes along with what is written
>>> asyncio.run(main())
True

One API, awaited or waited for
    Every method that may have to wait returns a :class:`Pending`: ``await pending`` under asyncio (uvloop too), ``pending.wait()`` in
    a thread. Nothing happens before that, and one that is forgotten warns. ``with`` and ``async with``, decorators and
    ``call`` need neither: they follow the function or block they are put around.

>>> client = resil.connect("memory://").wait()
>>> bank = client.breaker("bank", consecutive_failures=5)
>>> @bank
... def pay(amount: int) -> str:
...     return f"paid {amount}"
>>> pay(7)
'paid 7'
>>> bank.call(len, "four")
4
>>> with bank:
...     pass
>>> permit = bank.admit().wait()
>>> permit.success().wait()

Durations are seconds as numbers, timedeltas, or text such as ``"250ms"``. Errors are one family: see :mod:`resil.errors`.
"""

from __future__ import annotations

import os as _os
from typing import TYPE_CHECKING

from . import _interpreter as _interpreter  # first of all: it refuses where the native module must not be loaded
from ._native import (
    Around,
    Block,
    Client,
    Held,
    Lost,
    Pending,
    __version__,
    connect,
    is_testing,
    set_testing,
)
from ._native import (
    after_fork_in_child as _after_fork_in_child,
    after_fork_in_parent as _after_fork_in_parent,
    before_fork as _before_fork,
)
from .workers import Upcasters, WorkError

# Imports of handles and errors, generated: `cargo run -p resil-harness --bin generate`.
from ._native import (
    Attempt,
    Attempts,
    Breaker,
    Budget,
    Bulkhead,
    BulkheadGuard,
    BulkheadPermit,
    CacheEntry,
    Cached,
    DeadLetters,
    Dispatcher,
    Fallback,
    Hedge,
    Idempotent,
    ItemResult,
    ItemResults,
    KeyedCached,
    KeyedIdempotent,
    KeyedLimiter,
    LetterStream,
    Limiter,
    Loaded,
    Lock,
    LockGuard,
    Locks,
    LocksGuard,
    Outbox,
    Outcome,
    Permit,
    Policies,
    Policy,
    PolicyWatch,
    ProcessedEvents,
    Publisher,
    RedriveRun,
    Retry,
    Run,
    SharedBulkhead,
    StoredPolicies,
    TakenLetter,
    TakenMessage,
    Timeout,
    Verdict,
    Verdicts,
    VersionedCached,
    WatchedPolicies,
    Worker,
    WorkerMessage,
)
from .errors import (
    BackendUnavailableError,
    BulkheadFullError,
    CancelledError,
    CircuitOpenError,
    CrashedError,
    DeadlockError,
    IdempotencyBusyError,
    IdempotencyFailedError,
    IdempotencyHeldError,
    IdempotencyMismatchError,
    InternalError,
    InvalidArgumentError,
    InvalidPolicyError,
    LedgerConflictError,
    LedgerFullError,
    LoadFailedError,
    LockLostError,
    LockTimeoutError,
    ModuleMissingError,
    PayloadTooBigError,
    PermissionDeniedError,
    RateLimitExceededError,
    RedriveRefusedError,
    RefusedError,
    ResilError,
    ResultUnrecordedError,
    RetryExhaustedError,
    ShuttingDownError,
    TimeoutError,
)
# End of what is generated.

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .settings import ConnectSettings

if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )


def connect_sync(url: str, **settings: Unpack[ConnectSettings]) -> Client:
    """``connect(url).wait()``, for those who never await.

    >>> connect_sync("memory://").health()["overall"]
    'healthy'
    """
    return connect(url, **settings).wait()


__all__ = [
    "__version__",
    "Around",
    "Block",
    "Client",
    "Held",
    "Lost",
    "Pending",
    "Upcasters",
    "WorkError",
    "connect",
    "connect_sync",
    "is_testing",
    "set_testing",
]
# Exports of handles and errors, generated: `cargo run -p resil-harness --bin generate`.
__all__ += [
    "Attempt",
    "Attempts",
    "Breaker",
    "Budget",
    "Bulkhead",
    "BulkheadGuard",
    "BulkheadPermit",
    "CacheEntry",
    "Cached",
    "DeadLetters",
    "Dispatcher",
    "Fallback",
    "Hedge",
    "Idempotent",
    "ItemResult",
    "ItemResults",
    "KeyedCached",
    "KeyedIdempotent",
    "KeyedLimiter",
    "LetterStream",
    "Limiter",
    "Loaded",
    "Lock",
    "LockGuard",
    "Locks",
    "LocksGuard",
    "Outbox",
    "Outcome",
    "Permit",
    "Policies",
    "Policy",
    "PolicyWatch",
    "ProcessedEvents",
    "Publisher",
    "RedriveRun",
    "Retry",
    "Run",
    "SharedBulkhead",
    "StoredPolicies",
    "TakenLetter",
    "TakenMessage",
    "Timeout",
    "Verdict",
    "Verdicts",
    "VersionedCached",
    "WatchedPolicies",
    "Worker",
    "WorkerMessage",
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
# End of what is generated.
