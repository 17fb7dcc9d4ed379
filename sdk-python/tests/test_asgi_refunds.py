"""What a request cost is given back after some responses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import resil
from resil.asgi import RateLimitMiddleware, Tier


def test_failures_are_given_back_but_not_to_disconnected_clients(run: Any) -> None:
    async def main() -> None:
        client = await resil.connect("memory://")
        api = client.limiter("api", limit=6, period=60)
        begun = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            begun.set()
            if scope["path"] == "/hangs":
                await asyncio.Event().wait()
            await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        async def say(_: Any) -> None:
            pass

        async def hear() -> dict[str, Any]:
            return {"type": "http.request", "body": b""}

        layer = RateLimitMiddleware(app, tier=lambda _: Tier(api, "ann", cost=3), refund=range(500, 600))

        def asked(path: str) -> Any:
            scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [], "client": None}
            return layer(scope, hear, say)

        for _ in range(4):
            await asked("/fails")
        assert (await api.peek("ann")).remaining == 6, "the whole cost is given back"
        begun.clear()
        hangs = asyncio.ensure_future(asked("/hangs"))
        await asyncio.wait_for(begun.wait(), 10)
        hangs.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hangs
        assert (await api.peek("ann")).remaining == 3, "nothing is given back to a client that hangs up"

    run(main())
