"""What the tests of the ASGI middleware share: applications on ports of their own, and a shop that can be held up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import fastapi
import httpx
import resil
import uvicorn
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from resil.asgi import RUN, IdempotencyMiddleware, Request

PATIENCE = 30.0


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
            return PlainTextResponse(f"response {self.orders}", status)

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
            reported: resil.Run = request.scope[RUN]
            return {"attempt": reported.attempt, "has_fence": reported.fence is not None}

        return app


def key(text: str, **headers: str) -> dict[str, str]:
    return {"idempotency-key": text, **headers}


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
