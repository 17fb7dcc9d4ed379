"""Older forms of messages, and messages that are dropped: workers on a ledger in memory."""

from __future__ import annotations

import logging
import time
from typing import Any, Callable

import pytest
import resil
from resil import telemetry

LEDGER = "orders"


def with_letters(*forms: Any) -> resil.Client:
    client = resil.connect("memory://").wait()
    for number, (kind, schema, payload) in enumerate(forms):
        said = {"payload": payload, "kind": kind, "schema": schema, "count": "not-counted"}
        client.dead_letters(LEDGER).fail(f"shop/{number}", "sent", **{k: v for k, v in said.items() if v is not None}).wait()
    return client


def until_handled(worker: resil.Worker, count: int, handle: Callable[[resil.WorkerMessage], None]) -> Any:
    seen = []

    def counting(message: resil.WorkerMessage) -> None:
        seen.append(message.id)
        if len(seen) == count:
            worker.stop()
        handle(message)

    return worker.run(counting)


def chain() -> resil.Upcasters:
    return resil.Upcasters().step("order", 1, lambda payload: payload + b"2").step("order", 2, lambda payload: payload.decode() + "3")


def test_older_messages_are_upgraded_and_never_written_back() -> None:
    client = with_letters(("order", 1, "a"), ("order", 2, "b"), ("order", 3, "c"), ("other", 1, "d"), (None, None, "e"))
    worker = client.worker(LEDGER, upcasters=chain(), workers=1)
    seen: dict[str, Any] = {}

    def handle(message: resil.WorkerMessage) -> None:
        seen[message.id] = (message.payload, message.schema)
        raise resil.WorkError("kept", "permanent")

    until_handled(worker, 5, handle)
    assert sorted(payload for payload, _ in seen.values()) == [b"a23", b"b3", b"c", b"d", b"e"]
    assert seen["shop/0"][1] == 1, "the version that it was sent in"
    letter = client.dead_letters(LEDGER).get("shop/0").wait()
    assert letter is not None
    assert letter["payload"] == b"a", "the ledger has what was sent"


@pytest.mark.parametrize(
    ("upcasters", "why"),
    [
        (resil.Upcasters().step("order", 1, bytes).step("order", 3, bytes), "no step for order from version 2"),
        (resil.Upcasters().step("order", 1, bytes).step("order", 1, bytes), "two steps for order from version 1"),
        (resil.Upcasters().step("order", 5, bytes), "cannot read shop/0 in the ledger"),
    ],
)
def test_chains_that_cannot_work_are_refused_at_the_start(upcasters: resil.Upcasters, why: str) -> None:
    client = with_letters(("order", 1, "a"))
    with pytest.raises(resil.InvalidPolicyError, match=why):
        client.worker(LEDGER, upcasters=upcasters).run(lambda message: None)


def test_steps_are_plain_functions_of_a_payload() -> None:
    async def later(payload: bytes) -> bytes:
        return payload

    for step in (("", 1, bytes), ("order", -1, bytes), ("order", True, bytes), ("order", 1, None), ("order", 1, later)):
        with pytest.raises(TypeError):
            resil.Upcasters().step(*step)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        with_letters().worker(LEDGER, upcasters=[("order", 1, bytes)])  # type: ignore[arg-type]


def test_an_upcaster_that_returns_something_else_makes_its_message_dead() -> None:
    client = with_letters(("order", 1, "a"), (None, None, "b"))
    upcasters = resil.Upcasters().step("order", 1, lambda payload: 7)  # type: ignore[arg-type, return-value]
    ledger = client.dead_letters(LEDGER)

    worker = client.worker(LEDGER, upcasters=upcasters, workers=2)

    def until_dead(message: resil.WorkerMessage) -> None:
        while ledger.info().wait()["dead"] < 1 and message.time_left > 240:
            time.sleep(0.01)
        # Not before: a worker that stops gives back what it has not begun.
        worker.stop()

    report = worker.run(until_dead)
    assert report["done"] == 1
    info = ledger.get("shop/0").wait()
    assert info is not None
    assert "neither bytes nor str" in (info["last_error"] or "")


def test_a_dropped_message_is_counted_logged_and_notified_of(caplog: pytest.LogCaptureFixture) -> None:
    client = with_letters((None, None, "old"))
    worker, reported = client.worker(LEDGER), []
    switch = telemetry.hooks(on_drop=reported.append, only=LEDGER)

    def handle(message: resil.WorkerMessage) -> None:
        raise resil.WorkError("too old to matter", "drop")

    with caplog.at_level(logging.WARNING, logger="resil"):
        report = until_handled(worker, 1, handle)
    # Hooks run on a thread of their own.
    end = time.monotonic() + 20
    while not reported and time.monotonic() < end:
        time.sleep(0.01)
    client.shutdown().wait()
    switch.close()
    assert report["dropped"] == 1
    assert [(event["name"], event["id"]) for event in reported] == [(LEDGER, "shop/0")]
    assert "too old to matter" in reported[0]["reason"]
    assert [line for line in caplog.messages if "shop/0 was dropped" in line]
    assert any(
        sample[1].get("outcome") == "dropped" for sample in resil._native.read_metrics() if sample[0] == "resil_worker_messages_total"
    )
