"""What is reported about breakers, locks, bulkheads and clients: plain dicts, with durations in seconds.

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
    #: What follows then: "closed", or "half-open" after "open-then-probe".
    ends_in: Optional[str]


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
    """A response over HTTP: see RFC 9457."""

    status: int
    headers: List[Tuple[str, str]]
    body: bytes


class _FailVerdict(TypedDict):
    verdict: Literal["retry", "dead", "known"]


class FailVerdict(_FailVerdict, total=False):
    """What becomes of a message that failed."""

    #: Failures that counted: of "retry" and "known".
    attempt: int
    #: Of "retry".
    delay: float
    #: How often it died, its group and why: of "dead".
    deaths: int
    group: str
    reason: Literal["retries", "final", "crash", "age"]
    #: Of "known".
    state: str


class _ParkVerdict(TypedDict):
    verdict: Literal["free", "parked", "known"]


class ParkVerdict(_ParkVerdict, total=False):
    """Whether a message has to wait for others of its aggregate."""

    position: int
    state: str
    attempt: int


class LetterAttempt(TypedDict):
    """One failure of a message."""

    at: float
    failure_class: str
    delay: float


class LetterView(TypedDict):
    """A message, as the ledger has it."""

    id: str
    state: str
    attempt: int
    lapses: int
    deaths: int
    reason: Optional[str]
    kind: Optional[str]
    source: Optional[str]
    aggregate: Optional[str]
    schema: Optional[int]
    headers: Optional[bytes]
    #: None in a list.
    payload: Optional[bytes]
    reference: Optional[str]
    failure_class: str
    group: Optional[str]
    first_error: Optional[str]
    last_error: Optional[str]
    first_at: float
    last_at: float
    died_at: Optional[float]
    due_at: Optional[float]
    held: bool
    attempts: List[LetterAttempt]
    cases: List[int]
    #: What was longer than the ledger keeps.
    cut: List[str]


class LetterPage(TypedDict):
    """A part of a list."""

    letters: List[LetterView]
    #: Where the next page begins.
    cursor: Optional[int]


class HandledReport(TypedDict):
    """What a loop did."""

    done: int
    failed: int
    given_back: int
    unsettled: int


class LedgerInfo(TypedDict):
    """How much is in a ledger."""

    waiting: int
    taken: int
    parked: int
    dead: int
    resolved: int
    archived: int
    held: int
    entries: int
    bytes: int
    groups: int
    cases_open: int
    alerts_unseen: int
    paused_until: Optional[float]


class LetterGroup(TypedDict):
    """Failures that belong together."""

    group: str
    kind: Optional[str]
    dead: int
    entries: int
    deaths: int
    first_at: float
    last_at: float
    sample: Optional[str]
    cases: List[int]


class Rate(TypedDict):
    """So many in a period."""

    count: int
    period: float


class RedriveProgress(TypedDict):
    """How a redrive is getting on."""

    phase: Literal["running", "verifying", "draining", "stopped", "failed", "finished"]
    started_at: float
    rate: Rate
    first: int
    oneshot: bool
    auto: bool
    given: int
    resolved: int
    died: int
    active: int


class LetterCase(TypedDict):
    """A root cause that somebody wrote down."""

    case: int
    category: Literal["infrastructure", "contract", "business", "poison"]
    cause: str
    fix: str
    decision: Optional[str]
    groups: List[str]
    user: Optional[str]
    actor: Optional[str]
    opened_at: float
    closed_at: Optional[float]
    discarded: bool
    auto_until: Optional[float]
    redrive: Optional[RedriveProgress]


class RedriveMatch(TypedDict):
    """What a redrive covers, as far as it was counted."""

    matched: int
    complete: bool
    sample: List[str]


class PurgeResult(TypedDict):
    """What a purge did."""

    purged: int
    left: int


class LedgerAlert(TypedDict):
    """What an operator must look at."""

    alert: int
    kind: Literal["many", "spike", "aggregate", "stopped", "full"]
    severity: Literal["warning", "critical"]
    subject: Optional[str]
    count: int
    at: float
    seen: bool


class LedgerAudit(TypedDict):
    """One action of a governor."""

    id: int
    at: float
    user: Optional[str]
    actor: Optional[str]
    correlation: Optional[str]
    action: str


class ClassConfig(TypedDict):
    """The retries of one class of failures."""

    retries: int
    base: float
    cap: float


class LedgerConfig(TypedDict):
    """By which numbers a ledger retries and redrives."""

    transient: ClassConfig
    business: ClassConfig
    external: ClassConfig
    jitter: str
    crashes: int
    rate_max: Rate
    after_max: float
    paused_until: Optional[float]


class PolicyChanged(TypedDict):
    """A change of a stored policy that was made, and the version it led to."""

    version: int
    action: Literal["created", "changed", "same", "deleted"]


class StoredPolicy(TypedDict):
    """A version of a stored policy."""

    name: str
    version: int
    #: The canonical document, as JSON.
    policy: str
    #: When it was stored, in seconds since the epoch.
    at: float
    actor: str
    reason: str


class PolicyRecord(TypedDict):
    """What is remembered of a version."""

    version: int
    #: This version was a deletion.
    is_deleted: bool
    #: In seconds since the epoch.
    at: float
    actor: str
    reason: str


class PolicyEvent(TypedDict):
    """A change of a stored policy, as it was heard of."""

    name: str
    version: int
    action: Literal["created", "changed", "deleted"]
