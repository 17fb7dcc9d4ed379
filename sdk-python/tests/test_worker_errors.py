"""What a worker makes of exceptions that are not plain ones: groups, and those that end a thread."""

from __future__ import annotations

import asyncio
import builtins
import sys
from typing import Any

import pytest
import resil


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups of exceptions came with 3.11")
def test_a_task_group_is_judged_by_its_contents(run: Any) -> None:
    raised = {
        "unreadable": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"),
        "final": resil.WorkError("an order of nothing", "permanent"),
        "refused": ConnectionRefusedError(111, "no"),
        "unknown": KeyError("x"),
    }
    group: Any = vars(builtins).get("ExceptionGroup")

    async def handle(message: resil.WorkerMessage) -> None:
        # What asyncio.TaskGroup raises.
        raise group("unhandled", [group("inside", [raised[message.payload.decode()]])])

    async def main() -> None:
        async with await resil.connect("memory://") as client:
            ledger = client.dead_letters("orders")
            for id in raised:
                await ledger.fail(id, "before", payload=id.encode())
            worker = client.worker("orders", workers=1)

            async def judged() -> None:
                """What is given back keeps the error that it had, however often it is handled."""
                for id, error in raised.items():
                    while type(error).__name__ not in ((await ledger.get(id)) or {}).get("last_error", ""):
                        await asyncio.sleep(0.02)

            running = asyncio.ensure_future(worker.run(handle))
            await asyncio.wait_for(judged(), 60)
            worker.stop()
            report = await running
            assert report["dead"] == 2
            for id, state in (("unreadable", "dead"), ("final", "dead"), ("refused", "waiting"), ("unknown", "waiting")):
                letter = await ledger.get(id)
                assert letter is not None and letter["state"] == state, id

    run(main())


def test_a_handler_that_exits_is_a_failure_that_counts(client: resil.Client) -> None:
    client.dead_letters("orders").fail("order", "before", payload=b"x").wait()
    worker = client.worker("orders")
    attempts: list[int] = []

    def handle(message: resil.WorkerMessage) -> None:
        attempts.append(message.attempt)
        if len(attempts) == 1:
            sys.exit(3)
        worker.stop()

    report = worker.run(handle)
    assert (attempts, report["done"], report["retried"], report["given_back"]) == ([1, 2], 1, 1, 0)


def test_a_coroutine_that_exits_is_a_failure_that_counts(run: Any) -> None:
    async def main() -> None:
        async with await resil.connect("memory://") as client:
            await client.dead_letters("orders").fail("order", "before", payload=b"x")
            worker = client.worker("orders")
            attempts: list[int] = []
            judged: list[BaseException] = []

            async def handle(message: resil.WorkerMessage) -> None:
                attempts.append(message.attempt)
                if len(attempts) == 1:
                    sys.exit(3)
                worker.stop()

            def judge(error: BaseException) -> None:
                judged.append(error)

            report = await asyncio.wait_for(worker.run(handle, judge=judge), 60)
            assert (attempts, report["done"], report["retried"], report["given_back"]) == ([1, 2], 1, 1, 0)
            assert [type(error) for error in judged] == [SystemExit]

    run(main())
