"""redis-py's Lock, and RES.LOCK from the same client.

Usage: lock_bench.py PORT WAY SECONDS CONTENDERS HOLD_MS. WAY is `peer` (Lock with its defaults), `eager` (Lock asking ten
times as often), `ours`, or `pairs`: both, uncontended, in turn. Prints one object in JSON: how often each contender was
served and every wait; for `pairs` the rate of each slice. A contender is a process with a connection of its own.
"""

import json
import multiprocessing
import sys
import time

import redis

SLICES = 20
LEASE_S = 10


def connect(port):
    return redis.Redis(port=port, socket_timeout=None)


def peer(connection, number, name="contended", **options):
    lock = connection.lock(f"redis-py-{name}", timeout=LEASE_S, **options)
    return lock.acquire, lock.release


def eager(connection, number):
    return peer(connection, number, "eager", sleep=0.01)


def ours(connection, number):
    key, owner = "python-contended", f"owner:{number:010}"

    def acquire():
        said = connection.execute_command("RES.LOCK", "ACQUIRE", key, owner, "10s", "WAIT", "60s")
        return said[0] == b"GRANTED"

    def release():
        assert connection.execute_command("RES.LOCK", "RELEASE", key, owner)[0] == b"RELEASED"

    return acquire, release


WAYS = {"peer": peer, "eager": eager, "ours": ours}


def contender(way, port, number, seconds, hold_s, barrier, results):
    connection = connect(port)
    connection.ping()
    acquire, release = WAYS[way](connection, number)
    served, waits_us = 0, []
    barrier.wait()
    end = time.perf_counter() + seconds
    while (asked := time.perf_counter()) < end:
        assert acquire()
        had = time.perf_counter()
        waits_us.append(round((had - asked) * 1e6))
        served += had < end
        time.sleep(hold_s)
        release()
    results.put((served, waits_us))


def contend(way, port, seconds, contenders, hold_s):
    processes = multiprocessing.get_context("fork")
    barrier, results = processes.Barrier(contenders), processes.Queue()
    for number in range(contenders):
        arguments = (way, port, number, seconds, hold_s, barrier, results)
        processes.Process(target=contender, args=arguments, daemon=True).start()
    found = [results.get(timeout=seconds + 60) for _ in range(contenders)]
    return {"served": [served for served, _ in found], "waits_us": [wait for _, waits in found for wait in waits]}


def rate(acquire, release, seconds):
    pairs, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        assert acquire()
        release()
        pairs += 1
    return pairs / elapsed


def pairs(port, seconds):
    connection = connect(port)
    ways = {name: WAYS[name](connection, 0) for name in ("peer", "ours")}
    for way in ways.values():
        rate(*way, 0.1)
    rates = {name: [] for name in ways}
    for _ in range(SLICES):
        for name, way in ways.items():
            rates[name].append(rate(*way, seconds / SLICES / 2))
    return rates


def main():
    port, way, seconds, contenders, hold_ms = sys.argv[1:6]
    if way == "pairs":
        found = pairs(int(port), float(seconds))
    else:
        found = contend(way, int(port), float(seconds), int(contenders), float(hold_ms) / 1_000)
    print(json.dumps(found))


main()
