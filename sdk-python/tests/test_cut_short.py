"""Work that is cut short, by whatever: nobody knows what it did, so its key keeps its lease."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, Awaitable, Callable

import pytest
import resil
from resil.testing import Clock

Cut = Callable[[resil.Idempotent, Callable[[], Awaitable[Any]]], Awaitable[Any]]


async def cancelled(payments: resil.Idempotent, work: Callable[[], Awaitable[Any]]) -> None:
    task = asyncio.ensure_future(payments.run("order", work))
    await asyncio.sleep(0.02)
    task.cancel()
    await task


async def timed_out_by_asyncio(payments: resil.Idempotent, work: Callable[[], Awaitable[Any]]) -> None:
    await asyncio.wait_for(payments.run("order", work), 0.02)


async def timed_out_around_it(payments: resil.Idempotent, work: Callable[[], Awaitable[Any]]) -> None:
    async def whole() -> Any:
        return await payments.run("order", work)

    await resil.Timeout(0.02).call(whole)


async def timed_out_inside_of_it(payments: resil.Idempotent, work: Callable[[], Awaitable[Any]]) -> None:
    await payments.run("order", resil.Timeout(0.02)(work))


async def timed_out_by_asyncio_inside_of_it(payments: resil.Idempotent, work: Callable[[], Awaitable[Any]]) -> None:
    async def call() -> None:
        await asyncio.wait_for(work(), 0.02)

    await payments.run("order", call)


async def timed_out_in_a_block(payments: resil.Idempotent, work: Callable[[], Awaitable[Any]]) -> None:
    async with resil.Timeout(0.02):
        await payments.run("order", work)


async def retried_inside_of_it(payments: resil.Idempotent, work: Callable[[], Awaitable[Any]]) -> None:
    retry = resil.Retry(on=resil.TimeoutError, max_attempts=2, initial_backoff=0.001)
    await payments.run("order", retry(resil.Timeout(0.02)(work)))


CUTS: list[Cut] = [
    cancelled,
    timed_out_by_asyncio,
    timed_out_around_it,
    timed_out_inside_of_it,
    timed_out_by_asyncio_inside_of_it,
    timed_out_in_a_block,
    retried_inside_of_it,
]


async def forever() -> None:
    await asyncio.sleep(60)


def through(**stages: Any) -> Cut:
    """By a policy of these stages."""

    async def cut(payments: resil.Idempotent, work: Callable[[], Awaitable[Any]]) -> None:
        await resil.Policy("bank", on=ConnectionError, **stages).call_once(payments, "order", work)

    return cut


CUTS += [
    through(timeout={"attempt": 0.02}),
    through(timeout={"total": 0.02}),
    through(timeout={"attempt": 0.02}, retry={"max_attempts": 2, "initial_backoff": 0.001}),
    through(timeout={"attempt": 0.02}, hedge={"hedging_delay": 0.005}),
]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("abort", [False, True])
def test_work_cut_short_keeps_its_lease_unless_it_aborts(run: Any, cut: Cut, abort: bool) -> None:
    async def main() -> None:
        client = await resil.connect("memory://")
        payments = client.idempotent("payments", wait=0, abort_on_cancel=abort)
        with pytest.raises((asyncio.CancelledError, TimeoutError, asyncio.TimeoutError, resil.RetryExhaustedError)):
            await cut(payments, forever)
        # A call that is dropped says so in the background.
        deadline = time.monotonic() + 10
        while abort and (await payments.get("order"))["state"] == "running" and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        known = await payments.get("order")
        assert known["state"] == ("unknown" if abort else "running"), known

    run(main())


def test_one_attempt_that_was_cut_short_is_enough(run: Any) -> None:
    """The first attempt timed out, and may have paid; the second one failed by itself."""
    tries: list[int] = []

    async def pay() -> None:
        tries.append(1)
        if len(tries) == 1:
            await asyncio.sleep(60)
        raise KeyError("the second attempt")

    async def main() -> None:
        client = await resil.connect("memory://")
        payments = client.idempotent("payments", wait=0)
        bank = client.policy("bank", timeout={"attempt": 0.02}, retry={"max_attempts": 2, "initial_backoff": 0.001}, on=lambda error: False)
        with pytest.raises(KeyError):
            await bank.call_once(payments, "order", pay)
        assert len(tries) == 2 and (await payments.get("order"))["state"] == "running"

    run(main())


def test_an_error_of_the_function_frees_the_key_as_ever(run: Any) -> None:
    async def fail() -> None:
        raise ConnectionError("nothing happened")

    async def main() -> None:
        client = await resil.connect("memory://")
        payments = client.idempotent("payments", wait=0)
        with pytest.raises(ConnectionError):
            await payments.run("order", fail)
        assert (await payments.get("order"))["state"] == "unknown"
        with pytest.raises(resil.RetryExhaustedError):
            await through(timeout={"attempt": 5}, retry={"max_attempts": 2, "initial_backoff": 0.001})(payments, fail)
        assert (await payments.get("order"))["state"] == "unknown"

    run(main())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_plain_function_keeps_its_lease_for_attempt_two(error: type) -> None:
    clock = Clock.driven()
    client = resil.connect("memory://", clock=clock).wait()
    payments = client.idempotent("payments", wait=0, lease=30)

    def interrupted() -> None:
        raise error

    with pytest.raises(error):
        payments.run("order", interrupted)
    with pytest.raises(resil.IdempotencyBusyError):
        payments.run("order", lambda: 1)
    clock.advance(31)
    assert payments.run("order", lambda run: run.attempt, with_run=True).value == 2


def test_a_plain_function_after_its_timeout_keeps_its_lease(client: resil.Client) -> None:
    payments, ended = client.idempotent("payments", wait=0), threading.Event()
    bank = client.policy("bank", timeout={"attempt": 0.02})
    with pytest.raises(resil.TimeoutError):
        bank.call_once(payments, "order", lambda: ended.wait(30))
    assert payments.get("order").wait()["state"] == "running"
    ended.set()
