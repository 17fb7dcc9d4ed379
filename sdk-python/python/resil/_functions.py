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


class Exited(Exception):
    """Carries the ``SystemExit`` of a handler, its cause, past the event loop, which would end with it."""


async def handled(handler: Callable[[Any], Awaitable[Any]], message: Any) -> Any:
    """``handler(message)``."""
    try:
        return await handler(message)
    except SystemExit as error:
        raise Exited() from error


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


class _Traceparents:
    """What is the current span of OpenTelemetry, as W3C writes it. Callers make many calls within one span: the last text is kept."""

    def __init__(self) -> None:
        self._current: Optional[Callable[[], Any]] = None
        self._last: tuple[Any, Optional[str]] = (None, None)

    def __call__(self) -> Optional[str]:
        """None if there is none."""
        if self._current is None:
            from opentelemetry.trace import get_current_span

            self._current = get_current_span
        context = self._current().get_span_context()
        known, text = self._last
        if context is not known:
            flags = int(context.trace_flags) & 0xFF
            text = f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}" if context.is_valid else None
            self._last = (context, text)
        return text


traceparent = _Traceparents()


def begin_task(function: Callable[[], Awaitable[Any]]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(_awaited(function))


async def _awaited(function: Callable[[], Awaitable[Any]]) -> Any:
    return await function()


def run_on_own_loop(function: Callable[[], Awaitable[Any]]) -> Any:
    """In a thread without one: for a load whose own event loop ended before it did."""
    return asyncio.run(_awaited(function))
