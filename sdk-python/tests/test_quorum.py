"""Locks over several servers, and several locks at once."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
import resil


def test_a_majority_of_servers_grants_a_lock_with_growing_fences(servers: Any, run: Any) -> None:
    three = [servers.start() for _ in range(3)]
    hosts = ",".join(server.url.removeprefix("redis://").rstrip("/") for server in three)

    async def main() -> None:
        one, other = [await resil.connect(f"redis+quorum://{hosts}") for _ in range(2)]
        async with one.lock("stock", lease=2) as held:
            first = held.fence
            with pytest.raises(resil.LockTimeoutError):
                await other.lock("stock").try_acquire()
        three[1].kill()
        async with other.lock("stock", lease=2) as held:
            assert held.fence > first
        with pytest.raises(ValueError, match="exclusive locks only"):
            one.limiter("api", limit=1, period=1)
        held = await one.locks(["b", "a"], lease=2).acquire()
        assert held.is_held
        await held.release()
        await one.shutdown(1)
        await other.shutdown(1)

    run(main())


def test_a_released_lock_is_free_at_every_server(servers: Any, run: Any) -> None:
    """Lost before: a thread that was answered at once asked only as many servers as it needed."""
    five = [servers.start() for _ in range(5)]
    hosts = ",".join(server.url.removeprefix("redis://").rstrip("/") for server in five)
    names = [f"row-{number}" for number in range(200)]

    async def main() -> None:
        client = await resil.connect(f"redis+quorum://{hosts}")
        for number, name in enumerate(names):
            async with client.lock(name, lease=60):
                await asyncio.sleep(number % 4 / 1000)
        await client.shutdown(1)

    run(main())
    until = time.monotonic() + 5
    for name in names:
        for server in five:
            while "exclusive" in str(server.say("RES.LOCK", "INFO", f"resil:lock:{{{name}}}")):
                assert time.monotonic() < until, f"{name} is held at {server.url}, by nobody"
    for server in five:
        server.stop()


def test_several_locks_are_all_held_or_none(run: Any) -> None:
    async def main() -> None:
        client = await resil.connect("memory://")
        both = client.locks(["b", "a"], wait=0.05)
        assert both.names == ["a", "b"]
        async with await both.acquire() as held:
            assert held.is_held and all(held.fences)
            held.ensure()
        assert not held.is_held
        taken = await client.lock("b").acquire()
        with pytest.raises(resil.LockTimeoutError):
            await both.acquire()
        await (await client.lock("a").try_acquire()).release()
        await taken.release()
        with pytest.raises(ValueError, match="twice"):
            client.locks(["a", "a"])
        with pytest.raises(TypeError, match="list of names"):
            client.locks("ab")
        with pytest.raises(ValueError, match="domain"):
            client.lock_name("a:b", "c", "d")

    run(main())
