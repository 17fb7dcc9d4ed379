"""A worker in Python: one process of a fleet. What it hears and what it says is in ``src/main.rs``."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import sys
from typing import Any, Awaitable, Callable

import resil
from opentelemetry import context, propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from resil import telemetry

#: Longer than any test: who waits is to be served, or to be killed.
PATIENCE_SECONDS = 60


class OwnError(Exception):
    """An error of the worker's own function."""


class Stage:
    """What is said to the test, and the words that are waited for."""

    def __init__(self) -> None:
        self._inside: dict[int, asyncio.Future[dict[str, Any]]] = {}

    def say(self, line: dict[str, Any]) -> None:
        print(json.dumps(line), flush=True)

    async def inside(self, tag: int, **seen: Any) -> Any:
        self._inside[tag] = asyncio.get_running_loop().create_future()
        self.say({"tag": tag, "inside": seen})
        word = await self._inside[tag]
        if word.get("fail"):
            raise OwnError("asked to fail")
        return word.get("value")

    def give(self, tag: int, word: dict[str, Any]) -> None:
        waiting = self._inside.pop(tag, None)
        # One that has lost its lock is cancelled, and may have gone.
        if waiting is not None and not waiting.done():
            waiting.set_result(word)


async def lock(client: resil.Client, stage: Stage, tag: int, name: str, lease_ms: int = 10_000) -> Any:
    async with client.lock(name, wait=PATIENCE_SECONDS, lease=lease_ms / 1000) as held:
        return await stage.inside(tag, fence=held.fence)


async def bulkhead(
    client: resil.Client, stage: Stage, tag: int, name: str, max: int, queue: int = 1_000, priority: int = 5
) -> Any:
    async with client.shared_bulkhead(name, max, max_wait=PATIENCE_SECONDS, max_queue=queue, priority=priority):
        return await stage.inside(tag)


class Witness(logging.Handler):
    """What this process says about itself, as a user would collect it: the logger ``resil``, spans, and counts."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._lines: list[dict[str, str]] = []
        self._spans = InMemorySpanExporter()
        log = logging.getLogger("resil")
        log.setLevel(logging.DEBUG)
        log.addHandler(self)
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self._switches = (telemetry.log_events(), telemetry.instrument(tracer_provider=provider))

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append({"level": record.levelname, "message": record.getMessage()})

    def said(self) -> dict[str, Any]:
        def shown(span: Any) -> dict[str, str]:
            trace_id = trace.format_trace_id(span.parent.trace_id) if span.parent else ""
            return {"span": span.name, **{name: str(value) for name, value in span.attributes.items()}, "trace_id": trace_id}

        def series(sample: telemetry.Sample) -> str:
            return f"{sample.metric}{{{','.join(f'{label}={value}' for label, value in sample.labels.items())}}}"

        counts = {series(sample): sample.value for sample in telemetry.metrics() if isinstance(sample.value, int)}
        return {"spans": [shown(span) for span in self._spans.get_finished_spans()], "logs": self._lines, "counts": counts}


kept: dict[str, resil.Breaker] = {}

#: From the start, so that nothing is missed.
witness = Witness()


async def said(client: resil.Client, stage: Stage, tag: int) -> Any:
    return witness.said()


async def breaker(
    client: resil.Client, stage: Stage, tag: int, name: str, consecutive: int, traceparent: str | None = None
) -> Any:
    bank = client.breaker(name, consecutive_failures=consecutive, open_for=PATIENCE_SECONDS, mode="exact")
    # As a service does: it hears of what the others do to it.
    kept[name] = bank
    with within(traceparent):
        return await bank.call(stage.inside, tag)


@contextlib.contextmanager
def within(traceparent: str | None) -> Any:
    """The trace of a request that came with this header."""
    token = context.attach(propagate.extract({"traceparent": traceparent} if traceparent else {}))
    try:
        yield
    finally:
        context.detach(token)


async def limit(client: resil.Client, stage: Stage, tag: int, name: str, key: str) -> Any:
    await client.limiter(name, limit=1, period=3600.0).acquire(key)


async def cached(client: resil.Client, stage: Stage, tag: int, name: str, key: str, codec: Any) -> Any:
    # A load waits for a word, which a test may hold back for longer than a source would take.
    users = client.cached(name, serializer=codec, ttl=60, load_timeout=PATIENCE_SECONDS)

    async def load(_: str) -> Any:
        return read(codec, await stage.inside(tag))

    return shown(codec, await users.get(key, load))


async def idempotent(
    client: resil.Client, stage: Stage, tag: int, name: str, key: str, codec: Any, lease_ms: int
) -> Any:
    payments = client.idempotent(name, serializer=codec, lease=lease_ms / 1000, wait=PATIENCE_SECONDS)

    async def pay(run: resil.Run) -> Any:
        return read(codec, await stage.inside(tag, attempt=run.attempt))

    outcome = await payments.run(key, pay, with_run=True)
    return shown(codec, outcome.value)


async def fail_letter(client: resil.Client, stage: Stage, tag: int, name: str, id: str, payload: str) -> Any:
    letters = client.dead_letters(name)
    verdict = await letters.fail(id, "no paper", payload=base64.b64decode(payload), kind="order")
    return verdict["verdict"]


async def take_letter(client: resil.Client, stage: Stage, tag: int, name: str) -> Any:
    [letter] = await client.dead_letters(name).take(wait=PATIENCE_SECONDS)
    assert letter.payload is not None
    payload = base64.b64encode(letter.payload).decode()
    await letter.done()
    return {"id": letter.id, "payload": payload, "kind": letter.kind, "error": letter.error}


async def follow(client: resil.Client, stage: Stage, tag: int, name: str, until: int) -> Any:
    policy = await client.policy(name, on=ConnectionError)
    orders, calls, is_over, last = set(), 0, False, 0

    async def paid() -> str:
        return "paid"

    async def call() -> None:
        nonlocal calls
        while not is_over:
            orders.add(" ".join(policy.order))
            assert await policy.call(paid) == "paid"
            calls += 1
            await asyncio.sleep(0.001)

    calling = [asyncio.ensure_future(call()) for _ in range(8)]
    while last < until:
        while policy.version is None or policy.version <= last:
            await asyncio.sleep(0.001)
        last = policy.version
        await stage.inside(tag, version=last)
    is_over = True
    await asyncio.gather(*calling)
    return {"calls": calls, "orders": sorted(orders)}


def read(codec: str, value: Any) -> Any:
    return base64.b64decode(value) if codec == "bytes" else value


def shown(codec: str, value: Any) -> Any:
    return base64.b64encode(value).decode() if codec == "bytes" else value


ASKS: dict[str, Callable[..., Awaitable[Any]]] = {
    "lock": lock,
    "bulkhead": bulkhead,
    "breaker": breaker,
    "said": said,
    "limit": limit,
    "cached": cached,
    "idempotent": idempotent,
    "fail_letter": fail_letter,
    "take_letter": take_letter,
    "follow": follow,
}


async def perform(client: resil.Client, stage: Stage, tag: int, do: str, **fields: Any) -> None:
    try:
        value = await ASKS[do](client, stage, tag, **fields)
        stage.say({"tag": tag, "done": {"value": value}})
    except OwnError:
        stage.say({"tag": tag, "failed": "OWN"})
    except resil.ResilError as error:
        stage.say({"tag": tag, "failed": error.code})


async def main() -> None:
    client = await resil.connect(sys.argv[1])
    stage = Stage()
    stage.say({"ready": "python"})
    lines = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    asked = set()
    async for line in lines:
        request = json.loads(line)
        if "word" in request:
            stage.give(**request)
        else:
            task = loop.create_task(perform(client, stage, **request))
            asked.add(task)
            task.add_done_callback(asked.discard)


asyncio.run(main())
