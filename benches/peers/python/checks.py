"""Checks of a rate limit per second, by 64 tasks of one event loop, over a server.

Ours is `await limiter.check(key)`. Beside it: redis-py's asyncio client running the usual Lua GCRA (one number in a string,
TIME, GET, SET PX), and `limits`, whose fixed window is its cheapest strategy and whose moving window the one that is exact.
All ask for the same thousand users, and all are granted.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from typing import Awaitable, Callable

import limits
import limits.aio.storage
import limits.aio.strategies
import redis.asyncio

import resil
from turns import Bars, in_turns, percentile, progress, ratio, table

TASKS = 64
USERS = [f"user:{number:010}" for number in range(1_000)]
LIMIT, PERIOD_S = 1_000_000, 60
SLICE_S = 0.4

LUA_GCRA = """
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local emission, tolerance = tonumber(ARGV[1]), tonumber(ARGV[2])
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local allow_at = tat + emission - tolerance
if now < allow_at then
  return {0, math.ceil((allow_at - now) / 1000)}
end
local next_tat = tat + emission
redis.call('SET', KEYS[1], string.format('%.0f', next_tat), 'PX', math.ceil((next_tat - now) / 1000))
return {1, 0}
"""

Check = Callable[[str], Awaitable[object]]


def _lua(port: int, connection: type = redis.asyncio.Connection) -> Check:
    client = redis.asyncio.Redis(connection_pool=redis.asyncio.ConnectionPool(connection, port=port))
    script = client.register_script(LUA_GCRA)
    period_us = PERIOD_S * 1_000_000
    arguments = [period_us / LIMIT, period_us]

    async def check(user: str) -> None:
        granted, _ = await script(keys=[f"gcra:{user}"], args=arguments)
        assert granted == 1

    return check


def _limits(port: int, strategy: type) -> Check:
    storage = limits.aio.storage.RedisStorage(f"async+redis://127.0.0.1:{port}", implementation="redispy")
    limiter, rate = strategy(storage), limits.RateLimitItemPerMinute(LIMIT)

    async def check(user: str) -> None:
        assert await limiter.hit(rate, strategy.__name__, user)

    return check


async def _ours(port: int) -> Check:
    client = await resil.connect(f"redis://127.0.0.1:{port}")
    limiter = client.limiter("bench", limit=LIMIT, period=PERIOD_S)

    async def check(user: str) -> None:
        assert (await limiter.check(user)).is_granted

    return check


async def _load(check: Check, seconds: float, waits_s: list[float]) -> float:
    """Checks per second."""
    checks = 0

    async def task() -> None:
        nonlocal checks
        asked = time.perf_counter()
        while asked < end:
            await check(random.choice(USERS))
            now = time.perf_counter()
            waits_s.append(now - asked)
            asked = now
            checks += 1

    begun = time.perf_counter()
    end = begun + seconds
    await asyncio.gather(*(task() for _ in range(TASKS)))
    return checks / (time.perf_counter() - begun)


OURS = "resil, `limiter.check`"
LUA = "redis-py asyncio, Lua GCRA"
LUA_HIREDIS = "redis-py asyncio with hiredis, Lua GCRA"
FIXED = "`limits`, fixed window"
MOVING = "`limits`, moving window"


def measure(port: int, plain_port: int, rounds: int, bars: Bars) -> None:
    progress("checks of a rate limit")
    loop = asyncio.new_event_loop()
    checks: dict[str, Check] = {
        OURS: loop.run_until_complete(_ours(port)),
        LUA: _lua(plain_port, _without_hiredis()),
        LUA_HIREDIS: _lua(plain_port),
        FIXED: _limits(plain_port, limits.aio.strategies.FixedWindowRateLimiter),
        MOVING: _limits(plain_port, limits.aio.strategies.MovingWindowRateLimiter),
    }
    waits: dict[str, list[float]] = {name: [] for name in checks}

    def row(name: str) -> Callable[[], float]:
        return lambda: loop.run_until_complete(_load(checks[name], SLICE_S, waits[name]))

    for name in checks:
        row(name)()
        waits[name].clear()
    found = in_turns([(name, row(name)) for name in checks], rounds)
    rows = []
    for name in checks:
        p99_ms = percentile(waits[name], 0.99) * 1e3
        beside = 1.0 if name == OURS else ratio(found, OURS, name)
        rows.append([name, f"{statistics.median(found[name]):.0f}", f"{beside:.2f}", f"{p99_ms:.1f}"])
    print(f"#### Checks of a rate limit, {TASKS} tasks\n")
    table(["", "checks/s", "resil, times as many", "p99, ms"], rows)
    for name in (LUA, LUA_HIREDIS, FIXED, MOVING):
        bars.at_least(f"checks per second at least 3x {name}", ratio(found, OURS, name), 3.0)


def _without_hiredis() -> type:
    """A connection as redis-py has it where hiredis is not installed."""
    from redis._parsers import _AsyncRESP3Parser

    class Connection(redis.asyncio.Connection):
        def __init__(self, **options: object) -> None:
            super().__init__(**{**options, "parser_class": _AsyncRESP3Parser})

    return Connection
