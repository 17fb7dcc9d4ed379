"""Values that are loaded once."""

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar, final, overload

from typing_extensions import Unpack

from .._types import Serializer
from ..settings import CacheSettings
from .around import Around
from .pending import Pending

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

class _MakesCaches:
    def cached(self, name: str, *, serializer: Serializer | None = None, **settings: Unpack[CacheSettings]) -> Cached: ...
    def versioned_cached(
        self, name: str, *, serializer: Serializer | None = None, **settings: Unpack[CacheSettings]
    ) -> VersionedCached: ...

@final
class Loaded(Generic[_T_co]):
    @property
    def value(self) -> _T_co | None: ...
    @property
    def is_found(self) -> bool: ...
    @property
    def version(self) -> int | None: ...
    @property
    def is_stale(self) -> bool: ...
    @property
    def age(self) -> float | None: ...
    def __class_getitem__(cls, key: Any) -> Any: ...

@final
class Cached:
    @overload
    def get(self, key: str, loader: Callable[[str], Coroutine[Any, Any, _T | None]]) -> Pending[_T | None]: ...
    @overload
    def get(self, key: str, loader: Callable[[str], _T | None]) -> Pending[_T | None]: ...
    @overload
    def lookup(self, key: str, loader: Callable[[str], Coroutine[Any, Any, _T | None]]) -> Pending[Loaded[_T]]: ...
    @overload
    def lookup(self, key: str, loader: Callable[[str], _T | None]) -> Pending[Loaded[_T]]: ...
    def by(self, key: str | Callable[..., str]) -> KeyedCached: ...
    def invalidate(self, key: str) -> Pending[bool]: ...
    def invalidate_soft(self, key: str) -> Pending[bool]: ...

@final
class KeyedCached(Around): ...

@final
class VersionedCached:
    @overload
    def get(
        self,
        key: str,
        loader: Callable[[str], Coroutine[Any, Any, tuple[int, _T] | None]],
        *,
        at_least: int | None = None,
    ) -> Pending[tuple[int, _T] | None]: ...
    @overload
    def get(
        self, key: str, loader: Callable[[str], tuple[int, _T] | None], *, at_least: int | None = None
    ) -> Pending[tuple[int, _T] | None]: ...
    @overload
    def lookup(
        self,
        key: str,
        loader: Callable[[str], Coroutine[Any, Any, tuple[int, _T] | None]],
        *,
        at_least: int | None = None,
    ) -> Pending[Loaded[_T]]: ...
    @overload
    def lookup(self, key: str, loader: Callable[[str], tuple[int, _T] | None], *, at_least: int | None = None) -> Pending[Loaded[_T]]: ...
    def by(self, key: str | Callable[..., str]) -> KeyedCached: ...
    def invalidate(self, key: str) -> Pending[bool]: ...
    def invalidate_soft(self, key: str) -> Pending[bool]: ...
