"""What the middleware for ASGI and for WSGI have in common: tiers, and the reading of options."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Callable, Union

from ._native import Limiter, Pending, Verdict


@dataclass(frozen=True)
class Tier:
    """Which limit a request falls under, and whose."""

    limiter: Limiter
    key: str | bytes
    cost: int = 1
    #: What clients know the limit as; the limiter's own name by default.
    name: str | None = None


Chosen = Union[Tier, tuple[Limiter, Union[str, bytes]], None]


def chosen_tier(chosen: Chosen) -> Tier | None:
    return chosen if chosen is None or isinstance(chosen, Tier) else Tier(*chosen)


def _statuses(name: str, given: Callable[[int], bool] | Iterable[int]) -> Callable[[int], bool]:
    if isinstance(given, (str, bytes)):
        raise TypeError(f"{name} must be a collection, not a text: {given!r}")
    return given if callable(given) else frozenset(given).__contains__


def refunds_of(refund: Callable[[int], bool] | Iterable[int]) -> Callable[[int], bool]:
    """Which statuses give back what they cost."""
    return _statuses("refund", refund)


def refunded(tier: Tier) -> Pending[Verdict]:
    return tier.limiter.refund(tier.key, tier.cost)


def keeps_of(
    methods: Iterable[str], keep_responses: Callable[[int], bool] | Iterable[int], max_body: int, max_response: int
) -> tuple[frozenset[str], Callable[[int], bool]]:
    """Methods in upper case, and which statuses are kept."""
    if isinstance(methods, (str, bytes)):
        raise TypeError(f"methods must be a collection, not a text: {methods!r}")
    for field, size in [("max_body", max_body), ("max_response", max_response)]:
        if not isinstance(size, int) or size < 0:
            raise TypeError(f"{field} must be a number of bytes: {size!r}")
    return frozenset(method.upper() for method in methods), _statuses("keep_responses", keep_responses)
