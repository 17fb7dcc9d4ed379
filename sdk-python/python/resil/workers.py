"""Workers: what handlers may raise, and the types of their settings and reports. ``docs/workers.md`` tells how they work.

>>> import resil
>>> error = resil.WorkError("an order of nothing", "permanent")
>>> error.verdict
'permanent'
"""

from __future__ import annotations

import inspect
from typing import Callable, List, Literal, Optional, Sequence, Tuple, TypedDict, Union

from .settings import Duration, FailureClass

#: What becomes of a message: retried by its ledger; the same, not counted, and the worker pauses; dead; gone; delivered again.
VerdictName = Literal["retry", "not-counted", "permanent", "drop", "give-back"]


class WorkVerdict(TypedDict, total=False):
    """A verdict, with when the message is due again."""

    verdict: VerdictName
    after: Optional[Duration]
    #: Which retries of the ledger apply. ``"transient"`` by default.
    failure_class: Optional[FailureClass]


#: What ``judge`` may return. ``None``: what the exception means by itself.
Judged = Union[None, VerdictName, WorkVerdict]


class WorkError(Exception):
    """Raised by a handler that knows what is to become of its message."""

    verdict: VerdictName
    after: Optional[Duration]
    failure_class: Optional[FailureClass]

    def __init__(
        self,
        message: str = "",
        verdict: VerdictName = "retry",
        *,
        after: Optional[Duration] = None,
        failure_class: Optional[FailureClass] = None,
    ) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.after = after
        self.failure_class = failure_class


class Upcasters:
    """Brings messages of older forms up to date when they are read; nothing is written back.

    >>> import resil
    >>> upcasters = resil.Upcasters().step("order.placed", 1, lambda payload: payload.replace(b"qty", b"pieces"))

    When the worker starts, gaps, two steps from one version, and messages in the ledger that no chain can read are refused.
    """

    def __init__(self) -> None:
        self._steps: List[Tuple[str, int, Callable[[bytes], Union[bytes, str]]]] = []

    def step(self, kind: str, from_version: int, upcast: Callable[[bytes], Union[bytes, str]]) -> "Upcasters":
        """Messages of ``kind`` in version ``from_version`` become the next version. ``upcast`` is a plain function of the payload."""
        if not isinstance(kind, str) or not kind:
            raise TypeError("kind must be a str that is not empty")
        if not isinstance(from_version, int) or isinstance(from_version, bool) or not 0 <= from_version < 2**32 - 1:
            raise TypeError("from_version must be an int from 0 to 4294967294")
        if not callable(upcast) or inspect.iscoroutinefunction(upcast):
            raise TypeError("upcast must be a plain function of the payload")
        self._steps.append((kind, from_version, upcast))
        return self


class WorkerSettings(TypedDict, total=False):
    """How a worker works."""

    #: How many messages are handled at once. 5 by default.
    workers: int
    #: How long a handler may take. 5 minutes by default. Then it is cancelled, and the message is dead.
    deadline: Duration
    #: How long a handler may still take when the worker stops. 25 s by default. Then it is cancelled, and the message goes back.
    drain: Duration
    #: A message that was delivered more often goes to the ledger, which gives it out alone. 3 by default.
    crashes: int
    #: A failure is acknowledged only when so many replicas of the ledger have it. By default one, if the ledger's primary has any.
    replicas: int
    #: The same: only when the primary has it on its disk (WAITAOF).
    fsync: bool
    #: Messages of one aggregate are handled in their order, also behind one that failed.
    ordered: bool
    #: Takes the retries of the ledger too. On by default.
    retries: bool


class LedgerSource(TypedDict):
    """The ledger of this name."""

    type: Literal["ledger"]
    name: str


class _StreamNamed(TypedDict):
    type: Literal["stream"]
    stream: str


class StreamSource(_StreamNamed, total=False):
    """A Redis stream, read by a consumer group."""

    #: ``"resil"`` by default.
    group: str
    prefetch: int
    #: How long a consumer may be silent before its messages are another's. 30 s by default.
    reclaim: Duration
    #: What is acknowledged is deleted from the stream.
    delete: bool
    #: By default that of the client.
    url: str


class RabbitBinding(TypedDict):
    """Messages of an exchange that go to the queue."""

    exchange: str
    exchange_kind: Literal["direct", "fanout", "topic", "headers"]
    routing_key: str


class _RabbitNamed(TypedDict):
    type: Literal["rabbit"]


class RabbitSource(_RabbitNamed, total=False):
    """A queue of RabbitMQ. Either ``queue`` and ``url``, or ``env``."""

    #: ``amqp://user:password@host:port/vhost``, or ``amqps://``.
    url: str
    queue: str
    #: All is read from ``RABBITMQ_...``; this is the name in ``RABBITMQ_{env}_QUEUE``.
    env: str
    #: User and password of the source, if not those of the URL.
    consumer: Union[Tuple[str, str], List[str]]
    #: The same of the publisher.
    producer: Union[Tuple[str, str], List[str]]
    #: Messages that are fetched ahead, for each of ``workers``. 10 by default.
    prefetch: int
    workers: int
    queue_kind: Literal["quorum", "classic", "as-it-is"]
    delivery_limit: int
    bindings: Sequence[RabbitBinding]
    #: One consumer at a time gets messages, which keeps their order.
    single_active: bool


class _OutboxNamed(TypedDict):
    type: Literal["outbox"]
    url: str


class OutboxSource(_OutboxNamed, total=False):
    """An outbox table in Postgres."""

    #: ``"resil_outbox"`` by default.
    table: str
    prefetch: int
    #: How long a claim lasts once its process falls silent. 30 s by default.
    claim: Duration
    #: How often an empty outbox is looked at. 500 ms by default.
    poll: Duration


#: Where messages come from.
Source = Union[LedgerSource, StreamSource, RabbitSource, OutboxSource]


class OutgoingOptions(TypedDict, total=False):
    """What is said of a message that is sent."""

    #: Stays the same however often it is sent. A new one by default.
    id: str
    kind: str
    aggregate: str
    schema: int
    #: Of RabbitMQ.
    exchange: str
    #: Of RabbitMQ: by default the queue of the publisher.
    routing_key: str


class WorkerReport(TypedDict):
    """What became of messages."""

    done: int
    retried: int
    dead: int
    dropped: int
    given_back: int
    known: int
    stale: int
    unsettled: int


class _SourceHealth(TypedDict):
    is_connected: bool
    since: str
    connections: int


class SourceHealth(_SourceHealth, total=False):
    """How a source or a publisher is."""

    reason: str


class _WorkerHealth(TypedDict):
    queue: str
    status: Literal["healthy", "degraded", "unhealthy"]
    is_live: bool
    is_ready: bool
    is_paused: bool
    running: int
    report: WorkerReport


class WorkerHealth(_WorkerHealth, total=False):
    """How a worker is."""

    ledger: str
    source: SourceHealth
