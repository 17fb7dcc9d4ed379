"""Coroutines under policies: cancelled, timed out, cut off."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
import resil

SOON = 0.05


def test_cancelling_reaches_the_coroutine_first(client: resil.Client, run: Any) -> None:
    events: list[str] = []
    lock = client.lock("x")

    @lock
    async def work() -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            events.append("reported")
            await asyncio.sleep(SOON)
            events.append("cleaned up")
            raise

    async def main() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(SOON)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        events.append("ended")
        async with client.lock("x", wait=1):
            events.append("free")

    run(main())
    assert events == ["reported", "cleaned up", "ended", "free"]


def test_a_timeout_cancels_the_coroutine_and_waits_for_its_end(run: Any) -> None:
    events: list[str] = []

    @resil.Timeout(SOON)
    async def slow() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(SOON)
            events.append("cleaned up")

    async def main() -> None:
        began = time.monotonic()
        with pytest.raises(resil.TimeoutError) as raised:
            await slow()
        events.append("ended")
        assert raised.value.code == "TIMEOUT"
        assert isinstance(raised.value, TimeoutError)
        assert time.monotonic() - began < 5
        task: Any = asyncio.current_task()
        if hasattr(task, "cancelling"):
            assert task.cancelling() == 0, "the task itself was never cancelled"
        await asyncio.sleep(0)

    run(main())
    assert events == ["cleaned up", "ended"]


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_coroutine_that_keeps_running_is_reported_next_step(run: Any, attempts: int) -> None:
    events: list[str] = []
    retry = resil.Retry(on=ConnectionError, max_attempts=attempts, initial_backoff=0.001, jitter="none")

    @retry
    @resil.Timeout(SOON)
    async def busy() -> None:
        until = time.monotonic() + 30
        events.append("begins")
        try:
            while time.monotonic() < until:
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            await asyncio.sleep(0.001)
            events.append("cleaned up")
            raise

    async def main() -> None:
        began = time.monotonic()
        with pytest.raises((resil.TimeoutError, resil.RetryExhaustedError)):
            await busy()
        assert time.monotonic() - began < 10

    run(main())
    assert events == ["begins", "cleaned up"] * attempts


def test_a_cut_off_attempt_ends_before_the_next_begins(run: Any) -> None:
    events: list[str] = []
    retry = resil.Retry(on=ConnectionError, max_attempts=3, initial_backoff=0.001, jitter="none")
    timeout = resil.Timeout(SOON)

    @retry
    @timeout
    async def slow() -> None:
        events.append("begins")
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.02)
            events.append("ends")

    async def main() -> None:
        with pytest.raises(resil.RetryExhaustedError) as raised:
            await slow()
        assert isinstance(raised.value.__cause__, resil.TimeoutError)

    run(main())
    assert events == ["begins", "ends"] * 3


def test_the_same_inside_of_one_policy(run: Any) -> None:
    events: list[str] = []
    policy = resil.Policy(
        "p",
        timeout={"attempt": SOON},
        retry={"max_attempts": 3, "initial_backoff": 0.001, "jitter": "none"},
        on=ConnectionError,
    )

    @policy
    async def slow() -> None:
        events.append("begins")
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.02)
            events.append("ends")

    async def main() -> None:
        with pytest.raises(resil.RetryExhaustedError):
            await slow()

    run(main())
    assert events == ["begins", "ends"] * 3


def test_a_cancellation_beside_a_timeout_is_not_lost(run: Any) -> None:
    @resil.Timeout(SOON)
    async def slow() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.2)

    async def main() -> None:
        task = asyncio.create_task(slow())
        await asyncio.sleep(SOON + 0.1)  # the timeout has struck, and the coroutine cleans up
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


def test_a_coroutine_that_swallows_its_cancellation_has_timed_out(run: Any) -> None:
    @resil.Timeout(SOON)
    async def stubborn() -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            pass
        return "done anyway"

    async def main() -> None:
        with pytest.raises(resil.TimeoutError):
            await stubborn()

    run(main())
