"""Bulkheads of a fleet."""

from typing import final

from typing_extensions import Unpack

from .._types import Seconds
from ..reports import HoldingInfo
from ..settings import SharedBulkheadSettings
from .around import Block
from .held import Held
from .pending import Pending

class _MakesSharedBulkheads:
    def shared_bulkhead(self, name: str, max_concurrent_calls: int, **settings: Unpack[SharedBulkheadSettings]) -> SharedBulkhead: ...

@final
class SharedBulkhead(Block[BulkheadGuard]):
    @property
    def name(self) -> str: ...
    def enter(self, wait: Seconds | None = None) -> Pending[BulkheadGuard]: ...
    def try_enter(self) -> Pending[BulkheadGuard]: ...
    def info(self) -> Pending[HoldingInfo]: ...

@final
class BulkheadGuard(Held):
    def leave(self) -> Pending[float]: ...
