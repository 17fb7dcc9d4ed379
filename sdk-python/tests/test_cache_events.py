"""The recipe of docs/caching.md: another service owns the data, and its events invalidate what is cached here."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
import resil

BOUND = 60.0


async def until(what: str, holds: Any) -> None:
    end = time.monotonic() + BOUND
    while not await holds():
        assert time.monotonic() < end, f"waited in vain until {what}"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["stream", "rabbit"])
def test_an_event_of_the_owner_reaches_every_cache(kind: str, servers: Any, run: Any) -> None:
    redis = servers.start()
    source: Any = {"type": "stream", "stream": "user.changed", "group": "shop", "reclaim": 1}
    if kind == "rabbit":
        source = {"type": "rabbit", "url": servers.rabbit().url, "queue": "shop.user.changed"}
    rows = {"42": "Ada", "43": "Grace"}

    async def load(key: str) -> str:
        return rows[key]

    async def main() -> None:
        # Two processes that cache, each with a local tier. One of them listens; the other hears of it from the server.
        clients = [await resil.connect(redis.url) for _ in range(2)]
        caches = [client.cached("user", ttl=3600, local_ttl=3600) for client in clients]

        async def handle(message: resil.WorkerMessage) -> None:
            await caches[0].invalidate(message.payload.decode())

        async def all_get(key: str, value: str) -> bool:
            return [await cache.get(key, load) for cache in caches] == [value] * 2

        async def listening() -> tuple[resil.Worker, Any]:
            worker = clients[0].worker("shop-user-cache", source=source)
            task = asyncio.ensure_future(_awaited(worker.run(handle)))

            async def is_connected() -> bool:
                return bool(worker.health().get("source", {}).get("is_connected"))

            await until("the worker listens", is_connected)
            return worker, task

        owner = (await resil.connect(redis.url)).publisher(source)
        worker, task = await listening()
        for key, name in [("42", "Ada"), ("43", "Grace")]:
            assert await all_get(key, name)
        rows.update({"42": "Ada L.", "43": "never said"})
        await owner.publish("42", kind="user.changed")
        await until("both have the new name", lambda: all_get("42", "Ada L."))
        assert await all_get("43", "Grace"), "nobody said that this changed"

        # An event that comes twice, and one that comes while nobody listens.
        await owner.publish("42", kind="user.changed")
        worker.stop()
        await asyncio.wait_for(task, BOUND)
        rows["42"] = "A. Lovelace"
        await owner.publish("42", kind="user.changed")
        worker, task = await listening()
        await until("what was said meanwhile is heard", lambda: all_get("42", "A. Lovelace"))
        worker.stop()
        await asyncio.wait_for(task, BOUND)

    run(main())
    redis.stop()


async def _awaited(pending: Any) -> Any:
    return await pending
