"""Garbage for every argument of everything public: a TypeError or a ValueError that names the argument, never anything else.

The sweep asks the package itself what there is. Whatever is public and not in the table below fails a test, so nothing new
can be forgotten.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import itertools
import os
import tempfile
import types
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Callable

import pytest
import resil
import resil.http
import resil.settings
import resil.testing
import resil.workers

CIRCLE: dict[str, Any] = {}
CIRCLE["circle"] = CIRCLE


class Hostile:
    """Whatever it is asked, it raises."""

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)

    def __repr__(self) -> str:
        raise ZeroDivisionError("repr")


FOR_EVER: list[Any] = [None, 2**63, timedelta.max]
GARBAGE: list[Any] = [
    *FOR_EVER,
    object(),
    Hostile(),
    True,
    0,
    -1,
    2**200,
    -(2**200),
    0.5,
    -0.5,
    float("nan"),
    float("inf"),
    -float("inf"),
    1e300,
    "",
    "garbage",
    "\ud800",
    "x" * 100_000,
    "\0",
    b"",
    b"\xff",
    timedelta(days=-1),
    [],
    [1],
    [None, [None]],
    (),
    {},
    {"x": 1},
    {1: 2},
    CIRCLE,
    set(),
    int,
    KeyError,
    (KeyError, int),
    len,
    lambda: None,
    asyncio.sleep,
]

#: A file of policies that is watched.
WATCHED = tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False).name
Path(WATCHED).write_text("policies: { p: {} }")
atexit.register(os.unlink, WATCHED)

names = (f"n{number}" for number in itertools.count())


def noop(*_: Any, **__: Any) -> None:
    return None


def fresh() -> dict[str, Any]:
    """One of everything, by the name of its class."""
    client = resil.connect("memory://").wait()
    limiter = client.limiter(next(names), limit=1000, period=1)
    clock = resil.testing.Clock.driven()
    client.policies.set("p", {}).wait()
    return {
        "Client": client,
        "Limiter": limiter,
        "KeyedLimiter": limiter.by("k"),
        "Breaker": client.breaker(next(names)),
        "Permit": client.breaker(next(names)).admit().wait(),
        "Lock": client.lock(next(names), wait=0.01),
        "LockGuard": client.lock(next(names)).acquire().wait(),
        "Locks": client.locks([next(names), next(names)], wait=0.01),
        "LocksGuard": client.locks([next(names)]).acquire().wait(),
        "Lost": client.lock(next(names)).acquire().wait().lost,
        "SharedBulkhead": client.shared_bulkhead(next(names), 1000),
        "BulkheadGuard": client.shared_bulkhead(next(names), 1).enter().wait(),
        "Idempotent": client.idempotent(next(names), wait=0),
        "KeyedIdempotent": client.idempotent(next(names)).by(lambda *_: next(names)),
        "Cached": client.cached(next(names)),
        "KeyedCached": client.cached(next(names)).by("k"),
        "VersionedCached": client.versioned_cached(next(names)),
        "Retry": resil.Retry(on=KeyError, max_attempts=1),
        "Timeout": resil.Timeout(5),
        "Hedge": resil.Hedge(on=ConnectionError),
        "Bulkhead": resil.Bulkhead("b", partitions={"p": {"max_concurrent_calls": 1}}),
        "BulkheadPermit": resil.Bulkhead("b").acquire().wait(),
        "Fallback": resil.Fallback("x"),
        "Policy": resil.Policy("p", shed=9),
        "Policies": client.policies(text='{"version": 1, "policies": {"p": {}}}'),
        "StoredPolicies": client.policies,
        "PolicyWatch": client.policies.watch().wait(),
        "WatchedPolicies": client.policies.open(WATCHED),
        "Dispatcher": resil.Dispatcher(1),
        "ItemResult": resil.Dispatcher(1).run([1], noop)[0],
        "ItemResults": resil.Dispatcher(1).stream([1], noop),
        "Clock": clock,
        "Verdict": limiter.check("k").wait(),
        "Verdicts": client.check_all([(limiter, "k")]).wait(),
        "Outcome": client.idempotent(next(names)).run("k", noop),
        "Loaded": client.cached(next(names)).lookup("k", noop).wait(),
        **letters(client),
        "Upcasters": resil.Upcasters(),
        "Worker": client.worker(next(names), drain=0.01),
        "Publisher": client.publisher({"type": "stream", "stream": "s", "url": "redis://127.0.0.1:1/"}),
        "Outbox": resil.Outbox(),
        "ProcessedEvents": resil.ProcessedEvents,
    }


def letters(client: resil.Client) -> dict[str, Any]:
    ledger = client.dead_letters(next(names), wait=0.1, actor="ada")
    ledger.configure(jitter="none", transient={"base": 0.1, "cap": 0.1}).wait()
    ledger.fail("shop/1", "timeout", kind="order").wait()
    taken = ledger.take(1, 5).wait()[0]
    verdict = ledger.fail("shop/2", "no luck", kind="order", count="final").wait()
    case = ledger.diagnose([verdict["group"]], "contract", "a cause", "a fix").wait()
    run = ledger.redrive(case).wait()
    kinds = {"TakenLetter": taken, "TakenMessage": taken, "RedriveRun": run}
    return {"DeadLetters": ledger, "LetterStream": ledger.list_all(), **kinds}


#: What a call needs to be right, by what it is called. A setting needs no entry.
RIGHT: dict[str, Any] = {
    "url": "memory://",
    "name": "p",
    "document": {},
    "expecting": 1,
    "version": 1,
    "key": "k",
    "fn": noop,
    "limit": 1,
    "period": 1,
    "max_concurrent_calls": 1,
    "cost": 1,
    "most": 1,
    "cells": 1,
    "max_wait": 0.01,
    "wait": 0.01,
    "timeout": 0.01,
    "after": 5,
    "deadline": 0.01,
    "lease": 1,
    "ttl": 1,
    "token": "t",
    "owner": "o",
    "fence": 1,
    "actor": "a",
    "reason": "r",
    "state": "closed",
    "duration": 1,
    "listener": noop,
    "loader": noop,
    "at_least": 1,
    "on": KeyError,
    "ignore": KeyError,
    "serializer": "json",
    "within": 0.01,
    "tenant": "t",
    "remember": KeyError,
    "fingerprint": b"f",
    "with_run": False,
    "settings": {},
    "clock": None,
    "seed": 1,
    "text": '{"version": 1, "policies": {}}',
    "workers": 1,
    "on_error": "continue",
    "items": [1],
    "function": noop,
    "value": 1,
    "span": 0.001,
    "attempts": 1,
    "words": ["RES.GCRA", "k", "1", "1"],
    "at_us": 1,
    "policy": "p",
    "header": b"k",
    "required": False,
    "method": "GET",
    "path": "/",
    "body": b"",
    "error": resil.CircuitOpenError("x"),
    "policies": ["p"],
    "id": "shop/1",
    "payload": b"p",
    "headers": b"h",
    "handler": noop,
    "judge": None,
    "case": 1,
    "groups": ["order/no luck"],
    "category": "contract",
    "cause": "c",
    "fix": "f",
    "aggregate": "a",
    "older": 90 * 86400,
    "alert": 1,
}

#: The settings behind ``**settings``.
SETTINGS: dict[str, Any] = {
    "connect": resil.settings.ConnectSettings,
    "Client.limiter": resil.settings.Limit,
    "Client.breaker": resil.settings.BreakerSettings,
    "Breaker.configure": resil.settings.BreakerSettings,
    "Client.lock": resil.settings.LockSettings,
    "Client.shared_bulkhead": resil.settings.SharedBulkheadSettings,
    "Client.idempotent": resil.settings.IdempotencySettings,
    "Client.cached": resil.settings.CacheSettings,
    "Client.versioned_cached": resil.settings.CacheSettings,
    "Client.policy": resil.settings.PolicySettings,
    "Policy": resil.settings.PolicySettings,
    "Policy.with_options": resil.settings.CallSettings,
    "Retry": resil.settings.RetrySettings,
    "Hedge": resil.settings.HedgeSettings,
    "Bulkhead": resil.settings.BulkheadSettings,
    "Client.dead_letters": resil.settings.DeadLettersSettings,
    "DeadLetters.fail": resil.settings.FailOptions,
    "DeadLetters.park": resil.settings.ParkOptions,
    "TakenLetter.fail": resil.settings.FailureNote,
    "DeadLetters.list": resil.settings.LetterFilter,
    "DeadLetters.list_all": resil.settings.LetterFilter,
    "DeadLetters.redrive": resil.settings.RedriveSettings,
    "DeadLetters.dry_run": resil.settings.RedriveSettings,
    "DeadLetters.configure": resil.settings.LedgerChange,
    "Client.worker": resil.workers.WorkerSettings,
    "Publisher.publish": resil.workers.OutgoingOptions,
    "Outbox.row": resil.workers.OutgoingOptions,
}

#: Where an argument may be anything, or is what Python's own protocols hand over.
ANYTHING = {
    "Fallback.value",
    "raw.client",  # asked for below
    "raw_at.client",
}

#: Right for these, and longer than a test can wait.
WAITS = {"Lost.wait.timeout", "Client.shutdown.deadline"}

#: Only one of them may be there.
NOT_TOGETHER = {"StoredPolicies.__call__": ["path"], "Limiter.by": ["max_wait"], "Fallback": ["value"], "Policy": ["settings"]}
ABSTRACT = {"Around", "Block", "Held"}
MADE_BY_OTHERS = {"Run", "Pending", "Attempt", "Attempts", "WorkerMessage"}
#: A loop that is given what it can use runs until a shutdown.
ENDLESS = {"DeadLetters.run.handler", "DeadLetters.run.judge", "Worker.run.handler", "Worker.run.judge"}


def surface() -> Iterator[tuple[str, Callable[[dict[str, Any]], Any]]]:
    """Every public callable, as something that takes one of everything and gives the callable."""
    modules = [(resil, resil.__all__), (resil.testing, resil.testing.__all__), (resil.http, resil.http.__all__)]
    for module, exported in modules:
        for name in exported:
            found = getattr(module, name)
            if isinstance(found, (types.FunctionType, str)):
                continue  # connect_sync is connect
            if not isinstance(found, type):
                yield name, lambda _, found=found: found
                continue
            if issubclass(found, BaseException) or name in ABSTRACT | MADE_BY_OTHERS:
                continue
            if found.__text_signature__ is not None:
                yield name, lambda _, found=found: found
            for member in dir(found):
                is_public = not member.startswith("_") or member == "__call__"
                if is_public and callable(getattr(found, member)) and member != "__class_getitem__":
                    yield f"{name}.{member}", lambda ones, name=name, member=member: getattr(ones[name], member)


def arguments_of(name: str, found: Any) -> tuple[list[str], list[str], list[str]]:
    """Those by position only, those by name, and the settings."""
    signature = inspect.signature(found)
    positional, named, settings = [], [], []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(parameter.name)
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            named.append(parameter.name)
        elif parameter.kind is parameter.VAR_KEYWORD and name in SETTINGS:
            settings = [key for key in SETTINGS[name].__annotations__ if key not in named]
    return positional, named, settings


def right(name: str, argument: str, ones: dict[str, Any]) -> Any:
    if argument in ("client", "verdict", "idempotent"):
        return ones[argument.capitalize()]
    if argument == "limits":
        return [(ones["Limiter"], "k")]
    if name in ("Policies.policy", "WatchedPolicies.policy") and argument == "name" or name == "Bulkhead.partition":
        return "p"
    if name.startswith("StoredPolicies.") and argument == "name":
        ones["Client"].policies.set("p", {}).wait()  # what was deleted before
        return "p"
    return RIGHT[argument]


def is_needed(found: Any, name: str, argument: str) -> bool:
    parameter = inspect.signature(found).parameters.get(argument)
    if parameter is None:
        return name == "Client.limiter" and argument in ("limit", "period")
    return parameter.default is parameter.empty


def call(name: str, found: Any, ones: dict[str, Any], wrong: str, garbage: Any) -> Any:
    positional, named, settings = arguments_of(name, found)
    left_out = NOT_TOGETHER.get(name, [])
    values = {
        argument: right(name, argument, ones)
        for argument in positional + named + settings
        if is_needed(found, name, argument) and argument not in left_out
    }
    values = {**NEEDED.get(name, {}), **values, wrong: garbage}
    if wrong == "reference":
        values.pop("payload", None)  # it stands for the payload
    in_order = [values.pop(argument) for argument in positional if argument in values]
    result = found(*in_order, **values)
    if isinstance(result, resil.Pending):
        try:
            # There is no server to publish to; what is wrong was said before.
            return None if name == "Publisher.publish" else result.wait()
        finally:
            result.close()
    if inspect.iscoroutine(result):
        result.close()
    return result


#: What an argument is also called, where it is not ours to say.
ALSO = {
    "consecutive_failures": "consecutive",
    "cost": "cells",
    "most": "cells",
    "duration": "the time",
    "text": "file|document",
    "words": "command",
    "name": "has no partition",
    "fn": "coroutine",
    # A ledger checks these, and names them as its command does.
    "kind": "TYPE",
    "reference": "missing PAYLOAD or REF",
    "groups": "missing group",
    "after_max": "AFTERMAX|missing options",
    "paused_for": "FOR must|missing options",
    "rate_max": "RATEMAX|missing options",
    "transient": "missing options",
    "business": "missing options",
    "external": "missing options",
}

#: What is needed though its signature does not say so.
NEEDED: dict[str, dict[str, Any]] = {"DeadLetters.park": {"aggregate": "a", "payload": b"p"}, "Retry": {"on": KeyError}}


def is_named(argument: str, garbage: Any, text: str) -> bool:
    if callable(garbage):
        return True  # it was called, and said something
    if text == "the options name nothing to change":
        return True  # of Breaker.configure: None is what is not there
    inside = [str(key) for key in garbage] if isinstance(garbage, dict) else []
    words = [argument, *inside, *ALSO.get(argument, argument).split("|")]
    return any(word.lower() in text.lower() for word in words)


SURFACE = dict(surface())


@pytest.mark.parametrize("name", SURFACE)
def test_garbage_is_refused_by_name(name: str) -> None:
    ones = fresh()
    found = SURFACE[name](ones)
    positional, named, settings = arguments_of(name, found)
    complaints = []
    for argument in positional + named + settings:
        if f"{name}.{argument}" in ANYTHING:
            continue
        for garbage in GARBAGE:
            if f"{name}.{argument}" in WAITS and any(garbage is long for long in FOR_EVER):
                continue
            if f"{name}.{argument}" in ENDLESS and (garbage is None or callable(garbage)):
                continue
            one = found if isinstance(found, type) or "." not in name else SURFACE[name](ones)
            try:
                call(name, one, ones, argument, garbage)
            except (TypeError, ValueError) as error:
                if not is_named(argument, garbage, str(error)):
                    complaints.append(f"{argument}={shown(garbage)} is not named: {error!r}")
            except resil.ResilError:
                pass  # what was asked for is right, and cannot be had
            except (ZeroDivisionError, OSError, KeyError):
                pass  # of the garbage itself
            except RuntimeError as error:
                # A coroutine function where there is no event loop. A message that was settled by a word that was right.
                is_loop = garbage is asyncio.sleep and "event loop" in str(error)
                if not is_loop and str(error) != "this message was settled before":
                    complaints.append(f"{argument}={shown(garbage)}: {error!r}")
            except BaseException as error:  # noqa: BLE001  # a panic is one of those
                complaints.append(f"{argument}={shown(garbage)}: {error!r}")
    assert not complaints, "\n".join(complaints)


def shown(garbage: Any) -> str:
    try:
        return repr(garbage)[:60]
    except ZeroDivisionError:
        return "something hostile"


def test_an_unknown_setting_is_refused_by_name() -> None:
    ones = fresh()
    for name in SETTINGS:
        found = SURFACE[name](ones)
        with pytest.raises(ValueError, match="no_such_setting"):
            call(name, found, ones, "no_such_setting", 1)


def test_surplus_and_missing_arguments_are_refused() -> None:
    ones = fresh()
    for find in SURFACE.values():
        found = find(ones)
        signature = inspect.signature(found)
        if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in signature.parameters.values()):
            continue
        with pytest.raises(TypeError):
            found(*[None] * 30)


def test_every_public_class_is_in_the_sweep() -> None:
    swept = {name.split(".")[0] for name in SURFACE} | set(fresh())
    public = {name for name in resil.__all__ if isinstance(getattr(resil, name), type)}
    errors = {name for name in public if issubclass(getattr(resil, name), BaseException)}
    assert public - errors - ABSTRACT - MADE_BY_OTHERS <= swept
    assert len(SURFACE) > 100, len(SURFACE)


def test_what_is_not_a_client_is_refused() -> None:
    for garbage in GARBAGE:
        with pytest.raises(TypeError, match="client"):
            resil.testing.raw(garbage, ["PING"])
        with pytest.raises(TypeError, match="client"):
            resil.testing.raw_at(garbage, ["PING"], 1)
