"""Stored policies: changed, followed and watched, on a real server and in memory; policies of a file that is watched."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any, Callable

import pytest
import resil
from resil import telemetry
from resil.testing import Clock

#: Longer than anything here takes, on a machine that has much else to do.
BOUND = 40.0
ONE = {"retry": {"max_attempts": 1}}


def attempts(number: int) -> dict[str, Any]:
    return {"retry": {"maxAttempts": number, "initialBackoff": "1us", "maxBackoff": "1us", "budget": None}}


async def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + BOUND
    while not is_so():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.005)


@pytest.fixture(params=["server", "memory"])
def url(request: Any, servers: Any) -> str:
    if request.param == "memory":
        return f"memory://stored-{request.node.name}"
    started: str = servers.start().url
    return started


def test_a_policy_is_set_read_listed_rolled_back_and_deleted(url: str) -> None:
    client = resil.connect(url).wait()
    policies = client.policies
    assert policies.list().wait() == []
    assert policies.set("pay", ONE, actor="ann", reason="first").wait() == {"version": 1, "action": "created"}
    assert policies.set("pay", json.dumps(ONE)).wait()["action"] == "same"
    assert policies.set("pay", attempts(2), expecting=1).wait() == {"version": 2, "action": "changed"}
    with pytest.raises(resil.InvalidArgumentError, match="VERSION"):
        policies.set("pay", attempts(3), expecting=1).wait()
    stored = policies.get("pay", 1).wait()
    assert stored is not None
    assert (stored["name"], stored["policy"], stored["actor"]) == ("pay", '{"retry":{"maxAttempts":1}}', "ann")
    assert abs(stored["at"] - time.time()) < 600
    assert [policy["name"] for policy in policies.list().wait()] == ["pay"]
    assert policies.rollback("pay", 1).wait() == {"version": 3, "action": "changed"}
    assert policies.delete("pay", expecting=3).wait() == {"version": 4, "action": "deleted"}
    assert policies.get("pay").wait() is None
    history = policies.history("pay").wait()
    assert [(record["version"], record["is_deleted"]) for record in history] == [(4, True), (3, False), (2, False), (1, False)]
    assert history[1]["reason"] == "rolled back to version 1"


def test_a_document_that_is_wrong_is_named_by_its_path(url: str) -> None:
    policies = resil.connect(url).wait().policies
    assert policies.check({"retry": {"max_attempts": 4}}).wait() == '{"retry":{"maxAttempts":4}}'
    for wrong in (policies.check, lambda document: policies.set("pay", document)):
        with pytest.raises(resil.InvalidPolicyError, match="retry.maxAttempts must be from 1 to 100, got 0"):
            wrong({"retry": {"maxAttempts": 0}}).wait()
    with pytest.raises(TypeError, match="document must be"):
        policies.set("pay", 7).wait()  # type: ignore[arg-type]


def test_a_bare_number_is_seconds_in_code_only(url: str, tmp_path: Path) -> None:
    client = resil.connect(url).wait()
    unit = "timeout.total must have a unit"
    for document in ({"timeout": {"total": 2}}, {"timeout": {"total": 0.5}}, '{"timeout": {"total": 2}}', {"timeout": {"total": "2"}}):
        with pytest.raises(resil.InvalidPolicyError, match=unit):
            client.policies.set("pay", document).wait()
    path = tmp_path / "policies.yaml"
    path.write_text("policies: { pay: { timeout: { total: 2 } } }")
    with pytest.raises(resil.InvalidPolicyError, match=unit):
        client.policies.open(path)
    with pytest.raises(resil.InvalidPolicyError, match=unit):
        client.policies(path)
    assert client.policies.list().wait() == []
    policy, begun = client.policy("code", timeout={"total": 0.05}), time.monotonic()
    with pytest.raises(resil.TimeoutError):
        policy.call(lambda: time.sleep(1))
    assert time.monotonic() - begun < 0.9, "seconds, not milliseconds; and not fifty of them"


def test_a_followed_policy_changes_with_what_is_stored(url: str, run: Any) -> None:
    async def main() -> None:
        operator, service = await resil.connect(url), await resil.connect(url)
        with pytest.raises(resil.InvalidArgumentError, match="no stored policy"):
            await service.policy("pay", on=ConnectionError)
        await operator.policies.set("pay", attempts(2))
        pay = await service.policy("pay", on=ConnectionError)
        made = 0

        async def down() -> None:
            nonlocal made
            made += 1
            raise ConnectionError

        async def attempts_now() -> int:
            nonlocal made
            made = 0
            with pytest.raises(resil.RetryExhaustedError):
                await pay.call(down)
            return made

        assert (pay.name, pay.version, await attempts_now()) == ("pay", 1, 2)
        await operator.policies.set("pay", attempts(5))
        await until(lambda: pay.version == 2)
        assert (await attempts_now(), pay.order, pay.problem) == (5, ["retry"], None)
        await operator.policies.delete("pay")
        await until(lambda: pay.problem is not None)
        assert await attempts_now() == 5
        assert service.health()["policies"]["policy:pay"] == "degraded"

    run(main())


def test_a_change_may_bring_plain_functions_hedges_and_timeouts(url: str) -> None:
    client = resil.connect(url).wait()
    client.policies.set("pay", attempts(1)).wait()
    pay = client.policy("pay", on=ConnectionError).wait()

    @pay
    def slow() -> str:
        time.sleep(0.2)
        return "paid"

    assert slow() == "paid"
    client.policies.set("pay", {"hedge": {"hedgingDelay": "10ms"}, "timeout": {"total": "20ms"}}).wait()
    end = time.monotonic() + BOUND
    while pay.version != 2:
        assert time.monotonic() < end
        time.sleep(0.005)
    with pytest.raises(resil.TimeoutError):
        slow()


def test_a_policy_that_retries_has_to_know_what(url: str) -> None:
    client = resil.connect(url).wait()
    client.policies.set("pay", attempts(2)).wait()
    with pytest.raises(TypeError, match="on must say"):
        client.policy("pay").wait()
    client.policies.set("plain", {"timeout": {"total": "1s"}}).wait()
    assert client.policy("plain").wait().call(lambda: 7) == 7


def test_a_service_starts_before_its_policy_is_stored(url: str, run: Any) -> None:
    async def main() -> None:
        client = await resil.connect(url)
        pay = await client.policy_or("pay", timeout={"total": 1.0})
        assert (pay.version, pay.order) == (None, ["total"])
        await client.policies.set("pay", {"timeout": {"attempt": "1s"}})
        await until(lambda: pay.version == 1)
        assert pay.order == ["attempt"]

    run(main())


def test_callers_without_an_sdk_share_the_breaker(servers: Any) -> None:
    server = servers.start()
    client = resil.connect(server.url).wait()
    client.policies.set("pay", {"breaker": {"consecutiveFailures": 2}}).wait()
    pay = client.policy("pay").wait()
    raw = resil.connect(server.url).wait().breaker("other")
    assert raw is not None

    def down() -> None:
        raise ConnectionError

    for _ in range(2):
        with pytest.raises(ConnectionError):
            pay.call(down)
    other = resil.connect(server.url).wait().policy("pay").wait()
    with pytest.raises(resil.CircuitOpenError):
        other.call(lambda: 7)


def test_changes_are_watched_until_the_client_is_closed(url: str, run: Any) -> None:
    async def main() -> None:
        operator, watcher = await resil.connect(url), await resil.connect(url)
        changes = await watcher.policies.watch()
        await operator.policies.set("pay", ONE)
        assert await asyncio.wait_for(changes.__anext__(), BOUND) == {"name": "pay", "version": 1, "action": "created"}
        await operator.policies.set("pay", attempts(2))
        await operator.policies.delete("pay")
        reported = []

        async def watch() -> None:
            async for change in changes:
                reported.append((change["version"], change["action"]))

        watching = asyncio.ensure_future(watch())
        await until(lambda: len(reported) == 2)
        assert reported == [(2, "changed"), (3, "deleted")]
        await watcher.shutdown()
        await asyncio.wait_for(watching, BOUND)

    run(main())


def test_a_watch_that_is_closed_is_over(url: str, run: Any) -> None:
    async def main() -> None:
        client = await resil.connect(url)
        changes = await client.policies.watch()
        changes.close()
        assert [change async for change in changes] == []

    run(main())


def test_a_closed_watch_ends_for_all_who_wait(url: str, run: Any) -> None:
    async def main() -> None:
        operator, watcher = await resil.connect(url), await resil.connect(url)
        changes = await watcher.policies.watch()
        waiting = [asyncio.ensure_future(changes.__anext__()) for _ in range(4)]
        await asyncio.sleep(0.05)
        waiting[3].cancel()  # the last who asked is not the one who is woken
        await operator.policies.set("one", ONE)
        await operator.policies.set("other", ONE)
        await until(lambda: sum(task.done() for task in waiting) == 3)
        changes.close()
        ended = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), BOUND)
        reported = sorted(change["name"] for change in ended if isinstance(change, dict))
        assert reported == ["one", "other"]
        assert sum(isinstance(end, StopAsyncIteration) for end in ended) == 1

    run(main())


def test_none_of_the_changes_after_a_watch_is_missed(url: str, run: Any) -> None:
    async def main() -> None:
        operator = await resil.connect(url)
        for number in range(5):
            watcher = await resil.connect(url)
            changes = await watcher.policies.watch()
            for most in (2, 3, 4):
                await operator.policies.set(f"p{number}", attempts(most))
            await operator.policies.delete(f"p{number}")
            reported = [await asyncio.wait_for(changes.__anext__(), BOUND) for _ in range(4)]
            assert [change["version"] for change in reported] == [1, 2, 3, 4]
            await watcher.shutdown()

    run(main())


def test_a_user_who_may_not_watch_learns_the_reason(servers: Any) -> None:
    server = servers.start()
    server.say("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels", "+@all")
    client = resil.connect(f"redis://deaf:secret@127.0.0.1:{server.port}").wait()
    with pytest.raises(resil.PermissionDeniedError, match="&resil:events"):
        client.policies.watch().wait()


def test_calls_wait_for_a_place_in_the_guard(servers: Any) -> None:
    server = servers.start()
    client = resil.connect(server.url).wait()
    places = {"maxConcurrentCalls": 2, "maxWait": "20s", "maxQueue": 50}
    client.policies.set("pay", {"timeout": {"attempt": "5s"}, "sharedBulkhead": places}).wait()
    pay = client.policy("pay").wait()
    inside, most = [], []

    def work() -> None:
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.005)
        inside.pop()

    threads = [threading.Thread(target=pay.call, args=(work,)) for _ in range(12)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert len(most) == 12 and max(most) <= 2
    assert time.monotonic() - begun < 4.0, "12 calls of 5 ms, two at once"


def test_an_attempt_outliving_its_ticket_is_logged_per_version(caplog: pytest.LogCaptureFixture, run: Any) -> None:
    clock = Clock.driven()
    client = resil.connect("memory://", clock=clock).wait()
    reported: list[dict[str, Any]] = []

    def document(lease: str) -> dict[str, Any]:
        return {"sharedBulkhead": {"maxConcurrentCalls": 1, "lease": lease}}

    def outlive() -> int:
        clock.advance(60)
        return 7

    client.policies.set("late", document("1s")).wait()
    late = client.policy("late").wait()
    with caplog.at_level(logging.WARNING, logger="resil"), telemetry.hooks(only="late", on_outlived=reported.append):
        assert [late.call(outlive) for _ in range(3)] == [7, 7, 7], "its value counts all the same"
        client.policies.set("late", document("2s")).wait()
        run(until(lambda: late.version == 2))
        late.call(outlive)
        run(until(lambda: len(reported) >= 2 and len(caplog.messages) >= 2))
    assert reported == [{"name": "late", "took": 60.0}] * 2
    assert ["policy late took 60.000 s" in line for line in caplog.messages] == [True, True]


def test_an_invalid_file_leaves_the_last_good_one(tmp_path: Path) -> None:
    client = resil.connect("memory://").wait()
    path = tmp_path / "policies.yaml"
    path.write_text("policies: { pay: { timeout: { total: 1s } } }")
    watched = client.policies.open(path)
    pay = watched.policy("pay")
    assert (watched.names, pay.order, watched.problem) == (["pay"], ["total"], None)
    path.write_text("policies: { pay: { timeout: { total: 0 } } }")
    watched.look()
    assert watched.problem is not None and "policies.pay.timeout.total" in watched.problem
    assert (pay.order, pay.problem) == (["total"], watched.problem)
    path.write_text("policies: { pay: { timeout: { attempt: 1s, total: 2s } }, orders: { timeout: { total: 3s } } }")
    end = time.monotonic() + BOUND
    while watched.names != ["orders", "pay"]:
        assert time.monotonic() < end, "the file is looked at every second"
        time.sleep(0.02)
    assert (pay.order, pay.call(lambda: 7), watched.problem) == (["total", "attempt"], 7, None)
    path.write_text("policies: { orders: { timeout: { total: 3s } } }")
    watched.look()
    assert watched.problem is None and pay.call(lambda: 7) == 7
    assert pay.problem is not None and "no policy of the name" in pay.problem
    invalid = "policies: { pay: { timeout: { total: 0 } } }"
    path.write_text(invalid)
    watched.look()
    path.unlink()
    watched.look()
    assert pay.call(lambda: 7) == 7 and watched.problem is not None and "cannot be read" in watched.problem
    path.write_text(invalid)
    watched.look()
    assert watched.problem is not None and "policies.pay.timeout.total" in watched.problem, "it is there again, and as wrong as before"
    path.unlink()
    os.mkfifo(path)
    watched.look()
    assert watched.problem is not None and "regular file" in watched.problem
    with pytest.raises(resil.InvalidArgumentError, match="there is no policy"):
        watched.policy("nothing")


@pytest.mark.parametrize("adaptive", [True, False])
def test_an_adaptive_breaker_knows_what_is_usual(adaptive: bool) -> None:
    """Half of the calls fail all the time; then six of ten, which is above the rate, but nothing unusual."""
    client = resil.connect("memory://").wait()
    breaker = {"windowCalls": 50, "failureRate": 55, "consecutiveFailures": 0, "minCalls": 20, "mode": "exact", "adaptive": adaptive}
    document = json.dumps({"version": 1, "policies": {"bank": {"breaker": breaker}}})
    policy = client.policies(text=document).policy("bank", on=ConnectionError)

    def call(fails: bool) -> bool:
        def work() -> None:
            if fails:
                raise ConnectionError("down")

        try:
            policy.call(work)
        except ConnectionError:
            pass
        except resil.CircuitOpenError:
            return False
        return True

    assert all(call(number % 2 == 1) for number in range(400))
    assert all([call(number % 5 >= 2) for number in range(50)]) is adaptive
    assert not all([call(True) for _ in range(60)]), "an outage trips it"
