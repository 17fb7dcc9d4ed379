"""Retries."""

from typing import final

from typing_extensions import Self, Unpack

from .._types import Ignore, On
from ..settings import RetrySettings
from .around import Around
from .pending import Pending
from .testing import Clock

@final
class Retry(Around):
    def __new__(
        cls,
        *,
        on: On,
        ignore: Ignore | None = None,
        name: str | None = None,
        clock: Clock | None = None,
        seed: int | None = None,
        **settings: Unpack[RetrySettings],
    ) -> Self: ...
    @property
    def max_attempts(self) -> int: ...
    def __iter__(self) -> Attempts: ...
    def __aiter__(self) -> Attempts: ...

@final
class Attempts:
    def __iter__(self) -> Self: ...
    def __next__(self) -> Attempt: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Pending[Attempt]: ...

@final
class Attempt:
    @property
    def number(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, _type: object, value: object, _traceback: object, /) -> bool: ...
