"""An HTTP API: limits by tier, and orders that a client may send again.

- Every response says what is left (``RateLimit``, ``X-RateLimit-*``). A caller that has used it up gets 429, when to come back, and a
  body a program can read (``application/problem+json``).
- ``POST /orders`` needs an ``Idempotency-Key``. Without one it is 400; while the first request is being worked on, 409; with
  the same key and another body, 422; afterwards, the first response again.

All processes of the service share the limits and the keys: they are in Redis.

``python examples/python/http_api.py [url]``, with fastapi, uvicorn and httpx installed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import fastapi
import httpx
import uvicorn

import resil
from resil.asgi import IdempotencyMiddleware, RateLimitMiddleware, Request, Tier
from running import connect, this_run, url

PATIENCE = 30.0


# ---- the service ---------------------------------------------------------------------------------------------------------------


@dataclass
class Warehouse:
    """Where orders go. It can be held up, so that the story can look at an order that is being worked on."""

    orders: int = 0
    has_begun: asyncio.Event = field(default_factory=asyncio.Event)
    may_continue: asyncio.Event = field(default_factory=asyncio.Event)

    async def ship(self, what: str) -> int:
        self.orders += 1
        number = self.orders
        if "slow" in what:
            self.has_begun.set()
            await asyncio.wait_for(self.may_continue.wait(), PATIENCE)
        return number


def user(request: Request) -> str:
    """Who is asking. A real service would check a signature here."""
    return request.header("x-user") or "nobody"


def service(client: resil.Client, warehouse: Warehouse) -> fastapi.FastAPI:
    free = client.limiter("free", limit=5, period=60)
    # A burst of ten, a hundred a minute, and not more than two thousand a day.
    pro = client.limiter("pro", limit=100, period=60, burst=10, tiers=[{"limit": 2_000, "period": "1d"}])

    def tier(request: Request) -> Tier:
        name = user(request)
        return Tier(pro if name.startswith("pro-") else free, name)

    app = fastapi.FastAPI()

    @app.get("/prices")
    async def prices() -> dict[str, int]:
        return {"tea": 420}

    @app.post("/orders", status_code=201)
    async def order(request: fastapi.Request) -> dict[str, int]:
        return {"order": await warehouse.ship((await request.body()).decode())}

    # Duplicates are asked to come back (wait=0) instead of being kept waiting. What is added last is outermost.
    app.add_middleware(IdempotencyMiddleware, client=client, name="orders", tenant=user, required=True, wait=0)
    app.add_middleware(RateLimitMiddleware, tier=tier)
    return app


@contextlib.asynccontextmanager
async def served(app: fastapi.FastAPI) -> AsyncIterator[str]:
    """Where it is served: on a free port, until the block ends."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
        if serving.done():
            serving.result()
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving


# ---- the customers -------------------------------------------------------------------------------------------------------------


def shown(reply: httpx.Response) -> str:
    names = ("ratelimit", "retry-after", "idempotency-replayed")
    headers = (f"{name}: {reply.headers[name]}" for name in names if name in reply.headers)
    return f"{reply.status_code} {reply.text} [{', '.join(headers)}]"


# ---- the story -----------------------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What was seen, for the tests to judge."""

    free: list[httpx.Response]
    pro: list[httpx.Response]
    without_key: httpx.Response
    first: httpx.Response
    while_running: httpx.Response
    again: httpx.Response
    other_body: httpx.Response
    shipped: int


async def story(url: str) -> Seen:
    warehouse, run = Warehouse(), this_run()
    clients = [await connect(url, "http_api", process) for process in ("api-1", "api-2")]
    ann, pat, bob = f"ann-{run}", f"pro-pat-{run}", f"pro-bob-{run}"
    async with contextlib.AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(served(service(client, warehouse))) for client in clients]
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=PATIENCE))

        async def prices(process: str, name: str) -> httpx.Response:
            return await http.get(f"{process}/prices", headers={"x-user": name})

        async def order(process: str, key: str | None, body: str) -> httpx.Response:
            headers = {"x-user": bob, **({"idempotency-key": key} if key else {})}
            return await http.post(f"{process}/orders", headers=headers, content=body)

        print("ann is on the free tier, five a minute, wherever she asks:")
        free = [await prices(two if turn % 2 else one, ann) for turn in range(7)]
        for reply in free:
            print(f"  {shown(reply)}")
        print("pat pays for the pro tier:")
        pro = [await prices(one, pat) for _ in range(7)]
        print(f"  {sum(reply.status_code == 200 for reply in pro)} responses of {len(pro)} are 200")

        print("bob orders, and the connection is bad:")
        key = f'"{run}"'
        without_key = await order(one, None, "slow tea")
        print(f"  without a key:          {shown(without_key)}")
        running = asyncio.create_task(order(one, key, "slow tea"))
        await asyncio.wait_for(warehouse.has_begun.wait(), PATIENCE)
        while_running = await order(two, key, "slow tea")
        print(f"  again, while it is made: {shown(while_running)}")
        warehouse.may_continue.set()
        first = await running
        print(f"  the first response:       {shown(first)}")
        again = await order(two, key, "slow tea")
        print(f"  again:                  {shown(again)}")
        other_body = await order(two, key, "slow coffee")
        print(f"  coffee under that key:  {shown(other_body)}")
        print(f"The warehouse shipped {warehouse.orders}.")
    for client in clients:
        await client.shutdown(5.0)
    return Seen(
        free=free,
        pro=pro,
        without_key=without_key,
        first=first,
        while_running=while_running,
        again=again,
        other_body=other_body,
        shipped=warehouse.orders,
    )


if __name__ == "__main__":
    asyncio.run(story(url()))
