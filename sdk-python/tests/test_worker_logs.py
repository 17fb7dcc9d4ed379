"""What the logger ``resil`` says of workers: messages that died, and sources and publishers whose broker is away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any, Callable

import pytest
import resil
from resil import telemetry

#: Longer than anything here takes, on a machine that has much else to do.
BOUND = 60.0
SECRET = "hunter2-never-logged"


def lines(caplog: pytest.LogCaptureFixture, wanted: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "resil" and wanted in record.getMessage()]


async def until(what: str, holds: Callable[[], Any]) -> None:
    end = time.monotonic() + BOUND
    while not holds():
        assert time.monotonic() < end, f"waited in vain until {what}"
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running(worker: resil.Worker, handler: Any) -> Any:
    task = asyncio.ensure_future(worker.run(handler))
    try:
        yield
    finally:
        worker.stop()
        await asyncio.wait_for(task, BOUND)


async def ignore(_message: resil.WorkerMessage) -> None:
    pass


def test_each_dead_message_is_a_warning_in_the_log(caplog: pytest.LogCaptureFixture, run: Any) -> None:
    dead: list[dict[str, Any]] = []

    async def main() -> None:
        client = await resil.connect("memory://")
        for number in (1, 2):
            await client.dead_letters("orders").fail(f"shop/{number}", "sent", payload=b"x", count="not-counted")

        async def handle(_message: resil.WorkerMessage) -> None:
            raise resil.WorkError(SECRET, "permanent")

        worker = client.worker("orders")
        async with running(worker, handle):
            await until("both are logged", lambda: len(lines(caplog, "is dead")) == 2 and len(dead) == 2)

    with caplog.at_level(logging.DEBUG, logger="resil"), telemetry.hooks(only="orders", on_dead=dead.append):
        run(main())
    said = sorted(record.getMessage() for record in lines(caplog, "is dead"))
    assert [text.split(" is dead")[0] for text in said] == ["orders: the message shop/1", "orders: the message shop/2"]
    assert {record.levelno for record in lines(caplog, "is dead")} == {logging.WARNING}
    assert SECRET not in caplog.text
    assert sorted((said["id"], said["deaths"], said["reason"]) for said in dead) == [("shop/1", 1, "final"), ("shop/2", 1, "final")]


SOURCES: list[tuple[str, dict[str, Any]]] = [
    ("127.0.0.1:1", {"type": "rabbit", "url": f"amqp://shop:{SECRET}@127.0.0.1:1", "queue": "orders"}),
    ("127.0.0.1:1", {"type": "outbox", "url": f"postgres://shop:{SECRET}@127.0.0.1:1/shop", "table": "orders"}),
    ("127.0.0.1:1", {"type": "stream", "url": f"redis://:{SECRET}@127.0.0.1:1", "stream": "orders"}),
]


@pytest.mark.parametrize(("address", "source"), SOURCES, ids=lambda given: given["type"] if isinstance(given, dict) else "at")
def test_a_source_that_is_away_is_one_warning(address: str, source: dict[str, Any], caplog: pytest.LogCaptureFixture, run: Any) -> None:
    heard: list[dict[str, Any]] = []

    async def main() -> None:
        client = await resil.connect("memory://")
        worker = client.worker("orders", source=source)
        async with running(worker, ignore):
            await until("it is logged", lambda: lines(caplog, "is away"))
            await until("the hook is called", lambda: heard)
            # Attempts go on, and are not said again.
            await asyncio.sleep(1)

    with caplog.at_level(logging.DEBUG, logger="resil"), telemetry.hooks(on_away=heard.append):
        run(main())
    (line,) = lines(caplog, "is away")
    assert line.levelno == logging.WARNING
    assert "orders" in line.getMessage() and address in line.getMessage()
    assert SECRET not in caplog.text and SECRET not in str(heard)
    assert [said["address"] for said in heard] == [address]


def test_a_source_that_is_back_is_one_line(servers: Any, caplog: pytest.LogCaptureFixture, run: Any) -> None:
    server = servers.start()

    async def main() -> None:
        client = await resil.connect("memory://")
        worker = client.worker("orders", source={"type": "stream", "url": server.url, "stream": "orders"})
        async with running(worker, ignore):
            await until("it is connected", lambda: worker.health().get("source", {}).get("is_connected"))
            for _ in range(2):
                server.kill()
                await until("it is away", lambda: len(lines(caplog, "is away")) == len(lines(caplog, "is back")) + 1)
                server.restart()
                await until("it is back", lambda: len(lines(caplog, "is back")) == len(lines(caplog, "is away")))

    try:
        with caplog.at_level(logging.DEBUG, logger="resil"):
            run(main())
    finally:
        server.stop()
    assert (len(lines(caplog, "is away")), len(lines(caplog, "is back"))) == (2, 2)


def test_a_publisher_whose_broker_is_away_is_one_warning(caplog: pytest.LogCaptureFixture, run: Any) -> None:
    async def main() -> None:
        client = await resil.connect("memory://")
        publisher = client.publisher({"type": "rabbit", "url": f"amqp://shop:{SECRET}@127.0.0.1:1", "queue": "orders"})
        with pytest.raises(resil.ResilError):
            await publisher.publish("x")

    with caplog.at_level(logging.DEBUG, logger="resil"):
        run(main())
        end = time.monotonic() + BOUND
        while not lines(caplog, "is away"):
            assert time.monotonic() < end
            time.sleep(0.02)
    assert len(lines(caplog, "is away")) == 1 and SECRET not in caplog.text
