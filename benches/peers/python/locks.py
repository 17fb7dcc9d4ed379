"""How long one waits for a lock that 16 processes want, each holding it for a millisecond: resil beside the raw command and
redis-py's Lock.

Every contender is a process with a connection of its own. `Lock` has its defaults (it asks ten times a second); also shown is
one that was asked to ask ten times as often. The ways take turns, and the percentiles are of all waits together.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from typing import Any, Callable

from turns import Bars, percentile, progress, table

CONTENDERS = 16
HOLD_S = 0.001
LEASE_S = 10
BOUND_S = 120

OURS, RAW = "resil, `lock.acquire`", "RES.LOCK by redis-py"
PEER, EAGER = "redis-py Lock", "redis-py Lock, sleep=0.01"

Way = tuple[Callable[[], object], Callable[[], object]]


def _ours(port: int) -> Way:
    import resil

    lock = resil.connect_sync(f"redis://127.0.0.1:{port}").lock("bench", lease=LEASE_S, wait=60)
    held: list[Any] = []
    return lambda: held.append(lock.acquire().wait()), lambda: held.pop().release().wait()


def _raw(port: int) -> Way:
    import os

    import redis

    client, owner = redis.Redis(port=port), f"{os.getpid()}"
    acquire = ("RES.LOCK", "ACQUIRE", "raw", owner, f"{LEASE_S}s", "WAIT", "60s")
    return lambda: client.execute_command(*acquire), lambda: client.execute_command("RES.LOCK", "RELEASE", "raw", owner)


def _peer(port: int, **options: float) -> Way:
    import redis

    lock = redis.Redis(port=port).lock("bench", timeout=LEASE_S, **options)
    return lock.acquire, lock.release


WAYS: dict[str, Callable[[int], Way]] = {
    OURS: _ours,
    RAW: _raw,
    PEER: _peer,
    EAGER: lambda port: _peer(port, sleep=0.01),
}


def _contender(way: str, port: int, seconds: float, barrier: Any, results: Any) -> None:
    acquire, release = WAYS[way](port)
    acquire()
    release()
    waits_s: list[float] = []
    barrier.wait(BOUND_S)
    begun = time.perf_counter()
    end = begun + seconds
    while (asked := time.perf_counter()) < end:
        acquire()
        waits_s.append(time.perf_counter() - asked)
        time.sleep(HOLD_S)
        release()
    results.put((waits_s, time.perf_counter() - begun))


def _contend(way: str, port: int, seconds: float) -> tuple[list[float], float]:
    """All waits, and how often the lock changed hands per second."""
    processes = multiprocessing.get_context("spawn")
    barrier, results = processes.Barrier(CONTENDERS), processes.Queue()
    arguments = (way, port, seconds, barrier, results)
    started = [processes.Process(target=_contender, args=arguments, daemon=True) for _ in range(CONTENDERS)]
    for process in started:
        process.start()
    found = [results.get(timeout=BOUND_S) for _ in started]
    for process in started:
        process.join(BOUND_S)
    waits_s = [wait for waits, _ in found for wait in waits]
    return waits_s, len(waits_s) / max(took for _, took in found)


def measure(port: int, plain_port: int, seconds: float, rounds: int, bars: Bars) -> None:
    waits: dict[str, list[float]] = {way: [] for way in WAYS}
    p99s: dict[str, list[float]] = {way: [] for way in WAYS}
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(rounds):
        progress(f"locks, round {turn + 1} of {rounds}")
        for way in WAYS:
            waits_s, rate = _contend(way, port if way in (OURS, RAW) else plain_port, seconds)
            waits[way] += waits_s
            p99s[way].append(percentile(waits_s, 0.99))
            rates[way].append(rate)
    print(f"#### A lock that {CONTENDERS} processes want, each for {HOLD_S * 1e3:.0f} ms\n")
    shown = []
    for way in WAYS:
        ms = [f"{percentile(waits[way], part) * 1e3:.1f}" for part in (0.5, 0.99, 1.0)]
        shown.append([way, f"{statistics.median(rates[way]):.0f}", *ms])
    table(["", "holders/s", "wait p50, ms", "p99, ms", "longest, ms"], shown)
    beside = statistics.median(mine / its for mine, its in zip(p99s[OURS], p99s[RAW]))
    bars.at_most(f"p99 wait of {CONTENDERS} contenders at most 1.2x {RAW}", beside, 1.2)
    beside = statistics.median(mine / its for mine, its in zip(p99s[OURS], p99s[PEER]))
    bars.at_most(f"p99 wait of {CONTENDERS} contenders at most 0.1x {PEER}", beside, 0.1)
