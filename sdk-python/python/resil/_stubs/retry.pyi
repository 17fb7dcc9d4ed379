"""Retries."""

from typing import final, overload

from typing_extensions import Self, Unpack

from .._types import Ignore, On, OnResult
from ..settings import BudgetSettings, RetrySettings
from .around import Around
from .pending import Pending
from .testing import Clock

@final
class Retry(Around):
    @overload
    def __new__(
        cls,
        *,
        on: On,
        ignore: Ignore | None = None,
        on_result: OnResult | None = None,
        name: str | None = None,
        clock: Clock | None = None,
        seed: int | None = None,
        **settings: Unpack[RetrySettings],
    ) -> Self: ...
    @overload
    def __new__(
        cls,
        *,
        on: None = None,
        ignore: Ignore | None = None,
        on_result: OnResult,
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
class Budget:
    def __new__(cls, *, clock: Clock | None = None, **settings: Unpack[BudgetSettings]) -> Self: ...
    @property
    def available(self) -> int: ...

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
