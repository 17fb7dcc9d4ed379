"""What has to be a Python function to be one: decorated functions keep their names, their signatures and their kind."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import Awaitable
from typing import Any, Callable


def decorate(policy: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    run = policy._run

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        return run(function, args, kwargs)

    return guarded


def decorate_async(policy: Any, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    run = policy._run_async

    @functools.wraps(function)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        return await run(function, args, kwargs)

    return guarded


def is_coroutine_function(function: Any) -> bool:
    """Also of a partial, a method, and an object whose ``__call__`` is one."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.iscoroutinefunction(function):
        return True
    if inspect.isroutine(function) or inspect.isclass(function):
        return False
    return inspect.iscoroutinefunction(type(function).__call__)


def begin_task(function: Callable[[], Awaitable[Any]]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(_awaited(function))


async def _awaited(function: Callable[[], Awaitable[Any]]) -> Any:
    return await function()


def to_json(value: Any) -> bytes:
    """The same bytes as every other language writes: compact, and UTF-8 as it is."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def from_json(text: bytes) -> Any:
    return json.loads(text)
