"""Dead letters on a real server: killed under a loop and under a stream, a replica that is away, handlers that misbehave."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
import resil

#: Longer than anything here takes, on a machine that has much else to do.
BOUND = 40.0


async def ledger(server: Any, **settings: Any) -> tuple[resil.Client, resil.DeadLetters]:
    client = await resil.connect(server.url, command_timeout=1)
    letters = client.dead_letters("orders", actor="ada", wait=1, lease=2, grace=0.3, **settings)
    await letters.configure(jitter="none", crashes=100, transient={"base": 0.1, "cap": 0.1, "retries": 100})
    return client, letters


async def failed(letters: resil.DeadLetters, id: str) -> None:
    """Says it until somebody has heard it."""
    until = time.monotonic() + BOUND
    while True:
        try:
            await letters.fail(id, "timeout", payload=id.encode())
            return
        except (resil.BackendUnavailableError, resil.TimeoutError):
            assert time.monotonic() < until
            await asyncio.sleep(0.05)


async def until(what: Any) -> None:
    end = time.monotonic() + BOUND
    while not what():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.02)


async def all_done(letters: resil.DeadLetters, ids: list[str]) -> None:
    end = time.monotonic() + BOUND
    while (await letters.info())["entries"]:
        assert time.monotonic() < end, await letters.info()
        await asyncio.sleep(0.05)
    assert [await letters.standing(id) for id in ids] == ["done"] * len(ids)


def test_a_loop_and_a_stream_outlive_a_kill(servers: Any, run: Any) -> None:
    server = servers.start(config={"appendonly": "yes", "appendfsync": "always"})

    async def main() -> None:
        client, letters = await ledger(server, concurrency=4)
        seen: set[str] = set()

        async def handle(message: resil.TakenMessage) -> None:
            await asyncio.sleep(0.01)
            seen.add(message.id)

        async def stream() -> None:
            while True:
                try:
                    async for letter in letters.entries():
                        seen.add(letter.id)
                        await letter.done()
                    return
                except (resil.BackendUnavailableError, resil.TimeoutError, resil.LockLostError):
                    pass

        async def loop() -> Any:
            return await letters.run(handle)

        tasks = [asyncio.create_task(loop()), asyncio.create_task(stream())]
        ids = [str(number) for number in range(30)]
        for number, id in enumerate(ids):
            await failed(letters, id)
            if number % 10 == 9:
                await asyncio.to_thread(server.restart)
        await until(lambda: len(seen) == len(ids))
        await all_done(letters, ids)
        await client.shutdown(5)
        await asyncio.wait_for(asyncio.gather(*tasks), BOUND)

    run(main())
    server.stop()


def test_an_unsafe_failure_is_an_error_that_says_so(server: Any, run: Any) -> None:
    async def main() -> None:
        replica = await asyncio.to_thread(server.replica)
        client, letters = await ledger(server, replicas=1)
        assert (await letters.fail("1", "timeout"))["verdict"] == "retry"
        [letter] = await letters.take(wait=5)
        replica.pause()
        for _ in range(2):  # the second time the primary knows it
            with pytest.raises(resil.BackendUnavailableError, match="do not acknowledge"):
                await letters.fail("2", "timeout", payload=b"2")
        with pytest.raises(resil.BackendUnavailableError, match="do not acknowledge"):
            await letter.fail("again")
        replica.resume()
        await failed(letters, "2")
        assert replica.say("RES.DLQ", "GET", "resil:dlq:{orders}", "2", "STATE") == "waiting"
        await client.shutdown(5)
        replica.stop()

    run(main())


@pytest.mark.parametrize("error", [BaseException, GeneratorExit, ValueError, StopIteration])
def test_whatever_a_handler_raises_counts(server: Any, run: Any, error: type[BaseException]) -> None:
    async def main() -> None:
        client, letters = await ledger(server)
        await letters.configure(transient={"retries": 2})
        await letters.fail("1", "timeout")

        async def handle(message: resil.TakenMessage) -> None:
            raise error("x")

        async def loop() -> Any:
            return await letters.run(handle)

        task = asyncio.create_task(loop())
        end = time.monotonic() + BOUND
        while await letters.standing("1") != "dead":
            assert time.monotonic() < end, await letters.get("1")
            await asyncio.sleep(0.05)
        await client.shutdown(5)
        assert (await task)["failed"] == 2

    run(main())


def test_a_handler_that_dawdles_keeps_its_message(server: Any, run: Any) -> None:
    async def main() -> None:
        client, letters = await ledger(server)
        letters = client.dead_letters("orders", actor="ada", wait=0.5, lease=0.5, grace=0.3)
        await letters.fail("1", "timeout")
        runs = []

        async def handle(message: resil.TakenMessage) -> None:
            runs.append(message.fence)
            time.sleep(1.5)  # it keeps the loop's thread, too

        async def loop() -> Any:
            return await letters.run(handle)

        task = asyncio.create_task(loop())
        await until(lambda: runs)
        await all_done(letters, ["1"])
        await client.shutdown(5)
        assert (await task)["done"] == 1 and len(runs) == 1

    run(main())
