"""What is returned instead."""

from collections.abc import Callable
from typing import final

from typing_extensions import Self

from .._types import Ignore
from .around import Around

@final
class Fallback(Around):
    def __new__(
        cls,
        value: object = None,
        *,
        function: Callable[[Exception], object] | None = None,
        when: Ignore | None = None,
        name: str | None = None,
    ) -> Self: ...
