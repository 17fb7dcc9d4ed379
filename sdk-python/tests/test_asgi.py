"""A FastAPI application over HTTP: limits by tier and repeated requests are answered as promised, in memory and on a server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Callable

import fastapi
import httpx
import pytest
import uvicorn
from fastapi.responses import PlainTextResponse, Response, StreamingResponse

import resil
from resil.asgi import RUN, IdempotencyMiddleware, RateLimitMiddleware, Request, Tier

PATIENCE = 30.0
_names = itertools.count()


@pytest.fixture(params=["memory", "server"])
def url(request: pytest.FixtureRequest) -> str:
    """One store for all processes of a test."""
    if request.param == "memory":
        return f"memory://asgi-{next(_names)}"
    return str(request.getfixturevalue("server").url)


@contextlib.asynccontextmanager
async def served(*apps: Any) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Each application on a port of its own, as a process of the service would be; a client for each."""
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for app in apps:
            server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", ws="none"))
            serving = asyncio.create_task(server.serve())
            while not server.started:
                await asyncio.sleep(0.005)
                assert not serving.done(), serving

            async def stop(server: uvicorn.Server = server, serving: asyncio.Task[None] = serving) -> None:
                server.should_exit = True
                await serving

            stack.push_async_callback(stop)
            port = server.servers[0].sockets[0].getsockname()[1]
            client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE)
            clients.append(await stack.enter_async_context(client))
        yield clients


def user(request: Request) -> str:
    return request.header("x-user") or "nobody"


# ---- limits --------------------------------------------------------------------------------------------------------------------


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


def test_the_limit_of_a_tier_holds_over_all_processes_and_every_answer_tells_what_is_left(run: Any, url: str) -> None:
    async def main() -> None:
        apps = [limited(await resil.connect(url, name=name)) for name in ("api-1", "api-2")]
        async with served(*apps) as (one, two):
            answers = [await http.get("/prices", headers={"x-user": "ann"}) for http in (one, two, one, two, one)]
            assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
            for index, answer in enumerate(answers):
                assert answer.headers["ratelimit-policy"] == '"free";q=3;w=60'
                assert answer.headers["x-ratelimit-limit"] == "3"
                assert answer.headers["x-ratelimit-remaining"] == str(max(0, 2 - index))
                assert answer.headers["ratelimit"].startswith(f'"free";r={max(0, 2 - index)};t=')
                assert 1 <= int(answer.headers["x-ratelimit-reset"]) <= 60
            assert all("retry-after" not in answer.headers for answer in answers[:3])
            refused = answers[3]
            assert refused.headers["content-type"] == "application/problem+json"
            assert refused.headers.get_list("retry-after") == [refused.headers["retry-after"]], "it is said once"
            assert 1 <= int(refused.headers["retry-after"]) <= 20, "one in twenty seconds"
            told = refused.json()
            assert (told["status"], told["code"]) == (429, "RATE_LIMIT_EXCEEDED")
            assert told["violated-policies"] == ["free"]
            assert 0 < told["retry_after_ms"] <= 20_000
            assert (await two.get("/prices", headers={"x-user": "bob"})).status_code == 200, "bob has his own"

    run(main())


def test_tiers_differ_and_what_has_none_is_not_limited(run: Any) -> None:
    async def main() -> None:
        async with served(limited(await resil.connect("memory://"))) as (http,):
            pro = [await http.get("/prices", headers={"x-user": "pro-pat"}) for _ in range(5)]
            assert [answer.status_code for answer in pro] == [200] * 5
            assert pro[0].headers["ratelimit-policy"] == '"pro";q=20;w=2'
            staff = [await http.get("/prices", headers={"x-user": "staff"}) for _ in range(5)]
            assert [answer.status_code for answer in staff] == [200] * 5
            assert not any("ratelimit" in name for name in staff[0].headers)

    run(main())


def test_a_tier_may_be_awaited_be_a_pair_and_cost_more(run: Any) -> None:
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


def test_a_limit_that_cannot_be_decided_is_answered_with_503_if_it_says_closed(run: Any, server: Any) -> None:
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


# ---- repeated requests ---------------------------------------------------------------------------------------------------------


@dataclass
class Shop:
    """What the handlers did, and where they can be held up."""

    orders: int = 0
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    proceed: asyncio.Event = field(default_factory=asyncio.Event)

    def app(self, client: Any, **options: Any) -> fastapi.FastAPI:
        app = fastapi.FastAPI()
        options = {"tenant": user, **options}
        app.add_middleware(IdempotencyMiddleware, client=client, name="orders", **options)

        @app.post("/orders", status_code=201)
        async def order(request: fastapi.Request) -> Response:
            self.orders += 1
            number, body = self.orders, await request.body()
            if body.startswith(b"slow"):
                self.begun.set()
                await asyncio.wait_for(self.proceed.wait(), PATIENCE)
            response = PlainTextResponse(f"order {number}: ".encode() + body, 201)
            response.headers["location"] = f"/orders/{number}"
            response.set_cookie("a", "1")
            response.set_cookie("b", "2")
            return response

        @app.post("/status/{status}")
        async def answered(status: int) -> Response:
            self.orders += 1
            return PlainTextResponse(f"answer {self.orders}", status)

        @app.post("/raises")
        async def raises() -> None:
            self.orders += 1
            raise RuntimeError("a bug")

        @app.post("/stream")
        async def stream() -> Response:
            self.orders += 1

            async def parts() -> AsyncIterator[bytes]:
                yield b"first"
                await asyncio.wait_for(self.proceed.wait(), PATIENCE)
                yield b"second"

            return StreamingResponse(parts(), media_type="text/event-stream")

        @app.post("/run")
        async def about_run(request: fastapi.Request) -> dict[str, Any]:
            told: resil.Run = request.scope[RUN]
            return {"attempt": told.attempt, "has_fence": told.fence is not None}

        return app


def key(text: str, **headers: str) -> dict[str, str]:
    return {"idempotency-key": text, **headers}


def test_of_all_duplicates_one_is_worked_on_and_the_others_get_its_answer(run: Any, url: str) -> None:
    async def main() -> None:
        shop = Shop()
        apps = [shop.app(await resil.connect(url, name=name), required=True) for name in ("api-1", "api-2")]
        async with served(*apps) as processes:
            asked = [processes[turn % 2].post("/orders", headers=key('"k1"'), content=b"tea") for turn in range(40)]
            answers = await asyncio.gather(*asked)
            assert shop.orders == 1
            assert {(answer.status_code, answer.content) for answer in answers} == {(201, b"order 1: tea")}
            replayed = [answer for answer in answers if "idempotency-replayed" in answer.headers]
            assert len(replayed) == 39
            for answer in replayed:
                assert answer.headers["idempotency-replayed"] == "true"
                assert answer.headers["location"] == "/orders/1"
                assert answer.headers["content-type"] == "text/plain; charset=utf-8"
                assert len(answer.headers.get_list("set-cookie")) == 2, "each header, as often as it was there"
                assert len(answer.headers.get_list("date")) == 1, "the moment is the replay's own"
            bare = await processes[1].post("/orders", headers=key("k1"), content=b"tea")
            assert bare.headers["idempotency-replayed"] == "true", "quoted and bare are the same key"

    run(main())


def test_an_answer_that_was_kept_without_its_length_is_given_again_with_it(run: Any, url: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            status = int(dict(scope["headers"])[b"x-status"])
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b"" if status == 204 else b"tea"})

    async def main() -> None:
        client = await resil.connect(url)
        async with served(IdempotencyMiddleware(app, client=client, name="orders", tenant=user)) as (http,):
            for status, length in ((201, "3"), (204, None)):
                asked = [await http.post("/", headers=key(str(status), **{"x-status": str(status)})) for _ in range(2)]
                assert [answer.status_code for answer in asked] == [status] * 2
                assert asked[0].content == asked[1].content
                assert asked[1].headers["idempotency-replayed"] == "true"
                assert asked[1].headers.get("content-length") == length
                assert "transfer-encoding" not in asked[1].headers

    run(main())


def test_a_duplicate_of_a_request_in_progress_is_told_to_come_back(run: Any, url: str) -> None:
    async def main() -> None:
        shop = Shop()
        apps = [shop.app(await resil.connect(url, name=name), wait=0) for name in ("api-1", "api-2")]
        async with served(*apps) as (one, two):
            first = asyncio.create_task(one.post("/orders", headers=key("k"), content=b"slow tea"))
            await asyncio.wait_for(shop.begun.wait(), PATIENCE)
            for process in (one, two):
                busy = await process.post("/orders", headers=key("k"), content=b"slow tea")
                assert (busy.status_code, busy.json()["code"]) == (409, "IDEMPOTENCY_BUSY")
                assert int(busy.headers["retry-after"]) >= 1
            shop.proceed.set()
            assert (await first).status_code == 201
            assert (await two.post("/orders", headers=key("k"), content=b"slow tea")).text == (await first).text
            assert shop.orders == 1

    run(main())


def test_another_request_under_the_same_key_is_a_mismatch(run: Any, url: str) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect(url))) as (http,):
            assert (await http.post("/orders?a=1", headers=key("k"), content=b"tea")).status_code == 201
            for path, body in (("/orders?a=1", b"coffee"), ("/orders?a=2", b"tea"), ("/status/200?a=1", b"tea")):
                other = await http.post(path, headers=key("k"), content=body)
                assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_MISMATCH")
            assert shop.orders == 1

    run(main())


def test_nobody_gets_the_answer_of_another_tenant(run: Any) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"))) as (http,):
            for name, text in (("ann", "b:1"), ("ann:b", "1"), ("bob", "b:1")):
                answer = await http.post("/orders", headers=key(text, **{"x-user": name}), content=b"tea")
                assert "idempotency-replayed" not in answer.headers
            assert shop.orders == 3

    run(main())


def test_a_key_is_asked_for_where_it_is_required_and_a_malformed_one_is_always_refused(run: Any) -> None:
    async def main() -> None:
        shop, client = Shop(), await resil.connect("memory://")
        orders_only = shop.app(client, required=lambda request: request.path == "/orders")
        async with served(orders_only) as (http,):
            missing = await http.post("/orders", content=b"tea")
            assert (missing.status_code, missing.headers["content-type"]) == (400, "application/problem+json")
            assert "Idempotency-Key" in missing.json()["detail"]
            for malformed in ('"', '""', "", "x" * 256):
                refused = await http.post("/status/200", headers=key(malformed), content=b"tea")
                assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_ARGUMENT"), malformed
            assert shop.orders == 0
            for _ in range(2):
                assert (await http.post("/status/200", content=b"tea")).status_code == 200
            assert shop.orders == 2, "without a key every request is one of its own"

    run(main())


@pytest.mark.parametrize("status", [401, 403, 408, 425, 429, 500, 503])
def test_an_answer_that_may_be_another_next_time_is_not_kept(run: Any, status: int) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"))) as (http,):
            for number in (1, 2):
                answer = await http.post(f"/status/{status}", headers=key("k"))
                assert (answer.status_code, answer.text) == (status, f"answer {number}")

    run(main())


@pytest.mark.parametrize("status", [200, 404, 409, 422])
def test_an_answer_that_is_final_is_kept_whatever_it_says(run: Any, status: int) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"))) as (http,):
            answers = [await http.post(f"/status/{status}", headers=key("k")) for _ in range(2)]
            assert [(answer.status_code, answer.text) for answer in answers] == [(status, "answer 1")] * 2

    run(main())


def test_an_exception_reaches_the_application_and_frees_the_key(run: Any) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"))) as (http,):
            for _ in range(2):
                assert (await http.post("/raises", headers=key("k"))).status_code == 500
            assert shop.orders == 2

    run(main())


def test_a_body_beyond_the_bound_is_refused_with_or_without_its_length(run: Any) -> None:
    async def main() -> None:
        async def in_parts() -> AsyncIterator[bytes]:
            for _ in range(11):
                yield b"x" * 100

        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"), max_body=1_000)) as (http,):
            bodies: list[Any] = [b"x" * 1_001, in_parts()]
            for body in bodies:
                refused = await http.post("/orders", headers=key("k"), content=body)
                assert (refused.status_code, refused.json()["title"]) == (413, "Content Too Large")
            assert shop.orders == 0
            fits = await http.post("/orders", headers=key("k"), content=b"x" * 1_000)
            assert (fits.status_code, len(fits.content)) == (201, len("order 1: ") + 1_000)
            assert (await http.post("/orders", content=b"x" * 5_000)).status_code == 201, "no key, no bound"

    run(main())


def test_a_stream_reaches_its_client_as_it_comes_and_is_kept(run: Any, url: str) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect(url), wait=0)) as (http,):
            async with http.stream("POST", "/stream", headers=key("k")) as response:
                parts = response.aiter_raw()
                assert await asyncio.wait_for(parts.__anext__(), PATIENCE) == b"first", "before the second was made"
                assert (await http.post("/stream", headers=key("k"))).json()["code"] == "IDEMPOTENCY_BUSY"
                shop.proceed.set()
                assert b"".join([part async for part in parts]) == b"second", "its end comes when it is recorded"
            again = await http.post("/stream", headers=key("k"))
            assert (again.status_code, again.content) == (200, b"firstsecond")
            assert again.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert again.headers["idempotency-replayed"] == "true"
            assert shop.orders == 1

    run(main())


def test_a_stream_that_is_too_large_reaches_its_client_and_is_not_kept(run: Any) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"), max_response=60)) as (http,):
            shop.proceed.set()
            assert (await http.post("/stream", headers=key("k"))).content == b"firstsecond"
            again = await http.post("/stream", headers=key("k"))
            assert (again.status_code, "not kept" in again.json()["detail"]) == (409, True)
            assert shop.orders == 1

    run(main())


def test_a_stream_with_a_length_reaches_its_client_as_it_comes(run: Any) -> None:
    """As a file does. A whole answer in two parts, as some frameworks send it, is recorded before anybody hears of it."""
    events: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        parts = [b"fir", b"st"] if scope["path"] == "/file" else [b"first", b""]
        head = [(b"content-length", b"5")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        for number, part in enumerate(parts):
            events.append(f"made {part.decode()}")
            await send({"type": "http.response.body", "body": part, "more_body": number == 0})

    async def main() -> None:
        middleware = IdempotencyMiddleware(app, await resil.connect("memory://"), "orders", tenant=lambda request: "ann")

        async def ask(path: str) -> None:
            messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

            async def receive() -> Any:
                return next(messages)

            async def send(message: Any) -> None:
                if message["type"] == "http.response.body":
                    events.append(f"told {message['body'].decode()}")

            scope = {"type": "http", "method": "POST", "path": path, "headers": [(b"idempotency-key", path.encode())]}
            await middleware(scope, receive, send)

        await ask("/file")
        assert events == ["made fir", "told fir", "made st", "told st", "told "], "its end when it is recorded"
        events.clear()
        await ask("/whole")
        assert events == ["made first", "made ", "told first", "told "]
        events.clear()
        await ask("/file")
        assert events == ["told first"], "recorded all the same"

    run(main())


def test_a_stream_that_breaks_off_frees_the_key(run: Any) -> None:
    tries: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        tries.append(1)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        raise RuntimeError("a bug")

    async def main() -> None:
        middleware = IdempotencyMiddleware(app, await resil.connect("memory://"), "orders", tenant=lambda request: "ann")

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            pass

        for _ in range(2):
            with pytest.raises(RuntimeError, match="a bug"):
                scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"idempotency-key", b"k")]}
                await middleware(scope, receive, send)
        assert len(tries) == 2

    run(main())


@pytest.mark.parametrize("keep", [[200, 503], lambda status: status in (200, 503)], ids=["statuses", "function"])
def test_which_answers_are_kept_can_be_said(run: Any, keep: Any) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"), keep_responses=keep)) as (http,):
            for status, is_kept in [(200, True), (503, True), (201, False), (404, False), (401, False)]:
                first, second = [await http.post(f"/status/{status}", headers=key(f"k{status}")) for _ in range(2)]
                assert ("idempotency-replayed" in second.headers) is is_kept, status
                assert (first.text == second.text) is is_kept

    run(main())


def test_the_head_of_an_answer_counts_towards_its_size(run: Any) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"), max_response=150)) as (http,):
            for _ in range(2):
                answer = await http.post("/orders", headers=key("k"), content=b"tea")
            assert answer.status_code == 409, "13 bytes of body, and two cookies"
            assert shop.orders == 1

    run(main())


def test_two_keys_and_an_empty_one_are_refused(run: Any) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"))) as (http,):
            for keys in (["k1", "k2"], ["k1", "k1"], [""], ['""'], ["k1, k2"]):
                headers = [("idempotency-key", each) for each in keys]
                refused = await http.post("/orders", headers=headers, content=b"tea")
                assert (refused.status_code, refused.headers["content-type"]) == (400, "application/problem+json"), keys
            assert shop.orders == 0

    run(main())


def test_who_has_no_tenant_gets_nobody_elses_answers(run: Any) -> None:
    def tenant(request: Request) -> str | None:
        return request.header("x-user")

    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"), tenant=tenant)) as (http,):
            of_ann = await http.post("/orders", headers=key("k1", **{"x-user": "ann"}), content=b"tea")
            assert of_ann.text == "order 1: tea"
            for number, guess in enumerate(["ann:k1", "k1", ":k1", "%:k1"], 2):
                answer = await http.post("/orders", headers=key(guess), content=b"tea")
                assert answer.text == f"order {number}: tea", guess
            again = await http.post("/orders", headers=key("k1"), content=b"tea")
            assert again.text == "order 3: tea", "who has no tenant has answers of its own"
            for user_name in ("", "%"):
                other = await http.post("/orders", headers=key("k1", **{"x-user": user_name}), content=b"tea")
                assert "idempotency-replayed" not in other.headers, user_name

    run(main())


def test_headers_of_a_limit_with_several_tiers_name_the_one_that_binds(run: Any) -> None:
    async def main() -> None:
        client = await resil.connect("memory://")
        api = client.limiter("api", limit=100, period=1, tiers=[{"limit": 2, "period": 3600}])
        app = limited(client, lambda request: Tier(api, "ann"))
        async with served(app) as (http,):
            answers = [await http.get("/prices") for _ in range(3)]
            assert [answer.status_code for answer in answers] == [200, 200, 429]
            for answer in answers:
                assert answer.headers["ratelimit-policy"] == '"api-1s";q=100;w=1, "api-1h";q=2;w=3600'
                assert answer.headers["ratelimit"].startswith('"api-1h";r='), answer.headers["ratelimit"]
                assert answer.headers["x-ratelimit-limit"] == "2"
            verdict = await api.peek("ann")
            assert (verdict.limit, verdict.period, verdict.binding) == (2, 3600.0, 1)
            assert [(tier["limit"], tier["period"], tier["remaining"]) for tier in verdict.tiers][1] == (2, 3600.0, 0)

    run(main())


def test_an_answer_that_is_too_large_is_passed_on_and_not_kept(run: Any) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"), max_response=100)) as (http,):
            large = await http.post("/orders", headers=key("k"), content=b"x" * 200)
            assert (large.status_code, len(large.content)) == (201, len("order 1: ") + 200)
            assert (await http.post("/orders", headers=key("k"), content=b"x" * 200)).status_code == 409
            assert shop.orders == 1

    run(main())


def test_a_client_that_hangs_up_does_not_cut_its_order_in_half(run: Any) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"))) as (http,):
            with pytest.raises(httpx.ReadTimeout):
                await http.post("/orders", headers=key("k"), content=b"slow tea", timeout=0.3)
            assert shop.begun.is_set()
            shop.proceed.set()
            again = await http.post("/orders", headers=key("k"), content=b"slow tea")
            assert (again.status_code, again.headers["location"]) == (201, "/orders/1")
            assert shop.orders == 1

    run(main())


def test_a_client_that_hangs_up_does_not_cut_a_stream_in_half(run: Any, url: str) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect(url))) as (http,):
            async with http.stream("POST", "/stream", headers=key("k")) as answer:
                assert await anext_of(answer.aiter_bytes()) == b"first"
            # The client has left; a framework that heard of it would cancel its stream before this.
            await asyncio.sleep(0.3)
            shop.proceed.set()
            again = await http.post("/stream", headers=key("k"))
            assert (again.status_code, again.content, shop.orders) == (200, b"firstsecond", 1)

    async def anext_of(parts: AsyncIterator[bytes]) -> bytes:
        return await parts.__anext__()

    run(main())


async def asked(middleware: Any, sent: list[Any], receive_more: Any = None, send: Any = None) -> None:
    """One request, as a server puts it."""
    first = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Any:
        return first.pop() if first else await receive_more()

    async def keep(message: Any) -> None:
        sent.append(message)
        if send is not None:
            await send(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"idempotency-key", b"k")]}
    await middleware(scope, receive, keep)


@pytest.mark.parametrize("breaks_off", ["in its stream", "before it has begun", "after its head"])
def test_an_application_that_ends_without_the_end_of_its_answer_has_failed_and_the_next_runs(
    run: Any, breaks_off: str
) -> None:
    tries: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        tries.append(1)
        if breaks_off == "before it has begun" and len(tries) == 1:
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if breaks_off == "after its head" and len(tries) == 1:
            return
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        if len(tries) > 1:
            await send({"type": "http.response.body", "body": b"second"})

    async def main() -> None:
        client = await resil.connect("memory://")
        middleware = IdempotencyMiddleware(app, client, "orders", tenant=lambda request: "ann")
        whole, replayed, broken = [], [], []  # type: ignore[var-annotated]
        await asked(middleware, broken)
        ends = [message for message in broken if message["type"] == "http.response.body" and not message.get("more_body")]
        assert ends == [], "its server is to see that it is not whole"
        await asked(middleware, whole)
        await asked(middleware, replayed)
        assert len(tries) == 2
        for answer in (whole, replayed):
            assert b"".join(message.get("body", b"") for message in answer) == b"firstsecond"
            assert not answer[-1].get("more_body", False)

    run(main())


def test_an_application_hears_that_its_client_has_left_when_its_answer_is_complete_and_not_before(run: Any) -> None:
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        listening = asyncio.ensure_future(receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"one", b"two", b"three"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.sleep(0.01)
            assert not listening.done(), "while its answer is to be kept"
        await send({"type": "http.response.body", "body": b"!"})
        heard.append((await asyncio.wait_for(listening, PATIENCE))["type"])

    async def main() -> None:
        client = await resil.connect("memory://")
        middleware = IdempotencyMiddleware(app, client, "orders", tenant=lambda request: "ann")

        async def has_left() -> Any:
            return {"type": "http.disconnect"}

        async def fails(message: Any) -> None:
            raise BrokenPipeError("the client has left")

        first, again = [], []  # type: ignore[var-annotated]
        await asked(middleware, first, has_left, fails)
        assert heard == ["http.disconnect"]
        assert len(first) == 1, "nothing is sent to who has left"
        await asked(middleware, again)
        assert again[1]["body"] == b"onetwothree!"
        assert heard == ["http.disconnect"], "it was not run again"

    run(main())


def test_a_request_that_its_server_cancels_is_worked_on_to_the_end(run: Any) -> None:
    async def main() -> None:
        begun, proceed, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            assert (await receive())["body"] == b"tea"
            begun.set()
            await proceed.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"done"})
            done.set()

        wrapped = IdempotencyMiddleware(app, await resil.connect("memory://"), "orders", tenant=user)
        scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"Idempotency-Key", b"k")]}

        async def receive() -> Any:
            return {"type": "http.request", "body": b"tea"}

        async def send(message: Any) -> None: ...

        request = asyncio.create_task(wrapped(scope, receive, send))
        await begun.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        proceed.set()
        await asyncio.wait_for(done.wait(), PATIENCE)
        sent: list[Any] = []

        async def keep(message: Any) -> None:
            sent.append(message)

        await wrapped(scope, receive, keep)
        assert (sent[0]["status"], sent[1]["body"]) == (200, b"done")

    run(main())


def test_the_application_finds_its_run_and_the_client_may_come_with_the_request(run: Any) -> None:
    async def main() -> None:
        client = await resil.connect("memory://")
        async with served(Shop().app(lambda request: client)) as (http,):
            told = await http.post("/run", headers=key("k"))
            assert told.json() == {"attempt": 1, "has_fence": True}
            again = await http.post("/run", headers=key("k"))
            assert again.headers["idempotency-replayed"] == "true"

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
