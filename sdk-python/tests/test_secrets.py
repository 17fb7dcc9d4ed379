"""Secrets in every place that takes one, and none of them in what the SDK says: logs, metrics, spans, errors, ``repr``, names of connections.

Names of handles, and ids of messages, are no secrets: operators find things by them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Callable

import pytest
import resil
from resil import telemetry

#: In every secret.
SECRET = "hunter2"


async def until(what: str, is_so: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end, f"{what} does not happen"
        await asyncio.sleep(0.01)


class Said:
    """All that was said, by whatever way."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def shown(self, what: str, *values: object) -> None:
        self.lines += [f"{what}: {value!r} {value}" for value in values]

    def error(self, what: str, error: BaseException) -> None:
        self.lines.append(f"{what}: {error!r} {error} {getattr(error, '__dict__', {})} {error.__cause__!r} {error.__context__!r}")


async def work(client: resil.Client, said: Said) -> None:
    """Messages with secrets in payload, headers and aggregate, whose handlers fail, drop and give up with secrets in their errors."""
    letters = client.dead_letters("planted")
    fates = ["done", "retried", "dead", "dropped"]
    for fate in fates:
        await letters.fail(fate, "hunter2-first-error", payload=f"{fate} hunter2-payload", aggregate="hunter2-customer", count="not-counted")
    handled: list[str] = []

    async def handle(message: resil.WorkerMessage) -> None:
        said.shown("a message", message)
        fate = message.id.rsplit("/", 1)[-1]
        handled.append(fate)
        if fate == "retried":
            raise ConnectionError("hunter2-error")
        if fate == "dead":
            raise resil.WorkError("hunter2-error", "permanent")
        if fate == "dropped":
            raise resil.WorkError("hunter2-error", "drop")

    worker = client.worker("planted", source={"type": "ledger", "name": "planted"})

    async def run() -> Any:
        return await worker.run(handle)

    running = asyncio.ensure_future(run())
    await until("all are handled", lambda: set(fates) <= set(handled))
    said.shown("a worker", worker, worker.health())
    worker.stop()
    said.shown("its report", await running)
    said.shown("a ledger", letters)


async def connect_elsewhere(client: resil.Client, said: Said) -> None:
    """Brokers and databases that are not there, with passwords in their addresses."""
    places = [
        {"type": "rabbit", "url": "amqp://shop:hunter2@127.0.0.1:1/%2f", "queue": "planted"},
        {"type": "outbox", "url": "postgres://shop:hunter2@127.0.0.1:1/shop", "table": "planted"},
    ]

    async def handle(_message: resil.WorkerMessage) -> None: ...

    async def run(worker: resil.Worker) -> Any:
        return await worker.run(handle)

    for source in places:
        worker = client.worker("elsewhere", source=source)  # type: ignore[arg-type]
        running = asyncio.ensure_future(run(worker))
        await until("it is tried", lambda worker=worker: (worker.health().get("source") or {}).get("reason"))
        said.shown("a worker", worker, worker.health())
        worker.stop()
        await running
    for url in ("ftp://shop:hunter2@h/", "shop:hunter2", "redis://shop:hunter2@:x"):
        with pytest.raises((resil.ResilError, ValueError)) as refused:
            await resil.connect(url)
        said.error("a wrong server", refused.value)
        for kind in ("rabbit", "outbox"):
            try:
                client.worker("wrong", source={"type": kind, "url": url, "queue": "q", "table": "t"})
            except Exception as error:
                said.error("a wrong source", error)
    with pytest.raises(resil.ResilError) as refused:
        await resil.connect("redis://shop:hunter2@127.0.0.1:1", require_server=True)
    said.error("no server", refused.value)


async def guard(client: resil.Client, said: Said) -> None:
    """Primitives and policies, with secrets as keys, metadata, bodies and errors."""
    limiter = client.limiter("api", limit=1, period=3600)
    await limiter.check("hunter2-key")
    with pytest.raises(resil.RateLimitExceededError) as refused:
        await limiter.acquire("hunter2-key")
    said.error("a limit", refused.value)
    pay = client.idempotent("pay", wait=0)

    async def result() -> str:
        return "hunter2-result"

    await pay.run("hunter2-key", result, fingerprint=b"hunter2-body")
    with pytest.raises(resil.IdempotencyMismatchError) as mismatch:
        await pay.run("hunter2-key", result, fingerprint=b"hunter2-other")
    said.error("another request", mismatch.value)
    await client.policies.set("pay", {"retry": {"maxAttempts": 2, "initialBackoff": "1ms"}})
    policy = await client.policy("pay", on=ConnectionError)

    async def fails() -> None:
        raise ConnectionError("hunter2-error")

    with pytest.raises(resil.RetryExhaustedError) as exhausted:
        await policy.call(fails)
    # The error quotes the caller's own, for the caller; nothing else that is said of it does.
    said.lines.append(exhausted.value.code)
    lock = client.lock("hunter2-lock", meta="hunter2-meta")
    async with lock as held:
        said.shown("what is held", held)
    users = client.cached("users", ttl=60)

    async def load(_key: str) -> str:
        return "hunter2-value"

    await users.get("hunter2-key", load)
    said.shown("handles", limiter, pay, policy, users, client, client.health())


def test_no_secret_is_in_anything_that_is_said(servers: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="resil")
    said = Said()
    server = servers.start(config=[("requirepass", "hunter2-password")])
    url = server.url.replace("redis://", "redis://:hunter2-password@")

    async def main() -> None:
        client = await resil.connect(url, name="shop")
        for part in (work, connect_elsewhere, guard):
            await part(client, said)
        await client.shutdown()

    with telemetry.log_events(), telemetry.hooks(on_lost=lambda fields: said.shown("a hook", fields)):
        asyncio.run(main())
    said.lines += caplog.messages
    said.shown("counts", telemetry.metrics())
    leaks = [line for line in said.lines if SECRET in line]
    assert len(said.lines) > 20 and not leaks, leaks
    server.stop()
