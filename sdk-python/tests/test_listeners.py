"""Listeners of transitions are called in a thread of their own, which never keeps the program from ending."""

from __future__ import annotations

import logging
import queue
import socket
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any, Callable

import pytest
import resil


def fail(breaker: resil.Breaker) -> None:
    with pytest.raises(ConnectionError), breaker:
        raise ConnectionError("down")


def test_every_listener_is_notified_every_transition_in_order(client: resil.Client) -> None:
    breaker = client.breaker("bank", consecutive_failures=1, open_for=3600)
    reported: queue.Queue[tuple[int, str, str, str]] = queue.Queue()
    for number in (1, 2):
        breaker.on_transition(
            lambda previous, new, _, number=number: reported.put((number, previous, new, threading.current_thread().name))
        )
    fail(breaker)
    breaker.force("closed", reason="drill").wait()
    breaker.force("auto").wait()
    seen = [reported.get(timeout=60) for _ in range(4)]
    for number in (1, 2):
        assert [(previous, new) for teller, previous, new, _ in seen if teller == number][:1] == [("closed", "open")]
    assert {name for *_, name in seen} == {"resil-listeners"}


def test_a_listener_that_blocks_holds_up_nobody_who_calls(client: resil.Client, run: Any) -> None:
    proceed, called, returned = threading.Event(), threading.Event(), threading.Event()
    breaker = client.breaker("bank", consecutive_failures=1, open_for=3600)
    breaker.on_transition(lambda *_: (called.set(), proceed.wait(20), returned.set()))
    fail(breaker)
    assert called.wait(60)

    async def main() -> None:
        for _ in range(10):
            with pytest.raises(resil.CircuitOpenError):
                await breaker.admit()

    run(main())
    assert client.limiter("api", limit=1, period=1).check("k").wait()
    assert not returned.is_set()
    proceed.set()


def test_a_raising_listener_is_shown_and_others_are_notified(
    client: resil.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: queue.Queue[Any] = queue.Queue()
    monkeypatch.setattr(threading, "excepthook", shown.put)
    reported = threading.Event()
    breaker = client.breaker("bank", consecutive_failures=1, open_for=3600)

    def broken(*_: Any) -> None:
        raise KeyError("listener")

    breaker.on_transition(broken)
    breaker.on_transition(lambda *_: reported.set())
    fail(breaker)
    ignored = shown.get(timeout=60)
    assert (ignored.exc_type, ignored.thread.name) == (KeyError, "resil-listeners")
    assert reported.wait(60)


def test_a_raising_listener_silences_nobody_without_hooks() -> None:
    program = """
        import resil, sys, threading
        reported = threading.Semaphore(0)
        client = resil.connect("memory://").wait()
        broken, well = (client.breaker(name, consecutive_failures=1) for name in ("broken", "well"))
        broken.on_transition(lambda *_: 1 / 0)
        well.on_transition(lambda *_: reported.release())
        for breaker in (broken, well, broken, well):
            for state in ("open", "closed"):
                breaker.force(state, reason="drill").wait()
            breaker.force("auto").wait()
            try:
                breaker.call(lambda: 1 / 0)
            except (ZeroDivisionError, resil.CircuitOpenError):
                pass
        assert reported.acquire(timeout=60) and reported.acquire(timeout=60)
        assert any(thread.name == "resil-listeners" for thread in threading.enumerate())
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "ZeroDivisionError" in ran.stderr


ENDING = """
    import asyncio, atexit, resil, sys, threading, time
    # Registered first, so called last: threads of the runtime have time to get in the way of the end.
    atexit.register(time.sleep, 0.2)
    url, how = sys.argv[1:]
    client = resil.connect(url).wait()
    reported = threading.Event()
    def listener(*_):
        reported.set()
        if how == "in a listener":
            time.sleep(600)
    breakers = [client.breaker(f"bank-{n}", consecutive_failures=1, open_for="1ms", mode="exact") for n in range(20)]
    for breaker in breakers:
        breaker.on_transition(listener)
    async def fail():
        raise ConnectionError
    async def fly(breaker):
        while True:
            try:
                await breaker.call(fail)
            except (ConnectionError, resil.ResilError):
                await asyncio.sleep(0)
    async def main():
        flying = [asyncio.create_task(fly(breaker)) for breaker in breakers]
        while not reported.is_set():
            await asyncio.sleep(0.001)
        # What these have asked is seen through to its reply, by the runtime, while the program ends.
    asyncio.run(main())
    if how == "raising":
        raise SystemExit(0)
    print("ends")
"""


@pytest.mark.parametrize("how", ["at the end", "in a listener", "raising"])
def test_a_program_ends_while_transitions_fly(server: Any, how: str) -> None:
    for url in ("memory://", server.url):
        for _ in range(3):
            ran = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(ENDING), url, how],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert (ran.returncode, ran.stderr) == (0, ""), (url, ran)


# ---- what happens to connections ---------------------------------------------------------------------------------------------


def until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def test_an_unreachable_server_is_one_warning_without_a_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = free_port()
    with caplog.at_level(logging.INFO, "resil"):
        client = resil.connect(f"redis://ann:geheim@127.0.0.1:{port}").wait()
        # It is tried again about once a second.
        with pytest.raises(resil.BackendUnavailableError):
            client.wait_ready(2.5).wait()
        client.shutdown(1).wait()
    said = [record for record in caplog.records if record.name == "resil"]
    assert [record.levelname for record in said] == ["WARNING"]
    assert f"127.0.0.1:{port}" in said[0].getMessage() and "refused" in said[0].getMessage()
    assert "geheim" not in caplog.text
    assert said[0].threadName == "resil-listeners", "no thread of the runtime waits for the interpreter"


def test_a_servers_leaving_and_return_are_one_line_each(caplog: pytest.LogCaptureFixture, server: Any) -> None:
    with caplog.at_level(logging.INFO, "resil"):
        client = resil.connect(server.url).wait()
        assert not caplog.records, "nothing is said while all is well"
        server.kill()
        until(lambda: len(caplog.records) == 1)
        server.restart()
        client.wait_ready(30).wait()
        until(lambda: len(caplog.records) == 2)
        client.shutdown(1).wait()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "is away" in caplog.records[0].getMessage() and "is back" in caplog.records[1].getMessage()


def test_a_refused_command_is_not_an_absent_server(caplog: pytest.LogCaptureFixture, server: Any) -> None:
    with caplog.at_level(logging.INFO, "resil"):
        server.say("ACL", "SETUSER", "weak", "on", ">secret", "~*", "&*", "+@all", "-res.gcra")
        client = resil.connect(server.url.replace("redis://", "redis://weak:secret@")).wait()
        limiter = client.limiter("refused", limit=5, period=1, when_away="closed")
        with pytest.raises(resil.PermissionDeniedError):
            limiter.check("ann").wait()
        until(lambda: len(caplog.records) == 1)
        client.shutdown(1).wait()
    said = caplog.records[0].getMessage()
    assert "refuses a command" in said and "RES.GCRA" in said and "is away" not in said


def test_a_mistyped_host_is_reported_even_by_short_programs() -> None:
    program = """
        import resil, sys
        client = resil.connect_sync(sys.argv[1])
    """
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program), f"redis://ann:geheim@127.0.0.1:{free_port()}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "")
    assert len(ran.stderr.splitlines()) == 1, ran.stderr
    assert "is away" in ran.stderr and "geheim" not in ran.stderr
