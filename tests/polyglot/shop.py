"""A shop in Python: FastAPI, and the middleware for ``Idempotency-Key``. What it does is in ``src/shop.rs``."""

from __future__ import annotations

import asyncio
import sys

import fastapi
import uvicorn

import resil
from resil.asgi import IdempotencyMiddleware, Request


def service(client: resil.Client) -> fastapi.FastAPI:
    made = 0
    app = fastapi.FastAPI()

    def user(request: Request) -> str:
        return request.header("x-user") or ""

    @app.get("/made")
    async def how_many() -> int:
        return made

    @app.post("/{path:path}")
    async def order(request: fastapi.Request) -> fastapi.Response:
        nonlocal made
        made += 1
        status = int(request.headers.get("x-status", "201"))
        reply = fastapi.Response(b"" if status == 204 else await request.body(), status)
        reply.headers["content-type"] = "application/octet-stream"
        reply.headers["x-shop"] = "python"
        reply.headers["x-odd"] = "gr\xfcn, \"2\""
        reply.headers.append("set-cookie", "a=1")
        reply.headers.append("set-cookie", "b=2")
        return reply

    app.add_middleware(IdempotencyMiddleware, client=client, name="shop", tenant=user, required=True)
    return app


async def main() -> None:
    client = await resil.connect(sys.argv[1])
    server = uvicorn.Server(uvicorn.Config(service(client), host="127.0.0.1", port=0, log_level="critical", ws="none"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
        assert not serving.done(), serving
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await serving


asyncio.run(main())
