"""Middleware for any ASGI application (FastAPI, Starlette, Quart, ...): rate limits by tier, and ``Idempotency-Key``.

>>> import resil
>>> from resil.asgi import IdempotencyMiddleware, RateLimitMiddleware, Tier
>>> client = resil.connect("memory://").wait()
>>> free = client.limiter("free", limit=5, period=60)
>>> pro = client.limiter("pro", limit=100, period=60, burst=10)
>>> def tier(request):
...     user = request.header("x-user") or "nobody"
...     return Tier(pro if user.startswith("pro-") else free, user)
>>> async def app(scope, receive, send): ...
>>> app = IdempotencyMiddleware(app, client, "orders", tenant=lambda request: request.header("x-user") or "", wait=0)
>>> app = RateLimitMiddleware(app, tier)

With FastAPI: ``app.add_middleware(RateLimitMiddleware, tier=tier)``; what is added last is outermost. Where the client is only
known once the application has started, give a function of the request in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any, Callable

from ._middleware import Chosen, Tier, chosen_tier, keeps_of, refunded, refunds_of
from ._native import (
    Client,
    Idempotent,
    Run,
    body_too_large,
    is_final,
    limited_response,
    record_response,
    replayed_response,
)
from .errors import InvalidArgumentError, ResilError, ResultUnrecordedError
from .http import idempotency_key, problem, request_fingerprint

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .reports import Problem
    from .settings import IdempotencySettings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
_Headers = list[tuple[bytes, bytes]]

#: Under this name the application finds its :class:`resil.Run` (``fence``, ``attempt``) in the scope of its request.
RUN = "resil.run"


class Request:
    """What a request says about itself, before its body is read. ``scope`` has the rest, for a framework's own class."""

    __slots__ = ("scope",)

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        return str(self.scope["path"])

    @property
    def client_host(self) -> str | None:
        """Who is connected: behind a proxy that is the proxy, unless the server is configured to trust what it says."""
        client = self.scope.get("client")
        return client[0] if client else None

    def header(self, name: str) -> str | None:
        """The first header of that name."""
        values = self._raw_headers(name.lower().encode("latin-1"))
        return values[0].decode("latin-1") if values else None

    def _raw_headers(self, name: bytes) -> list[bytes]:
        return [bytes(value) for given, value in self.scope["headers"] if given.lower() == name]

    def _target(self) -> str:
        """Path and query, as they were sent."""
        raw = self.scope.get("raw_path")
        path = raw.decode("latin-1") if raw else str(self.scope["path"])
        query = self.scope.get("query_string", b"").decode("latin-1")
        return f"{path}?{query}" if query else path


class RateLimitMiddleware:
    """Returns 429 when the limit of the caller's tier is exhausted; every response says what is left.

    ``tier`` is a function (or coroutine function) of a :class:`Request`; it gives a :class:`Tier`, or a pair of limiter and
    key, or None for what is not limited. Headers: ``RateLimit``, ``RateLimit-Policy``, ``X-RateLimit-*``, and ``Retry-After``
    for a refused caller. If the limiter cannot decide (the server is away, and the limit says ``closed``), that is the response.

    ``refund`` says after which responses the cost is given back: a function of the status, or a collection of statuses. Headers say what was
    left before that. An application that raises counts as 500; one that is cancelled, because its client hung up, gives nothing back.
    """

    def __init__(
        self,
        app: App,
        tier: Callable[[Request], Chosen | Awaitable[Chosen]],
        *,
        refund: Callable[[int], bool] | Iterable[int] = (),
    ) -> None:
        self._app = app
        self._tier = tier
        self._refunds = refunds_of(refund)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        chosen = self._tier(Request(scope))
        if inspect.isawaitable(chosen):
            chosen = await chosen
        tier = chosen_tier(chosen)
        if tier is None:
            return await self._app(scope, receive, send)
        try:
            verdict = await tier.limiter.check(tier.key, tier.cost)
        except InvalidArgumentError:
            raise  # of the tier: no fault of the client
        except ResilError as error:
            return await _send_problem(send, problem(error))
        headers_of_limit, refusal = limited_response(tier.limiter, verdict, tier.name)
        headers = _encoded(headers_of_limit)
        status = 500

        async def send_limited(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), *headers]}
            await send(message)

        if refusal is None:
            is_cut = False
            try:
                return await self._app(scope, receive, send_limited)
            except asyncio.CancelledError:
                is_cut = True
                raise
            finally:
                # Nothing is given back to a client that hangs up: a limit could be evaded by that.
                if not is_cut and self._refunds(status):
                    # Best effort: what is not given back fills up again by itself.
                    with contextlib.suppress(ResilError):
                        await refunded(tier)
        # When to come back is said once.
        refusal["headers"] = [header for header in refusal["headers"] if header not in headers_of_limit]
        await _send_problem(send_limited, refusal)


class IdempotencyMiddleware:
    """Does what is asked under an ``Idempotency-Key`` once, and gives every duplicate the first response.

    - The same request is one of the same ``tenant`` (a function of the :class:`Request`: the user who was authenticated, so
      that nobody can ask for another's responses; None is a scope of its own, which no tenant can name), key, method, path, query and
      body. Another one under its key is 422.
    - While it is being worked on, a duplicate waits (``wait=``, see :class:`resil.settings.IdempotencySettings`) and then is
      409. Where a key is ``required`` (True, or a function of the request), none is 400. A malformed one is always 400, and so are
      two.
    - Status, headers and body are kept if ``keep_responses`` says so: a function of the status, or a collection of statuses. By default
      all are kept but those that may be otherwise the next time: 401, 403, 408, 425, 429 and 5xx. After those, and after an
      exception, the next request runs again.
    - A response reaches the client when it is recorded. A stream (more than one part) reaches it as it comes, and is recorded at its
      end; an application that ends without the end of its response has failed. Of a response with more than ``max_response`` bytes, headers included, it is recorded that there was one: duplicates learn
      that by 409. Bodies of requests with more than ``max_body`` bytes are 413.
    - A client that hangs up does not cut the work in half: the application hears of it when its response is complete, and not before.
      A stream that would end only because its client has left is no work to do once.

    Requests without a key, with other ``methods``, and websockets are passed.
    """

    def __init__(
        self,
        app: App,
        client: Client | Callable[[Request], Client],
        name: str,
        *,
        tenant: Callable[[Request], str | None],
        required: bool | Callable[[Request], bool] = False,
        methods: Iterable[str] = ("POST", "PATCH"),
        max_body: int = 1 << 20,
        max_response: int = 1 << 20,
        keep_responses: Callable[[int], bool] | Iterable[int] = is_final,
        **settings: Unpack[IdempotencySettings],
    ) -> None:
        self._app = app
        self._client = client
        self._name = name
        self._tenant = tenant
        self._required = required
        self._methods, self._keeps = keeps_of(methods, keep_responses, max_body, max_response)
        self._max_body = max_body
        self._max_response = max_response
        self._settings = settings
        self._made: tuple[Client, Idempotent] | None = None
        # Tasks of clients that hung up: the loop alone would let go of them.
        self._running: set[asyncio.Task[None]] = set()
        if isinstance(client, Client):
            # What is wrong with the settings is said here, not to the first customer.
            self._idempotent(client)

    def _idempotent(self, client: Client) -> Idempotent:
        if self._made is None or self._made[0] is not client:
            self._made = (client, client.idempotent(self._name, serializer="bytes", **self._settings))
        return self._made[1]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"].upper() not in self._methods:
            return await self._app(scope, receive, send)
        request = Request(scope)
        headers = request._raw_headers(b"idempotency-key")
        required = self._required(request) if callable(self._required) else self._required
        if not headers and not required:
            return await self._app(scope, receive, send)
        try:
            key = idempotency_key(headers, required=required, tenant=self._tenant(request))
        except ResilError as error:
            return await _send_problem(send, problem(error))
        assert key is not None
        try:
            body = await self._read(request, receive)
        except _HungUp:
            return None
        if body is None:
            return await _send_problem(send, body_too_large(self._max_body))
        work = asyncio.ensure_future(self._reply(request, key, body, receive, send))
        self._running.add(work)
        work.add_done_callback(self._running.discard)
        # A server may cancel the request of a client that has left; the work goes on.
        await asyncio.shield(work)

    async def _read(self, request: Request, receive: Receive) -> bytes | None:
        """The body; None if it is too large."""
        said = request.header("content-length") or ""
        if said.isdigit() and int(said) > self._max_body:
            return None
        parts: list[bytes] = []
        length = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _HungUp
            parts.append(message.get("body", b""))
            length += len(parts[-1])
            if length > self._max_body:
                return None
            if not message.get("more_body", False):
                return b"".join(parts)

    async def _reply(self, request: Request, key: str, body: bytes, receive: Receive, send: Send) -> None:
        client = self._client if isinstance(self._client, Client) else self._client(request)
        fingerprint = request_fingerprint(request.method, request._target(), body)
        kept = _Kept(send, self._max_response, self._keeps)
        given = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive_again() -> Message:
            message = next(given, None)
            if message is not None:
                return message
            # All that may come is that the client has left. Frameworks cancel their streams then.
            await kept.is_complete.wait()
            return await receive()

        async def work(run: Run) -> bytes:
            scope = {**request.scope, RUN: run}
            try:
                await self._app(scope, receive_again, kept.send)
            except Exception as error:
                raise _Raised(error) from error
            try:
                return kept.record()
            finally:
                kept.is_complete.set()  # tasks that it left behind may hear of it

        try:
            outcome = await self._idempotent(client).run(key, work, fingerprint=fingerprint, with_run=True)
        except _Raised as raised:
            raise raised.error
        except (_NotFinal, _Unfinished):
            # What is missing of a response is for the server to say, as without us.
            return await kept.pass_on()
        except ResultUnrecordedError:
            # Larger than the server keeps: by a setting of its own.
            return await _send_replayed(send, None)
        except ResilError as error:
            if kept.is_passed_on:
                raise
            return await _send_problem(send, problem(error))
        if not outcome.replayed:
            return await kept.pass_on()
        await _send_replayed(send, outcome.value or None)


class _HungUp(Exception):
    """The client left before it had said all."""


class _Raised(Exception):
    """The application raised: its errors are not ours."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _NotFinal(Exception):
    """A response that may be another the next time."""


class _Unfinished(Exception):
    """The application ended without the end of its response."""


class _Kept:
    """The response of the application, held back until it is recorded, so that nobody hears what is not.

    A stream is let through as it comes, all but its end, and copied; so is one that is too large to keep, without a copy.
    """

    def __init__(self, send: Send, max_response: int, keeps: Callable[[int], bool]) -> None:
        self._send = send
        self._max_response = max_response
        self._keeps = keeps
        self._held: list[Message] = []
        self._status = 0
        self._headers: _Headers = []
        #: None: it is not kept.
        self._parts: list[bytes] | None = []
        self._length = 0
        self.is_passed_on = False
        self.is_complete = asyncio.Event()
        self._is_hung_up = False

    async def send(self, message: Message) -> None:
        self._copy(message)
        if self.is_passed_on:
            is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
            if not is_last:
                return await self._tell(message)
            # Its end is sent when it is recorded: a client that has read all of it may ask again.
            await self._tell({**message, "more_body": True})
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        self._held.append(message)
        if self.is_passed_on:
            return
        if self._parts is None or self._is_stream(message):
            await self.pass_on()

    def _copy(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
            self._length += len(record_response(self._status, self._headers, b""))
        elif message["type"] == "http.response.body":
            part = bytes(message.get("body", b""))
            self._length += len(part)
            if self._parts is not None:
                self._parts.append(part)
        else:
            self._parts = None  # an extension of the server: a file to send, a push
        if self._length > self._max_response:
            self._parts = None
        ends = ("http.response.body", "http.response.pathsend", "http.response.zerocopysend")
        if message["type"] in ends and not message.get("more_body", False):
            self.is_complete.set()

    async def _tell(self, message: Message) -> None:
        """A server may raise OSError once the client has left: nobody listens, and the work goes on."""
        if self._is_hung_up:
            return
        try:
            await self._send(message)
        except OSError:
            self._is_hung_up = True

    def _is_stream(self, message: Message) -> bool:
        """Whether more is to come than what was said. Frameworks send whole responses in two parts, the second of them empty."""
        if message["type"] != "http.response.body" or not message.get("more_body", False):
            return False
        said = next((value for name, value in self._headers if name.lower() == b"content-length"), b"")
        return not said.isdigit() or sum(map(len, self._parts or ())) < int(said)

    async def pass_on(self) -> None:
        held, self._held = self._held, []
        self.is_passed_on = True
        for message in held:
            await self._tell(message)

    def record(self) -> bytes:
        """What to keep; of a response that is too large nothing but that there was one."""
        if not self.is_complete.is_set():
            raise _Unfinished
        if not self._keeps(self._status):
            raise _NotFinal
        if self._parts is None:
            return b""
        return record_response(self._status, self._headers, b"".join(self._parts))


def _encoded(headers: Iterable[tuple[str, str]]) -> _Headers:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def _with_length(status: int, headers: _Headers, body: bytes) -> _Headers:
    """Who recorded it may have left its length to a server of its own: without it, ours would send it in pieces."""
    if status in (204, 304) or any(name == b"content-length" for name, _ in headers):
        return headers
    return [*headers, (b"content-length", str(len(body)).encode())]


async def _send_problem(send: Send, reply: Problem) -> None:
    body = reply["body"]
    headers = [*_encoded(reply["headers"]), (b"content-length", str(len(body)).encode())]
    await _send(send, reply["status"], headers, body)


async def _send_replayed(send: Send, kept: bytes | None) -> None:
    status, headers, reply = replayed_response(kept)
    await _send(send, status, _with_length(status, headers, reply), reply)


async def _send(send: Send, status: int, headers: _Headers, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


__all__ = ["RUN", "IdempotencyMiddleware", "RateLimitMiddleware", "Request", "Tier"]
