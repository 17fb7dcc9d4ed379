"""A FastAPI application over HTTP, with limits by tier, in memory and on a server."""

from __future__ import annotations

import asyncio
from typing import Any, Callable

import fastapi
import pytest
import resil
from asgi_scene import served, user
from resil.asgi import IdempotencyMiddleware, RateLimitMiddleware, Request, Tier


def limited(client: resil.Client, tier: Callable[[Request], Any] | None = None) -> fastapi.FastAPI:
    free = client.limiter("free", limit=3, period=60)
    pro = client.limiter("pro", limit=600, period=60, burst=20)

    def by_user(request: Request) -> Tier | None:
        name = user(request)
        if name == "staff":
            return None
        return Tier(pro, name) if name.startswith("pro-") else Tier(free, name)

    app = fastapi.FastAPI()
    app.add_middleware(RateLimitMiddleware, tier=tier or by_user)

    @app.get("/prices")
    async def prices() -> dict[str, int]:
        return {"tea": 420}

    return app


def test_processes_share_a_tiers_limit_and_every_reply_says_it(run: Any, url: str) -> None:
    async def main() -> None:
        apps = [limited(await resil.connect(url, name=name)) for name in ("api-1", "api-2")]
        async with served(*apps) as (one, two):
            replies = [await http.get("/prices", headers={"x-user": "ann"}) for http in (one, two, one, two, one)]
            assert [reply.status_code for reply in replies] == [200, 200, 200, 429, 429]
            for index, reply in enumerate(replies):
                assert reply.headers["ratelimit-policy"] == '"free";q=3;w=60'
                assert reply.headers["x-ratelimit-limit"] == "3"
                assert reply.headers["x-ratelimit-remaining"] == str(max(0, 2 - index))
                assert reply.headers["ratelimit"].startswith(f'"free";r={max(0, 2 - index)};t=')
                assert 1 <= int(reply.headers["x-ratelimit-reset"]) <= 60
            assert all("retry-after" not in reply.headers for reply in replies[:3])
            refused = replies[3]
            assert refused.headers["content-type"] == "application/problem+json"
            assert refused.headers.get_list("retry-after") == [refused.headers["retry-after"]], "it is said once"
            assert 1 <= int(refused.headers["retry-after"]) <= 20, "one in twenty seconds"
            reported = refused.json()
            assert (reported["status"], reported["code"]) == (429, "RATE_LIMIT_EXCEEDED")
            assert reported["violated-policies"] == ["free"]
            assert 0 < reported["retry_after_ms"] <= 20_000
            assert (await two.get("/prices", headers={"x-user": "bob"})).status_code == 200, "bob has another"

    run(main())


def test_tiers_differ_and_what_has_none_is_not_limited(run: Any) -> None:
    async def main() -> None:
        async with served(limited(await resil.connect("memory://"))) as (http,):
            pro = [await http.get("/prices", headers={"x-user": "pro-pat"}) for _ in range(5)]
            assert [reply.status_code for reply in pro] == [200] * 5
            assert pro[0].headers["ratelimit-policy"] == '"pro";q=20;w=2'
            staff = [await http.get("/prices", headers={"x-user": "staff"}) for _ in range(5)]
            assert [reply.status_code for reply in staff] == [200] * 5
            assert not any("ratelimit" in name for name in staff[0].headers)

    run(main())


def test_a_tier_may_be_awaited_a_pair_and_dearer(run: Any) -> None:
    async def main() -> None:
        client = await resil.connect("memory://")
        api = client.limiter("api", limit=4, period=60)

        async def pair(request: Request) -> Any:
            await asyncio.sleep(0)
            assert (request.method, request.path, request.client_host) == ("GET", "/prices", "127.0.0.1")
            return api, b"\xff\x00"

        async with served(limited(client, pair)) as (http,):
            assert (await http.get("/prices")).headers["x-ratelimit-remaining"] == "3"
        async with served(limited(client, lambda request: Tier(api, "ann", cost=3, name="weekly"))) as (http,):
            assert (await http.get("/prices")).headers["ratelimit"].startswith('"weekly";r=1;')
            assert (await http.get("/prices")).status_code == 429

    run(main())


def test_an_undecided_limit_that_says_closed_is_503(run: Any, server: Any) -> None:
    async def main() -> None:
        client = await resil.connect(server.url, command_timeout=0.2)
        closed = client.limiter("closed", limit=5, period=60, when_away="closed")
        async with served(limited(client, lambda request: (closed, "ann"))) as (http,):
            assert (await http.get("/prices")).status_code == 200
            await asyncio.to_thread(server.kill)
            refused = await http.get("/prices")
            assert (refused.status_code, refused.json()["code"]) == (503, "BACKEND_UNAVAILABLE")
            assert server.url.split(":")[-1] not in refused.text, "no address reaches a client"

    run(main())


def test_headers_of_several_tiers_name_the_binding_one(run: Any) -> None:
    async def main() -> None:
        client = await resil.connect("memory://")
        api = client.limiter("api", limit=100, period=1, tiers=[{"limit": 2, "period": 3600}])
        app = limited(client, lambda request: Tier(api, "ann"))
        async with served(app) as (http,):
            replies = [await http.get("/prices") for _ in range(3)]
            assert [reply.status_code for reply in replies] == [200, 200, 429]
            for reply in replies:
                assert reply.headers["ratelimit-policy"] == '"api-1s";q=100;w=1, "api-1h";q=2;w=3600'
                assert reply.headers["ratelimit"].startswith('"api-1h";r='), reply.headers["ratelimit"]
                assert reply.headers["x-ratelimit-limit"] == "2"
            verdict = await api.peek("ann")
            assert (verdict.limit, verdict.period, verdict.binding) == (2, 3600.0, 1)
            assert [(tier["limit"], tier["period"], tier["remaining"]) for tier in verdict.tiers][1] == (2, 3600.0, 0)

    run(main())


def test_what_is_not_http_and_other_methods_are_passed(run: Any) -> None:
    async def main() -> None:
        seen: list[Any] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            seen.append(scope)

        client = await resil.connect("memory://")
        wrapped = RateLimitMiddleware(IdempotencyMiddleware(app, client, "orders", tenant=user, required=True), lambda _: None)
        get = {"type": "http", "method": "GET", "path": "/", "headers": []}
        for scope in ({"type": "lifespan"}, {"type": "websocket", "path": "/", "headers": []}, get):
            await wrapped(scope, None, None)  # type: ignore[arg-type]
            assert seen[-1] is scope

    run(main())


def test_wrong_settings_are_named_when_the_middleware_is_made(client: resil.Client) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    with pytest.raises(ValueError, match="lease"):
        IdempotencyMiddleware(app, client, "orders", tenant=user, lease=0)
    with pytest.raises((TypeError, ValueError), match="leese"):
        IdempotencyMiddleware(app, client, "orders", tenant=user, leese=1)  # type: ignore[call-arg]
