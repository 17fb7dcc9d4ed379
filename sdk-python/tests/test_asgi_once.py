"""A FastAPI application over HTTP: every duplicate of a request gets the first response, in memory and on a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import resil
from asgi_scene import PATIENCE, Shop, key, served, user
from resil.asgi import IdempotencyMiddleware, Request


def test_one_duplicate_is_worked_on_and_others_get_its_reply(run: Any, url: str) -> None:
    async def main() -> None:
        shop = Shop()
        apps = [shop.app(await resil.connect(url, name=name), required=True) for name in ("api-1", "api-2")]
        async with served(*apps) as processes:
            asked = [processes[turn % 2].post("/orders", headers=key('"k1"'), content=b"tea") for turn in range(40)]
            replies = await asyncio.gather(*asked)
            assert shop.orders == 1
            assert {(reply.status_code, reply.content) for reply in replies} == {(201, b"order 1: tea")}
            replayed = [reply for reply in replies if "idempotency-replayed" in reply.headers]
            assert len(replayed) == 39
            for reply in replayed:
                assert reply.headers["idempotency-replayed"] == "true"
                assert reply.headers["location"] == "/orders/1"
                assert reply.headers["content-type"] == "text/plain; charset=utf-8"
                assert len(reply.headers.get_list("set-cookie")) == 2, "each header, as often as it was there"
                assert len(reply.headers.get_list("date")) == 1, "the moment is the replay's own"
            bare = await processes[1].post("/orders", headers=key("k1"), content=b"tea")
            assert bare.headers["idempotency-replayed"] == "true", "quoted and bare are the same key"

    run(main())


def test_a_reply_kept_without_length_is_replayed_with_it(run: Any, url: str) -> None:
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
                assert [reply.status_code for reply in asked] == [status] * 2
                assert asked[0].content == asked[1].content
                assert asked[1].headers["idempotency-replayed"] == "true"
                assert asked[1].headers.get("content-length") == length
                assert "transfer-encoding" not in asked[1].headers

    run(main())


def test_a_duplicate_in_progress_is_asked_to_come_back(run: Any, url: str) -> None:
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


def test_nobody_gets_the_reply_of_another_tenant(run: Any) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"))) as (http,):
            for name, text in (("ann", "b:1"), ("ann:b", "1"), ("bob", "b:1")):
                reply = await http.post("/orders", headers=key(text, **{"x-user": name}), content=b"tea")
                assert "idempotency-replayed" not in reply.headers
            assert shop.orders == 3

    run(main())


def test_a_required_key_is_asked_for_and_malformed_ones_refused(run: Any) -> None:
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
def test_a_reply_that_may_change_is_not_kept(run: Any, status: int) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"))) as (http,):
            for number in (1, 2):
                reply = await http.post(f"/status/{status}", headers=key("k"))
                assert (reply.status_code, reply.text) == (status, f"response {number}")

    run(main())


@pytest.mark.parametrize("status", [200, 404, 409, 422])
def test_a_reply_that_is_final_is_kept_whatever_it_says(run: Any, status: int) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"))) as (http,):
            replies = [await http.post(f"/status/{status}", headers=key("k")) for _ in range(2)]
            assert [(reply.status_code, reply.text) for reply in replies] == [(status, "response 1")] * 2

    run(main())


def test_an_exception_reaches_the_application_and_frees_the_key(run: Any) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"))) as (http,):
            for _ in range(2):
                assert (await http.post("/raises", headers=key("k"))).status_code == 500
            assert shop.orders == 2

    run(main())


def test_a_body_beyond_the_bound_is_refused_whatever_its_length(run: Any) -> None:
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


@pytest.mark.parametrize("keep", [[200, 503], lambda status: status in (200, 503)], ids=["statuses", "function"])
def test_which_replies_are_kept_can_be_said(run: Any, keep: Any) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"), keep_responses=keep)) as (http,):
            for status, is_kept in [(200, True), (503, True), (201, False), (404, False), (401, False)]:
                first, second = [await http.post(f"/status/{status}", headers=key(f"k{status}")) for _ in range(2)]
                assert ("idempotency-replayed" in second.headers) is is_kept, status
                assert (first.text == second.text) is is_kept

    run(main())


def test_the_head_of_a_reply_counts_towards_its_size(run: Any) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"), max_response=150)) as (http,):
            for _ in range(2):
                reply = await http.post("/orders", headers=key("k"), content=b"tea")
            assert reply.status_code == 409, "13 bytes of body, and two cookies"
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


def test_a_caller_without_a_tenant_gets_nobody_elses_replies(run: Any) -> None:
    def tenant(request: Request) -> str | None:
        return request.header("x-user")

    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"), tenant=tenant)) as (http,):
            of_ann = await http.post("/orders", headers=key("k1", **{"x-user": "ann"}), content=b"tea")
            assert of_ann.text == "order 1: tea"
            for number, guess in enumerate(["ann:k1", "k1", ":k1", "%:k1"], 2):
                reply = await http.post("/orders", headers=key(guess), content=b"tea")
                assert reply.text == f"order {number}: tea", guess
            again = await http.post("/orders", headers=key("k1"), content=b"tea")
            assert again.text == "order 3: tea", "who has no tenant has responses of its own"
            for user_name in ("", "%"):
                other = await http.post("/orders", headers=key("k1", **{"x-user": user_name}), content=b"tea")
                assert "idempotency-replayed" not in other.headers, user_name

    run(main())


def test_a_reply_too_large_is_passed_on_and_not_kept(run: Any) -> None:
    async def main() -> None:
        shop = Shop()
        async with served(shop.app(await resil.connect("memory://"), max_response=100)) as (http,):
            large = await http.post("/orders", headers=key("k"), content=b"x" * 200)
            assert (large.status_code, len(large.content)) == (201, len("order 1: ") + 200)
            assert (await http.post("/orders", headers=key("k"), content=b"x" * 200)).status_code == 409
            assert shop.orders == 1

    run(main())


def test_the_application_finds_its_run_and_requests_bring_clients(run: Any) -> None:
    async def main() -> None:
        client = await resil.connect("memory://")
        async with served(Shop().app(lambda request: client)) as (http,):
            reported = await http.post("/run", headers=key("k"))
            assert reported.json() == {"attempt": 1, "has_fence": True}
            again = await http.post("/run", headers=key("k"))
            assert again.headers["idempotency-replayed"] == "true"

    run(main())
