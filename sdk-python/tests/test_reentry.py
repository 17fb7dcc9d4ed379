"""A lock that is held by a block is granted again to the task or thread that holds it, and to nobody else."""

from __future__ import annotations

import asyncio
import gc
import concurrent.futures
import contextvars
from typing import Any

import pytest
import resil


def test_a_thread_comes_in_again_and_leaves_as_often(client: resil.Client) -> None:
    with client.lock("stock") as outer:
        # Another object of the same name, and other shapes, too.
        with client.lock("stock", wait=0) as inner:
            assert inner.fence == outer.fence
            assert client.lock("stock", wait=0).call(lambda: "inside") == "inside"
            guard = client.lock("stock").try_acquire().wait()
            assert guard.release().wait() is None, "held still, further out"
        assert outer.is_held
        with pytest.raises(resil.LockTimeoutError):
            in_a_thread(lambda: client.lock("stock").try_acquire().wait())
    assert not outer.is_held
    in_a_thread(lambda: client.lock("stock").try_acquire().wait().release().wait())


def test_a_task_comes_in_again_and_its_children_do_not(client: resil.Client, run: Any) -> None:
    lock = client.lock("stock", wait=0)

    async def ask() -> resil.LockGuard:
        return await lock.acquire()

    async def main() -> None:
        async with lock as outer:
            async with lock as inner:
                assert inner.fence == outer.fence
                await asyncio.sleep(0)
                async with lock as innermost:
                    assert innermost.fence == outer.fence
            # It has the context variables of the one that holds it, and is another one.
            for other in (asyncio.create_task(ask()), asyncio.gather(ask())):
                with pytest.raises(resil.LockTimeoutError):
                    await other
            with pytest.raises(resil.LockTimeoutError):
                await asyncio.to_thread(contextvars.copy_context().run, lambda: lock.acquire().wait())
            assert outer.is_held
        await (await ask()).release()

    run(main())


def test_a_decorated_function_comes_in_again(client: resil.Client, run: Any) -> None:
    lock = client.lock("stock", wait=0)

    @lock
    def countdown(number: int) -> int:
        return 0 if number == 0 else 1 + countdown(number - 1)

    @lock
    async def countdown_later(number: int) -> int:
        await asyncio.sleep(0)
        return 0 if number == 0 else 1 + await countdown_later(number - 1)

    async def main() -> int:
        async with lock:
            return await countdown_later(5)

    assert countdown(5) == 5
    with lock:
        assert countdown(5) == 5
    assert run(main()) == 5


def test_a_guard_released_by_hand_lets_nobody_in_again(client: resil.Client) -> None:
    with client.lock("stock") as first:
        first.release().wait()
        with client.lock("stock", wait=0) as second:
            assert second.fence is not None and first.fence is not None and second.fence > first.fence


def test_locks_by_hand_or_other_clients_are_waited_for(client: resil.Client) -> None:
    guard = client.lock("stock").acquire().wait()
    with pytest.raises(resil.LockTimeoutError):
        client.lock("stock").try_acquire().wait()
    guard.release().wait()
    one, other = (resil.connect("memory://reentry", name=name).wait() for name in ("one", "other"))
    with one.lock("stock"), pytest.raises(resil.LockTimeoutError):
        other.lock("stock").try_acquire().wait()


def test_a_reader_that_wants_to_write_learns_of_its_deadlock(client: resil.Client) -> None:
    with client.lock("stock", shared=True), pytest.raises(resil.DeadlockError):
        client.lock("stock").try_acquire().wait()


def test_a_lost_lock_is_reported_once_however_often_entered(client: resil.Client, run: Any) -> None:
    lock = client.lock("stock")
    left: list[str] = []

    async def main() -> None:
        async with lock:
            try:
                async with lock:
                    await lock.break_lock("ops", "stuck")
                    await asyncio.sleep(30)
            finally:
                left.append("inner")

    with pytest.raises(resil.LockLostError):
        run(main())
    assert left == ["inner"]


def test_a_guard_is_released_even_while_somebody_asks(client: resil.Client, run: Any) -> None:
    async def main() -> None:
        async with client.lock("stock") as held:
            asking = held.check()
        asking.close()
        await (await client.lock("stock", wait=1).acquire()).release()

    run(main())


def test_threads_and_tasks_that_reenter_are_one_at_a_time(client: resil.Client, run: Any) -> None:
    inside, most = 0, 0

    def enter() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)

    def in_threads() -> None:
        nonlocal inside
        with client.lock("stock"), client.lock("stock"):
            enter()
            inside -= 1

    async def in_tasks() -> None:
        nonlocal inside
        async with client.lock("stock"), client.lock("stock"):
            enter()
            await asyncio.sleep(0)
            inside -= 1

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            threads = [loop.run_in_executor(pool, in_threads) for _ in range(40)]
            await asyncio.gather(*threads, *(in_tasks() for _ in range(40)))

    run(main())
    assert (inside, most) == (0, 1)


def in_a_thread(function: Any) -> Any:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(60)


@pytest.mark.parametrize("make", [
    lambda client: client.lock("stock", wait=10),
    lambda client: client.shared_bulkhead("reports", 1, max_wait=10),
    lambda client: resil.Bulkhead("reports", max_concurrent_calls=1, max_queue=1),
    lambda client: client.breaker("bank"),
])
def test_a_generators_block_is_left_by_its_closing_task(client: resil.Client, run: Any, make: Any) -> None:
    """A generator that nobody loops over any more is closed by a task of the loop's own."""
    policy = make(client)
    problems: list[Any] = []

    async def rows() -> Any:
        async with policy:
            yield 1
            yield 2

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
        for _ in range(3):
            async for _row in rows():
                break
            gc.collect()
            async with policy:
                pass
        assert (await client.shutdown(5))["cut_off"] == 0

    run(main())
    assert problems == []
