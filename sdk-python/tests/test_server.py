"""On a real server: killed and back under load, holders that die, many processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import pytest
import resil


def test_every_primitive_works_on_a_server(server: Any, run: Any) -> None:
    async def main() -> None:
        client = await resil.connect(server.url, name="tests")
        limiter = client.limiter("api", limit=1, period=60)
        assert await limiter.check("ann")
        denied = await limiter.check("ann")
        assert (bool(denied), denied.decided_by) == (False, "server")
        assert (await limiter.check("ann")).decided_by == "deny-cache"
        async with client.lock("stock") as held:
            assert held.fence
        bulkhead = client.shared_bulkhead("reports", 1)
        async with bulkhead:
            with pytest.raises(resil.BulkheadFullError):
                await bulkhead.try_enter()
        breaker = client.breaker("bank", consecutive_failures=1)
        with pytest.raises(ConnectionError):
            async with breaker:
                raise ConnectionError("down")
        with pytest.raises(resil.CircuitOpenError):
            await breaker.admit()
        payments, users = client.idempotent("payments"), client.cached("user")

        async def work(*_: Any) -> dict[str, str]:
            await asyncio.sleep(0.01)
            return {"ä": "ö"}

        outcomes = await asyncio.gather(*(payments.run("order", work) for _ in range(10)))
        assert sum(not outcome.replayed for outcome in outcomes) == 1
        assert await asyncio.gather(*(users.get("42", work) for _ in range(10))) == [{"ä": "ö"}] * 10
        assert '{"ä":"ö"}' in str(server.say("RES.SFLIGHT", "GET", "resil:cache:user:{42}"))
        report = await client.shutdown(2)
        assert report["cut_off"] == 0

    run(main())


def test_re_entry_versions_and_once_policies_work_on_servers(server: Any, run: Any) -> None:
    async def main() -> None:
        client, other = await resil.connect(server.url, name="one"), await resil.connect(server.url, name="other")
        async with client.lock("stock") as outer:
            async with client.lock("stock", wait=0) as inner:
                assert inner.fence == outer.fence
            with pytest.raises(resil.LockTimeoutError):
                await other.lock("stock").try_acquire()
        await (await other.lock("stock").try_acquire()).release()

        ours, theirs = client.versioned_cached("row", ttl=60), other.versioned_cached("row", ttl=60)

        def load(version: int) -> Any:
            async def loader(_: str) -> tuple[int, str]:
                await asyncio.sleep(0.01)
                return version, f"of {version}"

            return loader

        rows = await asyncio.gather(*(cache.get("7", load(1)) for cache in (ours, theirs) for _ in range(5)))
        assert rows == [(1, "of 1")] * 10
        assert await theirs.get("7", load(2), at_least=2) == (2, "of 2")
        assert await ours.get("7", load(3)) == (2, "of 2")

        bank = client.policy("bank", retry={"max_attempts": 2, "initial_backoff": 0.001}, on=ConnectionError)
        calls = 0

        async def pay() -> dict[str, str]:
            nonlocal calls
            calls += 1
            await asyncio.sleep(0.01)
            if calls == 1:
                raise ConnectionError("down")
            return {"ä": "ö"}

        payments = [one.idempotent("payments") for one in (client, other)]
        outcomes = await asyncio.gather(*(bank.call_once(payments[n % 2], "order", pay) for n in range(6)))
        assert [outcome.value for outcome in outcomes] == [{"ä": "ö"}] * 6
        assert sum(not outcome.replayed for outcome in outcomes) == 1 and calls == 2

    run(main())


def test_many_tasks_ask_over_one_connection(server: Any, run: Any) -> None:
    async def main() -> None:
        client = await resil.connect(server.url)
        limiter = client.limiter("api", limit=500, period=3600)
        granted = 0

        async def ask() -> None:
            nonlocal granted
            for _ in range(20):
                verdict = await limiter.check("all")
                granted += verdict.granted

        await asyncio.gather(*(ask() for _ in range(64)))
        assert granted == 500

    run(main())


def test_a_killed_server_that_returns_is_noticed_and_used(servers: Any, run: Any) -> None:
    server = servers.start()

    async def main() -> None:
        client = await resil.connect(server.url, command_timeout=0.3)
        limiter = client.limiter("api", limit=1_000_000, period=1)
        lock = client.lock("x", wait=0.2)
        seen: set[str] = set()
        errors: list[BaseException] = []
        is_over = False

        async def ask() -> None:
            while not is_over:
                try:
                    seen.add((await limiter.check("all")).decided_by)
                    async with lock:
                        pass
                except resil.ResilError as error:
                    assert error.code in {"BACKEND_UNAVAILABLE", "LOCK_TIMEOUT", "LOCK_LOST", "TIMEOUT"}, error
                except BaseException as error:
                    errors.append(error)
                    raise
                await asyncio.sleep(0.001)

        tasks = [asyncio.create_task(ask()) for _ in range(8)]
        await asyncio.sleep(0.2)
        server.kill()
        await until(lambda: "local" in seen)
        assert client.health()["overall"] == "unhealthy"
        server.restart()
        await until(lambda: client.health()["overall"] == "healthy")
        seen.clear()
        await until(lambda: "server" in seen)
        is_over = True
        await asyncio.gather(*tasks)
        assert not errors

    run(main())
    server.stop()


async def until(is_so: Any) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end, "it never came to that"
        await asyncio.sleep(0.01)


HOLDER = """
    import sys, time, resil
    client = resil.connect(sys.argv[1]).wait()
    with client.lock("stock", lease=60):
        print("holds", flush=True)
        time.sleep(60)
"""


def test_a_holder_that_is_killed_costs_the_others_moments(server: Any) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), server.url], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "holds\n"
        client = resil.connect(server.url).wait()
        with pytest.raises(resil.LockTimeoutError):
            client.lock("stock").try_acquire().wait()
        os.kill(holder.pid, signal.SIGKILL)
        began = time.monotonic()
        with client.lock("stock", wait=30):
            assert time.monotonic() - began < 10, "not after the whole lease"
    finally:
        holder.kill()
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()


def test_a_server_without_the_module_is_a_clear_error(servers: Any) -> None:
    server = servers.start(without_module=True)
    with pytest.raises(resil.ModuleMissingError):
        resil.connect(server.url).wait()
    server.stop()


def test_a_server_that_is_away_is_no_error_at_first() -> None:
    client = resil.connect("redis://127.0.0.1:1", command_timeout=0.2).wait()
    assert client.health()["overall"] == "unhealthy"
    assert client.limiter("api", limit=1, period=60).check("ann").wait().decided_by == "local"
    with pytest.raises(resil.BackendUnavailableError):
        client.lock("x").try_acquire().wait()
