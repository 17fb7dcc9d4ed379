"""Dead letters: failed in one place, taken in another, settled by hand or by a loop."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import resil


def ledger(client: resil.Client, name: str = "orders") -> resil.DeadLetters:
    letters = client.dead_letters(name, actor="ada", concurrency=4, wait=0.5)
    letters.configure(jitter="none", transient={"base": 0.1, "cap": 0.1}).wait()
    return letters


def test_a_message_is_failed_taken_and_done(client: resil.Client) -> None:
    letters = ledger(client)
    verdict = letters.fail("shop/1", "timeout", payload=b"\x00\xff", kind="order", headers="h", schema=3).wait()
    assert verdict == {"verdict": "retry", "attempt": 1, "delay": 0.1}
    [letter] = letters.take(5, wait=5).wait()
    assert (letter.id, letter.payload, letter.headers, letter.kind) == ("shop/1", b"\x00\xff", b"h", "order")
    assert (letter.attempt, letter.lapses, letter.error, letter.failure_class) == (1, 0, "timeout", "transient")
    assert letter.fence > 0 and not letter.lost.is_set()
    letter.done().wait()
    assert letters.standing("shop/1").wait() == "done"
    with pytest.raises(RuntimeError, match="settled before"):
        letter.done()


def test_a_message_that_is_forgotten_goes_back(client: resil.Client) -> None:
    letters = ledger(client)
    letters.fail("1", ValueError("no such article")).wait()
    found = letters.take(wait=5).wait()
    assert found[0].error == "ValueError: no such article"
    del found
    [again] = letters.take(wait=5).wait()
    assert (again.attempt, again.lapses) == (1, 0)
    again.give_back(delay=60).wait()
    assert letters.take().wait() == []


def test_what_a_ledger_refuses_has_errors_of_its_own(client: resil.Client) -> None:
    letters = ledger(client)
    letters.fail("1", "e", payload=b"x").wait()
    assert letters.fail("1", "e", payload=b"x").wait() == {"verdict": "known", "state": "waiting", "attempt": 1}
    with pytest.raises(resil.LedgerConflictError) as conflict:
        letters.fail("1", "e", payload=b"y").wait()
    assert (conflict.value.code, conflict.value.resource) == ("LEDGER_CONFLICT", "orders")
    with pytest.raises(resil.PayloadTooBigError):
        letters.fail("2", "e", payload=bytes((16 << 20) + 1)).wait()
    with pytest.raises(resil.RedriveRefusedError) as refused:
        letters.redrive(7).wait()
    assert (refused.value.reason, refused.value.resource) == ("case", "orders")


def test_a_plain_handler_settles_by_what_it_does(client: resil.Client) -> None:
    letters = ledger(client)
    for number in range(4):
        letters.fail(str(number), "e", payload=str(number)).wait()
    seen = threading.Semaphore(0)

    def handle(message: resil.TakenMessage) -> None:
        seen.release()
        if message.id == "1":
            raise ValueError("bad")
        if message.id == "2":
            raise resil.CancelledError("later")

    def judge(error: Exception) -> Any:
        if isinstance(error, ValueError):
            return {"count": "final", "group": "values"}
        return None

    reports: list[Any] = []
    loop = threading.Thread(target=lambda: reports.append(letters.run(handle, judge=judge)))
    loop.start()
    for _ in range(4):
        assert seen.acquire(timeout=10)
    reader = ledger(client)
    for _ in range(500):
        if reader.standing("1").wait() == "dead" and reader.standing("0").wait() == "done":
            break
        time.sleep(0.01)
    view = reader.get("1").wait()
    assert view is not None and (view["state"], view["group"]) == ("dead", "values")
    client.shutdown(5).wait()
    loop.join(10)
    assert reports[0]["done"] == 2 and reports[0]["failed"] == 1 and reports[0]["given_back"] >= 1


def test_an_async_handler_and_async_for(client: resil.Client) -> None:
    async def main() -> None:
        letters = client.dead_letters("async", actor="ada", wait=0.5)
        await letters.configure(jitter="none", transient={"base": 0.1, "cap": 0.1})
        for number in range(3):
            await letters.fail(str(number), "e", payload=str(number))
        taken = []
        stream = letters.entries()
        async for letter in stream:
            taken.append(letter.payload)
            await letter.fail("again", after=0.2) if letter.id == "0" else await letter.done()
            if len(taken) == 3:
                break
        await stream.aclose()
        assert sorted(taken) == [b"0", b"1", b"2"]

        async def handle(message: resil.TakenMessage) -> None:
            await asyncio.sleep(0)
            assert message.attempt == 2
            asyncio.get_running_loop().create_task(stop())

        async def stop() -> None:
            await client.shutdown(5)

        report = await letters.run(handle)
        assert report == {"done": 1, "failed": 0, "given_back": 0, "unsettled": 0}

    asyncio.run(main())


def test_a_loop_that_is_cancelled_gives_back_what_it_holds(client: resil.Client) -> None:
    async def main() -> None:
        letters = client.dead_letters("cancelled", actor="ada", wait=0.5)
        await letters.configure(jitter="none", transient={"base": 0.1, "cap": 0.1})
        await letters.fail("1", "e", payload=b"x")
        begun = asyncio.Event()

        async def handle(message: resil.TakenMessage) -> None:
            begun.set()
            await asyncio.sleep(60)

        async def run() -> None:
            await letters.run(handle)

        task = asyncio.create_task(run())
        await asyncio.wait_for(begun.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        [again] = await letters.take(wait=10)
        assert (again.attempt, again.lapses) == (1, 0)
        await again.done()

    asyncio.run(main())


def test_what_died_is_diagnosed_redriven_and_resolved(client: resil.Client) -> None:
    letters = ledger(client)
    dead = letters.fail("1", "boom", payload=b"x", kind="t", count="final").wait()
    assert dead == {"verdict": "dead", "deaths": 1, "group": "t/boom", "reason": "final"}
    case = letters.diagnose([dead["group"]], "contract", "a renamed field", "both names are read").wait()
    assert letters.dry_run(case).wait()["sample"] == ["1"]
    redrive = letters.redrive(case, rate={"count": 100, "period": 60}).wait()
    assert (redrive.case, redrive.matched["matched"]) == (case, 1)
    [letter] = letters.take(wait=10).wait()
    assert (letter.case, letter.deaths) == (case, 1)
    letter.done().wait()
    progress = redrive.finished().wait()
    assert (progress["phase"], progress["resolved"]) == ("finished", 1)
    assert letters.close(case).wait() == 0
    found = letters.case(case).wait()
    assert found is not None and found["actor"] == "ada" and found["closed_at"] is not None
    assert [row["group"] for row in letters.groups().wait()] == ["t/boom"]
    assert letters.info().wait()["resolved"] == 1
    assert [row["id"] for row in letters.list_all(state="resolved", limit=1)] == ["1"]
    assert letters.list(state="dead").wait() == {"letters": [], "cursor": None}
    assert any(row["action"].startswith("redrive") for row in letters.audit().wait())
    assert letters.by("bob").hold("1", "audit").wait() == 1
    assert letters.release("1").wait() == 1
    assert letters.config().wait()["business"]["retries"] == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda letters: letters.fail(7, "e"),
        lambda letters: letters.fail("1", 7),
        lambda letters: letters.fail("1", "e", payload=7),
        lambda letters: letters.fail("1", "e", whatever=1),
        lambda letters: letters.fail("1", "e", failure_class="odd"),
        lambda letters: letters.fail("", "e").wait(),
        lambda letters: letters.take("many"),
        lambda letters: letters.take(0).wait(),
        lambda letters: letters.take(1, wait=-1),
        lambda letters: letters.run(7),
        lambda letters: letters.run(print, judge=7),
        lambda letters: letters.list(state="gone"),
        lambda letters: letters.redrive("x"),
        lambda letters: letters.purge("1d").wait(),
        lambda letters: letters.diagnose("g", "weather", "c", "f"),
        lambda letters: letters.configure(jitter="some"),
    ],
)
def test_nonsense_is_refused_by_name(client: resil.Client, call: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        call(ledger(client))
