"""Locks in every shape, and what a block, a function and others learn when one is lost."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import resil


def test_a_lock_in_every_shape(client: resil.Client, run: Any) -> None:
    lock = client.lock("stock", wait=0.05)
    with lock as held:
        assert held.is_held and held.fence and held.remaining > 0 and not held.lost.is_set()
        info = lock.info().wait()
        assert info["holders_total"] == 1
        assert lock.check(info["holders"][0]["owner"], held.fence).wait()
        assert isinstance(_tried_elsewhere(lock), resil.LockTimeoutError)
    fence = held.fence

    guard = lock.acquire().wait()
    assert guard.fence is not None and fence is not None and guard.fence > fence
    guard.extend(20).wait()
    assert guard.remaining > 10
    assert guard.check().wait()
    assert isinstance(guard.release().wait(), float)
    with pytest.raises(RuntimeError, match="released before"):
        guard.release()

    @lock
    def inside() -> str:
        assert isinstance(_tried_elsewhere(lock), resil.LockTimeoutError)
        return "alone"

    assert inside() == "alone"

    async def main() -> None:
        async with lock as held:
            assert held.is_held
        order: list[int] = []

        async def work(number: int) -> None:
            async with client.lock("line", wait=20):
                order.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*(work(number) for number in range(50)))
        assert order == list(range(50)), "in the order of arrival"

    run(main())


def _tried_elsewhere(lock: resil.Lock) -> BaseException | None:
    """What another thread learns that asks for it."""
    reported: list[BaseException | None] = []

    def ask() -> None:
        try:
            lock.try_acquire().wait().release().wait()
            reported.append(None)
        except resil.ResilError as error:
            reported.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(10)
    return reported[0]


def test_losing_a_lock_cancels_the_block_that_holds_it(client: resil.Client, run: Any) -> None:
    lock = client.lock("stock")

    async def main() -> None:
        was_inside = False
        with pytest.raises(resil.LockLostError):
            async with lock as held:
                was_inside = True
                assert await client.lock("stock").break_lock("ops", "a drill") == 1
                # The renewal that finds out; it may be cancelled before it can say so.
                with pytest.raises((resil.LockLostError, asyncio.CancelledError)):
                    await held.extend(10)
                await asyncio.sleep(30)
        assert was_inside and held.lost.is_set() and not held.is_held
        await held.lost
        task: Any = asyncio.current_task()
        if hasattr(task, "cancelling"):
            assert task.cancelling() == 0
        await asyncio.sleep(0)

    run(main())


def test_a_block_can_ask_to_continue_without_its_lock(client: resil.Client, run: Any) -> None:
    lock = client.lock("stock", keep_running_when_lost=True)

    async def main() -> str:
        async with lock as held:
            await lock.break_lock("ops", "a drill")
            with pytest.raises(resil.LockLostError):
                await held.extend(10)
            await held.lost
            return "went on"

    assert run(main()) == "went on"


def test_a_plain_block_learns_of_its_loss_at_its_end(client: resil.Client) -> None:
    lock = client.lock("stock")
    with pytest.raises(resil.LockLostError), lock as held:
        lock.break_lock("ops", "a drill").wait()
        with pytest.raises(resil.LockLostError):
            held.extend(10).wait()
        assert held.lost.wait(5)
    assert not client.lock("other").acquire().wait().lost.wait(0.01)


def test_a_function_whose_lock_is_lost_is_cancelled(client: resil.Client, run: Any) -> None:
    lock = client.lock("stock", lease=0.3)
    events: list[str] = []

    @lock
    async def work() -> None:
        try:
            await client.lock("stock").break_lock("ops", "a drill")
            await asyncio.sleep(30)
        finally:
            events.append("reported")

    async def main() -> None:
        with pytest.raises(resil.LockLostError):
            await work()

    run(main())
    assert events == ["reported"]
