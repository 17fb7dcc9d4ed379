"""What a policy of one process adds to a call that does nothing: nanoseconds, beside tenacity, stamina and pybreaker.

Loops of calls in turns. The fastest round is what a row costs when nobody disturbs it, and is what is judged; the median is
shown beside it.
Every policy is as its maker sets it up, but for waits: none is ever needed.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any, Awaitable, Callable

import pybreaker
import stamina
import tenacity

import resil
from turns import Bars, Row, in_turns, progress, table

#: Few, so that some rounds of every row, slow ones too, are not interrupted.
CALLS = 200


def noop() -> None:
    return None


async def noop_async() -> None:
    return None


def _sync(function: Callable[[], Any]) -> Callable[[], float]:
    turns = range(CALLS)

    def run() -> float:
        begun = time.perf_counter_ns()
        for _ in turns:
            function()
        return (time.perf_counter_ns() - begun) / CALLS

    return run


def _async(loop: asyncio.AbstractEventLoop, function: Callable[[], Awaitable[Any]]) -> Callable[[], float]:
    async def loop_of_calls() -> float:
        begun = time.perf_counter_ns()
        for _ in range(CALLS):
            await function()
        return (time.perf_counter_ns() - begun) / CALLS

    return lambda: loop.run_until_complete(loop_of_calls())


def _contest(title: str, rows: list[Row], rounds: int) -> dict[str, list[float]]:
    progress(title)
    for _, run in rows:
        run()
    found = in_turns(rows, rounds)
    alone = rows[0][0]
    print(f"#### {title}\n")
    shown = []
    for name, _ in rows:
        fastest, median = min(found[name]), statistics.median(found[name])
        shown.append([name, f"{fastest:.0f}", f"{fastest - min(found[alone]):.0f}", f"{median:.0f}"])
    table(["", "fastest, ns", "of these added, ns", "median, ns"], shown)
    return found


def _judge(bars: Bars, what: str, found: dict[str, list[float]], ours: str, peers: list[str]) -> None:
    """Beside the best peer, by what each adds to the call alone."""
    alone = next(iter(found))

    def added(name: str) -> float:
        return min(found[name]) - min(found[alone])

    best = min(peers, key=added)
    bars.at_most(f"{what}: at most what {best} adds", added(ours) / added(best), 1.0)


def measure(rounds: int, bars: Bars) -> None:
    loop = asyncio.new_event_loop()
    client = resil.connect("memory://").wait()
    _breakers(client, loop, rounds, bars)
    _retries(loop, rounds, bars)
    _whole(client, loop, rounds, bars)


def _breakers(client: resil.Client, loop: asyncio.AbstractEventLoop, rounds: int, bars: Bars) -> None:
    ours, theirs = client.breaker("bench"), pybreaker.CircuitBreaker(fail_max=5, reset_timeout=30)
    decorated, their_decorated = ours(noop), theirs(noop)

    def with_ours() -> None:
        with ours:
            pass

    def with_theirs() -> None:
        with theirs.calling():
            pass

    found = _contest(
        "A breaker, closed",
        [
            ("the call alone", _sync(noop)),
            ("**resil, decorated**", _sync(decorated)),
            ("resil, `call`", _sync(lambda: ours.call(noop))),
            ("resil, `with`", _sync(with_ours)),
            ("pybreaker, decorated", _sync(their_decorated)),
            ("pybreaker, `call`", _sync(lambda: theirs.call(noop))),
            ("pybreaker, `with calling()`", _sync(with_theirs)),
        ],
        rounds,
    )
    _judge(bars, "a breaker", found, "**resil, decorated**", ["pybreaker, decorated", "pybreaker, `call`"])
    decorated_async = ours(noop_async)

    async def with_ours_async() -> None:
        async with ours:
            pass

    # pybreaker's asynchronous calls need Tornado: its synchronous ones are the measure.
    asynchronous = _contest(
        "A breaker, closed, awaited",
        [
            ("the call alone", _async(loop, noop_async)),
            ("**resil, decorated**", _async(loop, decorated_async)),
            ("resil, `call`", _async(loop, lambda: ours.call(noop_async))),
            ("resil, `async with`", _async(loop, with_ours_async)),
            ("pybreaker, decorated, not awaited", _sync(their_decorated)),
        ],
        rounds,
    )
    _judge(bars, "a breaker, awaited", asynchronous, "**resil, decorated**", ["pybreaker, decorated, not awaited"])


def _retries(loop: asyncio.AbstractEventLoop, rounds: int, bars: Bars) -> None:
    ours = resil.Retry(on=OSError)
    tenacious = tenacity.retry(retry=tenacity.retry_if_exception_type(OSError), stop=tenacity.stop_after_attempt(3))
    resolute = stamina.retry(on=OSError)
    found = _contest(
        "Retry, the first attempt succeeds",
        [
            ("the call alone", _sync(noop)),
            ("**resil**", _sync(ours(noop))),
            ("tenacity", _sync(tenacious(noop))),
            ("stamina", _sync(resolute(noop))),
        ],
        rounds,
    )
    _judge(bars, "retry", found, "**resil**", ["tenacity", "stamina"])
    found = _contest(
        "Retry, the first attempt succeeds, awaited",
        [
            ("the call alone", _async(loop, noop_async)),
            ("**resil**", _async(loop, ours(noop_async))),
            ("tenacity", _async(loop, tenacious(noop_async))),
            ("stamina", _async(loop, resolute(noop_async))),
        ],
        rounds,
    )
    _judge(bars, "retry, awaited", found, "**resil**", ["tenacity", "stamina"])


def _whole(client: resil.Client, loop: asyncio.AbstractEventLoop, rounds: int, bars: Bars) -> None:
    parts: Any = {"retry": {"max_attempts": 3}, "breaker": {}, "bulkhead": {"max_concurrent_calls": 64}}
    policy = client.policy("bench-whole", parts, on=OSError)
    timed = client.policy("bench-timed", {**parts, "timeout": {"attempt": 5.0, "total": 10.0}}, on=OSError)
    breaker = pybreaker.CircuitBreaker(fail_max=5, reset_timeout=30)
    peers = stamina.retry(on=OSError)(breaker(noop))
    found = _contest(
        "A whole policy",
        [
            ("the call alone", _sync(noop)),
            ("**resil: retry, breaker, bulkhead**", _sync(policy(noop))),
            ("stamina around pybreaker (no bulkhead)", _sync(peers)),
        ],
        rounds,
    )
    _judge(bars, "a whole policy", found, "**resil: retry, breaker, bulkhead**", ["stamina around pybreaker (no bulkhead)"])

    async def waited_for() -> None:
        await asyncio.wait_for(noop_async(), 5.0)

    _contest(
        "A whole policy, awaited",
        [
            ("the call alone", _async(loop, noop_async)),
            ("**resil: retry, breaker, bulkhead**", _async(loop, policy(noop_async))),
            ("resil: the same, a timeout for the attempt and for the whole", _async(loop, timed(noop_async))),
            ("resil.Timeout alone", _async(loop, resil.Timeout(5.0)(noop_async))),
            ("asyncio.wait_for alone", _async(loop, waited_for)),
        ],
        rounds,
    )
