"""Workers on real brokers: what becomes of messages, also when a handler fails, a worker stops, or a broker dies under it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import resil

psycopg = pytest.importorskip("psycopg", reason="drivers of Postgres are not there for this Python")
asyncpg = pytest.importorskip("asyncpg", reason="drivers of Postgres are not there for this Python")

#: Longer than anything here takes, on a machine that has much else to do.
BOUND = 60.0
KINDS = ["ledger", "stream", "rabbit", "outbox"]
names = itertools.count(1)


@pytest.fixture(scope="module")
def rabbit(servers: Any) -> Any:
    return servers.rabbit()


@pytest.fixture(scope="module")
def postgres(servers: Any) -> Any:
    return servers.postgres()


@pytest.fixture(scope="module")
def redis(servers: Any) -> Iterator[Any]:
    started = servers.start(config={"appendonly": "yes", "appendfsync": "always"})
    yield started
    started.stop()


class Place:
    """A queue of some kind, with a name of its own: how it is read, and how messages get into it."""

    def __init__(self, kind: str, redis: Any, rabbit: Any, postgres: Any) -> None:
        self.kind, self.redis, self.rabbit, self.postgres = kind, redis, rabbit, postgres
        self.name = f"orders_{os.getpid()}_{next(names)}"
        self.outbox = resil.Outbox(self.name)
        self.publisher: resil.Publisher | None = None
        if kind == "outbox":
            with psycopg.connect(postgres.url, autocommit=True) as connection:
                connection.execute(self.outbox.migration())

    @property
    def source(self) -> Any:
        return {
            "ledger": {"type": "ledger", "name": self.name},
            "stream": {"type": "stream", "stream": self.name, "reclaim": 1},
            "rabbit": {"type": "rabbit", "url": self.rabbit.url, "queue": self.name},
            "outbox": {"type": "outbox", "url": self.postgres.url, "table": self.name, "claim": 2, "poll": 0.05},
        }[self.kind]

    async def client(self) -> resil.Client:
        client = await resil.connect(self.redis.url, command_timeout=1)
        quick = {"base": 0.1, "cap": 0.1, "retries": 2}
        await client.dead_letters(self.name, actor="ada").configure(jitter="none", transient=quick, external=quick)
        return client

    def worker(self, client: resil.Client, **settings: Any) -> resil.Worker:
        return client.worker(self.name, source=self.source, **settings)

    async def send(self, client: resil.Client, payload: str, id: str | None = None) -> None:
        id = id or payload
        if self.kind == "ledger":
            await client.dead_letters(self.name).fail(id, "sent", payload=payload, count="not-counted")
        elif self.kind == "outbox":
            with psycopg.connect(self.postgres.url) as connection:
                connection.execute(self.outbox.insert("%s"), self.outbox.row(payload, id=id))
        else:
            self.publisher = self.publisher or client.publisher(self.source)
            assert await self.publisher.publish(payload, id=id) == id


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, redis: Any, rabbit: Any, postgres: Any) -> Place:
    return Place(request.param, redis, rabbit, postgres)


async def until(what: str, holds: Callable[[], Any]) -> None:
    end = time.monotonic() + BOUND
    while not holds():
        assert time.monotonic() < end, f"waited in vain until {what}"
        await asyncio.sleep(0.02)


class Running:
    """A worker that runs beside the test."""

    def __init__(self, worker: resil.Worker, handler: Callable[[resil.WorkerMessage], Awaitable[None]], **options: Any) -> None:
        self.worker = worker
        self.task = asyncio.ensure_future(self._run(handler, options))

    async def _run(self, handler: Any, options: Any) -> Any:
        return await self.worker.run(handler, **options)

    async def connected(self) -> None:
        await until("the source is connected", lambda: self.worker.health().get("source", {}).get("is_connected"))

    async def stop(self) -> Any:
        self.worker.stop()
        return await asyncio.wait_for(self.task, BOUND)


def judge_by_payload(message: resil.WorkerMessage) -> None:
    """Fine, unlucky once, poison, not readable, or a crash each time."""
    payload = json.loads(message.payload)
    if payload == "poison":
        raise resil.WorkError("an order of nothing", "permanent")
    if payload == "crash" or (payload == "unlucky" and message.attempt == 0):
        raise RuntimeError(payload)


MESSAGES = {"fine": '"fine"', "unlucky": '"unlucky"', "poison": '"poison"', "crash": '"crash"', "unreadable": "{"}


async def all_are_settled(place: Place, client: resil.Client, done: Callable[[], int]) -> None:
    ledger = client.dead_letters(place.name)
    end = time.monotonic() + BOUND
    while True:
        info = await ledger.info()
        if info["dead"] == 3 and info["waiting"] + info["taken"] == 0 and done() == 2:
            break
        assert time.monotonic() < end, (info, done())
        await asyncio.sleep(0.05)
    prefix = "" if place.kind == "ledger" else f"{place.name}/"
    errors = {}
    for id in ("poison", "crash", "unreadable"):
        letter = await ledger.get(prefix + id)
        assert letter is not None
        assert letter["state"] == "dead"
        errors[id] = (letter["last_error"] or "").split(":")[0]
    assert errors == {"poison": "WorkError", "crash": "RuntimeError", "unreadable": "JSONDecodeError"}


def test_messages_are_done_retried_or_dead_by_their_errors(place: Place, run: Any) -> None:
    async def main() -> None:
        client = await place.client()
        done: list[bytes] = []

        async def handle(message: resil.WorkerMessage) -> None:
            await asyncio.sleep(0)
            judge_by_payload(message)
            done.append(message.payload)

        running = Running(place.worker(client), handle)
        await running.connected()
        for id, payload in MESSAGES.items():
            await place.send(client, payload, id)
        await all_are_settled(place, client, lambda: len(done))
        health = running.worker.health()
        assert health["is_live"] and health["is_ready"] and health["queue"] == place.name
        report = await running.stop()
        assert sorted(done) == [b'"fine"', b'"unlucky"']
        assert (report["done"], report["dead"]) == (2, 3)
        assert not running.worker.health()["is_ready"]
        await client.shutdown()

    run(main())


def test_plain_functions_handle_in_threads(redis: Any, rabbit: Any, postgres: Any) -> None:
    place = Place("stream", redis, rabbit, postgres)
    client = asyncio.run(place.client())
    done: list[str] = []
    worker = place.worker(client)

    def handle(message: resil.WorkerMessage) -> None:
        judge_by_payload(message)
        done.append(threading.current_thread().name)

    async def send() -> None:
        for id, payload in MESSAGES.items():
            await place.send(client, payload, id)
        await all_are_settled(place, client, lambda: len(done))

    sending = threading.Thread(target=lambda: (asyncio.run(send()), worker.stop()))
    sending.start()
    report = worker.run(handle)
    sending.join()
    assert (report["done"], report["dead"]) == (2, 3)
    assert threading.current_thread().name not in done
    client.shutdown().wait()


def test_what_a_stopped_worker_did_not_finish_goes_back_untried(place: Place, run: Any) -> None:
    async def main() -> None:
        client = await place.client()
        begun, cancelled = [], []

        async def slow(message: resil.WorkerMessage) -> None:
            begun.append(message.id)
            try:
                await asyncio.sleep(BOUND)
            except asyncio.CancelledError:
                cancelled.append(message.id)
                raise

        running = Running(place.worker(client, workers=1, drain=0.2), slow)
        await running.connected()
        for number in range(3):
            await place.send(client, str(number))
        await until("one is begun", lambda: begun)
        report = await running.stop()
        await until("the handler has seen its end", lambda: cancelled)
        assert (report["done"], report["retried"], report["dead"]) == (0, 0, 0)
        assert len(begun) == 1
        seen: list[tuple[bytes, int]] = []

        async def handle(message: resil.WorkerMessage) -> None:
            seen.append((message.payload, message.attempt))

        again = Running(place.worker(client), handle)
        await until("all are handled", lambda: len({payload for payload, _ in seen}) == 3)
        await again.stop()
        assert {attempt for _, attempt in seen} == {0}
        await client.shutdown()

    run(main())


def test_a_handler_past_its_deadline_is_cancelled(redis: Any, rabbit: Any, postgres: Any, run: Any) -> None:
    async def main() -> None:
        place = Place("ledger", redis, rabbit, postgres)
        client = await place.client()
        ended = []

        async def slow(message: resil.WorkerMessage) -> None:
            assert 0 < message.time_left <= 0.1
            try:
                await asyncio.sleep(BOUND)
            finally:
                ended.append(message.is_cancelled)

        running = Running(place.worker(client, deadline=0.1), slow)
        await place.send(client, "1")
        await until("it has ended", lambda: ended)
        report = await running.stop()
        assert (ended, report["dead"]) == ([True], 1)
        await client.shutdown()

    run(main())


def test_an_open_circuit_counts_nothing_and_pauses_the_worker(redis: Any, rabbit: Any, postgres: Any, run: Any) -> None:
    async def main() -> None:
        place = Place("stream", redis, rabbit, postgres)
        client = await place.client()
        attempts = []

        async def handle(message: resil.WorkerMessage) -> None:
            attempts.append(message.attempt)
            if len(attempts) == 1:
                raise resil.CircuitOpenError("open", retry_after=0.3)

        running = Running(place.worker(client), handle)
        await place.send(client, "1")
        await until("it is paused", lambda: attempts and running.worker.health()["is_paused"])
        await until("it is retried", lambda: len(attempts) == 2)
        report = await running.stop()
        assert attempts == [0, 0]
        assert (report["done"], report["retried"]) == (1, 1)
        await client.shutdown()

    run(main())


def test_a_judge_decides_what_an_exception_means(redis: Any, rabbit: Any, postgres: Any, run: Any) -> None:
    async def main() -> None:
        place = Place("stream", redis, rabbit, postgres)
        client = await place.client()

        async def handle(message: resil.WorkerMessage) -> None:
            raise KeyError(message.payload.decode())

        def judge(error: Exception) -> Any:
            said = error.args[0]
            return {"drop": "drop", "dead": {"verdict": "permanent"}, "broken": 7}.get(said)

        running = Running(place.worker(client), handle, judge=judge)
        for payload in ("drop", "dead", "broken"):
            await place.send(client, payload)
        await until("all are judged", lambda: running.worker.health()["report"]["dead"] == 2)
        report = await running.stop()
        # What the judge of "broken" said is nothing that a judge may say: it is retried until it dies.
        assert (report["dropped"], report["dead"], report["retried"]) == (1, 2, 2)
        letter = await client.dead_letters(place.name).get(f"{place.name}/broken")
        assert letter is not None and "its judge" in (letter["last_error"] or "")
        await client.shutdown()

    run(main())


def test_what_is_sent_because_of_a_message_has_its_trace(redis: Any, rabbit: Any, postgres: Any, run: Any) -> None:
    async def main() -> None:
        place = Place("stream", redis, rabbit, postgres)
        client = await place.client()
        publisher = client.publisher(place.source)
        seen: list[resil.WorkerMessage] = []

        async def handle(message: resil.WorkerMessage) -> None:
            seen.append(message)
            if message.kind == "order.placed":
                await publisher.publish("packed", kind="order.packed", caused_by=message)

        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01", "HeaderID": "request-7"}
        await publisher.publish("placed", kind="order.placed", aggregate="order-42", schema=2, headers=headers)
        running = Running(place.worker(client), handle)
        await until("both are handled", lambda: len(seen) == 2)
        await running.stop()
        placed, packed = seen
        assert (placed.aggregate, placed.schema, placed.headers["HeaderID"]) == ("order-42", 2, "request-7")
        assert (packed.trace_id, packed.header_id) == (trace, "request-7")
        assert packed.traceparent != placed.traceparent
        await client.shutdown()

    run(main())


def test_a_message_is_delivered_again_after_the_broker_was_killed(servers: Any, redis: Any, postgres: Any) -> None:
    rabbit = servers.rabbit()

    async def main() -> None:
        place = Place("rabbit", redis, rabbit, postgres)
        client = await place.client()
        may_end, seen = asyncio.Event(), []

        async def handle(message: resil.WorkerMessage) -> None:
            seen.append((message.payload, message.is_redelivered))
            await may_end.wait()

        running = Running(place.worker(client), handle)
        await running.connected()
        await place.send(client, "1")
        await until("it is begun", lambda: seen)
        await asyncio.to_thread(rabbit.wait_until_registered, place.name)
        await asyncio.to_thread(rabbit.kill)
        await until("the loss is seen", lambda: not running.worker.health()["source"]["is_connected"])
        health = running.worker.health()
        assert health["is_ready"] and health["status"] == "degraded" and health["source"]["reason"]
        await asyncio.to_thread(rabbit.restart)
        may_end.set()
        await until("it is delivered again", lambda: len(seen) == 2)
        await running.connected()
        assert seen == [(b"1", False), (b"1", True)]
        # A producer without traffic is ready again, too.
        assert place.publisher is not None
        await until("the publisher is back", lambda: place.publisher.health()["is_connected"])
        await place.send(client, "2")
        await until("the next one comes", lambda: len(seen) == 3)
        report = await running.stop()
        assert report["done"] == 2
        await client.shutdown()

    asyncio.run(asyncio.wait_for(main(), 2 * BOUND))


def test_a_message_that_no_queue_takes_is_an_error(redis: Any, rabbit: Any, postgres: Any, run: Any) -> None:
    async def main() -> None:
        client = await resil.connect(redis.url)
        publisher = client.publisher({"type": "rabbit", "url": rabbit.url, "queue": "nobody_reads_this"})
        with pytest.raises(resil.InvalidArgumentError, match="no queue takes messages"):
            await publisher.publish("1")
        await publisher.close()
        with pytest.raises(resil.ShuttingDownError):
            await publisher.publish("1")
        await client.shutdown()

    run(main())


def test_wrong_settings_are_refused_by_their_names(client: resil.Client) -> None:
    for source, field in [
        ({"type": "kafka"}, "source.type"),
        ({"type": "rabbit", "queue": "q", "prefetch": 0}, "source.prefetch"),
        ({"type": "rabbit", "queue": "q", "delivery_limt": 1}, "source.delivery_limt"),
        ({"type": "stream"}, "source.stream"),
        ({"type": "outbox", "url": "http://x"}, "source.url"),
        ({"type": "outbox", "url": "postgres://x", "table": "Robert'); --"}, "source.table"),
    ]:
        with pytest.raises(resil.InvalidPolicyError, match=field.replace(".", r"\.")):
            client.worker("orders", source=source)  # type: ignore[arg-type]
    with pytest.raises(resil.InvalidPolicyError, match="workers"):
        client.worker("orders", workers=0)
    with pytest.raises(resil.InvalidPolicyError, match="can be published to"):
        client.publisher({"type": "ledger", "name": "orders"})  # type: ignore[arg-type]


def test_settings_of_a_queue_come_from_the_environment(client: resil.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(resil.InvalidArgumentError, match="RABBITMQ_ORDERS_QUEUE"):
        client.worker("orders", source={"type": "rabbit", "env": "ORDERS"})
    monkeypatch.setenv("RABBITMQ_ORDERS_QUEUE", "orders")
    client.worker("orders", source={"type": "rabbit", "env": "ORDERS"})


# --- Effects that happen once: the recipes of docs/workers.md. -----------------------------------------------------


async def effect_with_asyncpg(url: str, consumer: str, message: resil.WorkerMessage) -> None:
    connection = await asyncpg.connect(url.split("?")[0])
    try:
        async with connection.transaction():
            inserted = await connection.execute(resil.ProcessedEvents.insert(), consumer, message.id)
            if inserted == "INSERT 0 1":
                await connection.execute("INSERT INTO effects VALUES ($1, $2)", consumer, message.payload.decode())
    finally:
        await connection.close()


async def effect_with_psycopg(url: str, consumer: str, message: resil.WorkerMessage) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        cursor = await connection.execute(resil.ProcessedEvents.insert("%s"), (consumer, message.id))
        if cursor.rowcount == 1:
            await connection.execute("INSERT INTO effects VALUES (%s, %s)", (consumer, message.payload.decode()))


@pytest.mark.parametrize("effect", [effect_with_asyncpg, effect_with_psycopg])
def test_duplicates_have_their_effect_once(effect: Any, redis: Any, rabbit: Any, postgres: Any) -> None:
    async def main() -> None:
        place = Place("stream", redis, rabbit, postgres)
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(resil.ProcessedEvents.migration())
            connection.execute("CREATE TABLE IF NOT EXISTS effects (consumer text, payload text)")
        client = await place.client()
        handled = []

        async def handle(message: resil.WorkerMessage) -> None:
            await effect(postgres.url, place.name, message)
            handled.append(message.id)
            if message.attempt == 0 and message.payload == b"3":
                raise RuntimeError("after its effect")

        running = Running(place.worker(client), handle)
        for number in range(5):
            for _ in range(3):
                await place.send(client, str(number))
        await until("all are handled", lambda: len(handled) >= 16)
        report = await running.stop()
        assert report["dead"] == 0
        with psycopg.connect(postgres.url) as connection:
            rows = connection.execute("SELECT payload FROM effects WHERE consumer = %s", (place.name,)).fetchall()
        assert sorted(rows) == [(str(number),) for number in range(5)]
        await client.shutdown()

    asyncio.run(asyncio.wait_for(main(), 2 * BOUND))


def test_errors_of_a_database_are_distinguished(redis: Any, rabbit: Any, postgres: Any) -> None:
    async def main() -> None:
        place = Place("stream", redis, rabbit, postgres)
        client = await place.client()

        async def handle(message: resil.WorkerMessage) -> None:
            connection = await asyncpg.connect(postgres.url.split("?")[0])
            try:
                await connection.execute(message.payload.decode())
            finally:
                await connection.close()

        running = Running(place.worker(client), handle)
        await place.send(client, "SELECT 'seven'::int", "unreadable")
        await until("it is dead", lambda: running.worker.health()["report"]["dead"] == 1)
        report = await running.stop()
        assert report["retried"] == 0
        await client.shutdown()

    asyncio.run(asyncio.wait_for(main(), 2 * BOUND))
