"""A second attempt while the first is slow."""

from typing import final

from typing_extensions import Self, Unpack

from .._types import On
from ..settings import HedgeSettings
from .around import Around
from .testing import Clock

@final
class Hedge(Around):
    def __new__(
        cls,
        *,
        on: On,
        name: str | None = None,
        clock: Clock | None = None,
        **settings: Unpack[HedgeSettings],
    ) -> Self: ...
    @property
    def delay(self) -> float: ...
