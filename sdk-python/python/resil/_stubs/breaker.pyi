"""Circuit breakers."""

from collections.abc import Callable
from typing import Literal, final

from typing_extensions import Unpack

from .._types import Ignore, OnResult, Seconds
from ..reports import BreakerSnapshot
from ..settings import BreakerSettings
from .around import Block
from .pending import Pending

class _MakesBreakers:
    def breaker(
        self,
        name: str,
        *,
        ignore: Ignore | None = None,
        on_result: OnResult | None = None,
        **settings: Unpack[BreakerSettings],
    ) -> Breaker: ...

@final
class Breaker(Block[None]):
    @property
    def name(self) -> str: ...
    @property
    def last_known_state(self) -> str | None: ...
    def admit(self) -> Pending[Permit]: ...
    def state(self) -> Pending[BreakerSnapshot]: ...
    def force(
        self,
        state: Literal["open", "open-then-probe", "closed", "disabled", "metrics", "auto"],
        *,
        duration: Seconds | None = None,
        reason: str | None = None,
    ) -> Pending[str]: ...
    def reset(self) -> Pending[bool]: ...
    def configure(self, **settings: Unpack[BreakerSettings]) -> Pending[bool]: ...
    def on_transition(self, listener: Callable[[str, str, int], object]) -> None: ...

@final
class Permit:
    def success(self) -> Pending[None]: ...
    def failure(self) -> Pending[None]: ...
    def ignore(self) -> Pending[None]: ...
    def cancel(self) -> Pending[None]: ...
