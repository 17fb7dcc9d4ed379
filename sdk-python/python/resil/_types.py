"""Types of arguments that several signatures of ``_native.pyi`` share. For type checkers; nothing here is needed at runtime."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Callable, Literal, Optional, Protocol, Tuple, Type, Union

Seconds = Union[float, timedelta, str]
Key = Union[str, bytes]
Exceptions = Union[Type[BaseException], Tuple[Type[BaseException], ...]]
On = Union[Exceptions, Callable[[BaseException], Optional[Union[bool, float, timedelta, str]]]]
Ignore = Union[Exceptions, Callable[[BaseException], bool]]
OnResult = Callable[[Any], Optional[Union[bool, float, timedelta, str]]]


class Adapter(Protocol):
    """What a pydantic.TypeAdapter has."""

    def dump_json(self, instance: Any, /) -> bytes: ...
    def validate_json(self, data: bytes, /) -> Any: ...


Serializer = Union[
    Literal["json", "bytes", "pickle"],
    Type[Any],
    Tuple[Callable[[Any], Union[str, bytes]], Callable[[bytes], Any]],
    Adapter,
]
