"""The class that every error of :mod:`resil.errors` extends."""

from __future__ import annotations

from typing import Any, ClassVar


class ResilError(Exception):
    """What Resil itself reports. Pickles, so that it survives process pools and queues."""

    __module__ = "resil.errors"

    #: The stable name, the same in every language.
    code: ClassVar[str] = "INTERNAL"
    #: Whether the same call may succeed if it is made again, later.
    retryable: ClassVar[bool] = False
    #: The status to reply with over HTTP.
    http_status: ClassVar[int] = 500
    #: The status to reply with over gRPC, by its name.
    grpc_status: ClassVar[str] = "INTERNAL"
    #: One sentence that names nothing and nobody: any caller may see it.
    meaning: ClassVar[str] = "An internal error occurred."

    def __init__(
        self, message: str, *, retry_after: float | None = None, resource: str | None = None, **parts: Any
    ) -> None:
        super().__init__(message)
        self.message = message
        #: Seconds after which the same call may succeed, if that is known.
        self.retry_after = retry_after
        #: The policy, lock, limit or work it is about, if it is about one.
        self.resource = resource
        for name, part in parts.items():
            if name not in getattr(type(self), "__annotations__", {}):
                raise TypeError(f"{type(self).__name__} has no {name}")
            setattr(self, name, part)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.message, vars(self))


def _again(kind: type[ResilError], message: str, parts: dict[str, Any]) -> ResilError:
    made = kind(message)
    vars(made).update(parts)
    return made
