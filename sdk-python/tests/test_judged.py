"""Results that are failures, budgets that several policies share, and costs that are given back."""

from __future__ import annotations

import asyncio
from typing import Any

import fastapi
import httpx
import pytest

import resil
from resil.asgi import RateLimitMiddleware, Tier
from resil.testing import Clock


def unwell(reply: dict[str, int]) -> bool:
    return reply["status"] == 503


def replies(*statuses: int) -> Any:
    left = [{"status": status} for status in statuses]
    return lambda: left.pop(0)


def test_a_result_that_is_a_failure_is_tried_again() -> None:
    retry = resil.Retry(on_result=unwell, initial_backoff=0.001)
    assert retry.call(replies(503, 503, 200)) == {"status": 200}


def test_after_all_attempts_the_last_result_is_returned(run: Any) -> None:
    retry = resil.Retry(on=ConnectionError, on_result=unwell, max_attempts=2, initial_backoff=0.001)
    left = replies(503, 503, 200)

    async def call() -> dict[str, int]:
        return left()  # type: ignore[no-any-return]

    async def main() -> None:
        assert await retry.call(call) == {"status": 503}

    run(main())


def test_a_result_may_say_when_to_try_again() -> None:
    retry = resil.Retry(on_result=lambda status: 0.001 if status == 429 else None)
    assert retry.call(iter([429, 200]).__next__) == 200


def test_results_trip_a_breaker() -> None:
    client = resil.connect("memory://").wait()
    bank = client.breaker("bank", on_result=unwell, consecutive_failures=2)
    assert [bank.call(replies(503)) for _ in range(2)] == [{"status": 503}] * 2
    with pytest.raises(resil.CircuitOpenError):
        bank.call(replies(200))


def test_a_judge_that_fails_is_what_the_caller_gets() -> None:
    with pytest.raises(KeyError, match="status"):
        resil.Retry(on_result=unwell).call(lambda: {})
    with pytest.raises(TypeError, match="on_result"):
        resil.Retry(on_result=503)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'on'"):
        resil.Retry()


def test_a_budget_is_shared_by_several_policies() -> None:
    clock = Clock.driven()
    budget = resil.Budget(min_per_second=1, ttl=10, percent=0, clock=clock)
    assert budget.available == 10
    calls = 0

    def fail() -> None:
        nonlocal calls
        calls += 1
        raise ConnectionError

    for _ in range(10):
        for attempts in (3, 2):
            retry = resil.Retry(on=ConnectionError, max_attempts=attempts, initial_backoff=0.001, budget=budget)
            with pytest.raises(resil.RetryExhaustedError):
                retry.call(fail)
    assert (calls, budget.available) == (20 + 10, 0), "ten extra calls for both together"
    own = resil.Retry(on=ConnectionError, initial_backoff=0.001, budget={"min_per_second": 1})
    with pytest.raises(resil.RetryExhaustedError):
        own.call(fail)
    assert calls == 33, "a budget of its own"


def test_a_whole_policy_judges_results(run: Any) -> None:
    client = resil.connect("memory://").wait()
    retry = {"max_attempts": 3, "initial_backoff": 0.001}
    for policy in (resil.Policy("alone", retry=retry, on_result=unwell), client.policy("bank", retry=retry, on_result=unwell)):
        assert policy.call(replies(503, 503, 200)) == {"status": 200}
        assert policy.call(replies(503, 503, 503)) == {"status": 503}, "the last one, as it came"
        assert policy.with_options(total_timeout=5)(replies(503, 200))() == {"status": 200}
        with pytest.raises(KeyError, match="status"):
            policy.call(lambda: {})
    with pytest.raises(TypeError, match="on must say"):
        client.policy("bank", retry=retry)
    with pytest.raises(TypeError, match="let fn raise"):
        policy.call_once(client.idempotent("payments"), "k", replies(200))

    async def main() -> None:
        left = replies(503, 200)

        async def call() -> dict[str, int]:
            return left()  # type: ignore[no-any-return]

        await client.policies.set("stored", {"retry": {"max_attempts": 2}})
        followed = await client.policy("stored", on_result=lambda reply: 0.001 if unwell(reply) else None)
        assert await followed.call(call) == {"status": 200}

    run(main())


def test_results_trip_the_breaker_of_a_whole_policy() -> None:
    client = resil.connect("memory://").wait()
    policy = client.policy("bank", breaker={"consecutive_failures": 2}, on_result=unwell)
    assert [policy.call(replies(503)) for _ in range(2)] == [{"status": 503}] * 2
    with pytest.raises(resil.CircuitOpenError):
        policy.call(replies(200))


def test_a_budget_is_shared_by_whole_policies() -> None:
    client = resil.connect("memory://").wait()
    budget = resil.Budget(min_per_second=1, ttl=10, percent=0, clock=Clock.driven())
    calls = 0

    def fail() -> None:
        nonlocal calls
        calls += 1
        raise ConnectionError

    retry: Any = {"max_attempts": 3, "initial_backoff": 0.001, "budget": budget}
    policies = [client.policy(name, retry=retry, on=ConnectionError) for name in ("reads", "writes")]
    policies.append(resil.Policy("alone", retry=retry, on=ConnectionError))
    assert retry["budget"] is budget, "the dict is the caller's"
    for _ in range(10):
        for policy in policies:
            with pytest.raises(resil.RetryExhaustedError):
                policy.call(fail)
    assert (calls, budget.available) == (30 + 10, 0), "ten extra calls for all together"
    with pytest.raises(ValueError, match="retry.budget"):
        client.policy_or("stored", retry=retry, on=ConnectionError)


def test_a_hedge_shares_a_budget() -> None:
    budget = resil.Budget(min_per_second=1)
    resil.Hedge(on=ConnectionError, hedging_delay=0.01, budget=budget)
    with pytest.raises(resil.InvalidPolicyError):
        resil.Budget(percent=5_000)


def test_a_trip_by_hand_ends_in_half_open(client: resil.Client) -> None:
    bank = client.breaker("bank")
    assert bank.force("open-then-probe", duration=60, reason="drill").wait() == "forced-open"
    forced = bank.state().wait()["forced"]
    assert forced is not None and forced["ends_in"] == "half-open"
    with pytest.raises(resil.InvalidArgumentError, match="needs a duration"):
        bank.force("open-then-probe").wait()


def test_cells_are_reserved_together(client: resil.Client) -> None:
    mail = client.limiter("mail", limit=1000, period=1, burst=10)
    mail.until_ready("ann", 1, cost=10).wait()
    assert mail.peek("ann").wait().remaining < 10
    with pytest.raises(resil.InvalidArgumentError, match="never grant so much"):
        mail.until_ready("ann", 1, cost=11).wait()
    with mail.by("bob", cost=2, max_wait=1):
        assert mail.peek("bob").wait().remaining < 10


def test_an_applications_failures_are_given_back_on_request(client: resil.Client, run: Any) -> None:
    free = client.limiter("free", limit=2, period=60)
    app = fastapi.FastAPI()

    @app.get("/{status}")
    async def reply(status: int) -> fastapi.Response:
        return fastapi.Response(status_code=status)

    limited = RateLimitMiddleware(app, lambda _: Tier(free, "ann"), refund=[500, 503])

    async def main() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(limited), base_url="http://here") as asks:
            for _ in range(5):
                assert (await asks.get("/503")).status_code == 503
            assert [(await asks.get(f"/{status}")).status_code for status in (200, 404, 200)] == [200, 404, 429]

    run(main())


def test_a_client_that_hangs_up_gets_nothing_back(client: resil.Client, run: Any) -> None:
    free = client.limiter("free", limit=2, period=60)

    async def hangs(_scope: Any, _receive: Any, _send: Any) -> None:
        await asyncio.Event().wait()

    limited = RateLimitMiddleware(hangs, lambda _: Tier(free, "ann"), refund=lambda status: status >= 500)

    async def main() -> None:
        asked = asyncio.create_task(limited({"type": "http", "headers": []}, hangs, hangs))  # type: ignore[arg-type]
        while (await free.peek("ann")).remaining == 2:
            await asyncio.sleep(0)
        asked.cancel()  # as servers do that end the task of a client that has left
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert (await free.peek("ann")).remaining == 1

    run(main())


def test_a_cost_no_limit_takes_is_the_services_fault(client: resil.Client, run: Any) -> None:
    free = client.limiter("free", limit=2, period=60)

    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        raise AssertionError("it is not called")

    limited = RateLimitMiddleware(app, lambda _: Tier(free, "ann", cost=0))

    async def main() -> None:
        with pytest.raises(ValueError, match="cost must be from 1"):
            await limited({"type": "http", "headers": []}, app, app)  # type: ignore[arg-type]

    run(main())
