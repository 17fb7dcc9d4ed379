"""Circles through functions that a policy holds are collected."""

from __future__ import annotations

import gc
import weakref
from typing import Any, Callable

import pytest
import resil


class Service:
    """Holds a policy whose functions hold the service."""

    policy: Any

    def is_temporary(self, error: BaseException) -> bool:
        return self is None

    def key(self, *_: Any) -> str:
        return f"{id(self)}"

    def instead(self, error: Exception) -> None:
        return None


HOLDERS: dict[str, Callable[[resil.Client, Service], Any]] = {
    "Retry.on": lambda client, service: resil.Retry(on=service.is_temporary),
    "Retry.ignore": lambda client, service: resil.Retry(on=KeyError, ignore=service.is_temporary),
    "Hedge.on": lambda client, service: resil.Hedge(on=service.is_temporary),
    "Fallback.function": lambda client, service: resil.Fallback(function=service.instead),
    "Fallback.value": lambda client, service: resil.Fallback(service),
    "Fallback.when": lambda client, service: resil.Fallback(1, when=service.is_temporary),
    "Breaker.ignore": lambda client, service: client.breaker("b", ignore=service.is_temporary),
    "KeyedLimiter.key": lambda client, service: client.limiter("l", limit=1, period=1).by(service.key),
    "KeyedIdempotent.key": lambda client, service: client.idempotent("i").by(service.key),
    "KeyedIdempotent.fingerprint": lambda client, service: client.idempotent("i").by("k", fingerprint=service.key),
    "KeyedCached.key": lambda client, service: client.cached("c").by(service.key),
    "versioned.by": lambda client, service: client.versioned_cached("v").by(service.key),
    "Policy.on": lambda client, service: resil.Policy("p", retry={"max_attempts": 2}, on=service.is_temporary),
    "Policy.with_options": lambda client, service: client.policy("p", {}, on=service.is_temporary).with_options(key="k"),
    "decorated": lambda client, service: resil.Retry(on=service.is_temporary)(service.key),
    "Outcome": lambda client, service: client.idempotent("o", serializer=(str, str)).run("k", lambda: service),
    "ItemResult": lambda client, service: resil.Dispatcher(1).run([1], lambda _: service),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_a_circle_through_a_policy_is_collected(client: resil.Client, name: str) -> None:
    service = Service()
    service.policy = HOLDERS[name](client, service)
    gone = weakref.ref(service)
    del service
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("name", HOLDERS)
def test_what_is_still_used_is_not_collected(client: resil.Client, name: str) -> None:
    service = Service()
    service.policy = holder = HOLDERS[name](client, service)
    gone = weakref.ref(service)
    del service
    for _ in range(3):
        gc.collect()
    assert gone() is not None and gone().policy is holder  # type: ignore[union-attr]


def test_a_copied_policy_keeps_its_functions_alone() -> None:
    service = Service()
    whole = resil.Policy("p", retry={"max_attempts": 2, "initial_backoff": 0.001}, on=service.is_temporary)
    copy = whole.with_options(total_timeout=60)
    gone = weakref.ref(service)
    del service, whole
    for _ in range(3):
        gc.collect()
    assert gone() is not None

    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        copy.call(fail)
    del copy
    gc.collect()
    assert gone() is None


def test_calls_in_flight_keep_what_judges_them(run: Any) -> None:
    import asyncio

    asked: list[str] = []

    async def main() -> None:
        proceed = asyncio.Event()

        class Judge:
            retry: Any

            def judge(self, error: BaseException) -> bool:
                asked.append(type(error).__name__)
                return False

        judge = Judge()
        judge.retry = resil.Retry(on=judge.judge)

        async def fail() -> None:
            await proceed.wait()
            raise KeyError

        calling = asyncio.ensure_future(judge.retry.call(fail))
        await asyncio.sleep(0.01)
        del judge
        for _ in range(3):
            gc.collect()
        proceed.set()
        with pytest.raises(KeyError):
            await calling

    run(main())
    assert asked == ["KeyError"]
