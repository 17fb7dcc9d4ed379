"""Whole policies."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, final, overload

from typing_extensions import Self, Unpack

from .._types import Ignore, On, OnResult
from ..settings import CallSettings, PolicySettings
from .around import Around
from .idempotent import Idempotent, Outcome
from .pending import Pending
from .testing import Clock

_T = TypeVar("_T")

class _MakesPolicies:
    # Without settings it is the stored one that is followed.
    @overload
    def policy(self, name: str, *, on: On | None = None, ignore: Ignore | None = None, on_result: OnResult | None = None) -> Pending[Policy]: ...
    @overload
    def policy(
        self,
        name: str,
        settings: PolicySettings | None = None,
        *,
        on: On | None = None,
        ignore: Ignore | None = None,
        on_result: OnResult | None = None,
        **more: Unpack[PolicySettings],
    ) -> Policy: ...
    def policy_or(
        self,
        name: str,
        settings: PolicySettings | None = None,
        *,
        on: On | None = None,
        ignore: Ignore | None = None,
        on_result: OnResult | None = None,
        **more: Unpack[PolicySettings],
    ) -> Pending[Policy]: ...

@final
class Policy(Around):
    def __new__(
        cls,
        name: str,
        settings: PolicySettings | None = None,
        *,
        on: On | None = None,
        ignore: Ignore | None = None,
        on_result: OnResult | None = None,
        clock: Clock | None = None,
        **more: Unpack[PolicySettings],
    ) -> Self: ...
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int | None: ...
    @property
    def problem(self) -> str | None: ...
    @property
    def order(self) -> list[str]: ...
    @property
    def warnings(self) -> list[str]: ...
    def with_options(self, **options: Unpack[CallSettings]) -> Policy: ...
    @overload
    def call_once(
        self,
        idempotent: Idempotent,
        key: str,
        fn: Callable[..., Coroutine[Any, Any, _T]],
        /,
        *args: Any,
        fingerprint: str | bytes | None = None,
        with_run: bool | None = None,
        **kwargs: Any,
    ) -> Pending[Outcome[_T]]: ...
    @overload
    def call_once(
        self,
        idempotent: Idempotent,
        key: str,
        fn: Callable[..., _T],
        /,
        *args: Any,
        fingerprint: str | bytes | None = None,
        with_run: bool | None = None,
        **kwargs: Any,
    ) -> Outcome[_T]: ...

@final
class Policies:
    @property
    def names(self) -> list[str]: ...
    def policy(self, name: str, *, on: On | None = None, ignore: Ignore | None = None, on_result: OnResult | None = None) -> Policy: ...
    def __contains__(self, name: object, /) -> bool: ...
    def __len__(self) -> int: ...
