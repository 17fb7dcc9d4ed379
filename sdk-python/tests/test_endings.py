"""What is dropped while an exception is on its way, and what runs while the interpreter ends: neither crashes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import pytest
import resil

LIMITER = 'import resil; l = resil.connect_sync("memory://").limiter("a", limit=9, period=1)'


def program(text: str, *, warns: str = "default", before: str = "") -> "subprocess.CompletedProcess[str]":
    """A program of its own, that has to end well: a crash takes no other test along."""
    return subprocess.run(
        [sys.executable, "-W", warns, "-X", "faulthandler", "-c", textwrap.dedent(before) + textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_reply_dropped_under_an_exception_leaves_it_alone() -> None:
    ran = program(f"""
        {LIMITER}
        for _ in range(100):
            try:
                [l.check("x"), 1 / 0]
            except ZeroDivisionError as error:
                assert error.__traceback__ is not None and error.__context__ is None
        def raises(reply):
            raise KeyError("mine")
        try:
            raises(l.check("x"))
        except KeyError as error:
            assert error.args == ("mine",)
            del error
        print("fine")
    """)
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr
    assert "was never awaited, nor waited for" in ran.stderr


def test_a_warning_that_is_an_error_leaves_the_exception_alone() -> None:
    ran = program(
        f"""
        {LIMITER}
        try:
            [l.check("x"), 1 / 0]
        except ZeroDivisionError:
            print("fine")
        """,
        warns="error",
    )
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr
    assert "was never awaited, nor waited for" in ran.stderr


def test_a_hook_for_warnings_that_raises_leaves_the_exception_alone() -> None:
    ran = program(f"""
        import warnings
        {LIMITER}
        def hook(*args, **kwargs):
            raise RuntimeError("of the hook")
        warnings.showwarning = hook
        try:
            [l.check("x"), 1 / 0]
        except ZeroDivisionError:
            print("fine")
    """)
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr
    assert "of the hook" in ran.stderr


@pytest.mark.parametrize("use", ["if l.check('x'): pass", "not l.check('x')", "assert l.check('x')"])
def test_a_forgotten_await_says_what_is_missing(use: str) -> None:
    ran = program(f"""
        {LIMITER}
        try:
            {use}
        except TypeError as error:
            print(error)
    """)
    assert (ran.returncode, ran.stdout) == (0, "limiter.check() has no reply yet: await it, or call .wait()\n"), ran.stderr


@pytest.mark.parametrize("use", ["l.check('x').wait()", "resil.connect_sync('memory://')", "l.by('x').__enter__()"])
def test_blocking_a_running_loop_says_what_to_do_instead(use: str) -> None:
    ran = program(f"""
        import asyncio
        {LIMITER}
        async def main():
            try:
                {use}
            except RuntimeError as error:
                print(error)
        asyncio.run(main())
    """)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("this would block the event loop that runs on this thread: "), ran.stdout


def test_a_reply_half_way_is_dropped_under_an_exception() -> None:
    """With a coroutine of the user's inside, that cleans up when it is let go."""
    ran = program("""
        import asyncio, resil
        client = resil.connect_sync("memory://")
        seen = []
        async def inside():
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                seen.append("cleaned")
        async def main():
            reply = client.lock("x").call(inside).__await__()
            next(reply)
            def raises(reply):
                raise KeyError("mine")
            try:
                held = [reply]
                del reply
                raises(held.pop())
            except KeyError as error:
                assert error.args == ("mine",), error.args
            print("fine")
        asyncio.run(main())
    """)
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr


def test_every_object_can_be_dropped_under_an_exception(client: resil.Client) -> None:
    """Whatever a client makes and holds: the exception that is on its way comes out as it is."""
    makers: list[Any] = [
        lambda: client.limiter("a", limit=9, period=1).check("x").wait(),
        lambda: client.breaker("b").admit().wait(),
        lambda: client.lock("c").acquire().wait(),
        lambda: client.shared_bulkhead("d", 9).enter().wait(),
        lambda: client.idempotent("e").run("k", lambda: 1),
        lambda: client.cached("f", ttl=1).lookup("k", lambda key: 1).wait(),
        lambda: resil.Bulkhead("g", max_concurrent_calls=9).acquire().wait(),
        lambda: iter(resil.Retry(on=KeyError)),
        lambda: next(iter(resil.Retry(on=KeyError))),
        lambda: resil.Dispatcher(2).stream(iter(range(9)), str),
        lambda: resil.connect("memory://").wait(),
    ]
    for make in makers:
        with pytest.raises(ZeroDivisionError) as caught:
            [make(), 1 // 0]  # noqa: B018
        assert caught.value.__context__ is None


SLOW_END = """
    import sys, threading, time
    class Slow:
        # The interpreter is ending while this runs, and other threads ask for the GIL.
        def __del__(self, sleep=time.sleep):
            sleep(0.5)
    slow = Slow()
    sys.modules["kept until the end"] = slow
"""


@pytest.mark.parametrize(
    "work",
    [
        "threading.Thread(target=resil.Retry(on=KeyError)(time.sleep), args=(0.2,), daemon=True).start()",
        "threading.Thread(target=resil.Timeout(9)(time.sleep), args=(0.2,), daemon=True).start()",
        "threading.Thread(target=client.lock('x')(time.sleep), args=(0.2,), daemon=True).start()",
        "threading.Thread(target=client.idempotent('x').run, args=('k', time.sleep, 0.2), daemon=True).start()",
        "threading.Thread(target=client.cached('x', ttl=1).by('k')(time.sleep), args=(0.2,), daemon=True).start()",
        "threading.Thread(target=asyncio.run, args=(client.lock('x')(blocks)(),), daemon=True).start()",
        "threading.Thread(target=lambda: list(resil.Dispatcher(2).run([0.2], time.sleep)), daemon=True).start()",
        "threading.Thread(target=lambda: lock.acquire(wait=9).wait(), daemon=True).start()",
    ],
)
def test_a_program_ends_while_daemon_threads_are_inside(work: str) -> None:
    ran = program(f"""
        import asyncio, resil
        client = resil.connect_sync("memory://")
        lock = client.lock("held")
        guard = lock.acquire().wait()
        async def blocks():
            time.sleep(0.2)
        {work}
        time.sleep(0.1)
        print("ends")
    """, before=SLOW_END)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "ends\n", "")


def test_an_abandoned_plain_function_does_not_crash_the_end() -> None:
    ran = program("""
        import resil
        try:
            resil.Timeout(0.05)(time.sleep)(0.2)
        except TimeoutError:
            print("ends")
    """, before=SLOW_END)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "ends\n", "")


def test_a_reply_kept_to_the_end_is_no_crash() -> None:
    ran = program(f"""
        {LIMITER}
        import sys
        class Kept:
            pass
        kept = Kept()
        kept.itself, kept.reply = kept, l.check("x")
        sys.modules["kept until the end"] = kept
        print("ends")
    """)
    assert (ran.returncode, ran.stdout) == (0, "ends\n"), ran.stderr


# ---- used while the interpreter ends ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async def", "def"])
def test_an_interpreter_that_ends_amid_a_load_is_silent(kind: str) -> None:
    sleep = "await asyncio.sleep(0.3)" if kind == "async def" else "time.sleep(0.3)"
    for _ in range(3):
        ran = program(f"""
            import asyncio, resil, time
            client = resil.connect_sync("memory://")
            {kind} load(key):
                {sleep}
                return 1
            async def main():
                loading = asyncio.ensure_future(client.cached("price").get("tea", load))
                await asyncio.sleep(0.05)
            asyncio.run(main())
        """)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_client_used_in_a_late_destructor_never_panics() -> None:
    ran = program("""
        import os, resil
        class Used:
            def __init__(self, use):
                self.use = use
            def __del__(self, write=os.write, repr=repr):
                try:
                    self.use()
                except Exception as error:
                    write(1, b"an exception\\n")
                except BaseException as error:
                    write(1, repr(error).encode())
                else:
                    write(1, b"done\\n")
        client = resil.connect_sync("memory://")
        limiter, lock, payments = client.limiter("a", limit=9, period=1), client.lock("b"), client.idempotent("c")
        uses = [
            lambda r=resil: r.Timeout(1), lambda r=resil: r.connect("memory://").wait(), lambda c=client: c.shutdown(1).wait(),
            lambda l=limiter: l.check("x").wait(), lambda l=lock: l.acquire().wait().release().wait(),
            lambda p=payments: p.run("k", len, "abc"), lambda r=resil: r.Retry(on=ValueError).call(len, "a"),
            lambda c=client: c.cached("c").get("k", len).wait(), lambda c=client: c.policy("p", timeout={"total": 1}),
            lambda r=resil: r.Dispatcher(2).run([1], str), lambda c=client: c.health(),
        ]
        kept = [Used(use) for use in uses]
    """)
    assert ran.returncode == 0 and ran.stderr == "", ran.stderr
    assert set(ran.stdout.splitlines()) <= {"done", "an exception"} and len(ran.stdout.splitlines()) == 11, ran.stdout
