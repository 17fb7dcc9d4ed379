"""Items that are still coming: a few at a time, in order or as they are done, and never more than were asked for."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import resil


async def counted(most: int) -> AsyncIterator[int]:
    for number in range(most):
        await asyncio.sleep(0)
        yield number


def test_results_are_in_order_of_items_or_completion(run: Any) -> None:
    async def main() -> None:
        few = resil.Dispatcher(3)
        for items in (lambda: range(3), lambda: counted(3)):
            passed = [asyncio.Event() for _ in range(4)]

            async def backwards(number: int) -> int:
                """The last is done first: each waits for the one behind it."""
                if number < 2:
                    await passed[number + 1].wait()
                return number

            async def backwards_by_itself(number: int) -> int:
                await backwards(number)
                # Longer than it takes that the one before was seen to be done.
                await asyncio.sleep(0.2 if number < 2 else 0)
                passed[number].set()
                return number

            ordered = [result.unwrap() async for result in few.stream(items(), backwards_by_itself)]
            assert ordered == [0, 1, 2]
            for event in passed:
                event.clear()
            pairs = await few.run_unordered(range(3), backwards_by_itself)
            assert [(number, result.unwrap()) for number, result in pairs] == [(2, 2), (1, 1), (0, 0)]
            for event in passed:
                event.clear()
            seen = []
            async for result in few.stream_unordered(items(), backwards):
                seen.append(result.unwrap())
                passed[seen[-1]].set()
            assert seen == [2, 1, 0]

    run(main())


def test_plain_functions_run_in_threads_for_either_loop(run: Any) -> None:
    both = threading.Barrier(2, timeout=60)

    def meet(number: int) -> tuple[int, str]:
        both.wait()
        return number, threading.current_thread().name

    assert [result.unwrap()[0] for result in resil.Dispatcher(2).stream(iter(range(6)), meet)] == list(range(6))

    async def main() -> None:
        here = threading.current_thread().name
        results = [result.unwrap() async for result in resil.Dispatcher(2).stream(counted(6), meet)]
        assert [number for number, _ in results] == list(range(6))
        assert here not in {name for _, name in results}

    run(main())
    pairs = resil.Dispatcher(2).run_unordered(range(6), meet)
    assert sorted(number for number, _ in pairs) == list(range(6))
    assert all(result.unwrap()[0] == number for number, result in pairs)


def test_nothing_is_taken_unless_a_worker_is_free_for_it(run: Any) -> None:
    taken: list[int] = []

    def endless() -> Iterator[int]:
        number = 0
        while True:
            taken.append(number)
            yield number
            number += 1

    async def main() -> None:
        async def pass_on(number: int) -> int:
            return number

        results = resil.Dispatcher(3).stream(endless(), pass_on)
        assert taken == [], "before somebody asks"
        async for result in results:
            assert len(taken) <= result.unwrap() + 3 + 1
            if result.unwrap() == 20:
                break

    run(main())


def test_at_most_so_many_run_at_once(run: Any) -> None:
    running, most = 0, 0

    async def main() -> None:
        all_run = asyncio.Event()

        async def work(_: int) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            if running == 4:
                all_run.set()
            await all_run.wait()
            await asyncio.sleep(0)
            running -= 1

        assert len([result async for result in resil.Dispatcher(4).stream_unordered(counted(100), work)]) == 100

    run(main())
    assert most == 4


def test_what_one_item_does_is_its_own_result(run: Any) -> None:
    async def picky(number: int) -> int:
        if number == 1:
            raise KeyError(number)
        return number

    async def main() -> None:
        results = [result async for result in resil.Dispatcher(2).stream(range(3), picky)]
        assert [result.value for result in results] == [0, None, 2]
        assert isinstance(results[1].error, KeyError) and results[1].was_begun
        with pytest.raises(KeyError):
            results[1].unwrap()
        stopped = resil.Dispatcher(1, on_error="stop")
        assert [result.is_ok async for result in stopped.stream(range(100), picky)] == [True, False]
        pairs = await stopped.run_unordered(range(4), picky)
        assert [(number, result.was_begun) for number, result in pairs] == [(0, True), (1, True), (2, False), (3, False)]

    run(main())


@pytest.mark.parametrize("kind", ["iterable", "async iterable"])
def test_a_sources_error_comes_after_its_results(run: Any, kind: str) -> None:
    def broken() -> Iterator[int]:
        yield 1
        yield 2
        raise ZeroDivisionError("the source")

    async def broken_later() -> AsyncIterator[int]:
        for number in (1, 2):
            yield number
        raise ZeroDivisionError("the source")

    async def main() -> None:
        seen = []
        source = broken() if kind == "iterable" else broken_later()
        results = resil.Dispatcher(1).stream(source, str)
        with pytest.raises(ZeroDivisionError, match="the source"):
            async for result in results:
                seen.append(result.unwrap())
        assert seen == ["1", "2"]
        assert [result async for result in results] == [], "it is over"

    run(main())


@pytest.mark.parametrize("way", ["close", "aclose", "forget", "cancel"])
def test_a_stream_that_is_left_cancels_what_is_running(run: Any, way: str) -> None:
    async def main() -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def slow(number: int) -> int:
            if number == 0:
                return number
            begun.set()
            try:
                await asyncio.sleep(600)
            finally:
                ended.set()
            return number

        results = resil.Dispatcher(2).stream(range(10), slow)
        assert (await results.__anext__()).unwrap() == 0
        if way == "cancel":

            async def loop() -> None:
                async for _ in results:
                    pass

            looping = asyncio.create_task(loop())
            await begun.wait()
            looping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looping
            assert not ended.is_set(), "the next caller continues"
            await results.aclose()
        else:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(anext_of(results), 0.05)
            await begun.wait()
            if way == "close":
                results.close()
            elif way == "aclose":
                await results.aclose()
            else:
                del results
                gc.collect()
        await asyncio.wait_for(ended.wait(), 30)
        if way != "forget":
            assert [result async for result in results] == []

    async def anext_of(results: Any) -> Any:
        return await results.__anext__()

    run(main())


def test_a_plain_loop_over_what_is_asynchronous_is_refused(run: Any) -> None:
    async def later(number: int) -> int:
        return number

    few = resil.Dispatcher(1)
    for results in (few.stream([1], later), few.stream(counted(1), str)):
        with pytest.raises(TypeError, match="use async for"):
            next(results)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="use async for"):
            next(few.stream([1], str))

    run(main())


def test_a_waiter_for_a_closed_streams_result_is_notified(run: Any) -> None:
    begun, proceed = threading.Event(), threading.Event()

    def slow(_: int) -> None:
        begun.set()
        proceed.wait(60)

    results = resil.Dispatcher(1).stream([1, 2], slow)
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.extend(results))
    thread.start()
    assert begun.wait(60)
    results.close()
    thread.join(60)
    proceed.set()
    assert not thread.is_alive() and seen == []

    async def main() -> None:
        ended = asyncio.Event()

        async def slow_later(_: int) -> None:
            try:
                await asyncio.sleep(600)
            finally:
                ended.set()

        results = resil.Dispatcher(1).stream([1, 2], slow_later)

        async def loop() -> list[Any]:
            return [result async for result in results]

        looping = asyncio.create_task(loop())
        await asyncio.sleep(0.01)
        results.close()
        assert await asyncio.wait_for(looping, 30) == []
        await asyncio.wait_for(ended.wait(), 30)

    run(main())
