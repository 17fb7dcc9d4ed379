"""A shutdown waits for what is under way, within its grace: functions, and blocks of `with` and `async with`."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, Callable

import pytest
import resil

Make = Callable[[resil.Client], Any]

BLOCKS: dict[str, Make] = {
    "lock": lambda client: client.lock("stock"),
    "shared bulkhead": lambda client: client.shared_bulkhead("reports", 1),
    "breaker": lambda client: client.breaker("bank"),
    "limiter": lambda client: client.limiter("api", limit=9, period=1).by("ann"),
    "waiting limiter": lambda client: client.limiter("api", limit=9, period=1).by("ann", max_wait=1),
}
FUNCTIONS: dict[str, Make] = {
    **BLOCKS,
    "idempotent": lambda client: client.idempotent("payments").by("order"),
    "cached": lambda client: client.cached("prices").by("tea"),
    "policy": lambda client: client.policy("prices", rate_limit={"limit": 9, "period": 1}),
}


async def shut_down_while(client: resil.Client, body: Any, finished: list[str]) -> dict[str, Any]:
    """Begins a shutdown while the body runs; it has to end first."""
    running = asyncio.ensure_future(body)
    await asyncio.sleep(0.05)
    report = await client.shutdown(30)
    assert finished == ["body"], "the shutdown did not wait"
    await running
    return dict(report)


@pytest.mark.parametrize("make", BLOCKS.values(), ids=BLOCKS.keys())
@pytest.mark.parametrize("where", ["memory", "server"])
def test_a_shutdown_waits_for_the_body_of_a_block(make: Make, where: str, run: Any, request: pytest.FixtureRequest) -> None:
    url = "memory://" if where == "memory" else str(request.getfixturevalue("server").url)

    async def main() -> None:
        client, finished = await resil.connect(url), []  # type: ignore[var-annotated]

        async def body() -> None:
            async with make(client):
                await asyncio.sleep(0.2)
                # What a body asks for is part of it.
                await client.limiter("inside", limit=9, period=1).acquire("k")
                async with client.lock("inside"):
                    pass
                finished.append("body")

        report = await shut_down_while(client, body(), finished)
        assert (report["cut_off"], report["unreleased"]) == (0, [])
        assert report["drained"] >= 1
        with pytest.raises(resil.ShuttingDownError):
            async with make(client):
                pass

    run(main())


@pytest.mark.parametrize("make", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_a_shutdown_waits_for_a_function(make: Make, run: Any) -> None:
    async def main() -> None:
        client, finished = await resil.connect("memory://"), []  # type: ignore[var-annotated]

        async def work() -> int:
            await asyncio.sleep(0.2)
            finished.append("body")
            return 1

        async def body() -> None:
            await make(client)(work)()

        assert (await shut_down_while(client, body(), finished))["cut_off"] == 0

    run(main())


@pytest.mark.parametrize("make", BLOCKS.values(), ids=BLOCKS.keys())
def test_a_shutdown_waits_for_a_block_of_another_thread(make: Make, client: resil.Client) -> None:
    is_inside, finished = threading.Event(), []  # type: ignore[var-annotated]

    def body() -> None:
        with make(client):
            is_inside.set()
            time.sleep(0.2)
            client.limiter("inside", limit=9, period=1).acquire("k").wait()
            finished.append("body")

    thread = threading.Thread(target=body)
    thread.start()
    assert is_inside.wait(30)
    assert client.shutdown(30).wait()["cut_off"] == 0
    assert finished == ["body"]
    thread.join()


def test_a_body_that_outlasts_the_grace_loses_its_lock(run: Any) -> None:
    async def main() -> None:
        client = await resil.connect("memory://")

        async def body() -> None:
            async with client.lock("stock"):
                await asyncio.sleep(60)

        running = asyncio.ensure_future(body())
        await asyncio.sleep(0.05)
        report = await client.shutdown(0.1)
        assert (report["cut_off"], report["released"]) == (1, ["lock:stock"])
        with pytest.raises(resil.LockLostError):
            await asyncio.wait_for(running, 10)

    run(main())


def test_a_failed_or_cancelled_block_is_not_waited_for(run: Any) -> None:
    async def main() -> None:
        client = await resil.connect("memory://")

        async def fail() -> None:
            async with client.lock("a"), client.shared_bulkhead("b", 9), client.breaker("c"):
                raise KeyError

        async def sleep() -> None:
            async with client.lock("d"), client.shared_bulkhead("b", 9), client.breaker("c"):
                await asyncio.sleep(60)

        async def wait() -> None:
            async with client.lock("d", wait=60):
                pass

        with pytest.raises(KeyError):
            await fail()
        tasks = [asyncio.ensure_future(each) for each in (sleep(), wait())]
        await asyncio.sleep(0.05)
        for task in reversed(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        began = time.monotonic()
        report = await client.shutdown(30)
        assert (report["cut_off"], report["drained"]) == (0, 0) and time.monotonic() - began < 5

    run(main())
