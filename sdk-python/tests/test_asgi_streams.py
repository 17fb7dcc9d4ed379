"""Responses in parts, clients that hang up, and applications that end early: what duplicates get of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import resil
from asgi_scene import PATIENCE, Shop, asked, key, served, user
from resil.asgi import IdempotencyMiddleware


def test_a_stream_reaches_its_client_live_and_is_kept(run: Any, url: str) -> None:
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


def test_a_stream_too_large_is_passed_on_and_not_kept(run: Any) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"), max_response=60)) as (http,):
            shop.proceed.set()
            assert (await http.post("/stream", headers=key("k"))).content == b"firstsecond"
            again = await http.post("/stream", headers=key("k"))
            assert (again.status_code, "not kept" in again.json()["detail"]) == (409, True)
            assert shop.orders == 1

    run(main())


def test_a_stream_with_a_length_reaches_its_client_live(run: Any) -> None:
    """As a file does. A whole response in two parts, as some frameworks send it, is recorded before anybody hears of it."""
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
                    events.append(f"reported {message['body'].decode()}")

            scope = {"type": "http", "method": "POST", "path": path, "headers": [(b"idempotency-key", path.encode())]}
            await middleware(scope, receive, send)

        await ask("/file")
        assert events == ["made fir", "reported fir", "made st", "reported st", "reported "], "its end when it is recorded"
        events.clear()
        await ask("/whole")
        assert events == ["made first", "made ", "reported first", "reported "]
        events.clear()
        await ask("/file")
        assert events == ["reported first"], "recorded all the same"

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


def test_a_client_that_hangs_up_cuts_no_order_short(run: Any) -> None:
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


def test_a_client_that_hangs_up_cuts_no_stream_short(run: Any, url: str) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect(url))) as (http,):
            async with http.stream("POST", "/stream", headers=key("k")) as reply:
                assert await anext_of(reply.aiter_bytes()) == b"first"
            # The client has left; a framework that heard of it would cancel its stream before this.
            await asyncio.sleep(0.3)
            shop.proceed.set()
            again = await http.post("/stream", headers=key("k"))
            assert (again.status_code, again.content, shop.orders) == (200, b"firstsecond", 1)

    async def anext_of(parts: AsyncIterator[bytes]) -> bytes:
        return await parts.__anext__()

    run(main())


@pytest.mark.parametrize("breaks_off", ["in its stream", "before it has begun", "after its head"])
def test_an_application_without_the_end_of_its_reply_has_failed(
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
        for reply in (whole, replayed):
            assert b"".join(message.get("body", b"") for message in reply) == b"firstsecond"
            assert not reply[-1].get("more_body", False)

    run(main())


def test_an_application_hears_of_the_disconnect_after_its_reply(run: Any) -> None:
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        listening = asyncio.ensure_future(receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"one", b"two", b"three"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.sleep(0.01)
            assert not listening.done(), "while its response is to be kept"
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
        assert len(first) == 1, "nothing is sent to a client that has left"
        await asked(middleware, again)
        assert again[1]["body"] == b"onetwothree!"
        assert heard == ["http.disconnect"], "it was not run again"

    run(main())


def test_a_request_its_server_cancels_is_finished(run: Any) -> None:
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
