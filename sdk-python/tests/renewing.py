"""One of the two processes of ``test_renewal.py``: ``renewing.py URL KIND SECONDS LEASE PRIMITIVE...``.

All primitives are tried at once, each in a thread of its own. Each piece of work that was done is a line: primitive, begin, end.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
import threading
import time
from typing import Any, Callable

import resil

url, kind, seconds, lease, *primitives = sys.argv[1:]
WORK, LEASE, WAIT = float(seconds), float(lease), 60.0
client = resil.connect_sync(url)
IS_COROUTINE = kind in ("blocking", "awaiting")
#: Calls C functions without letting go of the interpreter's lock.
greedy = ctypes.PyDLL(None)


def worker(primitive: str) -> Callable[..., Any]:
    def reported(began: float) -> str:
        # One write, so that lines of several threads stay lines.
        os.write(1, f"{json.dumps([primitive, began, time.monotonic()])}\n".encode())
        return "done"

    def plain(*_: Any) -> str:
        began = time.monotonic()
        if kind == "greedy":
            greedy.usleep(int(WORK * 1_000_000))
        else:
            time.sleep(WORK)
        return reported(began)

    async def coroutine(*_: Any) -> str:
        began = time.monotonic()
        if kind == "blocking":
            time.sleep(WORK)
        else:
            await asyncio.get_running_loop().run_in_executor(None, time.sleep, WORK)
        return reported(began)

    return coroutine if IS_COROUTINE else plain


async def awaited(value: Any) -> Any:
    return await value


async def in_block(block: Any, work: Any) -> None:
    async with block:
        await work()


async def by_hand(asking: Any, letting_go: str, work: Any) -> None:
    guard = await asking()
    await work()
    await getattr(guard, letting_go)()


def versioned(work: Any) -> Any:
    async def coroutine(key: str) -> Any:
        return 1, await work()

    return coroutine if IS_COROUTINE else lambda key: (1, work())


def holding(block: Any, letting_go: str, asking: Any, shape: str, work: Any) -> Any:
    if shape == "by_hand":
        if IS_COROUTINE:
            return by_hand(asking, letting_go, work)
        guard = asking().wait()
        work()
        return getattr(guard, letting_go)().wait()
    if shape == "block":
        if IS_COROUTINE:
            return in_block(block, work)
        with block:
            return work()
    return block(work)()


def use(primitive: str) -> Any:
    work, title = worker(primitive), f"{primitive}-{kind}"
    once = client.idempotent(title, lease=LEASE, wait=WAIT)
    in_time = {"timeout": {"total": WAIT}}
    place = {"max_concurrent_calls": 1, "max_queue": 9, "max_wait": WAIT, "lease": LEASE}
    name, _, shape = primitive.partition("_")
    if primitive == "run":
        return once.run("k", work)
    if primitive == "run_with_run":
        return once.run("k", work, with_run=True)
    if primitive == "by":
        return once.by("k")(work)()
    if primitive == "call_once":
        return client.policy(title, retry={"max_attempts": 2}, on=KeyError).call_once(once, "k", work)
    if primitive == "call_once_in_time":
        return client.policy(title, **in_time).call_once(once, "k", work)
    if name == "cached":
        values = client.cached(title, ttl=WAIT, lease=LEASE, load_timeout=WAIT)
        return values.by("k")(work)() if shape == "by" else values.get("k", work)
    if name == "versioned":
        return client.versioned_cached(title, ttl=WAIT, lease=LEASE, load_timeout=WAIT).get("k", versioned(work))
    if name == "lock":
        lock = client.lock(title, lease=LEASE, wait=WAIT)
        return holding(lock, "release", lock.acquire, shape, work)
    if name == "bulkhead":
        bulkhead = client.shared_bulkhead(title, 1, max_queue=9, lease=LEASE, max_wait=WAIT)
        return holding(bulkhead, "leave", bulkhead.enter, shape, work)
    if name == "policy":
        settings = {"shared_bulkhead": place, **(in_time if shape else {})}
        return client.policy(title, settings)(work)()
    raise ValueError(primitive)


problems: list[BaseException] = []


def try_it(primitive: str) -> None:
    try:
        used = use(primitive)
        if isinstance(used, resil.Pending) and not IS_COROUTINE:
            used.wait()
        elif IS_COROUTINE:
            asyncio.run(awaited(used))
    except BaseException as error:
        print(primitive, repr(error), file=sys.stderr, flush=True)
        problems.append(error)


threads = [threading.Thread(target=try_it, args=(primitive,)) for primitive in primitives]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(len(problems))
