"""What a type checker has to see: mypy reads this file, strictly. Nothing runs it."""

from __future__ import annotations

from datetime import timedelta

import resil
from typing_extensions import assert_type


async def fetch(user: int, *, page: int = 0) -> str:
    return f"{user}:{page}"


def fetch_now(user: int, *, page: int = 0) -> str:
    return f"{user}:{page}"


async def types_are_kept() -> None:
    client = await resil.connect("memory://", name="x", command_timeout=timedelta(seconds=1))
    assert_type(client, resil.Client)
    assert_type(resil.connect("memory://").wait(), resil.Client)
    limiter = client.limiter("api", limit=1, period=60.0, when_away="open")
    assert_type(await limiter.check("k"), resil.Verdict)

    breaker = client.breaker("bank", consecutive_failures=5, ignore=(KeyError, ValueError))
    guarded = breaker(fetch)
    assert_type(await guarded(1, page=2), str)
    assert_type(breaker(fetch_now)(1, page=2), str)
    assert_type(await breaker.call(fetch, 1, page=2), str)
    assert_type(breaker.call(fetch_now, 1, page=2), str)
    breaker.call(fetch_now, "1")  # type: ignore[call-overload]
    breaker(fetch_now)("1")  # type: ignore[arg-type]

    retry = resil.Retry(on=lambda error: 0.5, max_attempts=3, initial_backoff="50ms")
    resil.Retry(max_attempts=3)  # type: ignore[call-overload]
    resil.Retry(on_result=lambda response: response == 503, budget=resil.Budget(percent=10))
    resil.Retry(on=KeyError, max_atempts=3)  # type: ignore[call-overload]
    client.policy("p", retry={"budget": resil.Budget(percent=10)}, on_result=lambda response: response == 503)
    assert_type(await retry(guarded)(1), str)

    async with client.lock("stock", lease=5) as held:
        assert_type(held.fence, "int | None")
    with client.lock("stock") as held:
        assert_type(held.remaining, float)

    payments = client.idempotent("payments", keep=timedelta(days=1))
    assert_type(await payments.run("k", fetch, 1), "resil.Outcome[str]")
    assert_type(payments.run("k", fetch_now, 1), "resil.Outcome[str]")
    assert_type(payments.by("k")(fetch_now)(1), str)

    users = client.cached("user", ttl=60)

    async def load(key: str) -> int | None:
        return len(key)

    assert_type(await users.get("k", load), "int | None")

    assert_type(await users.get_many(["k"], load, ttl="5m", tags={"a"}), "list[int | None]")
    assert_type(await users.refresh("k", load), "int | None")

    async def load_entry(key: str) -> resil.CacheEntry[int] | None:
        return resil.CacheEntry(len(key), ttl=timedelta(seconds=1), keep=False)

    assert_type(await users.get("k", load_entry), "int | None")
    by_id = users.by(lambda user, *, page=0: f"{user}:{page}", ttl=5)(fetch)
    assert_type(await by_id(1, page=2), str)
    assert_type(await by_id.invalidate(1, page=2), bool)
    by_id.invalidate("1")  # type: ignore[arg-type]
    assert_type(await users.invalidate_on(iter(["k"])), int)

    rows = client.versioned_cached("row", ttl=60)

    async def load_row(key: str) -> tuple[int, str] | None:
        return len(key), key

    assert_type(await rows.get("k", load_row, at_least=3), "tuple[int, str] | None")
    assert_type((await rows.lookup("k", load_row)).version, "int | None")

    results = await resil.Dispatcher(4).run([1, 2], fetch)
    assert_type(results, "list[resil.ItemResult[str]]")
    assert_type(resil.Dispatcher(4).run([1, 2], fetch_now)[0].unwrap(), str)

    policy = client.policy("p", {"retry": {"max_attempts": 3}}, timeout={"total": 2.0}, on=ConnectionError)
    assert_type(await policy.with_options(key="ann")(fetch)(1), str)
    assert_type(await policy.call_once(payments, "k", fetch, 1, fingerprint=b"f"), "resil.Outcome[str]")
    assert_type(policy.call_once(payments, "k", fetch_now, 1, with_run=True), "resil.Outcome[str]")

    few = resil.Dispatcher(4)
    assert_type(await few.run_unordered([1], fetch), "list[tuple[int, resil.ItemResult[str]]]")
    assert_type(few.run_unordered([1], fetch_now), "list[tuple[int, resil.ItemResult[str]]]")
    async for result in few.stream([1], fetch):
        assert_type(result, "resil.ItemResult[str]")
    for result in few.stream_unordered(iter([1]), fetch_now):
        assert_type(result.unwrap(), str)

    async with breaker as nothing:
        assert_type(nothing, None)
    blocks: list[resil.Block[object]] = [client.lock("stock"), breaker, limiter.by("k"), resil.Bulkhead("b")]
    for block in blocks:
        with block:
            pass


async def workers_are_typed(client: resil.Client, message: resil.WorkerMessage) -> None:
    worker = client.worker("orders", source={"type": "rabbit", "url": "amqp://127.0.0.1", "queue": "orders"}, drain="5s")
    client.worker("orders", source={"type": "kafka"})  # type: ignore[arg-type]
    client.worker("orders", wrkers=5)  # type: ignore[call-arg]

    async def handle(message: resil.WorkerMessage) -> None:
        raise resil.WorkError("no", "permanent")

    assert_type(await worker.run(handle, judge=lambda error: "drop"), resil.workers.WorkerReport)
    assert_type(worker.run(lambda message: print(message.payload)), resil.workers.WorkerReport)
    assert_type(message.payload, bytes)
    publisher = client.publisher({"type": "stream", "stream": "orders"})
    assert_type(await publisher.publish("7 pieces", kind="order.placed", caused_by=message), str)
