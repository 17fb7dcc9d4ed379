"""A StopIteration that a user's function lets out is an error, and never a result: as in generators."""

from __future__ import annotations

from typing import Any

import pytest
import resil


def empty(*_: Any) -> Any:
    return next(iter([]))


def test_a_loader_that_raises_stop_iteration_has_failed(client: resil.Client, run: Any) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="StopIteration") as raised:
            await client.cached("x").get("k", empty)
        assert isinstance(raised.value.__cause__, StopIteration)

    run(main())


def test_a_predicate_that_raises_stop_iteration_saves_no_call(run: Any) -> None:
    async def failing() -> None:
        raise ConnectionError("down")

    async def main() -> None:
        with pytest.raises((RuntimeError, ConnectionError)):
            await resil.Retry(max_attempts=2, on=empty).call(failing)
        with pytest.raises((RuntimeError, ConnectionError)):
            await resil.Fallback(function=empty).call(failing)

    run(main())
