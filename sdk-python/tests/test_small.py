"""Small promises: generators are refused, retries can raise what was raised, clients are blocks, durations are text."""

from __future__ import annotations

import asyncio
import functools
import re
import socket
import subprocess
import sys
import textwrap
import time
import types
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import resil
from resil.testing import Clock

# ---- generator functions ------------------------------------------------------------------------------------------------------


def plain() -> Iterator[int]:
    yield 1


async def asynchronous() -> AsyncIterator[int]:
    yield 1


@types.coroutine
def old() -> Any:
    yield 1


class Methods:
    def plain(self) -> Iterator[int]:
        yield 1

    async def asynchronous(self) -> AsyncIterator[int]:
        yield 1

    def __call__(self) -> Iterator[int]:
        yield 1


GENERATORS: dict[str, Any] = {
    "generator": plain,
    "async generator": asynchronous,
    "types.coroutine": old,
    "method": Methods().plain,
    "async method": Methods().asynchronous,
    "callable object": Methods(),
    "partial": functools.partial(plain),
    "partial of a method": functools.partial(functools.partial(Methods().asynchronous)),
}


def arounds(client: resil.Client) -> dict[str, Any]:
    return {
        "retry": resil.Retry(on=KeyError),
        "timeout": resil.Timeout(1),
        "hedge": resil.Hedge(hedging_delay=0.1, on=ConnectionError),
        "bulkhead": resil.Bulkhead("b", max_concurrent_calls=1),
        "fallback": resil.Fallback(1),
        "policy": resil.Policy("p", {}),
        "breaker": client.breaker("b"),
        "limiter": client.limiter("l", limit=1, period=1).by("k"),
        "lock": client.lock("l"),
        "shared bulkhead": client.shared_bulkhead("s", 1),
        "idempotent": client.idempotent("i").by("k"),
        "cached": client.cached("c").by("k"),
        "versioned": client.versioned_cached("v").by("k"),
    }


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_generator_function_is_refused_by_every_decorator(client: resil.Client, kind: str) -> None:
    for name, around in arounds(client).items():
        with pytest.raises(TypeError, match="fn is a generator function"):
            around(GENERATORS[kind])
        with pytest.raises(TypeError, match="fn is a generator function"):
            around.call(GENERATORS[kind])
        assert name
    with pytest.raises(TypeError, match="fn is a generator function"):
        client.idempotent("i").run("k", GENERATORS[kind])
    with pytest.raises(TypeError, match="fn is a generator function"):
        client.cached("c").get("k", GENERATORS[kind])


# ---- exhausted retries --------------------------------------------------------------------------------------------------------


def fails() -> None:
    raise ConnectionError("down")


async def fails_later() -> None:
    fails()


QUICK: Any = {"max_attempts": 2, "initial_backoff": 0.001}


def test_a_retry_can_raise_what_the_last_attempt_raised(client: resil.Client, run: Any) -> None:
    usual, own = resil.Retry(on=ConnectionError, **QUICK), resil.Retry(on=ConnectionError, reraise=True, **QUICK)
    with pytest.raises(resil.RetryExhaustedError) as raised:
        usual(fails)()
    assert isinstance(raised.value.__cause__, ConnectionError)
    with pytest.raises(ConnectionError, match="^down$"):
        own(fails)()
    with pytest.raises(ConnectionError, match="^down$"):
        for attempt in own:
            with attempt:
                fails()

    async def main() -> None:
        with pytest.raises(ConnectionError, match="^down$"):
            await own(fails_later)()
        with pytest.raises(ConnectionError, match="^down$"):
            async for attempt in own:
                with attempt:
                    fails()

    run(main())
    for policy in (
        client.policy("p", retry={**QUICK, "reraise": True}, on=ConnectionError),
        resil.Policy("p", retry={**QUICK, "reraise": True}, on=ConnectionError),
        client.policies(text="{version: 1, policies: {p: {retry: {maxAttempts: 2, initialBackoff: 1ms, reraise: true}}}}").policy(
            "p", on=ConnectionError
        ),
    ):
        for each in (policy, policy.with_options(total_timeout=9)):
            with pytest.raises(ConnectionError, match="^down$"):
                each(fails)()
    with pytest.raises(ValueError, match="reraise must be"):
        resil.Retry(on=KeyError, reraise=1)  # type: ignore[typeddict-item]


# ---- fallbacks ----------------------------------------------------------------------------------------------------------------


def test_a_failed_fallback_names_the_failure_it_replaced(run: Any) -> None:
    def broken(error: Exception) -> None:
        raise KeyError("of the fallback")

    async def broken_later(error: Exception) -> None:
        raise KeyError("of the fallback")

    with pytest.raises(KeyError) as raised:
        resil.Fallback(function=broken)(fails)()
    assert isinstance(raised.value.__context__, ConnectionError)

    async def main() -> None:
        for function in (broken, broken_later):
            with pytest.raises(KeyError) as raised:
                await resil.Fallback(function=function)(fails_later)()
            assert isinstance(raised.value.__context__, ConnectionError)

    run(main())

    def again(error: Exception) -> None:
        raise error

    with pytest.raises(ConnectionError) as same:
        resil.Fallback(function=again)(fails)()
    assert same.value.__context__ is not same.value, "no exception is its own context"

    def chained(error: Exception) -> None:
        raise KeyError("of the fallback") from ValueError("its own cause")

    with pytest.raises(KeyError) as kept:
        resil.Fallback(function=chained)(fails)()
    assert isinstance(kept.value.__cause__, ValueError)


# ---- guards, clients, versions ------------------------------------------------------------------------------------------------


def test_a_guard_says_who_holds_what_and_whether_still(client: resil.Client, run: Any) -> None:
    lock = client.lock("stock", lease="10s")
    guard = lock.acquire().wait()
    assert guard.name == "stock"
    assert lock.check(guard.owner).wait(), "the owner as the server knows it"
    assert guard.owner == lock.info().wait()["holders"][0]["owner"]
    guard.ensure()
    lock.break_lock("operator", "a test").wait()
    assert guard.lost.wait(30)
    with pytest.raises(resil.LockLostError, match="stock"):
        guard.ensure()
    place = client.shared_bulkhead("reports", 2).enter().wait()
    assert (place.name, bool(place.owner)) == ("reports", True)
    place.ensure()
    place.leave().wait()
    with pytest.raises(RuntimeError, match="let go before"):
        place.ensure()


def test_a_client_is_a_block_that_ends_in_a_shutdown(run: Any) -> None:
    with resil.connect("memory://").wait() as client:
        assert not client.is_shutting_down
    assert client.is_shutting_down

    async def main() -> None:
        async with await resil.connect("memory://") as client:
            assert await client.limiter("a", limit=1, period=1).check("x")
        assert client.is_shutting_down
        with pytest.raises(resil.ShuttingDownError):
            await client.limiter("a", limit=1, period=1).acquire("y")
        with pytest.raises(ZeroDivisionError):
            async with await resil.connect("memory://") as client:
                1 / 0
        assert client.is_shutting_down

    run(main())


def test_the_package_says_its_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", resil.__version__)


# ---- durations ----------------------------------------------------------------------------------------------------------------


def test_durations_are_numbers_timedeltas_or_text_everywhere() -> None:
    clock = Clock.driven()
    client = resil.connect("memory://", clock=clock, command_timeout="250ms").wait()
    for second in ("1s", "1000ms", 1, 1.0, timedelta(seconds=1)):
        assert resil.Timeout(second).after == 1.0
        assert resil.Hedge(hedging_delay=second, on=ConnectionError).delay == 1.0
        limiter = client.limiter("a", limit=9, period=second)
        limiter.until_ready("x", second).wait()
        limiter.by("x", max_wait=second)
        client.lock("l", lease=second, wait=second).acquire(second).wait().extend(second).wait()
        client.shared_bulkhead("s", 9, lease=second).enter(wait=second).wait()
        client.idempotent("i", lease=second, keep=second).once("k", second).wait()
        client.breaker("b", open_for=second).force("open", duration=second).wait()
        client.cached("c", ttl=second)
        client.policy("p", timeout={"total": second}).with_options(attempt_timeout=second)
        clock.advance(second)
    held = client.lock("held").acquire().wait()
    assert not held.lost.wait("10ms")
    for wrong in ("1", "s", "", "1 s", "-1s", "1y"):
        with pytest.raises(ValueError, match="^after must be a duration such as"):
            resil.Timeout(wrong)
    client.shutdown("1s").wait()


def test_a_function_that_judges_may_say_its_wait_as_text() -> None:
    clock, tries = Clock.driven(), []

    def fails_once() -> str:
        tries.append(clock.now)
        if len(tries) == 1:
            raise ConnectionError
        return "up"

    retry = resil.Retry(on=lambda error: "5ms", max_attempts=2)
    assert retry(fails_once)() == "up"


@pytest.mark.parametrize("jitter", ["full", "20%", {"plus_minus": 20}])
def test_a_jitter_is_a_name_a_percentage_or_a_dict(jitter: Any) -> None:
    assert resil.Retry(on=ConnectionError, jitter=jitter, **QUICK)(lambda: "up")() == "up"
    assert resil.Policy("p", retry={"jitter": jitter}, on=ConnectionError)(lambda: "up")() == "up"


@pytest.mark.parametrize("jitter", [{"plus_minus": 101}, {"sideways": 1}, {}, {"plus_minus": "much"}, 7])
def test_a_jitter_that_is_none_is_refused_by_name(jitter: Any) -> None:
    with pytest.raises(ValueError, match="jitter"):
        resil.Retry(on=ConnectionError, jitter=jitter)


# ---- loops that do not last ---------------------------------------------------------------------------------------------------


def test_what_is_stale_is_loaded_though_every_loop_ends_before(client: resil.Client) -> None:
    clock = Clock.driven()
    client = resil.connect("memory://", clock=clock).wait()
    prices = client.cached("price", ttl=60, stale=3600)
    loads: list[int] = []

    async def load(key: str) -> int:
        loads.append(len(loads) + 1)
        mine = len(loads)
        await asyncio.sleep(0.05 if mine > 1 else 0)
        return mine

    async def ask() -> int:
        return await prices.get("tea", load)  # type: ignore[return-value]

    assert asyncio.run(ask()) == 1
    clock.advance(61)
    assert asyncio.run(ask()) == 1, "the stale value, while it is loaded anew"
    deadline = time.monotonic() + 30
    while asyncio.run(ask()) == 1:
        assert time.monotonic() < deadline, f"never loaded: {loads}"
        time.sleep(0.01)
    assert len(loads) <= 3, "begun on the loop that ended, and once more without it"


def test_a_loader_cancelled_on_a_living_loop_stays_cancelled(client: resil.Client, run: Any) -> None:
    loads: list[int] = []

    async def load(key: str) -> int:
        loads.append(1)
        raise asyncio.CancelledError

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await client.cached("price").get("tea", load)

    run(main())
    assert loads == [1]


def test_a_load_outlives_the_loop_that_began_it(client: resil.Client) -> None:
    """A loop that ends before it came to the load at all."""
    prices = client.cached("price", ttl=60)

    async def load(key: str) -> int:
        return 7

    async def give_up() -> None:
        asking = asyncio.ensure_future(prices.get("tea", load))
        await asyncio.sleep(0)
        asking.cancel()

    asyncio.run(give_up())
    assert asyncio.run(asyncio.wait_for(_get(prices, load), 30)) == 7


async def _get(prices: resil.Cached, load: Any) -> Any:
    return await prices.get("tea", load)


# ---- the end of a program -----------------------------------------------------------------------------------------------------


def test_a_program_without_a_shutdown_ends_without_a_word(server: Any) -> None:
    program = """
        import sys, logging, resil
        logging.basicConfig(level=logging.DEBUG)
        client = resil.connect_sync(sys.argv[1])
        client.limiter("a", limit=1, period=1).check("x").wait()
        held = client.lock("x").acquire().wait()
    """
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program), server.url],
        capture_output=True, text=True, timeout=60, check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


# ---- a server that is there, or not -------------------------------------------------------------------------------------------


def nowhere() -> str:
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"redis://127.0.0.1:{taken.getsockname()[1]}"


def test_a_server_can_be_required(server: Any, run: Any) -> None:
    url = nowhere()
    with pytest.raises(resil.BackendUnavailableError):
        resil.connect(url, require_server=True, command_timeout="200ms").wait()
    away = resil.connect(url, command_timeout="200ms").wait()
    with pytest.raises(resil.BackendUnavailableError):
        away.wait_ready("300ms").wait()
    health = away.health()
    assert health["overall"] == "unhealthy"
    assert health["reason"] and url.split(":")[-1] not in health["reason"]
    assert abs(health["since"] - time.time()) < 60
    assert resil.connect(server.url, require_server=True).wait().health() == {"overall": "healthy", "policies": {}}

    async def main() -> None:
        client = await resil.connect(server.url)
        await client.wait_ready(timedelta(seconds=30))
        assert "reason" not in client.health()

    run(main())


# ---- traces -------------------------------------------------------------------------------------------------------------------


def test_a_calls_trace_goes_with_its_reports(server: Any, run: Any) -> None:
    from opentelemetry import trace

    ids = [0x0AF7651916CD43DD8448EB211C80319C + number for number in range(4)]

    def span(number: int) -> Any:
        context = trace.SpanContext(ids[number], 0xB7AD6B7169203331, is_remote=False)
        return trace.use_span(trace.NonRecordingSpan(context))

    client = resil.connect_sync(server.url)

    def breaker(number: int) -> resil.Breaker:
        return client.breaker(f"bank-{number}", consecutive_failures=1, mode="exact")

    heard: list[bytes] = []
    with socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1].split("/")[0])), 30) as listening:
        listening.sendall(b"PSUBSCRIBE resil:*\r\n")
        listening.recv(1000)
        with span(0), pytest.raises(ConnectionError):
            breaker(0)(fails)()
        with span(1), pytest.raises(ConnectionError), breaker(1):
            fails()
        with span(2), pytest.raises(ConnectionError):
            client.policy("bank-2", breaker={"consecutive_failures": 1, "mode": "exact"})(fails)()

        async def main() -> None:
            with span(3):
                permit = await breaker(3).admit()
                await permit.failure()

        run(main())
        deadline = time.monotonic() + 30
        while not all(f"{each:032x}".encode() in b"".join(heard) for each in ids):
            assert time.monotonic() < deadline, heard
            heard.append(listening.recv(65536))


# ---- names --------------------------------------------------------------------------------------------------------------------


def until(what: str, is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.01)


def test_handles_of_one_name_share_what_they_know(servers: Any, run: Any) -> None:
    server = servers.start()
    client = resil.connect_sync(server.url, command_timeout="300ms")

    def prices() -> resil.Cached:
        return client.cached("price", ttl=60, local_ttl=60, when_away="local")

    def asked() -> int:
        calls = re.findall(r"cmdstat_res\.sflight[^:]*:calls=(\d+)", str(server.say("INFO", "commandstats")), re.IGNORECASE)
        return sum(map(int, calls))

    def is_kept() -> bool:
        assert first.get("tea", lambda key: 420).wait() == 420
        before = asked()
        assert before > 0
        assert first.get("tea", lambda key: 420).wait() == 420
        return asked() == before

    first, second = prices(), prices()
    # The tier is used since it hears of invalidations.
    until("the tier is used", is_kept)
    server.kill()
    # What it knew before may be out of date by now: nobody would say so.
    until("what was known is forgotten", lambda: first.get("tea", lambda key: 421).wait() == 421)
    assert second.get("tea", lambda key: "never").wait() == 421, "the local tier is the name's"
    loads: list[int] = []

    async def load(key: str = "") -> int:
        loads.append(1)
        await asyncio.sleep(0.2)
        return len(loads)

    async def main() -> None:
        got = await asyncio.gather(*(prices().get("coffee", load) for _ in range(9)))
        assert (got, len(loads)) == ([1] * 9, 1), "one load for all while the server is away"
        runs = [client.idempotent("orders", when_away="open").run("k", load) for _ in range(9)]
        values = [outcome.value for outcome in await asyncio.gather(*runs)]
        assert (values, len(loads)) == ([2] * 9, 2), "one run for all while the server is away"

    run(main())
    server.stop()
