"""Forks, exits and leaks: what the package does to the process it is in."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest
import resil


def in_a_process(program: str, *arguments: str) -> str:
    """What a program of its own prints; it has to end well."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == "", ran.stderr
    return ran.stdout


def test_importing_starts_no_thread() -> None:
    program = """
        import threading, os
        import resil
        print(threading.active_count(), len(os.listdir("/proc/self/task")))
    """
    if not os.path.isdir("/proc/self/task"):
        pytest.skip("no /proc here")
    assert in_a_process(program) == "1 1\n"


def test_a_process_ends_while_things_are_held_and_awaited() -> None:
    program = """
        import asyncio, resil
        async def main():
            client = await resil.connect("memory://x")
            guard = await client.lock("x").acquire()
            task = asyncio.create_task(client.lock("x").acquire(30))
            await asyncio.sleep(0.05)
            print("ends")
        asyncio.run(main())
    """
    assert in_a_process(program) == "ends\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_learns_that_its_client_connected_before_the_fork() -> None:
    program = """
        import asyncio, os, resil, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        client = resil.connect("memory://").wait()
        limiter, breaker, lock = client.limiter("a", limit=1, period=1), client.breaker("b"), client.lock("c")
        retry = resil.Retry(on=ConnectionError, initial_backoff=0.001)
        child = os.fork()
        if child == 0:
            try:
                for use in (lambda: client.lock("x"), lambda: limiter.check("k"), lambda: breaker.call(print),
                            lambda: lock.acquire(), lambda: lock.call(print), lambda: client.health()):
                    try:
                        use()
                    except RuntimeError as error:
                        assert "connected before the process forked" in str(error), error
                    else:
                        raise AssertionError("not refused")
                calls = []
                def flaky():
                    calls.append(1)
                    if len(calls) < 3:
                        raise ConnectionError
                    return len(calls)
                assert retry.call(flaky) == 3, "what needs no client goes on"
                again = resil.connect("memory://").wait()
                async def main():
                    async with again.lock("x", wait=1):
                        await asyncio.sleep(0.01)
                asyncio.run(main())
                os._exit(0)
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert limiter.check("k").wait(), "the parent goes on as before"
        print("well")
    """
    assert in_a_process(program) == "well\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("where", ["memory", "server"])
def test_a_child_holds_nothing_inherited_and_says_so(
    where: str, request: pytest.FixtureRequest
) -> None:
    url = "memory://" if where == "memory" else str(request.getfixturevalue("server").url)
    program = """
        import asyncio, gc, os, resil, sys, time, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        client = resil.connect(sys.argv[1]).wait()
        lock, breaker = client.lock("stock"), client.breaker("bank")
        held, place = lock.acquire().wait(), client.shared_bulkhead("reports", 2).enter().wait()
        lost, permit = held.lost, breaker.admit().wait()
        pending, awaited = client.limiter("api", limit=1, period=1).check("k"), client.limiter("api", limit=1, period=1).check("k")
        forgotten, forgotten_lock = client.lock("c").acquire(), client.lock("d").acquire().wait()
        reported = []
        def work(run):
            reported.append(run)
            if os.fork() == 0:
                return "the child returns into the call of its parent"
            assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
            return "done"

        def refused(use):
            since = time.monotonic()
            try:
                use()
            except RuntimeError as error:
                assert "connected before the process forked" in str(error), error
                assert time.monotonic() - since < 0.5, "at once"
            else:
                raise AssertionError(f"not refused: {use.__code__.co_firstlineno}")

        def in_child(check):
            child = os.fork()
            if child == 0:
                try:
                    check()
                    os._exit(0)
                except BaseException:
                    import traceback
                    traceback.print_exc()
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

        def look():
            global forgotten, forgotten_lock
            for guard in (held, place):
                assert guard.is_held is False and guard.remaining == 0 and guard.lost.is_set()
                assert guard.lost.wait(30) is True
                refused(guard.ensure)
            assert lost.is_set() and "not set" not in repr(lost)
            refused(lambda: held.release().wait())
            refused(lambda: held.check().wait())
            refused(lambda: held.extend(1).wait())
            refused(lambda: place.leave().wait())
            for report in (permit.success, permit.failure, permit.ignore, permit.cancel):
                refused(lambda: report().wait())
            refused(lambda: breaker.on_transition(print))
            refused(lambda: pending.wait())
            async def main():
                await lost
                await awaited
            refused(lambda: asyncio.run(main()))
            # Dropped, they release nothing, wait for nothing and complain of nothing.
            del forgotten, forgotten_lock
            gc.collect()

        in_child(look)
        with client.lock("e") as inside:
            def leave():
                assert not inside.is_held
                refused(lambda: client.lock("e"))
            in_child(leave)
        block = client.lock("f")
        entered = block.__enter__()
        in_child(lambda: refused(lambda: block.__exit__(None, None, None)))
        breaker.__enter__()
        in_child(lambda: refused(lambda: breaker.__exit__(None, None, None)))
        assert entered.is_held and entered.check().wait()
        block.__exit__(None, None, None)
        breaker.__exit__(None, None, None)

        before = os.getpid()
        try:
            value = client.idempotent("orders").run("k", work, with_run=True).value
        except RuntimeError as error:
            well = os.getpid() != before and "connected before the process forked" in str(error) and reported[0].lost.is_set()
            os._exit(0 if well else 1)
        if os.getpid() != before:
            # The state of a fork is a copy of its own, in memory.
            os._exit(0 if sys.argv[1] == "memory://" else 1)
        assert value == "done"

        assert held.is_held and held.check().wait() and not lost.is_set(), "the parent goes on as before"
        held.ensure()
        assert forgotten_lock.check().wait()
        assert pending.wait() and permit.success().wait() is None
        assert held.release().wait() > 0 and place.leave().wait() > 0
        awaited.close(), forgotten.close()
        client.shutdown(5).wait()
        print("well")
    """
    assert in_a_process(program, url) == "well\n"


def test_a_sub_interpreter_is_refused_and_the_main_one_continues() -> None:
    program = r"""
        import os, sys, warnings
        warnings.simplefilter("ignore")
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        reading, writing = os.pipe()
        code = (
            f"import os, sys; sys.path[:0] = {sys.path!r}\n"
            f"try: import resil; said = 'not refused'\n"
            f"except ImportError as error: said = str(error)\n"
            f"os.write({writing}, said.encode())\n"
        )
        for _ in range(2):
            one = interpreters.create()
            interpreters.run_string(one, code)
            interpreters.destroy(one)
            print("sub-interpreter" in os.read(reading, 1000).decode())
            import resil
            print(resil.connect("memory://").wait().health()["overall"])
    """
    assert in_a_process(program) == "True\nhealthy\nTrue\nhealthy\n"


def test_a_fork_right_after_the_import_changes_nothing() -> None:
    program = """
        import multiprocessing, resil
        def work(_):
            client = resil.connect("memory://").wait()
            with client.lock("x") as held:
                return held.is_held
        if __name__ == "__main__":
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print(pool.map(work, range(4)))
    """
    assert in_a_process(program) == "[True, True, True, True]\n"


def resident_kb() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


async def all_of_it(client: resil.Client, times: int) -> None:
    """Every kind of call, so many times; each also fails, is refused or is cancelled."""
    limiter = client.limiter("leak", limit=1_000_000, period=1)
    breaker = client.breaker("leak", consecutive_failures=0, failure_rate=100, min_calls=1_000)
    retry = resil.Retry(on=ConnectionError, max_attempts=2, initial_backoff=1e-6, max_backoff=1e-6, budget=None)
    timeout = resil.Timeout(30)
    fallback = resil.Fallback(b"instead")
    payload = "x" * 1_000

    async def ok() -> str:
        await asyncio.sleep(0)
        return payload * 2

    async def fails() -> str:
        raise KeyError(payload * 2)

    def ok_at_once() -> str:
        return payload * 2

    guarded = fallback(retry(timeout(breaker(ok))))
    failing = fallback(retry(breaker(fails)))
    for number in range(times):
        await guarded()
        await failing()
        await limiter.check(f"key:{number % 50}")
        fallback.call(ok_at_once)
        async with breaker:
            pass
        if number % 20 == 0:
            async with client.lock("leak"):
                pass
            task = asyncio.ensure_future(guarded())
            await asyncio.sleep(0)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc here")
def test_nothing_leaks_over_a_hundred_thousand_calls(client: resil.Client) -> None:
    asyncio.run(all_of_it(client, 4_000))
    gc.collect()
    before = resident_kb()
    asyncio.run(all_of_it(client, 20_000))
    gc.collect()
    grown = resident_kb() - before
    print(f"over 100,000 calls: {grown} kB on top of {before}")
    # One kilobyte leaked in one of the five calls of a round would be 20,000 kB.
    assert grown < 6_000, f"{grown} kB more than the {before} of before"


def test_a_finished_call_keeps_nothing_alive(client: resil.Client) -> None:
    import weakref

    class Thing:
        pass

    breaker = client.breaker("bank")
    thing = Thing()
    alive = weakref.ref(thing)

    async def main() -> None:
        async def use(what: Any) -> Any:
            await asyncio.sleep(0)
            return what

        assert await breaker.call(use, alive()) is alive()
    asyncio.run(main())
    breaker.call(lambda what: what, alive())
    del thing
    gc.collect()
    assert alive() is None
