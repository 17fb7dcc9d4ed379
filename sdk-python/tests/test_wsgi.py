"""Flask and Django over HTTP: limits by tier and repeated requests are answered as promised, in memory and on a server."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import django
import django.conf
import django.http
import django.urls
import flask
import httpx
import pytest
from django.core.wsgi import get_wsgi_application
from django.views.decorators.csrf import csrf_exempt
from werkzeug.serving import make_server

import resil
from resil.wsgi import RUN, IdempotencyMiddleware, RateLimitMiddleware, Request, Tier

PATIENCE = 30.0
_names = itertools.count()


@pytest.fixture(params=["memory", "server"])
def client(request: pytest.FixtureRequest) -> resil.Client:
    url = f"memory://wsgi-{next(_names)}" if request.param == "memory" else request.getfixturevalue("server").url
    return resil.connect(str(url)).wait()


class Shop:
    """What the views of both frameworks do; each run counts."""

    def __init__(self) -> None:
        self.made = 0
        self.begun = threading.Event()
        self.may_continue = threading.Event()

    def make(self, path: str, body: bytes, run: resil.Run | None) -> tuple[int, str]:
        self.made += 1
        if path == "slow":
            self.begun.set()
            assert self.may_continue.wait(PATIENCE)
        if path == "fails":
            return 503, "down"
        attempt = run.attempt if run else 0
        return 201, f"order {self.made} of {body.decode()}, attempt {attempt}"


def flask_app(shop: Shop) -> Any:
    app = flask.Flask("shop")

    @app.route("/<path:path>", methods=["GET", "POST", "PUT"])
    def order(path: str) -> flask.Response:
        if path == "raises":
            shop.made += 1
            raise RuntimeError("on purpose")
        if path == "stream":
            shop.made += 1
            return flask.Response(iter([b"a", b"stream"]), 201)
        status, text = shop.make(path, flask.request.get_data(), flask.request.environ.get(RUN))
        response = flask.Response(text, status)
        response.headers.add("set-cookie", "a=1")
        response.headers.add("set-cookie", "b=2")
        return response

    return app.wsgi_app


_shops: dict[str, Shop] = {}


@csrf_exempt
def django_order(request: django.http.HttpRequest, path: str) -> django.http.HttpResponseBase:
    shop = _shops["django"]
    if path == "raises":
        shop.made += 1
        raise RuntimeError("on purpose")
    if path == "stream":
        shop.made += 1
        return django.http.StreamingHttpResponse(iter([b"a", b"stream"]), status=201)
    status, text = shop.make(path, request.body, request.META.get(RUN))
    response = django.http.HttpResponse(text, status=status)
    response.set_cookie("a", "1")
    response.set_cookie("b", "2")
    return response


urlpatterns = [django.urls.path("<path:path>", django_order)]


def django_app(shop: Shop) -> Any:
    _shops["django"] = shop
    # The example of a page may have configured this process before.
    if not django.conf.settings.configured:
        django.conf.settings.configure(SECRET_KEY="for tests", LOGGING_CONFIG=None, USE_TZ=True)
    django.conf.settings.ROOT_URLCONF = __name__
    django.conf.settings.ALLOWED_HOSTS = ["*"]
    django.urls.clear_url_caches()
    return get_wsgi_application()


@pytest.fixture(params=[flask_app, django_app], ids=["flask", "django"])
def app(request: pytest.FixtureRequest) -> Any:
    shop = Shop()
    return shop, request.param(shop)


@contextlib.contextmanager
def served(app: Any) -> Iterator[httpx.Client]:
    server = make_server("127.0.0.1", 0, app, threaded=True)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{server.server_port}", timeout=PATIENCE) as asks:
            yield asks
    finally:
        server.shutdown()
        server.server_close()


def user(request: Request) -> str:
    return request.header("x-user") or "nobody"


def tiers(client: resil.Client) -> Callable[[Request], Tier | None]:
    free = client.limiter(f"free-{next(_names)}", limit=4, period=60)

    def tier(request: Request) -> Tier | None:
        name = user(request)
        if name == "staff":
            return None
        return Tier(free, name, cost=3 if request.path == "/dear" else 1, name="free")

    return tier


def test_an_exhausted_tier_is_429_and_responses_say_whats_left(client: resil.Client, app: Any) -> None:
    with served(RateLimitMiddleware(app[1], tiers(client))) as asks:
        ann = {"x-user": "ann"}
        first = asks.get("/prices", headers=ann)
        assert (first.status_code, first.headers["ratelimit-policy"]) == (201, '"free";q=4;w=60')
        assert asks.get("/dear", headers=ann).headers["x-ratelimit-remaining"] == "0"
        refused = asks.get("/prices", headers=ann)
        assert (refused.status_code, refused.headers["content-type"]) == (429, "application/problem+json")
        assert refused.headers["retry-after"] == "15"
        assert refused.json()["code"] == "RATE_LIMIT_EXCEEDED"
        assert refused.json()["violated-policies"] == ["free"]
        assert "ratelimit" not in asks.get("/prices", headers={"x-user": "staff"}).headers
        assert asks.get("/prices", headers={"x-user": "bob"}).status_code == 201


def test_what_failed_is_given_back_where_that_is_asked_for(client: resil.Client, app: Any) -> None:
    with served(RateLimitMiddleware(app[1], tiers(client), refund=lambda status: status >= 500)) as asks:
        for _ in range(6):
            assert asks.get("/fails", headers={"x-user": "ann"}).status_code == 503
            assert asks.get("/raises", headers={"x-user": "ann"}).status_code == 500
        statuses = [asks.get("/prices", headers={"x-user": "ann"}).status_code for _ in range(5)]
        assert statuses == [201, 201, 201, 201, 429]
    dear = client.limiter(f"free-{next(_names)}", limit=4, period=60)
    with served(RateLimitMiddleware(app[1], lambda _: Tier(dear, "ann", cost=3), refund=[503])) as asks:
        for _ in range(3):
            assert asks.get("/fails").status_code == 503
            # That is done when the server closes the response: the client may have it before.
            until = time.monotonic() + 10
            while dear.peek("ann").wait().remaining < 4:
                assert time.monotonic() < until, "the whole cost is given back"


def test_a_cost_no_limit_takes_is_the_services_fault(client: resil.Client, app: Any) -> None:
    free = client.limiter(f"free-{next(_names)}", limit=4, period=60)
    cost = {"/free": 0, "/less": -1, "/dear": 5}
    with served(RateLimitMiddleware(app[1], lambda request: Tier(free, "ann", cost=cost[request.path]))) as asks:
        for path in ("/free", "/less"):
            assert asks.get(path).status_code == 500
        never = asks.get("/dear")
        assert (never.status_code, never.json()["retryable"], "retry-after" in never.headers) == (429, False, False)
    assert app[0].made == 0


def orders(app: Any, client: resil.Client, **options: Any) -> IdempotencyMiddleware:
    return IdempotencyMiddleware(app[1], client, f"orders-{next(_names)}", tenant=user, wait=0, **options)


KEYED = {"x-user": "ann", "idempotency-key": '"k1"'}


def test_a_duplicate_gets_the_first_response(client: resil.Client, app: Any) -> None:
    with served(orders(app, client)) as asks:
        first = asks.post("/orders?a=1", content="tea", headers=KEYED)
        assert (first.status_code, first.text) == (201, "order 1 of tea, attempt 1")
        again = asks.post("/orders?a=1", content="tea", headers=KEYED)
        assert (again.status_code, again.text, again.headers["idempotency-replayed"]) == (201, first.text, "true")
        assert len(again.headers.get_list("set-cookie")) == 2
        mismatch = asks.post("/orders?a=1", content="coffee", headers=KEYED)
        assert (mismatch.status_code, mismatch.json()["code"]) == (422, "IDEMPOTENCY_MISMATCH")
        assert asks.post("/orders?a=1", content="tea", headers={**KEYED, "x-user": "bob"}).text.startswith("order 2")
        assert asks.post("/orders", content="tea", headers={"x-user": "ann"}).text.endswith("attempt 0")
        assert app[0].made == 3


def test_keys_that_are_missing_malformed_or_two_are_400(client: resil.Client, app: Any) -> None:
    with served(orders(app, client, required=True)) as asks:
        two = [("x-user", "ann"), ("idempotency-key", "a"), ("idempotency-key", "b")]
        for headers in ({"x-user": "ann"}, {**KEYED, "idempotency-key": '"a'}, two):
            refused = asks.post("/orders", content="tea", headers=headers)  # type: ignore[arg-type]
            assert (refused.status_code, refused.headers["content-type"]) == (400, "application/problem+json")
        assert app[0].made == 0


def test_half_a_request_is_not_done(client: resil.Client, app: Any) -> None:
    with served(orders(app, client)) as asks:
        with socket.create_connection((asks.base_url.host, asks.base_url.port or 80), PATIENCE) as half:
            half.sendall(b"POST /orders HTTP/1.1\r\nhost: here\r\nx-user: ann\r\nidempotency-key: k1\r\ncontent-length: 10\r\n\r\nte")
            half.shutdown(socket.SHUT_WR)
            assert b" 400 " in half.recv(1000)
        whole = asks.post("/orders", content="ten bytes!", headers=KEYED)
        assert (whole.status_code, whole.text) == (201, "order 1 of ten bytes!, attempt 1")


def test_while_the_first_runs_a_duplicate_is_409(client: resil.Client, app: Any) -> None:
    shop = app[0]
    with served(orders(app, client)) as asks, ThreadPoolExecutor() as pool:
        first = pool.submit(asks.post, "/slow", content="tea", headers=KEYED)
        assert shop.begun.wait(PATIENCE)
        busy = asks.post("/slow", content="tea", headers=KEYED)
        assert (busy.status_code, "retry-after" in busy.headers) == (409, True)
        shop.may_continue.set()
        assert first.result(PATIENCE).status_code == 201
        assert asks.post("/slow", content="tea", headers=KEYED).headers["idempotency-replayed"] == "true"


def test_responses_that_may_differ_the_next_time_are_not_kept(client: resil.Client, app: Any) -> None:
    with served(orders(app, client)) as asks:
        for made in range(1, 4):
            assert asks.post("/fails", headers=KEYED).status_code == 503
            assert app[0].made == made
        for made in range(4, 6):
            assert asks.post("/raises", headers={**KEYED, "idempotency-key": "k2"}).status_code == 500
            assert app[0].made == made
    with served(orders(app, client, keep_responses=[503])) as asks:
        assert [asks.post("/fails", headers=KEYED).status_code for _ in range(3)] == [503] * 3
        assert app[0].made == 6


def test_a_stream_is_kept_whole(client: resil.Client, app: Any) -> None:
    with served(orders(app, client)) as asks:
        assert [asks.post("/stream", headers=KEYED).text for _ in range(2)] == ["astream"] * 2
        assert app[0].made == 1


def test_bodies_and_responses_have_a_largest_size(client: resil.Client, app: Any) -> None:
    with served(orders(app, client, max_body=4, max_response=60)) as asks:
        assert asks.post("/orders", content="12345", headers=KEYED).status_code == 413
        large = asks.post("/orders", content="1234", headers=KEYED)
        assert (large.status_code, large.text) == (201, "order 1 of 1234, attempt 1")
        again = asks.post("/orders", content="1234", headers=KEYED)
        assert (again.status_code, "was not kept" in again.text) == (409, True)
        assert app[0].made == 1


def test_options_are_read_when_the_middleware_is_made(client: resil.Client) -> None:
    made: dict[str, Any]
    for made in ({"methods": "POST"}, {"keep_responses": "503"}, {"max_body": -1}):
        with pytest.raises(TypeError):
            IdempotencyMiddleware(lambda _environ, _start: [], client, "orders", tenant=user, **made)
    with pytest.raises(TypeError):
        RateLimitMiddleware(lambda _environ, _start: [], lambda _: None, refund="503")  # type: ignore[arg-type]
