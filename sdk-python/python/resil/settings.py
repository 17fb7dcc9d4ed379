"""The settings of each primitive and policy, for type checkers and for settings kept as dicts.

Durations are seconds as a number, a ``timedelta``, or text such as ``"250ms"``. Omitted settings use the defaults of the SDK, which
``docs/sdk-rust.md`` lists. Unknown names are refused, and a value out of bounds is refused by name.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Dict, List, Literal, Optional, TypedDict, Union

if TYPE_CHECKING:
    from ._native import Budget

#: Seconds, a timedelta, or text such as "250ms" (units: us, ms, s, m, h, d).
Duration = Union[float, timedelta, str]

#: While the server cannot be reached: let through, refuse, or decide by the same machine in this process.
Away = Literal["open", "closed", "local"]

#: The same for what must not be decided twice.
AwayShared = Literal["open", "closed"]

Stage = Literal[
    "total", "shed", "retry", "hedge", "breaker", "rate-limit", "bulkhead", "shared-bulkhead", "attempt"
]


class ConnectSettings(TypedDict, total=False):
    """How to connect."""

    #: The name of this process, for the others.
    name: str
    command_timeout: Duration
    #: How many processes share the limits, for while the server is away.
    instances: int
    waiting_connections: int
    #: Whether connecting fails if the server cannot be reached. By default the client is away until it can.
    require_server: bool


class _Tier(TypedDict):
    #: Cells per ``period``.
    limit: int
    period: Duration


class LimitTier(_Tier, total=False):
    """A further tier of a rate limit."""

    burst: int


class Limit(_Tier, total=False):
    """A rate limit: a bucket that fills evenly, or an exact window."""

    kind: Literal["bucket", "window"]
    burst: int
    #: Further limits that must all agree.
    tiers: List[LimitTier]
    when_away: Away


class BreakerSettings(TypedDict, total=False):
    """When a breaker trips, how it comes back, and how this process talks about it."""

    window_calls: int
    window_time: Duration
    #: In percent; 0 is off.
    failure_rate: int
    slow_call_duration: Duration
    slow_call_rate: int
    #: 0 is off.
    consecutive_failures: int
    min_calls: int
    open_for: Duration
    open_factor: float
    open_max: Duration
    probes: int
    successes: int
    probe_lease: Duration
    quorum: int
    ramp: Duration
    idle: Duration
    #: Trips at the higher of ``failure_rate`` and three standard deviations above the failure rate of the last hour; one of this process.
    adaptive: bool
    version: int
    mode: Literal["batched", "exact"]
    when_away: Away
    flush_interval: Duration
    batch: int
    trust: Duration


class LockSettings(TypedDict, total=False):
    """On which terms a lock is asked for."""

    lease: Duration
    wait: Duration
    #: As one of many readers.
    shared: bool
    meta: str
    bound: bool
    #: How long a lock can be taken back after its connection was cut, and what a killed process costs the others.
    grace: Duration
    watchdog: bool
    replicas: int
    when_away: AwayShared
    #: Nothing is cancelled when the lock is lost: the block has to look at ``lost`` itself.
    keep_running_when_lost: bool


class SharedBulkheadSettings(TypedDict, total=False):
    """On which terms a bulkhead of the fleet is entered."""

    max_queue: int
    max_wait: Duration
    priority: int
    lease: Duration
    bound: bool
    #: As for a lock.
    grace: Duration
    when_away: AwayShared


class IdempotencySettings(TypedDict, total=False):
    """How work is done once."""

    lease: Duration
    keep: Duration
    wait: Duration
    on_lapse: Literal["run", "hold"]
    on_lost: Literal["cancel", "finish"]
    abort_on_cancel: bool
    replicas: int
    when_away: AwayShared


class CacheSettings(TypedDict, total=False):
    """How values are loaded once, and kept."""

    ttl: Duration
    negative_ttl: Duration
    stale: Duration
    error_ttl: Duration
    retry: Duration
    on_error: Literal["share", "propagate"]
    load_timeout: Duration
    lease: Duration
    local_ttl: Duration
    local_size: int
    early: int
    jitter: int
    soft_timeout: Duration
    when_away: Away


class BudgetSettings(TypedDict, total=False):
    """A limit on the retries (or hedges) of all calls together."""

    ttl: Duration
    min_per_second: int
    percent: int


class RetrySettings(TypedDict, total=False):
    """How to retry."""

    max_attempts: int
    initial_backoff: Duration
    max_backoff: Duration
    backoff_multiplier: float
    jitter: Union[str, Dict[str, float]]
    min_backoff: Duration
    retry_after_max: Duration
    max_elapsed: Duration
    #: What the last attempt raised comes out as it is, in place of a RetryExhaustedError from it.
    reraise: bool
    budget: Optional[Union[BudgetSettings, Budget]]


class HedgeSettings(TypedDict, total=False):
    """How to hedge."""

    hedging_delay: Duration
    percentile: float
    warm_up: int
    max_hedges: int
    budget: Union[BudgetSettings, Budget]


class TimeoutSettings(TypedDict, total=False):
    """How long an attempt, and the whole, may take."""

    attempt: Duration
    total: Duration


class _Partition(TypedDict):
    max_concurrent_calls: int


class PartitionSettings(_Partition, total=False):
    """How many permits a partition of a local bulkhead has."""

    max_queue: int


class _AdaptiveMin(TypedDict, total=False):
    min: int


class AdaptiveSettings(_AdaptiveMin):
    """Moves the number of places between ``min`` and the maximum."""

    kind: Literal["gradient", "aimd"]


class ThrottleSettings(TypedDict, total=False):
    """Refuses calls by itself while too few are accepted."""

    k: float
    window: Duration


class SheddingSettings(TypedDict, total=False):
    """Percent of places taken from which on calls of each class are refused."""

    background: int
    low: int
    normal: int
    high: int
    hysteresis: int


class _ChaosMore(TypedDict, total=False):
    latency: Duration
    subjects: List[str]
    seed: int


class ChaosSettings(_ChaosMore):
    """Makes calls fail on purpose, until a moment in UTC such as ``"2026-11-18T12:00:00Z"``."""

    kind: Literal["latency", "error", "drop"]
    percent: float
    until: str


class BulkheadSettings(TypedDict, total=False):
    """The bulkhead of this process."""

    max_concurrent_calls: int
    max_queue: int
    max_wait: Duration
    partitions: Dict[str, PartitionSettings]
    adaptive: AdaptiveSettings


class PolicyBreakerSettings(BreakerSettings, total=False):
    """A breaker as part of a whole policy, whose name it has by default."""

    name: str


class PolicyLimit(Limit, total=False):
    """A rate limit as part of a whole policy, whose name it has by default."""

    name: str


class PolicySharedBulkheadSettings(SharedBulkheadSettings, total=False):
    """A bulkhead of the fleet as part of a whole policy, whose name it has by default."""

    name: str
    max_concurrent_calls: int


class PolicySettings(TypedDict, total=False):
    """A whole policy. It has the stages that are named."""

    #: Another order than the usual one, outermost first.
    order: List[Stage]
    timeout: TimeoutSettings
    shed: int
    retry: RetrySettings
    hedge: HedgeSettings
    breaker: PolicyBreakerSettings
    rate_limit: PolicyLimit
    bulkhead: BulkheadSettings
    shared_bulkhead: PolicySharedBulkheadSettings
    throttle: ThrottleSettings
    shedding: SheddingSettings
    chaos: ChaosSettings
    when_away: Away


class CallSettings(TypedDict, total=False):
    """What is particular to some calls of a policy."""

    #: Whose rate limit: a user, a tenant.
    key: str
    cost: int
    partition: str
    attempt_timeout: Duration
    total_timeout: Duration
    #: How important it is, to shedding. ``"normal"`` by default.
    priority: Literal["critical", "high", "normal", "low", "background"]


class DeadLettersSettings(TypedDict, total=False):
    """How a ledger of failed messages is used."""

    #: How long a taker may be silent.
    lease: Duration
    #: How long the lease lasts once the connection of this process has closed.
    grace: Duration
    #: How many messages are handled at once.
    concurrency: int
    #: How long a loop waits for a message with one question.
    wait: Duration
    #: Who governs, for the audit.
    actor: str
    #: A failure counts only when so many replicas know of it; else BackendUnavailableError: do not acknowledge the message.
    replicas: int
    #: The same: only when the primary has it on its disk (WAITAOF).
    fsync: bool


FailureClass = Literal["transient", "business", "external"]
LetterState = Literal["waiting", "taken", "parked", "dead", "resolved", "archived", "done"]
CauseCategory = Literal["infrastructure", "contract", "business", "poison"]


class FailureNote(TypedDict, total=False):
    """What is said of a failure."""

    failure_class: FailureClass
    #: Failures that belong together.
    group: str
    #: Not to be retried before this has passed.
    after: Duration
    #: Attempts made before the ledger knew the message.
    prior: int
    count: Literal["counted", "not-counted", "final"]


class ParkOptions(TypedDict, total=False):
    """What is known of a message."""

    #: Where it is stored, in place of the payload.
    reference: str
    kind: str
    source: str
    #: What it belongs to: an order, a customer.
    aggregate: str
    #: The version of its form.
    schema: int


class FailOptions(ParkOptions, FailureNote, total=False):
    """What is known of a message, and what is said of its failure."""


class LetterFilter(TypedDict, total=False):
    """Which messages a list shows."""

    state: LetterState
    kind: str
    failure_class: FailureClass
    group: str
    aggregate: str
    #: Those that this case redrove.
    case: int
    #: The last change, or the death, is not before this: seconds since the epoch.
    since: Duration
    until: Duration
    cursor: int
    limit: int


class RedriveRate(TypedDict):
    """So many in a period."""

    count: int
    period: Duration


class RedriveSettings(TypedDict, total=False):
    """Which messages of a case are redriven, and how fast."""

    id: str
    kind: str
    aggregate: str
    since: Duration
    until: Duration
    count: int
    rate: RedriveRate
    #: How many are given out first; the rest follows when half of them are resolved.
    first: int
    #: Each gets one attempt.
    oneshot: bool


class ClassChange(TypedDict, total=False):
    """The retries of one class of failures."""

    retries: int
    base: Duration
    cap: Duration


class LedgerChange(TypedDict, total=False):
    """A change of a ledger's numbers. What is omitted stays."""

    transient: ClassChange
    business: ClassChange
    external: ClassChange
    #: "full", "none", or such as "plus 20".
    jitter: str
    #: After so many lapses a message dies.
    crashes: int
    rate_max: RedriveRate
    after_max: Duration
    paused: bool
    paused_for: Duration
