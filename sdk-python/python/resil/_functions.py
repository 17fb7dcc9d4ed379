"""What has to be a Python function to be one: decorated functions keep their names, their signatures and their kind."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable
from typing import Any, Callable, Optional


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


def kind_of(function: Any) -> str:
    """``coroutine``, ``generator`` or ``plain``: also of a partial, a method, and an object whose ``__call__`` is one."""
    while isinstance(function, functools.partial):
        function = function.func
    if not (inspect.isroutine(function) or inspect.isclass(function) or inspect.iscoroutinefunction(function)):
        function = type(function).__call__
    if inspect.iscoroutinefunction(function):
        return "coroutine"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "generator"
    return "plain"


def traceparent() -> Optional[str]:
    """Of the current span of OpenTelemetry, as W3C writes it; None if there is none."""
    from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return None
    flags = int(context.trace_flags) & 0xFF
    return f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-{flags:02x}"


def begin_task(function: Callable[[], Awaitable[Any]]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(_awaited(function))


async def _awaited(function: Callable[[], Awaitable[Any]]) -> Any:
    return await function()


def run_on_own_loop(function: Callable[[], Awaitable[Any]]) -> Any:
    """In a thread without one: for a load whose own event loop ended before it did."""
    return asyncio.run(_awaited(function))
