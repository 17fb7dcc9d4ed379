"""Retry, timeout, hedge, bulkhead, fallback, and whole policies, on plain functions and on coroutine functions."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import resil
from resil.testing import Clock

QUICK: Any = {"initial_backoff": 0.001, "max_backoff": 0.001}


class Flaky:
    """Fails so many times, and then does not."""

    def __init__(self, failures: int, error: BaseException | None = None) -> None:
        self.calls = 0
        self.failures = failures
        self.error = error or ConnectionError("down")

    def __call__(self, reply: str = "up") -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return reply

    async def later(self, reply: str = "up") -> str:
        await asyncio.sleep(0)
        return self(reply)


def test_a_retry_says_what_it_retries() -> None:
    with pytest.raises(TypeError, match="on"):
        resil.Retry()  # type: ignore[call-arg]


def test_what_is_named_is_retried_and_nothing_else(run: Any) -> None:
    retry = resil.Retry(on=(ConnectionError, OSError), max_attempts=4, **QUICK)
    flaky = Flaky(3)
    assert retry.call(flaky, reply="hello") == "hello"
    assert flaky.calls == 4
    other = Flaky(1, KeyError("x"))
    with pytest.raises(KeyError):
        retry.call(other)
    assert other.calls == 1

    async def main() -> None:
        flaky = Flaky(3)
        assert await retry.call(flaky.later, "hello") == "hello"
        assert flaky.calls == 4

    run(main())


def test_exhausted_attempts_say_how_the_last_one_failed(run: Any) -> None:
    retry = resil.Retry(on=ConnectionError, max_attempts=2, **QUICK)
    flaky = Flaky(9)
    with pytest.raises(resil.RetryExhaustedError) as raised:
        retry.call(flaky)
    assert raised.value.__cause__ is flaky.error
    assert raised.value.attempts == 2

    async def main() -> None:
        with pytest.raises(resil.RetryExhaustedError):
            await retry.call(Flaky(9).later)

    run(main())


def test_a_function_can_judge_and_say_when() -> None:
    clock = Clock.driven()
    judged: list[BaseException] = []

    def on(error: BaseException) -> float | bool:
        judged.append(error)
        return 7.5 if "busy" in str(error) else False

    retry = resil.Retry(on=on, clock=clock, **QUICK)
    flaky = Flaky(1, ConnectionError("busy"))
    reply: list[str] = []
    thread = threading.Thread(target=lambda: reply.append(retry.call(flaky)))
    thread.start()
    until = time.monotonic() + 10
    while clock.next_wake is None and time.monotonic() < until:
        time.sleep(0.001)
    assert clock.next_wake == pytest.approx(7.5)
    clock.advance(timedelta(seconds=7.5))
    thread.join(10)
    assert (reply, judged) == (["up"], [flaky.error])
    with pytest.raises(ConnectionError, match="down"):
        retry.call(Flaky(1))


def test_a_block_is_tried_again(run: Any) -> None:
    retry = resil.Retry(on=ConnectionError, max_attempts=3, **QUICK)
    flaky = Flaky(2)
    for attempt in retry:
        with attempt:
            reply = flaky()
    assert (reply, attempt.number) == ("up", 3)

    numbers = []
    with pytest.raises(resil.RetryExhaustedError) as raised:
        for attempt in retry:
            numbers.append(attempt.number)
            with attempt:
                raise ConnectionError("always")
    assert (numbers, str(raised.value.__cause__)) == ([1, 2, 3], "always")
    with pytest.raises(KeyError):
        for attempt in retry:
            with attempt:
                raise KeyError("not named")
    with pytest.raises(KeyboardInterrupt):
        for attempt in retry:
            with attempt:
                raise KeyboardInterrupt
    for attempt in retry:
        break  # nothing is owed

    async def main() -> None:
        flaky = Flaky(2)
        async for attempt in retry:
            with attempt:
                reply = await flaky.later()
        assert (reply, attempt.number) == ("up", 3)
        with pytest.raises(resil.RetryExhaustedError):
            async for attempt in retry:
                with attempt:
                    await Flaky(1).later()

    run(main())


def test_a_block_has_to_end_in_time(run: Any) -> None:
    async def main() -> None:
        timeout = resil.Timeout(0.02)
        cleaned_up = False
        with pytest.raises(resil.TimeoutError):
            async with timeout:
                try:
                    await asyncio.sleep(30)
                finally:
                    cleaned_up = True
        assert cleaned_up
        async with timeout:
            pass
        with pytest.raises(KeyError):
            async with timeout:
                raise KeyError("its own")
        await asyncio.sleep(0.05)  # a timeout that is over strikes nobody
        task = asyncio.ensure_future(_sleep_under(resil.Timeout(30)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


async def _sleep_under(timeout: resil.Timeout) -> None:
    async with timeout:
        await asyncio.sleep(30)


def test_a_judge_that_fails_is_heard() -> None:
    def broken(_: BaseException) -> bool:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        resil.Retry(on=broken).call(Flaky(1))


def test_an_open_circuit_is_never_retried_though_everything_else_is(client: resil.Client) -> None:
    breaker = client.breaker("bank", consecutive_failures=1)
    retry = resil.Retry(on=Exception, max_attempts=5, **QUICK)
    flaky = Flaky(9)
    with pytest.raises(resil.CircuitOpenError):
        retry.call(breaker(flaky))
    assert flaky.calls == 1


def test_testing_mode_waits_for_nobody() -> None:
    retry = resil.Retry(on=ConnectionError, max_attempts=5, initial_backoff=30, max_backoff=30, jitter="none")
    policy = resil.Policy("p", retry={"max_attempts": 5, "initial_backoff": 30, "max_backoff": 30}, on=ConnectionError)
    resil.set_testing()
    assert resil.is_testing()
    for policy_or_retry in (retry, policy):
        began = time.monotonic()
        assert policy_or_retry.call(Flaky(4)) == "up"
        assert time.monotonic() - began < 5
        resil.set_testing(attempts=2)
        flaky = Flaky(9)
        with pytest.raises(resil.RetryExhaustedError):
            policy_or_retry.call(flaky)
        assert flaky.calls == 2
        resil.set_testing()
    assert resil.connect("redis://nowhere.invalid").wait().health()["overall"] == "healthy"
    resil.set_testing(False)
    assert not resil.is_testing()


def test_a_hedge_takes_the_first_reply(run: Any) -> None:
    hedge = resil.Hedge(hedging_delay=0.02, on=ConnectionError)
    calls = 0
    cancelled = 0

    async def main() -> None:
        async def fetch() -> str:
            nonlocal calls, cancelled
            calls += 1
            if calls == 1:
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    cancelled += 1
                    raise
            return f"call {calls}"

        assert await hedge.call(fetch) == "call 2"
        until = time.monotonic() + 5
        while not cancelled and time.monotonic() < until:
            await asyncio.sleep(0.001)

    run(main())
    assert cancelled == 1, "the slow one is cancelled"


def test_a_hedge_of_plain_functions_runs_in_threads() -> None:
    let_go = threading.Event()
    calls: list[int] = []

    @resil.Hedge(hedging_delay=0.02, on=ConnectionError)
    def fetch() -> int:
        calls.append(1)
        if len(calls) == 1:
            let_go.wait(30)
            return 1
        return 2

    assert fetch() == 2
    let_go.set()


def test_a_bulkhead_lets_so_many_in(run: Any) -> None:
    bulkhead = resil.Bulkhead("reports", max_concurrent_calls=1)
    with bulkhead:
        with pytest.raises(resil.BulkheadFullError):
            bulkhead.call(print)
        assert bulkhead.metrics["active"] == 1
    place = bulkhead.acquire().wait()
    with pytest.raises(resil.BulkheadFullError):
        bulkhead.acquire().wait()
    place.release()
    place.release()
    assert bulkhead.call(lambda: "in") == "in"

    async def main() -> None:
        line = resil.Bulkhead("line", max_concurrent_calls=1, max_queue=5, max_wait=5)
        inside = 0

        async def work() -> None:
            nonlocal inside
            inside += 1
            assert inside == 1
            await asyncio.sleep(0.002)
            inside -= 1

        await asyncio.gather(*(line.call(work) for _ in range(6)))
        async with line:
            assert line.metrics["active"] == 1
        assert line.metrics["completed"] == 7

    run(main())
    with pytest.raises(resil.InvalidArgumentError, match="nowhere"):
        bulkhead.partition("nowhere")


def test_a_fallback_replies_in_place_of_a_failure(run: Any) -> None:
    assert resil.Fallback("nothing").call(Flaky(1)) == "nothing"
    assert resil.Fallback("nothing").call(Flaky(0)) == "up"
    assert resil.Fallback(function=lambda error: str(error)).call(Flaky(1)) == "down"
    only = resil.Fallback("nothing", when=KeyError)
    with pytest.raises(ConnectionError):
        only.call(Flaky(1))
    assert only.call(Flaky(1, KeyError("x"))) == "nothing"

    async def instead(error: Exception) -> str:
        await asyncio.sleep(0.001)
        return f"instead of {error}"

    async def main() -> None:
        assert await resil.Fallback(function=instead).call(Flaky(1).later) == "instead of down"
        assert await resil.Fallback(function=lambda error: 1).call(Flaky(1).later) == 1

    run(main())
    with pytest.raises(TypeError, match="coroutine function, and fn is not"):
        resil.Fallback(function=instead).call(Flaky(1))


def test_a_whole_policy_of_this_process(run: Any) -> None:
    policy = resil.Policy("p", {"retry": {"max_attempts": 3, **QUICK}}, shed=10, on=ConnectionError)
    assert (policy.name, policy.order) == ("p", ["shed", "retry"])
    assert any("deadline" in warning for warning in policy.warnings)
    assert policy.call(Flaky(2)) == "up"

    async def main() -> None:
        assert await policy.call(Flaky(2).later) == "up"

    run(main())
    with pytest.raises(TypeError, match="^on must say"):
        resil.Policy("p", retry={})
    with pytest.raises(resil.InvalidPolicyError, match="breaker"):
        resil.Policy("p", breaker={})


def test_a_whole_policy_of_a_client(client: resil.Client, run: Any) -> None:
    policy = client.policy(
        "payments",
        timeout={"attempt": 0.25, "total": timedelta(seconds=2)},
        retry={"max_attempts": 3, **QUICK},
        breaker={"consecutive_failures": 5},
        rate_limit={"limit": 3, "period": 3600},
        on=ConnectionError,
    )
    assert policy.with_options(key="ann").call(Flaky(0)) == "up"
    assert policy.with_options(key="bob", cost=3).call(Flaky(0)) == "up"

    async def main() -> None:
        with pytest.raises(resil.RetryExhaustedError) as raised:
            await policy.with_options(key="bob", total_timeout=1).call(Flaky(0).later)
        assert isinstance(raised.value.__cause__, resil.RateLimitExceededError)

    run(main())


FILE = """
version: 1
policies:
  payments:
    timeout: { attempt: 250ms, total: 2s }
    retry: { maxAttempts: 4, initialBackoff: 1ms }
    breaker: { consecutiveFailures: 50, failureRate: 0 }
"""


def test_policies_are_read_from_a_file(client: resil.Client, tmp_path: Path) -> None:
    path = tmp_path / "policies.yaml"
    path.write_text(FILE)
    json_text = '{"version": 1, "policies": {"payments": {"retry": {"maxAttempts": 4, "initialBackoff": "1ms"}}}}'
    for policies in (
        client.policies(path),
        client.policies(str(path)),
        client.policies(text=FILE),
        client.policies(text=json_text),
    ):
        assert policies.names == ["payments"]
        assert "payments" in policies and len(policies) == 1 and 7 not in policies
        flaky = Flaky(3)
        assert policies.policy("payments", on=ConnectionError).call(flaky) == "up"
        assert flaky.calls == 4
        with pytest.raises(resil.InvalidArgumentError, match="nothing"):
            policies.policy("nothing", on=ConnectionError)
    with pytest.raises(FileNotFoundError):
        client.policies(tmp_path / "no.yaml")
    with pytest.raises(resil.InvalidPolicyError, match="policies.payments.retry.maxAttempts"):
        client.policies(text=FILE.replace("maxAttempts: 4", "maxAttempts: 0"))
    with pytest.raises(ValueError, match="path"):
        client.policies()


def test_a_policy_ends_a_plain_function_that_hangs(client: resil.Client) -> None:
    let_go = threading.Event()
    policy = client.policy("hangs", timeout={"total": 0.05})
    with pytest.raises(resil.TimeoutError):
        policy.call(let_go.wait, 30)
    let_go.set()


def test_a_dispatcher_gives_each_item_its_own_result(run: Any) -> None:
    def parse(text: str) -> int:
        return int(text)

    results = resil.Dispatcher(3).run(["1", "two", "3"], parse)
    assert [result.is_ok for result in results] == [True, False, True]
    assert (results[0].value, results[2].unwrap(), results[1].value) == (1, 3, None)
    assert isinstance(results[1].error, ValueError)
    with pytest.raises(ValueError):
        results[1].unwrap()

    async def main() -> None:
        running = most = 0

        async def work(item: int) -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1
            if item == 5:
                raise ConnectionError("five")
            return item * 2

        results = await resil.Dispatcher(4).run(range(20), work)
        assert [result.value for result in results] == [n * 2 if n != 5 else None for n in range(20)]
        assert most == 4

    run(main())


def test_a_dispatcher_may_begin_no_more_after_an_error() -> None:
    begun: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        raise ConnectionError("all fail")

    results = resil.Dispatcher(1, on_error="stop").run(range(5), work)
    assert begun == [0]
    assert [result.was_begun for result in results] == [True, False, False, False, False]
    assert isinstance(results[4].error, resil.CancelledError)
