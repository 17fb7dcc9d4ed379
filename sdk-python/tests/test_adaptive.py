"""What a policy of code refuses by itself, in one process: throttling, shedding, chaos, and places that adapt."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any, Awaitable, Callable

import pytest
import resil
from resil.testing import Clock

LATER = "2199-01-01T00:00:00Z"


def down() -> None:
    raise ConnectionError("down")


def came_to(call: Callable[[], object]) -> str:
    """The layer of a refusal, the name of another error, or ``made``."""
    try:
        call()
    except resil.RefusedError as error:
        found = re.search("throttle|shed|chaos", str(error))
        return found[0] if found else str(error)
    except Exception as error:
        return type(error).__name__
    return "made"


def test_a_dead_callee_is_throttled_to_a_call_a_second() -> None:
    clock = Clock.driven()
    client = resil.connect("memory://", clock=clock).wait()
    policy = client.policy("throttled", throttle={"k": 1.5, "window": 10})
    ends = [came_to(lambda: policy.call(down)) for _ in range(200)]
    assert set(ends) == {"throttle", "ConnectionError"}
    assert ends.count("throttle") > 150
    clock.advance(1)
    assert policy.call(lambda: 7) == 7


def test_less_important_calls_are_shed_first(run: Any) -> None:
    async def main() -> None:
        client = await resil.connect("memory://")
        policy = client.policy("shedding", bulkhead={"max_concurrent_calls": 10}, shedding={})

        async def forever() -> None:
            await asyncio.Event().wait()

        async def quick() -> int:
            return 7

        critical = policy.with_options(priority="critical")
        inside = [asyncio.ensure_future(critical.call(forever)) for _ in range(7)]
        await asyncio.sleep(0.05)
        seen = {}
        for priority in ("background", "low", "normal", "high", "critical"):
            try:
                seen[priority] = await policy.with_options(priority=priority).call(quick)
            except resil.RefusedError as error:
                assert "shed" in str(error)
                seen[priority] = 0
        assert seen == {"background": 0, "low": 0, "normal": 7, "high": 7, "critical": 7}
        for task in inside:
            task.cancel()
        await asyncio.wait(inside)
        assert await policy.with_options(priority="background").call(quick) == 7
        with pytest.raises(resil.InvalidPolicyError, match="shedding needs a bulkhead"):
            client.policy("shedding", shedding={})

    run(main())


def test_chaos_fails_delays_and_loses_calls_until_it_ends() -> None:
    client = resil.connect("memory://").wait()

    def struck(*, retry: Any = None, **chaos: Any) -> tuple[str, int, bool]:
        made: list[int] = []
        settings: dict[str, Any] = {"chaos": {"percent": 100, "until": LATER, **chaos}}
        if retry is not None:
            settings.update(retry=retry, on=ConnectionError)
        policy, begun = client.policy("struck", **settings), time.monotonic()
        ended = came_to(lambda: policy.call(lambda: made.append(1)))
        return ended, len(made), time.monotonic() - begun >= 0.029

    assert struck(kind="error")[:2] == ("chaos", 0)
    assert struck(kind="drop")[:2] == ("chaos", 1), "it was made, and its reply is lost"
    assert struck(kind="latency", latency=0.03) == ("made", 1, True)
    assert struck(kind="error", until="2020-01-01T00:00:00Z")[:2] == ("made", 1), "it is over"
    assert struck(kind="error", subjects=["ann"])[:2] == ("made", 1), "another subject"
    assert struck(kind="error", retry={"max_attempts": 2, "initial_backoff": "1us"})[0] == "RetryExhaustedError"


def test_places_shrink_with_failures_and_grow_back(run: Any) -> None:
    async def main() -> None:
        client = await resil.connect("memory://")
        policy = client.policy("adapting", bulkhead={"max_concurrent_calls": 20, "adaptive": {"kind": "aimd", "min": 2}})

        async def forever() -> None:
            await asyncio.Event().wait()

        async def fails() -> None:
            raise ConnectionError("down")

        async def works() -> None:
            await asyncio.sleep(0)

        async def at_once() -> int:
            calls: list[asyncio.Future[None]] = [asyncio.ensure_future(policy.call(forever)) for _ in range(20)]
            _, inside = await asyncio.wait(calls, timeout=0.2)
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            return len(inside)

        async def quietly(call: Awaitable[None]) -> None:
            try:
                await call
            except (ConnectionError, resil.BulkheadFullError):
                pass

        assert await at_once() == 20
        for _ in range(1_000):
            await quietly(policy.call(fails))
        assert await at_once() == 2, "never below its least"
        for _ in range(3_000):
            await asyncio.gather(quietly(policy.call(works)), quietly(policy.call(works)))
        assert await at_once() > 2

    run(main())
