"""Timeouts."""

from typing import final

from typing_extensions import Self

from .._types import Seconds
from .around import Around
from .pending import Pending
from .testing import Clock

@final
class Timeout(Around):
    def __new__(cls, after: Seconds, *, name: str | None = None, clock: Clock | None = None) -> Self: ...
    @property
    def after(self) -> float: ...
    def __aenter__(self) -> Pending[None]: ...
    def __aexit__(self, _type: object, value: object, _traceback: object, /) -> Pending[None]: ...
