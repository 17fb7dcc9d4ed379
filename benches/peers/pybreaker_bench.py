"""pybreaker on its Redis storage, and RES.BREAKER from the same client: calls per second, round trips per call.

Usage: pybreaker_bench.py PORT [SECONDS]. Prints a table in Markdown. The protected call does nothing, so what is
measured is the breaker. One connection, one thread. SECONDS are spent on each way;
the ways take turns in short slices, each is compared with the slice of its peer beside it, and the median counts: a
machine that is busy for a while slows both.

Commands are counted by the server (INFO commandstats). Without a pipeline each is a round trip.
"""

import statistics
import sys
import time

import pybreaker
import redis

SLICES = 30
KEY = "dependency"
DEAD_KEY = "dead-dependency"
BATCH = 100


def noop():
    return None


def commands_so_far(connection):
    # INFO and CONFIG are ours, HELLO and CLIENT are the client's greeting: none belongs to a call.
    stats = connection.info("commandstats")
    not_counted = ("cmdstat_info", "cmdstat_hello", "cmdstat_client", "cmdstat_config")
    return sum(stat["calls"] for name, stat in stats.items() if not name.startswith(not_counted))


def pybreaker_call(connection):
    storage = pybreaker.CircuitRedisStorage(pybreaker.STATE_CLOSED, connection, namespace="bench")
    breaker = pybreaker.CircuitBreaker(fail_max=5, reset_timeout=30, state_storage=storage)
    return lambda: breaker.call(noop)


def resil_call(connection):
    def call():
        admitted, _, permit, _, _ = connection.execute_command("RES.BREAKER", "ADMIT", KEY)
        assert admitted == 1
        noop()
        counted = connection.execute_command("RES.BREAKER", "REPORT", KEY, permit, "OK")
        assert counted[0] == 1

    return call


def resil_pipelined(connection):
    """Reports a call together with asking for the next one."""
    last = connection.execute_command("RES.BREAKER", "ADMIT", KEY)[2]

    def call():
        nonlocal last
        noop()
        pipeline = connection.pipeline(transaction=False)
        pipeline.execute_command("RES.BREAKER", "REPORT", KEY, last, "OK")
        pipeline.execute_command("RES.BREAKER", "ADMIT", KEY)
        counted, (admitted, _, permit, _, _) = pipeline.execute()
        assert counted[0] == 1 and admitted == 1
        last = permit

    return call


def resil_tally(connection):
    """Admits by itself while closed, and reports a batch at a time."""
    ok, batches = 0, 0

    def call():
        nonlocal ok, batches
        noop()
        ok += 1
        if ok == BATCH:
            batches += 1
            tally = ("TALLY", KEY, 0, "me", batches, "OK", ok, "FAIL", 0)
            counted = connection.execute_command("RES.BREAKER", *tally)
            assert counted[0] == 1 and counted[1] == b"closed"
            ok = 0

    return call


def pybreaker_open(connection):
    storage = pybreaker.CircuitRedisStorage(pybreaker.STATE_CLOSED, connection, namespace="bench-open")
    breaker = pybreaker.CircuitBreaker(fail_max=5, reset_timeout=3600, state_storage=storage)
    breaker.open()

    def call():
        try:
            breaker.call(noop)
        except pybreaker.CircuitBreakerError:
            return
        raise AssertionError("an open circuit let a call through")

    return call


def resil_open(connection):
    connection.execute_command("RES.BREAKER", "CONFIG", DEAD_KEY, "OPEN", "1h")
    connection.execute_command("RES.BREAKER", "TALLY", DEAD_KEY, 0, "me", 1, "OK", 0, "FAIL", 5, "RUN", 5)

    def call():
        assert connection.execute_command("RES.BREAKER", "ADMIT", DEAD_KEY)[0] == 0

    return call


def measure(call, seconds):
    """Calls, and calls per second."""
    calls, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        for _ in range(5):
            call()
        calls += 5
    return calls, calls / elapsed


def main():
    port = int(sys.argv[1])
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 3.0
    connection = redis.Redis(port=port)
    closed, opened = "pybreaker, CircuitRedisStorage", "open circuit: pybreaker"
    # Name, the call, commands sent in one round trip, and which it is compared with.
    ways = [
        (closed, pybreaker_call(connection), 1, closed),
        ("RES.BREAKER ADMIT, then REPORT", resil_call(connection), 1, closed),
        ("RES.BREAKER, REPORT sent with the next ADMIT", resil_pipelined(connection), 2, closed),
        (f"RES.BREAKER TALLY every {BATCH} calls, admitted locally", resil_tally(connection), 1, closed),
        (opened, pybreaker_open(connection), 1, opened),
        ("open circuit: RES.BREAKER ADMIT", resil_open(connection), 1, opened),
    ]
    rates = {way[0]: [] for way in ways}
    commands = {}
    for way in ways:
        measure(way[1], 0.1)
    for _ in range(SLICES):
        for name, call, _, _ in ways:
            before = commands_so_far(connection)
            calls, rate = measure(call, seconds / SLICES)
            commands[name] = (commands_so_far(connection) - before) / calls
            rates[name].append(rate)
    print("| | calls/s | x pybreaker | commands per call | round trips per call |")
    print("| --- | ---: | ---: | ---: | ---: |")
    medians = {name: statistics.median(found) for name, found in rates.items()}
    for name, _, in_one_trip, peer in ways:
        rate, sent = medians[name], commands[name]
        beside = statistics.median(mine / other for mine, other in zip(rates[name], rates[peer]))
        print(f"| {name} | {rate:.0f} | {beside:.2f} | {sent:.2f} | {sent / in_one_trip:.2f} |")


main()
