"""What is told about breakers, locks, bulkheads and clients: plain dicts, with durations in seconds.

These are types for type checkers; at runtime each is a ``dict``.
"""

from __future__ import annotations

from typing import Dict, List, Literal, Optional, Tuple, TypedDict

Status = Literal["healthy", "degraded", "unhealthy"]


class _Health(TypedDict):
    overall: Status
    policies: Dict[str, Status]


class Health(_Health, total=False):
    """How everything made from a client is."""

    #: Why the server is away, if it is, in a sentence without addresses or secrets.
    reason: str
    #: Since when, in seconds since the epoch.
    since: float


class TierVerdict(TypedDict):
    """One tier of a limit, as it is after the call."""

    limit: int
    period: float
    capacity: int
    remaining: int
    retry_after: Optional[float]
    reset_after: float


class ShutdownReport(TypedDict):
    """What a shutdown came to."""

    drained: int
    cut_off: int
    released: List[str]
    unreleased: List[Tuple[str, str]]
    stragglers: int
    #: Whether nothing was cut off, nothing is left held, nothing still runs.
    is_clean: bool


class Forced(TypedDict):
    """By whom a state was forced, and why."""

    by: str
    reason: str
    since: float
    until: Optional[float]


#: The word for it.
BreakerState = Literal[
    "closed", "open", "half-open", "ramping", "forced-open", "forced-closed", "disabled", "metrics"
]


class BreakerSnapshot(TypedDict):
    """Everything the server knows about a breaker."""

    #: Whether anything is stored under its key.
    exists: bool
    state: BreakerState
    admits: bool
    retry_after: Optional[float]
    generation: int
    calls: int
    failures: int
    slow: int
    failure_rate_percent: int
    slow_rate_percent: int
    failures_in_a_row: int
    trips: int
    probes_out: int
    successes: int
    opened_at: Optional[float]
    forced: Optional[Forced]
    version: int
    config: Dict[str, str]


class Holder(TypedDict):
    """Who holds a lock, or is inside a bulkhead."""

    owner: str
    fence: int
    held: float
    remaining: float
    mode: Literal["exclusive", "shared"]
    meta: Optional[str]
    is_bound: bool


class Waiter(TypedDict):
    """Who waits for it."""

    owner: str
    mode: Optional[Literal["exclusive", "shared"]]
    priority: Optional[int]
    waited: float


class HoldingInfo(TypedDict):
    """A lock or a shared bulkhead, as the server sees it."""

    #: Whether there is such a key.
    exists: bool
    holders: List[Holder]
    holders_total: int
    waiters: List[Waiter]
    waiters_total: int
    last_fence: int


class RecordedState(TypedDict, total=False):
    """What is known of an idempotency key."""

    state: Literal["unknown", "running", "done", "held"]
    attempt: int
    remaining: float
    #: As it was recorded; None if it was too large to be kept.
    result: Optional[bytes]
    is_error: bool
    age: float


class BulkheadMetrics(TypedDict):
    """How a local bulkhead is used."""

    active: int
    queued: int
    available: int
    completed: int
    rejected: int
    abandoned: int


class Problem(TypedDict):
    """An answer over HTTP: see RFC 9457."""

    status: int
    headers: List[Tuple[str, str]]
    body: bytes
