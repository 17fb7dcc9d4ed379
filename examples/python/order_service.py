"""An order service: each order and its event are written together, the events go to a broker, and a worker handles them.

- **outbox**: the order and its event are in one transaction of Postgres, so there is never one without the other;
- **relay**: with RabbitMQ, a worker on the outbox publishes the events. One may be published twice, under one id;
- **worker**: it charges each order once, though events may come twice: a row in the transaction of the charge says that it happened;
- **poison**: an event that nobody can read is dead at once, and kept in the ledger with its error;
- **a broker restart in the middle**: the worker goes on by itself when its source is back.

``python examples/python/order_service.py [url] [postgres url] [amqp url]``: without RabbitMQ the worker reads the outbox itself; without Postgres the events come from a ledger, and this runs on ``memory://``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from dataclasses import dataclass, field
from typing import Any, Awaitable, Callable, Dict, List, Optional, Sequence, Tuple

import resil

from running import connect, this_run, url

PATIENCE = 60.0
ORDERS = 20


class Bank:
    """Charges each event once. In memory, or with Postgres in a transaction with `processed_events`."""

    def __init__(self, postgres: Optional[str]) -> None:
        self.postgres = postgres
        self.charged: Dict[str, int] = {}

    async def charge(self, run: str, message: resil.WorkerMessage, order: Dict[str, Any]) -> None:
        if self.postgres is None:
            self.charged.setdefault(message.id, order["cents"])
            return
        import asyncpg  # type: ignore[import-untyped, unused-ignore]

        connection = await asyncpg.connect(self.postgres.split("?")[0])
        try:
            async with connection.transaction():
                inserted = await connection.execute(resil.ProcessedEvents.insert(), run, message.id)
                if inserted == "INSERT 0 1":
                    await connection.execute(f"INSERT INTO charges_{run} VALUES ($1, $2)", message.id, order["cents"])
            rows = await connection.fetch(f"SELECT id, cents FROM charges_{run}")
            self.charged = {row["id"]: row["cents"] for row in rows}
        finally:
            await connection.close()


@dataclass
class Seen:
    charged: Dict[str, int] = field(default_factory=dict)
    dead: List[str] = field(default_factory=list)
    report: Optional[resil.workers.WorkerReport] = None
    connections: int = 0


async def migrate(run: str, postgres: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(postgres.split("?")[0])
    try:
        await connection.execute(resil.Outbox(f"outbox_{run}").migration())
        await connection.execute(resil.ProcessedEvents.migration())
        await connection.execute(f"CREATE TABLE orders_{run} (id int); CREATE TABLE charges_{run} (id text, cents int)")
    finally:
        await connection.close()


async def place_orders(client: resil.Client, run: str, postgres: Optional[str], orders: Sequence[int]) -> None:
    """These orders; behind the last there is one event that is no order."""
    events = {number: json.dumps({"order": number, "cents": 100 + number}) for number in orders}
    if ORDERS - 1 in orders:
        events[ORDERS] = "{"
    if postgres is None:
        for number, event in events.items():
            await client.dead_letters(f"orders-{run}").fail(f"shop/{number}", "sent", payload=event, count="not-counted")
        return
    import asyncpg

    outbox = resil.Outbox(f"outbox_{run}")
    connection = await asyncpg.connect(postgres.split("?")[0])
    try:
        for number, event in events.items():
            async with connection.transaction():  # both, or neither
                await connection.execute(f"INSERT INTO orders_{run} VALUES ($1)", number)
                await connection.execute(outbox.insert(), *outbox.row(event, id=str(number), kind="order.placed"))
    finally:
        await connection.close()


def relay(client: resil.Client, run: str, outbox: Any, queue: Any) -> "Tuple[resil.Worker, Any]":
    """A worker that takes events from the outbox and publishes them. What was published is acknowledged; what was not stays."""
    publisher, worker = client.publisher(queue), client.worker(f"relay-{run}", source=outbox)

    async def publish(message: resil.WorkerMessage) -> None:
        await publisher.publish(message.payload, id=message.id.rsplit("/")[-1], kind=message.kind, caused_by=message)

    return worker, publish


async def story(
    url: str,
    postgres: Optional[str] = None,
    restart: Optional[Callable[[], Awaitable[None]]] = None,
    rabbit: Optional[str] = None,
) -> Seen:
    """`restart` restarts what the worker takes from, while it runs."""
    run, bank, seen = this_run(), Bank(postgres), Seen()
    client = await connect(url, "order_service", "service")
    quick: Any = {"base": 0.1, "cap": 1, "retries": 20}
    ledger = client.dead_letters(f"orders-{run}", actor="ada")
    await ledger.configure(jitter="none", transient=quick, external=quick)
    source: Any = None
    if postgres is not None:
        await migrate(run, postgres)
        source = {"type": "outbox", "url": postgres, "table": f"outbox_{run}", "poll": 0.05, "claim": 2}
    outbox, relaying = source, None
    if rabbit is not None:
        source = {"type": "rabbit", "url": rabbit, "queue": f"orders-{run}", "prefetch": 2, "workers": 2}
        relaying, publish = relay(client, run, outbox, source)
        await client.dead_letters(f"relay-{run}", actor="ada").configure(jitter="none", transient=quick, external=quick)
    worker = client.worker(f"orders-{run}", source=source, workers=2)
    half_way = asyncio.Event()

    async def handle(message: resil.WorkerMessage) -> None:
        await bank.charge(run, message, json.loads(message.payload))  # what cannot be read is dead at once
        if len(bank.charged) >= ORDERS // 2:
            half_way.set()
            await asyncio.sleep(0.02)

    async def relay_events() -> None:
        # The worker declares the queue: before that nothing takes an event.
        while relaying is not None and not worker.health().get("source", {}).get("is_connected"):
            await asyncio.sleep(0.02)
        if relaying is not None:
            await relaying.run(publish)

    async def until_all_are_settled() -> None:
        await place_orders(client, run, postgres, range(ORDERS // 2))
        await half_way.wait()
        if restart is not None:
            await restart()
        await place_orders(client, run, postgres, range(ORDERS // 2, ORDERS))
        while len(bank.charged) < ORDERS or (await ledger.info())["dead"] < 1:
            await asyncio.sleep(0.02)
        seen.connections = worker.health().get("source", {}).get("connections", 0)

    published = asyncio.ensure_future(relay_events())
    stopping = asyncio.ensure_future(asyncio.wait_for(until_all_are_settled(), PATIENCE))
    stopping.add_done_callback(lambda _: worker.stop())
    seen.report = await worker.run(handle)
    await stopping
    if relaying is not None:
        relaying.stop()
    await published
    seen.charged = bank.charged
    page = await ledger.list(state="dead")
    seen.dead = [letter["last_error"] or "" for letter in page["letters"]]
    await client.shutdown()
    return seen


if __name__ == "__main__":
    # What the worker says in its log: the event that nobody can read.
    logging.basicConfig(stream=sys.stdout, format="log: %(message)s")
    said = dict(zip(("postgres", "rabbit"), sys.argv[2:4]))
    seen = asyncio.run(story(url(), **said))  # type: ignore[arg-type]
    print(f"{ORDERS} orders were placed, and one event that nobody can read")
    print(f"  charged once each: {len(seen.charged)}, {sum(seen.charged.values())} cents in all")
    for error in seen.dead:
        print(f"  dead, and kept: {error}")
    for name, count in (seen.report or {}).items():
        if count:
            print(f"  {name}: {count}")
    print(f"  connections of the source: {seen.connections}")
