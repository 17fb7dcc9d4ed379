"""Messages of a queue, handled by a function."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal, final, overload

from typing_extensions import Self, Unpack

from ..workers import (
    Judged,
    OutgoingOptions,
    RabbitSource,
    Source,
    SourceHealth,
    StreamSource,
    Upcasters,
    WorkerHealth,
    WorkerReport,
    WorkerSettings,
)
from .pending import Pending

@final
class WorkerMessage:
    @property
    def id(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def headers(self) -> dict[str, str]: ...
    @property
    def kind(self) -> str | None: ...
    @property
    def source(self) -> str | None: ...
    @property
    def aggregate(self) -> str | None: ...
    @property
    def schema(self) -> int | None: ...
    @property
    def attempt(self) -> int: ...
    @property
    def is_redelivered(self) -> bool: ...
    @property
    def traceparent(self) -> str | None: ...
    @property
    def trace_id(self) -> str | None: ...
    @property
    def header_id(self) -> str: ...
    @property
    def is_cancelled(self) -> bool: ...
    @property
    def time_left(self) -> float: ...

@final
class Worker:
    @property
    def name(self) -> str: ...
    @overload
    def run(
        self,
        handler: Callable[[WorkerMessage], Coroutine[Any, Any, Any]],
        *,
        judge: Callable[[Any], Judged] | None = None,
    ) -> Pending[WorkerReport]: ...
    @overload
    def run(
        self,
        handler: Callable[[WorkerMessage], Any],
        *,
        judge: Callable[[Any], Judged] | None = None,
    ) -> WorkerReport: ...
    def stop(self) -> None: ...
    def health(self) -> WorkerHealth: ...

@final
class Publisher:
    def publish(
        self,
        payload: str | bytes,
        *,
        headers: Mapping[str, str] | None = None,
        caused_by: WorkerMessage | None = None,
        **how: Unpack[OutgoingOptions],
    ) -> Pending[str]: ...
    def health(self) -> SourceHealth: ...
    def close(self) -> Pending[None]: ...

@final
class Outbox:
    def __new__(cls, table: str | None = None) -> Self: ...
    def migration(self) -> str: ...
    def insert(self, placeholder: Literal["$1", "%s"] | None = None) -> str: ...
    def row(
        self,
        payload: str | bytes,
        *,
        headers: Mapping[str, str] | None = None,
        caused_by: WorkerMessage | None = None,
        **how: Unpack[OutgoingOptions],
    ) -> tuple[str, str | None, str | None, int | None, str | None, bytes]: ...

@final
class ProcessedEvents:
    @staticmethod
    def migration() -> str: ...
    @staticmethod
    def insert(placeholder: Literal["$1", "%s"] | None = None) -> str: ...

class _MakesWorkers:
    def worker(
        self,
        name: str,
        *,
        source: Source | None = None,
        upcasters: Upcasters | None = None,
        **settings: Unpack[WorkerSettings],
    ) -> Worker: ...
    def publisher(self, to: RabbitSource | StreamSource) -> Publisher: ...
