"""Values that are loaded once."""

from collections.abc import AsyncIterable, Callable, Coroutine, Iterable
from typing import Any, Generic, Protocol, TypeVar, final, overload

from typing_extensions import ParamSpec, Unpack

from .._types import Seconds, Serializer
from ..settings import CacheSettings
from .around import Around
from .pending import Pending

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
_P = ParamSpec("_P")

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
class CacheEntry(Generic[_T_co]):
    def __new__(
        cls, value: _T_co, *, ttl: Seconds | None = None, tags: Iterable[str] | None = None, keep: bool | None = None
    ) -> CacheEntry[_T_co]: ...
    @property
    def value(self) -> _T_co: ...
    @property
    def ttl(self) -> float | None: ...
    @property
    def tags(self) -> list[str]: ...
    @property
    def keep(self) -> bool: ...
    def __class_getitem__(cls, key: Any) -> Any: ...

@final
class Cached:
    @overload
    def get(
        self,
        key: str,
        loader: Callable[[str], Coroutine[Any, Any, CacheEntry[_T] | None]],
        *,
        ttl: Seconds | None = None,
        tags: Iterable[str] | None = None,
        soft_timeout: Seconds | None = None,
    ) -> Pending[_T | None]: ...
    @overload
    def get(
        self,
        key: str,
        loader: Callable[[str], Coroutine[Any, Any, _T | None]],
        *,
        ttl: Seconds | None = None,
        tags: Iterable[str] | None = None,
        soft_timeout: Seconds | None = None,
    ) -> Pending[_T | None]: ...
    @overload
    def get(
        self,
        key: str,
        loader: Callable[[str], CacheEntry[_T] | None],
        *,
        ttl: Seconds | None = None,
        tags: Iterable[str] | None = None,
        soft_timeout: Seconds | None = None,
    ) -> Pending[_T | None]: ...
    @overload
    def get(
        self,
        key: str,
        loader: Callable[[str], _T | None],
        *,
        ttl: Seconds | None = None,
        tags: Iterable[str] | None = None,
        soft_timeout: Seconds | None = None,
    ) -> Pending[_T | None]: ...
    @overload
    def lookup(
        self,
        key: str,
        loader: Callable[[str], Coroutine[Any, Any, CacheEntry[_T] | None]],
        *,
        ttl: Seconds | None = None,
        tags: Iterable[str] | None = None,
        soft_timeout: Seconds | None = None,
    ) -> Pending[Loaded[_T]]: ...
    @overload
    def lookup(
        self,
        key: str,
        loader: Callable[[str], Coroutine[Any, Any, _T | None]],
        *,
        ttl: Seconds | None = None,
        tags: Iterable[str] | None = None,
        soft_timeout: Seconds | None = None,
    ) -> Pending[Loaded[_T]]: ...
    @overload
    def lookup(
        self,
        key: str,
        loader: Callable[[str], CacheEntry[_T] | None],
        *,
        ttl: Seconds | None = None,
        tags: Iterable[str] | None = None,
        soft_timeout: Seconds | None = None,
    ) -> Pending[Loaded[_T]]: ...
    @overload
    def lookup(
        self,
        key: str,
        loader: Callable[[str], _T | None],
        *,
        ttl: Seconds | None = None,
        tags: Iterable[str] | None = None,
        soft_timeout: Seconds | None = None,
    ) -> Pending[Loaded[_T]]: ...
    @overload
    def get_many(
        self,
        keys: Iterable[str],
        loader: Callable[[str], Coroutine[Any, Any, CacheEntry[_T] | None]],
        *,
        ttl: Seconds | None = None,
        tags: Iterable[str] | None = None,
        soft_timeout: Seconds | None = None,
    ) -> Pending[list[_T | None]]: ...
    @overload
    def get_many(
        self,
        keys: Iterable[str],
        loader: Callable[[str], Coroutine[Any, Any, _T | None]],
        *,
        ttl: Seconds | None = None,
        tags: Iterable[str] | None = None,
        soft_timeout: Seconds | None = None,
    ) -> Pending[list[_T | None]]: ...
    @overload
    def get_many(
        self,
        keys: Iterable[str],
        loader: Callable[[str], CacheEntry[_T] | None],
        *,
        ttl: Seconds | None = None,
        tags: Iterable[str] | None = None,
        soft_timeout: Seconds | None = None,
    ) -> Pending[list[_T | None]]: ...
    @overload
    def get_many(
        self,
        keys: Iterable[str],
        loader: Callable[[str], _T | None],
        *,
        ttl: Seconds | None = None,
        tags: Iterable[str] | None = None,
        soft_timeout: Seconds | None = None,
    ) -> Pending[list[_T | None]]: ...
    @overload
    def refresh(
        self,
        key: str,
        loader: Callable[[str], Coroutine[Any, Any, CacheEntry[_T] | None]],
        *,
        ttl: Seconds | None = None,
        tags: Iterable[str] | None = None,
    ) -> Pending[_T | None]: ...
    @overload
    def refresh(
        self,
        key: str,
        loader: Callable[[str], Coroutine[Any, Any, _T | None]],
        *,
        ttl: Seconds | None = None,
        tags: Iterable[str] | None = None,
    ) -> Pending[_T | None]: ...
    @overload
    def refresh(
        self,
        key: str,
        loader: Callable[[str], CacheEntry[_T] | None],
        *,
        ttl: Seconds | None = None,
        tags: Iterable[str] | None = None,
    ) -> Pending[_T | None]: ...
    @overload
    def refresh(
        self,
        key: str,
        loader: Callable[[str], _T | None],
        *,
        ttl: Seconds | None = None,
        tags: Iterable[str] | None = None,
    ) -> Pending[_T | None]: ...
    def by(
        self,
        key: str | Callable[..., str],
        *,
        ttl: Seconds | None = None,
        tags: Iterable[str] | None = None,
        soft_timeout: Seconds | None = None,
    ) -> KeyedCached: ...
    def set(self, key: str, value: Any, *, ttl: Seconds | None = None, tags: Iterable[str] | None = None) -> Pending[None]: ...
    def invalidate(self, key: str) -> Pending[bool]: ...
    def invalidate_soft(self, key: str) -> Pending[bool]: ...
    def invalidate_eventually(self, key: str) -> Pending[bool]: ...
    def invalidate_many(self, keys: Iterable[str]) -> Pending[int]: ...
    def invalidate_tag(self, tag: str) -> Pending[None]: ...
    def invalidate_on(self, keys: AsyncIterable[str] | Iterable[str]) -> Pending[int]: ...
    def clear(self) -> Pending[None]: ...

class _CachedFunction(Protocol[_P, _T_co]):
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _T_co: ...
    def __get__(self, instance: Any, owner: Any = None, /) -> Callable[..., _T_co]: ...
    def invalidate(self, *args: _P.args, **kwargs: _P.kwargs) -> Pending[bool]: ...

@final
class KeyedCached(Around):
    def __call__(self, fn: Callable[_P, _T]) -> _CachedFunction[_P, _T]: ...
    def invalidate(self, *args: Any, **kwargs: Any) -> Pending[bool]: ...

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
