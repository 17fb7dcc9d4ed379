"""Limiter, breaker, lock, shared bulkhead, idempotency and cached loads, in memory: every shape, sync and async."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest
import resil
from resil.testing import Clock


def test_a_limiter_in_every_shape(client: resil.Client, run: Any) -> None:
    limiter = client.limiter("api", limit=5, period=timedelta(hours=1))
    by_ann = limiter.by("ann")

    @by_ann
    def first() -> int:
        return 1

    @limiter.by(lambda user: f"{user}")
    def of_user(user: str) -> str:
        return user

    assert first() == 1
    assert by_ann.call(lambda: 2) == 2
    with by_ann:
        pass
    assert limiter.check("ann", 2).wait().remaining == 0
    with pytest.raises(resil.RateLimitExceededError):
        first()
    with pytest.raises(resil.RateLimitExceededError), by_ann:
        raise AssertionError("never inside")
    assert of_user("bob") == "bob"
    assert limiter.peek("bob").wait().granted == 4
    assert limiter.refund("bob").wait().remaining == 5
    assert limiter.up_to("bob", 9).wait().granted == 5

    async def main() -> None:
        by_eve = limiter.by(b"eve", cost=3)
        async with by_eve:
            pass
        with pytest.raises(resil.RateLimitExceededError):
            async with by_eve:
                raise AssertionError("never inside")

        @limiter.by("kim")
        async def fetch() -> str:
            return "kim"

        assert await fetch() == "kim"

    run(main())
    with pytest.raises(TypeError, match="block has none"), limiter.by(lambda user: "x"):
        pass


def test_a_turn_is_waited_for(run: Any) -> None:
    clock = Clock.driven()

    async def main() -> None:
        client = await resil.connect("memory://", clock=clock)
        limiter = client.limiter("api", limit=1, period=10)
        await limiter.until_ready("ann", 30)
        waiting = asyncio.create_task(limiter.until_ready("ann", 30))  # type: ignore[arg-type]
        while clock.next_wake is None:
            await asyncio.sleep(0)
        assert clock.next_wake == pytest.approx(10)
        clock.advance(10)
        await waiting
        with pytest.raises(resil.RateLimitExceededError):
            await limiter.until_ready("ann", 1)

    run(main())


def test_several_limits_are_taken_from_together(client: resil.Client) -> None:
    reads, everything = client.limiter("reads", limit=1, period=60), client.limiter("all", limit=9, period=60)
    assert client.check_all([(reads, "ann"), (everything, "ann")]).wait()
    refused = client.check_all([(reads, "ann"), (everything, "ann")]).wait()
    assert (bool(refused), refused.refused_by, refused.granted) == (False, 0, 0)
    assert refused.binding.retry_after is not None
    assert everything.peek("ann").wait().remaining == 8


def test_a_breaker_in_every_shape(client: resil.Client, run: Any) -> None:
    seen: list[tuple[str, str]] = []
    breaker = client.breaker("bank", consecutive_failures=2, open_for=3600, ignore=KeyError)
    breaker.on_transition(lambda previous, new, generation: seen.append((previous, new)))

    def fail(error: Exception) -> None:
        raise error

    for _ in range(3):
        with pytest.raises(KeyError):
            breaker.call(fail, KeyError("not its fault"))
        with pytest.raises(KeyError), breaker:
            raise KeyError("not its fault")
    permit = breaker.admit().wait()
    permit.failure().wait()
    with pytest.raises(RuntimeError, match="before"):
        permit.success()
    with pytest.raises(ConnectionError), breaker:
        raise ConnectionError("down")
    for refused in (lambda: breaker.call(fail, KeyError("x")), lambda: breaker.admit().wait(), breaker.__enter__):
        with pytest.raises(resil.CircuitOpenError) as raised:
            refused()
        assert raised.value.retry_after is not None and raised.value.retry_after > 3000
    assert breaker.last_known_state == "open"
    state = breaker.state().wait()
    assert (state["state"], state["admits"]) == ("open", False)
    assert breaker.reset().wait()
    assert breaker.force("disabled", duration=60, reason="drill").wait() == "disabled"
    forced = breaker.state().wait()["forced"]
    assert forced is not None and forced["reason"] == "drill"
    assert breaker.force("auto").wait() == "closed"
    assert breaker.configure(consecutive_failures=1).wait()
    deadline = time.monotonic() + 60
    while ("closed", "open") not in seen and time.monotonic() < deadline:
        time.sleep(0.001)  # it is notified in another thread
    assert ("closed", "open") in seen

    async def main() -> None:
        async def broken() -> None:
            raise ConnectionError("down")

        with pytest.raises(ConnectionError):
            await breaker(broken)()
        with pytest.raises(resil.CircuitOpenError):
            async with breaker:
                raise AssertionError("never inside")

    run(main())


def test_a_retry_that_gave_up_counts_for_the_breaker(client: resil.Client, run: Any) -> None:
    retry = resil.Retry(on=ConnectionError, max_attempts=2, initial_backoff=0.001)

    @retry
    def broken() -> None:
        raise ConnectionError("down")

    def block(breaker: resil.Breaker) -> None:
        with breaker:
            broken()

    shapes = {"block": block, "call": lambda breaker: breaker.call(broken), "decorator": lambda breaker: breaker(broken)()}
    for shape, through in shapes.items():
        breaker = client.breaker(shape, consecutive_failures=2, open_for=3600)
        for _ in range(2):
            with pytest.raises(resil.RetryExhaustedError):
                through(breaker)
        with pytest.raises(resil.CircuitOpenError):
            through(breaker)


def test_a_refusal_further_in_is_not_held_against_the_breaker(client: resil.Client) -> None:
    breaker = client.breaker("bank", consecutive_failures=1)
    limiter = client.limiter("api", limit=1, period=60)
    guarded = breaker(limiter.by("ann")(lambda: "made"))
    assert guarded() == "made"
    for _ in range(3):
        with pytest.raises(resil.RateLimitExceededError):
            guarded()
    assert breaker.call(lambda: "closed") == "closed"


def test_a_shared_bulkhead_in_every_shape(client: resil.Client, run: Any) -> None:
    bulkhead = client.shared_bulkhead("reports", 1)
    with bulkhead as inside:
        assert inside.is_held and inside.remaining > 0 and not inside.lost.is_set()
        with pytest.raises(resil.BulkheadFullError):
            bulkhead.call(print)
        assert bulkhead.info().wait()["holders_total"] == 1
    guard = bulkhead.enter().wait()
    with pytest.raises(resil.BulkheadFullError):
        bulkhead.try_enter().wait()
    assert guard.leave().wait() >= 0
    with pytest.raises(RuntimeError, match="before"):
        guard.leave()
    assert bulkhead(lambda: "in")() == "in"

    async def main() -> None:
        inside = 0

        async def work() -> None:
            nonlocal inside
            inside += 1
            assert inside <= 2
            await asyncio.sleep(0.001)
            inside -= 1

        line = client.shared_bulkhead("line", 2, max_wait=20, max_queue=50)
        await asyncio.gather(*(line.call(work) for _ in range(20)))
        async with line:
            pass

    run(main())


class Declined(Exception):
    """Final."""


def test_work_is_done_once(client: resil.Client, run: Any) -> None:
    payments = client.idempotent("payments")
    calls: list[int] = []

    def pay(amount: int, *, currency: str) -> dict[str, Any]:
        calls.append(amount)
        return {"paid": amount, "currency": currency}

    first = payments.run("order-1", pay, 7, currency="€", fingerprint="7")
    again = payments.run("order-1", pay, 7, currency="€", fingerprint="7")
    assert (first.value, first.replayed, first.attempt, first.recorded) == ({"paid": 7, "currency": "€"}, False, 1, True)
    assert (again.value, again.replayed) == (first.value, True)
    assert calls == [7]
    with pytest.raises(resil.IdempotencyMismatchError):
        payments.run("order-1", pay, 8, currency="€", fingerprint="8")
    known = payments.get("order-1").wait()
    assert (known["state"], known["result"]) == ("done", '{"paid":7,"currency":"€"}'.encode())
    assert payments.get("order-2").wait() == {"state": "unknown"}

    async def main() -> None:
        async def pay_later(run: resil.Run, amount: int) -> int:
            assert run.is_first and run.attempt == 1 and run.fence and not run.lost.is_set()
            await asyncio.sleep(0.01)
            calls.append(amount)
            return amount

        outcomes = await asyncio.gather(
            *(payments.run("order-3", pay_later, 9, with_run=True) for _ in range(20))
        )
        assert [outcome.value for outcome in outcomes] == [9] * 20
        assert sum(not outcome.replayed for outcome in outcomes) == 1

    run(main())
    assert calls == [7, 9]


def test_an_error_frees_the_key_unless_it_is_remembered(client: resil.Client) -> None:
    payments = client.idempotent("payments", remember=Declined)

    def fail(error: Exception) -> None:
        raise error

    with pytest.raises(ConnectionError):
        payments.run("a", fail, ConnectionError("down"))
    assert payments.run("a", lambda: "ran").value == "ran"
    with pytest.raises(Declined, match="no money"):
        payments.run("b", fail, Declined("no money"))
    with pytest.raises(Declined, match="no money"):
        payments.run("b", lambda: "never")


def test_a_decorated_function_is_done_once_for_each_key(client: resil.Client, run: Any) -> None:
    payments = client.idempotent("payments", serializer="bytes")
    calls: list[str] = []

    @payments.by(lambda order: order, fingerprint=lambda order: order)
    def pay(order: str) -> bytes:
        calls.append(order)
        return b"\xff" + order.encode()

    assert pay("a") == pay("a") == b"\xffa"
    assert calls == ["a"]

    @payments.by(lambda order: order)
    async def pay_later(order: str) -> bytes:
        calls.append(order)
        return order.encode()

    async def main() -> None:
        assert await pay_later("z") == await pay_later("z") == b"z"

    run(main())
    assert calls == ["a", "z"]


def test_an_event_is_seen_once(client: resil.Client) -> None:
    events = client.idempotent("events")
    assert events.once("e1", 60, "me").wait()
    assert not events.once("e1", timedelta(minutes=1), "you").wait()
    assert events.once("e1", 60, "me").wait()


def test_a_value_is_loaded_once(client: resil.Client, run: Any) -> None:
    users = client.cached("user", ttl=60)
    loads: list[str] = []

    def load(key: str) -> dict[str, str] | None:
        loads.append(key)
        return {"name": "Ada"} if key == "42" else None

    assert users.get("42", load).wait() == {"name": "Ada"}
    assert users.get("42", load).wait() == {"name": "Ada"}
    assert users.get("43", load).wait() is None
    found = users.lookup("42", load).wait()
    assert (found.is_found, found.is_stale, found.value) == (True, False, {"name": "Ada"})
    assert found.age is not None and found.age >= 0
    assert loads == ["42", "43"]
    assert users.invalidate("42").wait()
    assert users.get("42", load).wait() == {"name": "Ada"}
    assert loads == ["42", "43", "42"]

    async def main() -> None:
        async def load_later(key: str) -> str:
            loads.append(key)
            await asyncio.sleep(0.01)
            return key.upper()

        values = await asyncio.gather(*(users.get("many", load_later) for _ in range(100)))
        assert values == ["MANY"] * 100
        assert loads.count("many") == 1
        assert await users.get("plain", load) is None

        @users.by(lambda number: f"square:{number}")
        async def square(number: int) -> int:
            loads.append(f"square:{number}")
            return number * number

        assert [await square(3), await square(3), await square(4)] == [9, 9, 16]
        assert loads.count("square:3") == 1

    run(main())

    @users.by("fixed")
    def fixed() -> str:
        loads.append("fixed")
        return "value"

    assert fixed() == fixed() == "value"
    assert loads.count("fixed") == 1


def test_a_failed_loader_fails_those_who_wait(client: resil.Client, run: Any) -> None:
    users = client.cached("user", error_ttl=0)

    def broken(_: str) -> str:
        raise ConnectionError("down")

    with pytest.raises(ConnectionError, match="down"):
        users.get("1", broken).wait()

    async def main() -> None:
        async def broken_later(_: str) -> str:
            raise ConnectionError("down later")

        with pytest.raises(ConnectionError, match="later"):
            await users.get("2", broken_later)

    run(main())

    async def never(_: str) -> str:
        return "x"

    with pytest.raises(RuntimeError, match="event loop"):
        users.get("3", never).wait()


def test_a_client_says_how_it_is_and_shuts_down(run: Any) -> None:
    async def main() -> None:
        client = await resil.connect("memory://", name="checkout-7")
        client.breaker("bank")
        assert client.health() == {"overall": "healthy", "policies": {"breaker:bank": "healthy"}}
        held = await client.lock("x").acquire()
        report = await client.shutdown(1)
        assert (report["cut_off"], report["released"]) == (0, ["lock:x"])
        assert client.is_shutting_down
        assert not held.is_held
        with pytest.raises(resil.ShuttingDownError):
            await client.lock("x").acquire()

    run(main())
