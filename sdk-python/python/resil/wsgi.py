"""Middleware for any WSGI application (Flask, Django, ...): rate limits by tier, and ``Idempotency-Key``.

>>> import resil
>>> from resil.wsgi import IdempotencyMiddleware, RateLimitMiddleware, Tier
>>> client = resil.connect("memory://").wait()
>>> free = client.limiter("free", limit=5, period=60)
>>> def app(environ, start_response): ...
>>> app = IdempotencyMiddleware(app, client, "orders", tenant=lambda request: request.header("x-user"), wait=0)
>>> app = RateLimitMiddleware(app, lambda request: Tier(free, request.header("x-user") or "nobody"))

With Flask: ``app.wsgi_app = RateLimitMiddleware(app.wsgi_app, tier)``. With Django, in ``wsgi.py``:
``application = RateLimitMiddleware(get_wsgi_application(), tier)``. The options, and the responses, are those of :mod:`resil.asgi`.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator
from http.client import responses
from typing import TYPE_CHECKING, Any, Callable
from urllib.parse import quote

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
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment
    from typing_extensions import Unpack

    from .settings import IdempotencySettings

_Headers = list[tuple[str, str]]

#: Under this name the application finds its :class:`resil.Run` (``fence``, ``attempt``) in the environment of its request.
RUN = "resil.run"


class Request:
    """What a request says about itself, before its body is read. ``environ`` has the rest, for a framework's own class."""

    __slots__ = ("environ",)

    def __init__(self, environ: WSGIEnvironment) -> None:
        self.environ = environ

    @property
    def method(self) -> str:
        return str(self.environ["REQUEST_METHOD"])

    @property
    def path(self) -> str:
        raw = str(self.environ.get("SCRIPT_NAME", "")) + str(self.environ.get("PATH_INFO", ""))
        return raw.encode("latin-1").decode("utf-8", "replace")

    @property
    def client_host(self) -> str | None:
        """Who is connected: behind a proxy that is the proxy, unless the server is configured to trust what it says."""
        host = self.environ.get("REMOTE_ADDR")
        return str(host) if host else None

    def header(self, name: str) -> str | None:
        """The header of that name; several of one name are joined by commas, as WSGI has it."""
        name = name.upper().replace("-", "_")
        value = self.environ.get(name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}")
        return None if value is None else str(value)

    def _target(self) -> str:
        """Path and query, as they were sent, or as near to it as WSGI tells."""
        for name in ("RAW_URI", "REQUEST_URI"):
            raw = str(self.environ.get(name, ""))
            if raw.startswith("/"):
                return raw
        raw = str(self.environ.get("SCRIPT_NAME", "")) + str(self.environ.get("PATH_INFO", ""))
        path = quote(raw.encode("latin-1"), safe="/:@!$&'()*+,;=-._~") or "/"
        query = str(self.environ.get("QUERY_STRING", ""))
        return f"{path}?{query}" if query else path


class RateLimitMiddleware:
    """Returns 429 when the limit of the caller's tier is exhausted; every response says what is left.

    The options are those of :class:`resil.asgi.RateLimitMiddleware`; ``tier`` is a plain function.
    """

    def __init__(
        self,
        app: WSGIApplication,
        tier: Callable[[Request], Chosen],
        *,
        refund: Callable[[int], bool] | Iterable[int] = (),
    ) -> None:
        self._app = app
        self._tier = tier
        self._refunds = refunds_of(refund)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        tier = chosen_tier(self._tier(Request(environ)))
        if tier is None:
            return self._app(environ, start_response)
        try:
            verdict = tier.limiter.check(tier.key, tier.cost).wait()
        except InvalidArgumentError:
            raise  # of the tier: no fault of the client
        except ResilError as error:
            return _send_problem(start_response, problem(error))
        headers_of_limit, refusal = limited_response(tier.limiter, verdict, tier.name)
        if refusal is not None:
            return _send_problem(start_response, refusal, [header for header in headers_of_limit if header not in refusal["headers"]])
        status = 500

        def start_limited(line: str, headers: _Headers, exc_info: Any = None) -> Any:
            nonlocal status
            status = int(line[:3])
            return start_response(line, [*headers, *headers_of_limit], exc_info)

        def settle() -> None:
            if self._refunds(status):
                # Best effort: what is not given back fills up again by itself.
                with contextlib.suppress(ResilError):
                    refunded(tier).wait()

        try:
            parts = self._app(environ, start_limited)
        except BaseException:
            settle()
            raise
        return _Closing(parts, settle)


class IdempotencyMiddleware:
    """Does what is asked under an ``Idempotency-Key`` once, and gives every duplicate the first response.

    The options are those of :class:`resil.asgi.IdempotencyMiddleware`; functions are plain. A response reaches the client when it is
    whole and recorded, so a stream is collected first, up to ``max_response`` bytes; what is larger goes out as it comes, and
    duplicates learn by 409 that it is done.
    """

    def __init__(
        self,
        app: WSGIApplication,
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
        if isinstance(client, Client):
            # What is wrong with the settings is said here, not to the first customer.
            self._idempotent(client)

    def _idempotent(self, client: Client) -> Idempotent:
        if self._made is None or self._made[0] is not client:
            self._made = (client, client.idempotent(self._name, serializer="bytes", **self._settings))
        return self._made[1]

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        if request.method.upper() not in self._methods:
            return self._app(environ, start_response)
        header = request.header("idempotency-key")
        required = self._required(request) if callable(self._required) else self._required
        if header is None and not required:
            return self._app(environ, start_response)
        try:
            # Two headers are one with a comma here, which is refused as well.
            headers = [] if header is None else [header.encode("latin-1")]
            key = idempotency_key(headers, required=required, tenant=self._tenant(request))
        except ResilError as error:
            return _send_problem(start_response, problem(error))
        assert key is not None
        try:
            body = self._read(request)
        except InvalidArgumentError as error:
            return _send_problem(start_response, problem(error))
        if body is None:
            return _send_problem(start_response, body_too_large(self._max_body))
        return self._reply(request, key, body, start_response)

    def _read(self, request: Request) -> bytes | None:
        """The body; None if it is too large."""
        said = request.header("content-length") or ""
        stream = request.environ["wsgi.input"]
        if said.isdigit():
            if int(said) > self._max_body:
                return None
            body = bytes(stream.read(int(said)))
            if len(body) < int(said):
                # Half a request must not be done, nor recorded: its client will send the whole under the same key.
                raise InvalidArgumentError(f"the body of the request ended after {len(body)} of {said} bytes")
            return body
        if not request.environ.get("wsgi.input_terminated"):
            return b""  # by the specification there is none
        body = bytes(stream.read(self._max_body + 1))
        return None if len(body) > self._max_body else body

    def _reply(self, request: Request, key: str, body: bytes, start_response: StartResponse) -> Iterable[bytes]:
        client = self._client if isinstance(self._client, Client) else self._client(request)
        fingerprint = request_fingerprint(request.method, request._target(), body)
        kept = _Kept(self._max_response, self._keeps)

        def work(run: Run) -> bytes:
            environ = {**request.environ, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body)), RUN: run}
            try:
                kept.run(self._app, environ)
            except Exception as error:
                raise _Raised(error) from error
            return kept.record()

        try:
            outcome = self._idempotent(client).run(key, work, fingerprint=fingerprint, with_run=True)
        except _Raised as raised:
            raise raised.error
        except _NotFinal:
            return kept.pass_on(start_response)
        except ResultUnrecordedError:
            # Larger than the server keeps: by a setting of its own.
            return _send_replayed(start_response, None)
        except ResilError as error:
            return _send_problem(start_response, problem(error))
        if not outcome.replayed:
            return kept.pass_on(start_response)
        return _send_replayed(start_response, outcome.value or None)


class _Raised(Exception):
    """The application raised: its errors are not ours."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _NotFinal(Exception):
    """A response that may be another the next time."""


class _Kept:
    """The response of the application, held back until it is recorded, so that nobody hears what is not."""

    def __init__(self, max_response: int, keeps: Callable[[int], bool]) -> None:
        self._max_response = max_response
        self._keeps = keeps
        self._line = ""
        self._headers: _Headers = []
        self._parts: list[bytes] = []
        self._length = 0
        #: What is left of a response that is too large to be kept, and its end.
        self._rest: Iterator[bytes] | None = None
        self._close: Callable[[], None] | None = None

    def run(self, app: WSGIApplication, environ: WSGIEnvironment) -> None:
        written: list[bytes] = []

        def start(line: str, headers: _Headers, exc_info: Any = None) -> Callable[[bytes], object]:
            if self._line and exc_info is None:
                raise AssertionError("start_response was called twice")
            self._line, self._headers = line, list(headers)
            return written.append

        parts = app(environ, start)
        self._close = getattr(parts, "close", None)
        try:
            rest = iter(parts)
            for part in rest:
                self._take(written)
                self._take([part])
                if self._is_too_large():
                    self._rest = rest
                    return
            self._take(written)
        except BaseException:
            self._end()
            raise
        self._end()
        if not self._line:
            raise AssertionError("start_response was not called")

    def _take(self, parts: list[bytes]) -> None:
        self._parts.extend(parts)
        self._length += sum(map(len, parts))
        parts.clear()

    def _recorded(self, body: bytes) -> bytes:
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self._headers]
        return record_response(int(self._line[:3]), headers, body)

    def _is_too_large(self) -> bool:
        return self._length + len(self._recorded(b"")) > self._max_response

    def record(self) -> bytes:
        """What to keep; of a response that is too large nothing but that there was one."""
        if not self._keeps(int(self._line[:3])):
            raise _NotFinal
        return b"" if self._is_too_large() else self._recorded(b"".join(self._parts))

    def pass_on(self, start_response: StartResponse) -> Iterable[bytes]:
        start_response(self._line, self._headers)
        if self._rest is None:
            return self._parts
        return _Closing(self._then(self._rest), self._end)

    def _then(self, rest: Iterator[bytes]) -> Iterator[bytes]:
        yield from self._parts
        yield from rest

    def _end(self) -> None:
        close, self._close = self._close, None
        if close is not None:
            close()


class _Closing:
    """An iterable with something to do at its end, once."""

    def __init__(self, parts: Iterable[bytes], at_end: Callable[[], None]) -> None:
        self._parts = parts
        self._at_end: Callable[[], None] | None = at_end

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._parts)

    def close(self) -> None:
        at_end, self._at_end = self._at_end, None
        try:
            close = getattr(self._parts, "close", None)
            if close is not None:
                close()
        finally:
            if at_end is not None:
                at_end()


def _line(status: int) -> str:
    return f"{status} {responses.get(status, 'Unknown')}"


def _send_problem(start_response: StartResponse, reply: Any, more: Iterable[tuple[str, str]] = ()) -> Iterable[bytes]:
    body: bytes = reply["body"]
    start_response(_line(reply["status"]), [*reply["headers"], *more, ("content-length", str(len(body)))])
    return [body]


def _send_replayed(start_response: StartResponse, kept: bytes | None) -> Iterable[bytes]:
    status, headers, body = replayed_response(kept)
    named = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
    if status not in (204, 304) and not any(name == "content-length" for name, _ in named):
        named.append(("content-length", str(len(body))))
    start_response(_line(status), named)
    return [body]


__all__ = ["RUN", "IdempotencyMiddleware", "RateLimitMiddleware", "Request", "Tier"]
