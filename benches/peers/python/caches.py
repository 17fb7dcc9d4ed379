"""A hit of a cache, beside what one would use instead: of the local tier beside cachetools' TTLCache with a lock, and over the network
beside a plain GET of redis-py, both with asyncio: 64 callers with a key each, and one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, Awaitable, Callable

import cachetools
import redis.asyncio

import resil
from turns import Bars, in_turns, progress, ratio, table

CALLERS = 64
CALLS = 2_000
KEYS = [f"user:{number}" for number in range(1_000)]
TTL_S = 3_600
TEXT = "x" * 100
SLICE_S = 0.4


def _never(key: str) -> str:
    raise AssertionError("it is cached")


def _nanos(loop: asyncio.AbstractEventLoop, get: Callable[[str], Awaitable[object]]) -> Callable[[], float]:
    async def hits() -> float:
        begun = time.process_time_ns()
        for turn in range(CALLS):
            await get(KEYS[turn % len(KEYS)])
        return (time.process_time_ns() - begun) / CALLS

    return lambda: loop.run_until_complete(hits())


def _local(loop: asyncio.AbstractEventLoop, rounds: int) -> None:
    client = resil.connect("memory://").wait()
    cache = client.cached("local", ttl=TTL_S, local_ttl=TTL_S, local_size=2 * len(KEYS))
    theirs: Any = cachetools.TTLCache(2 * len(KEYS), TTL_S)
    lock = threading.Lock()
    for key in KEYS:
        theirs[key] = TEXT
        assert cache.get(key, lambda key: TEXT).wait() == TEXT

    async def get(key: str) -> object:
        with lock:
            return theirs[key]

    rows = [
        ("cachetools.TTLCache with a lock, in a coroutine", _nanos(loop, get)),
        ("resil: `await get`", _nanos(loop, lambda key: cache.get(key, _never))),
    ]
    found = in_turns(rows, rounds)
    print("#### A local hit of a cache, awaited\n")
    peer = rows[0][0]
    shown = [[name, f"{min(found[name]):.0f}", f"{ratio(found, name, peer):.2f}"] for name, _ in rows]
    table(["", "fastest, ns of CPU", "times as much"], shown)


async def _rate(get: Callable[[str], Awaitable[object]], callers: int) -> float:
    count = 0

    async def caller(number: int) -> None:
        nonlocal count
        while time.perf_counter() < end:
            assert await get(str(number)) == TEXT
            count += 1

    begun = time.perf_counter()
    end = begun + SLICE_S
    await asyncio.gather(*(caller(number) for number in range(callers)))
    return count / (time.perf_counter() - begun)


def _network(loop: asyncio.AbstractEventLoop, port: int, plain_port: int, rounds: int, bars: Bars) -> None:
    client = resil.connect(f"redis://127.0.0.1:{port}").wait()
    cache = client.cached("bench", ttl=TTL_S)
    redis_py = redis.asyncio.Redis(port=plain_port, decode_responses=True)

    async def fill() -> None:
        for number in range(CALLERS):
            await cache.set(str(number), TEXT)
            await redis_py.set(str(number), TEXT)

    loop.run_until_complete(fill())
    ways: list[tuple[str, Callable[[], float]]] = []
    for callers in (CALLERS, 1):
        ours = lambda callers=callers: loop.run_until_complete(_rate(lambda key: cache.get(key, _never), callers))
        theirs = lambda callers=callers: loop.run_until_complete(_rate(redis_py.get, callers))
        ways += [(f"redis-py: GET, callers: {callers}", theirs), (f"resil: get, callers: {callers}", ours)]
    for _, run in ways:
        run()
    found = in_turns(ways, rounds)
    print("#### A hit of a cache over the network, beside a plain GET\n")
    shown = []
    for callers in (CALLERS, 1):
        mine, its = f"resil: get, callers: {callers}", f"redis-py: GET, callers: {callers}"
        times = ratio(found, mine, its)
        shown += [[name, f"{sorted(found[name])[rounds // 2]:.0f}", f"{times:.2f}" if name == mine else ""] for name in (its, mine)]
        bars.at_least(f"a hit over the network, callers: {callers}: at least 0.9x a GET of redis-py", times, 0.9)
    table(["", "hits/s", "times as many"], shown)
    loop.run_until_complete(redis_py.aclose())
    client.shutdown().wait()


def measure(port: int, plain_port: int, rounds: int, bars: Bars) -> None:
    progress("caches")
    loop = asyncio.new_event_loop()
    _local(loop, rounds * 3)
    _network(loop, port, plain_port, rounds, bars)
