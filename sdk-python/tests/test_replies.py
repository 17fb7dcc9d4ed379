"""How replies are driven: awaited, waited for, cancelled, forgotten."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import time
import traceback
import warnings
from typing import Any

import pytest
import resil
from resil.testing import Clock

SOON = 0.05


def test_one_reply_is_awaited_or_waited_for(client: resil.Client, run: Any) -> None:
    limiter = client.limiter("api", limit=2, period=60)
    assert limiter.check("ann").wait().is_granted

    async def main() -> bool:
        return (await limiter.check("ann")).is_granted

    assert run(main())
    assert not limiter.check("ann").wait()


def test_nothing_happens_before_a_reply_is_waited_for(client: resil.Client) -> None:
    limiter = client.limiter("api", limit=1, period=60)
    with pytest.warns(RuntimeWarning, match="limiter.check.. was never awaited, nor waited for"):
        limiter.check("ann")
    assert limiter.check("ann").wait()


def test_a_reply_has_no_truth_before_it_is_there(client: resil.Client) -> None:
    reply = client.limiter("api", limit=1, period=60).check("ann")
    with pytest.raises(TypeError, match="no reply yet"):
        bool(reply)
    reply.close()


def test_a_reply_is_given_once(client: resil.Client, run: Any) -> None:
    reply = client.limiter("api", limit=9, period=60).check("ann")
    reply.wait()
    with pytest.raises(RuntimeError, match="before"):
        reply.wait()

    async def main() -> None:
        with pytest.raises(RuntimeError, match="before"):
            await reply

    run(main())


def test_waiting_is_refused_where_it_would_block_the_loop(client: resil.Client, run: Any) -> None:
    async def main() -> None:
        reply = client.limiter("api", limit=1, period=60).check("ann")
        with pytest.raises(RuntimeError, match="block the event loop"):
            reply.wait()
        assert await reply
        with pytest.raises(RuntimeError, match="use async with"), client.lock("x"):
            raise AssertionError("never inside")

    run(main())


def test_a_reply_is_a_coroutine_to_gather_and_create_task(client: resil.Client, run: Any) -> None:
    limiter = client.limiter("api", limit=100, period=60)

    async def main() -> None:
        verdicts = await asyncio.gather(*(limiter.check(f"user:{n}") for n in range(100)))
        assert all(verdicts)
        assert await asyncio.create_task(limiter.check("one"))  # type: ignore[arg-type]
        assert await asyncio.wait_for(limiter.check("two"), 5)

    run(main())


def test_a_thread_that_waits_lets_the_others_run(client: resil.Client) -> None:
    held = client.lock("x").acquire().wait()
    counted = 0
    is_over = threading.Event()

    def wait_for_it() -> None:
        with pytest.raises(resil.LockTimeoutError):
            client.lock("x").acquire(0.3).wait()
        is_over.set()

    waiting = threading.Thread(target=wait_for_it)
    waiting.start()
    while not is_over.is_set():
        counted += 1
    waiting.join()
    held.release().wait()
    assert counted > 10_000, "this thread hardly ran"


def test_a_loop_goes_on_while_a_task_waits(client: resil.Client, run: Any) -> None:
    async def main() -> int:
        held = await client.lock("x").acquire()
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        ticking = asyncio.create_task(tick())
        with pytest.raises(resil.LockTimeoutError):
            await client.lock("x").acquire(0.3)
        ticking.cancel()
        await held.release()
        return ticks

    assert run(main()) > 10


def test_many_threads_share_one_client(client: resil.Client) -> None:
    limiter = client.limiter("api", limit=1_000, period=3600)
    granted: list[bool] = []

    def ask() -> None:
        for _ in range(200):
            granted.append(bool(limiter.check("all").wait()))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sum(granted), len(granted)) == (1_000, 1_600)


def test_loops_in_several_threads_share_one_client(client: resil.Client) -> None:
    order: list[int] = []

    async def main(number: int) -> None:
        for _ in range(20):
            async with client.lock("x"):
                order.append(number)
                await asyncio.sleep(0)

    threads = [threading.Thread(target=lambda n=n: asyncio.run(main(n))) for n in range(4)]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(order) == sorted(list(range(4)) * 20)


def test_the_coroutine_runs_in_the_task_that_awaits(client: resil.Client, run: Any) -> None:
    who = contextvars.ContextVar("who", default="nobody")
    breaker = client.breaker("bank")

    async def inside() -> tuple[str, bool]:
        before = asyncio.current_task() is outer
        seen = who.get()
        who.set("changed")
        await asyncio.sleep(0)
        return seen, before

    async def main() -> None:
        nonlocal outer
        outer = asyncio.current_task()
        who.set("ann")
        assert await breaker.call(inside) == ("ann", True)
        assert who.get() == "changed"

    outer: Any = None
    run(main())


def test_an_exception_comes_out_as_it_went_in(client: resil.Client, run: Any) -> None:
    breaker = client.breaker("bank")
    retry = resil.Retry(on=ConnectionError)
    error = KeyError("mine")

    def deep_inside() -> None:
        raise error

    async def deep_inside_async() -> None:
        raise error

    with pytest.raises(KeyError) as raised:
        breaker.call(retry(deep_inside))
    assert raised.value is error
    assert "deep_inside" in "".join(traceback.format_tb(error.__traceback__))

    async def main() -> None:
        with pytest.raises(KeyError) as raised:
            await breaker.call(retry(deep_inside_async))
        assert raised.value is error

    run(main())


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_caller_that_wants_out_is_counted_neither_way(client: resil.Client, kind: type[BaseException]) -> None:
    calls = 0
    breaker = client.breaker("bank", consecutive_failures=1)
    retry = resil.Retry(on=BaseException, max_attempts=5, initial_backoff=0.001)
    fallback = resil.Fallback("never")

    @fallback
    @retry
    @breaker
    def leave() -> None:
        nonlocal calls
        calls += 1
        raise kind("out")

    with pytest.raises(kind):
        leave()
    assert calls == 1
    assert breaker.call(lambda: "still closed") == "still closed"


def test_a_plain_function_that_returns_a_coroutine_is_notified(client: resil.Client) -> None:
    async def fetch() -> int:
        return 1

    with pytest.raises(TypeError, match="returned a coroutine"):
        client.breaker("bank").call(lambda: fetch())


def test_coroutine_functions_are_recognised_in_every_dress(client: resil.Client, run: Any) -> None:
    import functools

    breaker = client.breaker("bank")

    class Service:
        @breaker
        async def method(self, number: int) -> int:
            return number

        async def __call__(self, number: int) -> int:
            return number

    async def function(number: int) -> int:
        return number

    async def main() -> None:
        service = Service()
        assert await service.method(1) == 1
        assert await breaker.call(service, 2) == 2
        assert await breaker.call(functools.partial(function, 3)) == 3
        assert await breaker.call(service.method, 4) == 4

    run(main())
    import inspect

    assert inspect.iscoroutinefunction(Service.method)
    assert list(inspect.signature(Service.method).parameters) == ["self", "number"]


def test_a_plain_function_under_a_timeout_is_left_alone() -> None:
    let_go = threading.Event()
    ended = threading.Event()

    @resil.Timeout(SOON)
    def slow() -> None:
        let_go.wait(30)
        ended.set()

    began = time.monotonic()
    with pytest.raises(resil.TimeoutError):
        slow()
    assert time.monotonic() - began < 5
    assert not ended.is_set()
    let_go.set()
    assert ended.wait(10), "it runs to its end"


def test_a_driven_clock_needs_no_sleeping(run: Any) -> None:
    clock = Clock.driven()
    retry = resil.Retry(on=ConnectionError, clock=clock, initial_backoff=3600, max_backoff=3600, jitter="none")
    calls = 0

    @retry
    async def flaky() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ConnectionError("down")
        return "up"

    async def main() -> str:
        task = asyncio.create_task(flaky())
        while clock.next_wake is None:
            await asyncio.sleep(0)
        clock.advance(3600)
        return await task

    assert run(main()) == "up"


def test_a_loop_that_cannot_watch_sockets_is_woken(client: resil.Client) -> None:
    class Blind(asyncio.SelectorEventLoop):
        def add_reader(self, *_: Any) -> None:
            raise NotImplementedError

    async def main() -> str:
        held = await client.lock("x").acquire()
        waiting = asyncio.create_task(client.lock("x").acquire(5))  # type: ignore[arg-type]
        await asyncio.sleep(SOON)
        await held.release()
        guard: Any = await waiting
        await guard.release()
        return "woken"

    loop = Blind()
    try:
        assert loop.run_until_complete(asyncio.wait_for(main(), 20)) == "woken"
    finally:
        loop.close()


def test_an_interrupt_ends_a_wait(client: resil.Client) -> None:
    import os
    import signal

    held = client.lock("x").acquire().wait()
    # A test run in the background is started with interrupts ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            client.lock("x").acquire(30).wait()
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - began < 5
    held.release().wait()


def test_closing_a_loop_with_replies_under_way_is_quiet(client: resil.Client) -> None:
    held = client.lock("x").acquire().wait()

    async def main() -> None:
        asyncio.create_task(client.lock("x").acquire(30))  # type: ignore[arg-type]
        await asyncio.sleep(SOON)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
        gc.collect()
    held.release().wait()
    client.lock("x", wait=5).acquire().wait().release().wait()
