"""Work that is done once."""

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar, final, overload

from typing_extensions import Unpack

from .._types import Seconds, Serializer
from ..reports import RecordedState
from ..settings import IdempotencySettings
from .around import Around
from .held import Lost
from .pending import Pending

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

class _MakesIdempotents:
    def idempotent(
        self,
        name: str,
        *,
        serializer: Serializer | None = None,
        remember: type[Exception] | tuple[type[Exception], ...] | None = None,
        **settings: Unpack[IdempotencySettings],
    ) -> Idempotent: ...

@final
class Run:
    @property
    def fence(self) -> int | None: ...
    @property
    def attempt(self) -> int | None: ...
    @property
    def is_first(self) -> bool: ...
    @property
    def lost(self) -> Lost: ...

@final
class Outcome(Generic[_T_co]):
    @property
    def value(self) -> _T_co: ...
    @property
    def replayed(self) -> bool: ...
    @property
    def attempt(self) -> int: ...
    @property
    def age(self) -> float: ...
    @property
    def recorded(self) -> bool: ...
    def __class_getitem__(cls, key: Any) -> Any: ...

@final
class Idempotent:
    @overload
    def run(
        self,
        key: str,
        fn: Callable[..., Coroutine[Any, Any, _T]],
        /,
        *args: Any,
        fingerprint: str | bytes | None = None,
        with_run: bool | None = None,
        **kwargs: Any,
    ) -> Pending[Outcome[_T]]: ...
    @overload
    def run(
        self,
        key: str,
        fn: Callable[..., _T],
        /,
        *args: Any,
        fingerprint: str | bytes | None = None,
        with_run: bool | None = None,
        **kwargs: Any,
    ) -> Outcome[_T]: ...
    def by(
        self,
        key: str | Callable[..., str],
        *,
        fingerprint: str | bytes | Callable[..., str | bytes] | None = None,
    ) -> KeyedIdempotent: ...
    def once(self, key: str, ttl: Seconds, token: str | None = None) -> Pending[bool]: ...
    def get(self, key: str) -> Pending[RecordedState]: ...

@final
class KeyedIdempotent(Around): ...
