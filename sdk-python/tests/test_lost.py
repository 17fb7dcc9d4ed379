"""A lock that is lost cancels the block that holds it, and nothing after it."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

import resil


def test_a_loss_seen_after_the_block_cancels_nothing(run: Any) -> None:
    async def main() -> None:
        client = await resil.connect("memory://")
        lock = client.lock("stock", lease=0.05, watchdog=False)
        with pytest.raises(ZeroDivisionError):
            async with lock as held:
                # The loop stands still: the loss is reported, and not yet heard.
                time.sleep(0.2)  # noqa: ASYNC251
                assert held.lost.is_set()
                raise ZeroDivisionError
        await asyncio.sleep(0.05)

    run(main())


def test_a_loss_cancels_the_block_and_replaces_its_error(run: Any) -> None:
    async def main() -> None:
        client = await resil.connect("memory://")
        with pytest.raises(resil.LockLostError):
            async with client.lock("stock", lease=0.05, watchdog=False):
                await asyncio.sleep(30)
        await asyncio.sleep(0.05)

    run(main())


def test_what_is_not_held_is_lost_in_that_moment() -> None:
    client = resil.connect("memory://").wait()
    for _ in range(20):
        held = client.lock("stock", lease=0.02, watchdog=False).acquire().wait()
        lost = held.lost
        while held.is_held:
            assert not lost.is_set() or not held.is_held
        assert lost.is_set(), "is_held is False, and it was not let go"
        assert lost.wait(0) is True
        with pytest.raises(resil.LockLostError):
            held.ensure()
        with pytest.raises(resil.LockLostError):
            held.release().wait()


def test_what_was_let_go_is_not_lost_and_not_held() -> None:
    client = resil.connect("memory://").wait()
    held = client.lock("stock", lease=0.05).acquire().wait()
    held.release().wait()
    time.sleep(0.1)
    assert not held.is_held and not held.lost.is_set() and held.remaining == 0
    with pytest.raises(RuntimeError, match="let go before"):
        held.ensure()


@pytest.mark.parametrize("way", ["by hand", "as a block"])
@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_a_lock_granted_to_a_closed_loop_is_returned(
    server: Any, way: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "asyncio")  # it complains of the task that is left
    new_loop = asyncio.new_event_loop if kind == "asyncio" else pytest.importorskip("uvloop").new_event_loop
    client = resil.connect(server.url).wait()
    held = client.lock("stock").acquire().wait()

    async def wait_for_it() -> None:
        lock = client.lock("stock", wait=50, lease=40)
        if way == "by hand":
            await lock.acquire()
        else:
            async with lock:
                pass

    loop = new_loop()
    task = loop.create_task(wait_for_it())
    while len(client_info(client, loop)["waiters"]) == 0:
        loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    del task, loop
    held.release().wait()
    assert client.lock("stock").acquire(20).wait().is_held, "long before its lease ends"


def client_info(client: resil.Client, loop: asyncio.AbstractEventLoop) -> Any:
    async def ask() -> Any:
        return await client.lock("stock").info()

    return loop.run_until_complete(ask())
