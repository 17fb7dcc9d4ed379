"""Bulkheads of one process."""

from typing import final

from typing_extensions import Self, Unpack

from ..reports import BulkheadMetrics
from ..settings import BulkheadSettings
from .around import Block
from .pending import Pending
from .testing import Clock

@final
class Bulkhead(Block[None]):
    def __new__(cls, name: str, *, clock: Clock | None = None, **settings: Unpack[BulkheadSettings]) -> Self: ...
    @property
    def name(self) -> str: ...
    @property
    def metrics(self) -> BulkheadMetrics: ...
    def partition(self, name: str) -> Self: ...
    def try_acquire(self) -> BulkheadPermit: ...
    def acquire(self) -> Pending[BulkheadPermit]: ...

@final
class BulkheadPermit:
    def release(self) -> None: ...
