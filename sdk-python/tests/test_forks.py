"""Forks after the parent connected: a child neither uses nor touches what is its parent's, and is never like its siblings."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

#: What the programs share: a parent that is connected and busy, and children that are watched.
BUSY = """
    import asyncio, gc, os, resil, signal, sys, threading, time, warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    url = sys.argv[1]
    client = resil.connect_sync(url, command_timeout=5)
    limiter, lock = client.limiter("api", limit=1_000_000, period=1), client.lock("held")
    held, is_over = lock.acquire().wait(), threading.Event()

    def keep_busy(number):
        mine = client.lock(f"busy-{number % 2}", wait=30)
        while not is_over.is_set():
            with mine:
                limiter.check("k").wait()
            client.idempotent("work").run(f"{number}-{time.monotonic()}", lambda: 1)

    async def keep_loop_busy():
        async def load(key):
            return 1
        while not is_over.is_set():
            async with client.lock("looped", wait=30):
                await client.cached("c").get(str(time.monotonic()), load)

    threads = [threading.Thread(target=keep_busy, args=(number,)) for number in range(3)]
    threads.append(threading.Thread(target=lambda: asyncio.run(keep_loop_busy())))

    def in_children(times, work):
        for thread in threads:
            thread.start()
        try:
            for number in range(times):
                child = os.fork()
                if child == 0:
                    signal.alarm(40)
                    work(number)
                    sys.exit(0)
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                assert status == 0, f"child {number} ended with {status}"
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
        assert held.is_held and held.check().wait() and limiter.check("k").wait()
        assert client.health()["overall"] == "healthy"
        print("well")
"""


def ran(program: str, *arguments: str) -> str:
    code = textwrap.dedent(BUSY) + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code, *arguments],
        capture_output=True, text=True, timeout=300, check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr + done.stdout
    return done.stdout


@pytest.fixture(params=["memory", "server"])
def url(request: pytest.FixtureRequest) -> str:
    return "memory://shop" if request.param == "memory" else str(request.getfixturevalue("server").url)


REFUSED = """
    def work(number):
        for use in (lambda: limiter.check("k").wait(), lambda: lock.acquire().wait(), lambda: client.lock("x"),
                    lambda: client.shutdown(1).wait(), lambda: held.release().wait(), lambda: client.health()):
            try:
                use()
            except RuntimeError as error:
                assert "connected before the process forked" in str(error), error
            else:
                raise AssertionError("not refused")
    in_children(20, work)
"""
DROPPED = """
    def work(number):
        global client, limiter, lock, held, threads
        client = limiter = lock = held = None
        threads = []
        gc.collect()
    in_children(20, work)
"""
EXITS = """
    in_children(20, lambda number: None)
"""
CONNECTS = """
    def work(number):
        mine = resil.connect_sync(url)
        with mine.lock(f"child-{number}") as guard:
            assert guard.is_held and mine.limiter("api", limit=1_000_000, period=1).check("k").wait()
        async def main():
            async with mine.lock("async"):
                await asyncio.sleep(0)
        asyncio.run(main())
        if number % 2:
            mine.shutdown(5).wait()
    in_children(20, work)
"""


@pytest.mark.parametrize("program", [REFUSED, DROPPED, EXITS, CONNECTS], ids=["used", "dropped", "left alone", "made anew"])
def test_a_busy_parents_child_never_hangs_and_the_parent_continues(program: str, url: str) -> None:
    assert ran(program, url) == "well\n"


def test_children_of_one_parent_are_never_the_same_owner(server: Any) -> None:
    program = """
        def child(number, writing, name):
            mine = resil.connect_sync(url, **name)
            try:
                guard = mine.lock("same", wait=0).acquire().wait()
                text = guard.owner
            except resil.LockTimeoutError:
                text = "refused"
            os.write(writing, (text + "\\n").encode())
            time.sleep(1)
            os._exit(0)

        def siblings(**name):
            reading, writing = os.pipe()
            children = []
            for number in range(4):
                pid = os.fork()
                if pid == 0:
                    child(number, writing, name)
                children.append(pid)
            for pid in children:
                os.waitpid(pid, 0)
            os.close(writing)
            with os.fdopen(reading) as reported:
                owners = reported.read().split()
            assert sorted(owners)[1:] == ["refused"] * 3 or owners.count("refused") == 3, owners
            time.sleep(4)  # what a killed process costs the others

        siblings()
        siblings(name="worker")
        print("well")
    """
    assert ran(program, server.url) == "well\n"


def test_processes_of_a_pool_are_asked_to_connect_again(url: str) -> None:
    program = """
        import multiprocessing
        def use(_):
            try:
                limiter.check("k").wait()
            except RuntimeError as error:
                return "connect again in the child" in str(error)
        def use_own(_):
            global own
            if "own" not in globals():
                own = resil.connect_sync(url)
            return own.limiter("api", limit=1_000_000, period=1).check("k").wait().granted
        for work, expected in ((use, True), (use_own, 1)):
            with multiprocessing.get_context("fork").Pool(3) as pool:
                assert pool.map(work, range(12)) == [expected] * 12
        assert held.check().wait()
        print("well")
    """
    assert ran(program, url) == "well\n"


def test_workers_of_a_forking_server_serve_and_are_replaced(server: Any) -> None:
    """As gunicorn does it: the application is loaded, then workers are forked, serve, end by a signal and are replaced."""
    program = """
        def serve(ready):
            mine = resil.connect_sync(url)
            ended = threading.Event()
            signal.signal(signal.SIGTERM, lambda *_: ended.set())
            os.write(ready, b"r")
            async def requests():
                payments = mine.idempotent("payments")
                async def pay():
                    return os.getpid()
                while not ended.is_set():
                    async with mine.lock("shared", wait=30):
                        await payments.run(f"{os.getpid()}-{time.monotonic()}", pay)
                await mine.shutdown(5)
            asyncio.run(requests())
            sys.exit(0)

        reading, ready = os.pipe()
        workers = []
        def start():
            pid = os.fork()
            if pid == 0:
                serve(ready)
            workers.append(pid)
            os.read(reading, 1)
        for _ in range(3):
            start()
        for _ in range(4):
            time.sleep(0.1)
            oldest = workers.pop(0)
            os.kill(oldest, signal.SIGTERM)
            assert os.waitstatus_to_exitcode(os.waitpid(oldest, 0)[1]) == 0
            start()
        for pid in workers:
            os.kill(pid, signal.SIGTERM)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert held.check().wait()
        print("well")
    """
    assert ran(program, server.url) == "well\n"


def test_the_parents_attempts_and_streams_are_refused_in_children() -> None:
    program = """
        attempts = iter(resil.Retry(on=ConnectionError, initial_backoff=60, max_backoff=60, jitter="none"))
        first = next(attempts)
        results = resil.Dispatcher(2).stream(iter(range(9)), str)
        assert next(results).unwrap() == "0"
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            assert first.__exit__(ConnectionError, ConnectionError("down"), None)
            for use in (lambda: next(attempts), lambda: next(results), results.close):
                try:
                    use()
                except RuntimeError as error:
                    assert "before the process forked" in str(error)
                else:
                    os._exit(1)
            del attempts, results, first
            gc.collect()
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [result.unwrap() for result in results] == [str(number) for number in range(1, 9)]
        print("well")
    """
    assert ran(program, "memory://") == "well\n"
