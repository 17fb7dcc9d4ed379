"""Plain functions where an event loop runs: refused before anything happens, because they would stop the loop."""

from __future__ import annotations

import asyncio
from typing import Any, Callable

import pytest
import resil

Use = Callable[[resil.Client, Callable[[], Any]], Any]


def retried(client: resil.Client, work: Callable[[], Any]) -> Any:
    for attempt in resil.Retry(on=ConnectionError):
        with attempt:
            return work()


USES: dict[str, Use] = {
    "lock.call": lambda client, work: client.lock("l").call(work),
    "lock decorator": lambda client, work: client.lock("l")(work)(),
    "shared_bulkhead.call": lambda client, work: client.shared_bulkhead("s", 1).call(work),
    "idempotent.run": lambda client, work: client.idempotent("i").run("k", work),
    "idempotent.by": lambda client, work: client.idempotent("i").by("k")(work)(),
    "limiter.by": lambda client, work: client.limiter("r", limit=1, period=1).by("k")(work)(),
    "limiter.by, waiting": lambda client, work: client.limiter("r", limit=1, period=1).by("k", max_wait=1)(work)(),
    "breaker.call": lambda client, work: client.breaker("b").call(work),
    "cached.by": lambda client, work: client.cached("c").by("k")(work)(),
    "retry": lambda client, work: resil.Retry(on=ConnectionError).call(work),
    "for attempt in retry": retried,
    "timeout": lambda client, work: resil.Timeout(1).call(work),
    "hedge": lambda client, work: resil.Hedge(hedging_delay=1, on=ConnectionError).call(work),
    "bulkhead": lambda client, work: resil.Bulkhead("b", max_concurrent_calls=1).call(work),
    "policy": lambda client, work: client.policy("p", timeout={"total": 1}).call(work),
    "policy.call_once": lambda client, work: client.policy("p", {}).call_once(client.idempotent("i"), "k", work),
    "dispatcher": lambda client, work: resil.Dispatcher(1).run([1], lambda item: work()),
    "a coroutine in a lambda": lambda client, work: client.idempotent("i").run("k", lambda: asyncio.sleep(work())),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_a_plain_function_in_a_running_loop_is_refused_first(use: Use, run: Any) -> None:
    done: list[int] = []

    def work() -> int:
        done.append(1)
        return 0

    async def main() -> None:
        client = await resil.connect("memory://")
        with pytest.raises(RuntimeError, match="would block the event loop that runs on this thread: .*(coroutine|async for)"):
            use(client, work)
        assert done == []
        # As the error says: in a thread it is as ever.
        if use is not USES["a coroutine in a lambda"]:
            await asyncio.to_thread(use, client, work)
            assert done == [1]
        assert (await client.idempotent("i").get("k"))["state"] in ("unknown", "done")

    run(main())


def test_awaiting_a_plain_run_never_works_and_then_fails(client: resil.Client, run: Any) -> None:
    done: list[int] = []

    async def main() -> None:
        with pytest.raises(RuntimeError, match="would block"):
            await client.idempotent("i").run("k", lambda: done.append(1))

    run(main())
    assert done == []


def test_a_fallback_never_waits_and_is_not_refused(run: Any) -> None:
    async def main() -> None:
        assert resil.Fallback("instead").call(lambda: 1 / 0) == "instead"

    run(main())


def test_a_loop_goes_on_while_anything_is_awaited(client: resil.Client, run: Any) -> None:
    """The coroutine forms of the same: the loop ticks meanwhile."""

    async def main() -> None:
        ticks: list[int] = []

        async def tick() -> None:
            while True:
                ticks.append(1)
                await asyncio.sleep(0.005)

        async def nap() -> None:
            await asyncio.sleep(0.05)

        ticking = asyncio.ensure_future(tick())
        held = await client.lock("l").acquire()
        asyncio.get_running_loop().call_later(0.1, lambda: asyncio.ensure_future(held.release()))
        await client.lock("l", wait=30).call(nap)
        await client.idempotent("i").run("k", nap)
        slow = client.limiter("r", limit=20, period=1, burst=1)
        for _ in range(3):
            await slow.by("k", max_wait=5)(nap)()
        ticking.cancel()
        assert len(ticks) > 20

    run(main())
