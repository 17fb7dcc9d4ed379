"""A whole policy around work that is done once: all attempts are one run, and duplicates get its result."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import resil


def test_all_attempts_are_one_run_and_duplicates_get_its_result(client: resil.Client, run: Any) -> None:
    bank = client.policy("bank", retry={"max_attempts": 3, "initial_backoff": 0.001}, on=ConnectionError)
    payments = client.idempotent("payments")
    fences: list[Any] = []

    async def pay(run: resil.Run, cents: int, *, currency: str) -> dict[str, Any]:
        fences.append(run.fence)
        if len(fences) < 3:
            raise ConnectionError("down")
        return {"cents": cents, "currency": currency, "ä": None}

    async def main() -> None:
        once = [
            bank.call_once(payments, "order", pay, 7, fingerprint="7", with_run=True, currency="eur") for _ in range(5)
        ]
        outcomes = await asyncio.gather(*once)
        assert [outcome.value for outcome in outcomes] == [{"cents": 7, "currency": "eur", "ä": None}] * 5
        assert sorted(outcome.replayed for outcome in outcomes) == [False, True, True, True, True]
        # The same bytes as work without a policy leaves behind.
        known = await payments.get("order")
        assert known["state"] == "done"
        assert known["result"] == '{"cents":7,"currency":"eur","ä":null}'.encode()
        again = await payments.run("order", pay, 7, fingerprint="7", currency="eur")
        assert again.replayed and again.value == outcomes[0].value
        with pytest.raises(resil.IdempotencyMismatchError):
            await bank.call_once(payments, "order", pay, 7, fingerprint="8", with_run=True, currency="eur")

    run(main())
    assert len(fences) == 3 and len(set(fences)) == 1


def test_plain_functions_are_done_once_too(client: resil.Client) -> None:
    bank = client.policy("bank", retry={"max_attempts": 2, "initial_backoff": 0.001}, on=ConnectionError)
    payments, calls = client.idempotent("payments"), []

    def pay(cents: int) -> int:
        calls.append(cents)
        if len(calls) == 1:
            raise ConnectionError("down")
        return cents

    outcomes = [bank.call_once(payments, "order", pay, 7) for _ in range(3)]
    assert [(outcome.value, outcome.replayed) for outcome in outcomes] == [(7, False), (7, True), (7, True)]
    assert calls == [7, 7]


@pytest.mark.parametrize("stages", [{"timeout": {"total": 30}}, {"hedge": {"hedging_delay": 30}}])
def test_policies_that_leave_or_double_a_call_do_it_once(client: resil.Client, run: Any, stages: Any) -> None:
    bank, payments = client.policy("bank", stages), client.idempotent("payments")

    async def pay_later() -> str:
        await asyncio.sleep(0)
        return "later"

    async def main() -> list[Any]:
        return [await bank.call_once(payments, "later", pay_later) for _ in range(2)]

    assert [(outcome.value, outcome.replayed) for outcome in run(main())] == [("later", False), ("later", True)]
    now = [bank.call_once(payments, "now", lambda: "now") for _ in range(2)]
    assert [(outcome.value, outcome.replayed) for outcome in now] == [("now", False), ("now", True)]


def test_a_failure_frees_the_key_and_comes_out_unchanged(client: resil.Client) -> None:
    bank = client.policy("bank", retry={"max_attempts": 2, "initial_backoff": 0.001}, on=ConnectionError)
    payments = client.idempotent("payments")

    def broken(error: Exception) -> None:
        raise error

    for _ in range(2):
        with pytest.raises(KeyError, match="permanent"):
            bank.call_once(payments, "order", broken, KeyError("permanent"))
        with pytest.raises(resil.RetryExhaustedError) as raised:
            bank.call_once(payments, "order", broken, ConnectionError("down"))
        assert isinstance(raised.value.__cause__, ConnectionError)
    assert bank.call_once(payments, "order", lambda: 1).value == 1


def test_a_judge_that_fails_is_what_the_caller_gets(client: resil.Client) -> None:
    def judge(error: BaseException) -> bool:
        raise ZeroDivisionError("of the judge")

    bank = client.policy("bank", retry={"max_attempts": 2}, on=judge)

    def broken() -> None:
        raise KeyError

    with pytest.raises(ZeroDivisionError):
        bank.call_once(client.idempotent("payments"), "order", broken)


def test_bytes_and_what_is_not_idempotent_are_refused(client: resil.Client) -> None:
    bank = client.policy("bank", {})
    with pytest.raises(ValueError, match="idempotent must keep JSON"):
        bank.call_once(client.idempotent("payments", serializer="bytes"), "order", print)
    with pytest.raises(TypeError, match="idempotent must be a resil.Idempotent, not Cached"):
        bank.call_once(client.cached("payments"), "order", print)  # type: ignore[call-overload]


def test_options_of_a_call_hold_here_too(client: resil.Client) -> None:
    bank = client.policy("bank", rate_limit={"limit": 1, "period": 3600}).with_options(key="ann")
    payments = client.idempotent("payments")
    assert bank.call_once(payments, "first", lambda: 1).value == 1
    assert bank.call_once(payments, "first", lambda: 1).replayed, "a duplicate is not limited"
    with pytest.raises(resil.RateLimitExceededError):
        bank.call_once(payments, "second", lambda: 1)
