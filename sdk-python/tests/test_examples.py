"""Every example keeps its promises: in memory, on a real server, and as the program that a newcomer runs."""

from __future__ import annotations

import asyncio
import importlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import resil

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "python"
#: No story takes that long.
BOUND = 120.0


@pytest.fixture(params=["memory", "server"])
def url(request: pytest.FixtureRequest) -> str:
    return "memory://" if request.param == "memory" else str(request.getfixturevalue("server").url)


@pytest.fixture
def reported(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The story of an example, as it was seen."""
    monkeypatch.syspath_prepend(str(FOLDER))

    def tell(example: str) -> Any:
        story = importlib.import_module(example).story
        return asyncio.run(asyncio.wait_for(story(url), BOUND))

    yield tell


def test_every_order_is_paid_once(reported: Any) -> None:
    seen = reported("payments")
    assert (seen.requests, seen.replays, seen.payments_after_duplicates) == (100, 99, 1), "one of them pays"
    assert seen.mismatch == "IDEMPOTENCY_MISMATCH"
    ((carried, highest),) = seen.refused_fences
    assert carried < highest
    reported_sleeper = type(seen.sleeper).__name__
    assert reported_sleeper in ("StaleFence", "LockLostError"), "who slept over its lease has not paid"
    assert not seen.meanwhile.replayed
    assert (seen.sleeper_again.replayed, seen.sleeper_again.value["cents"]) == (False, 900), "paid once, by the caller that asked again"
    assert (seen.after_crash.attempt, seen.after_crash.replayed) == (2, False)
    assert (seen.payments_in_all, seen.balance) == (4, 100_000 - 700 - 900 - 300 - 500)


def test_limits_and_keys_hold_over_http(reported: Any) -> None:
    seen = reported("http_api")
    statuses = [reply.status_code for reply in seen.free]
    assert statuses == [200, 200, 200, 200, 200, 429, 429], "five a minute, from any process"
    assert all(reply.status_code == 200 for reply in seen.pro)
    for index, reply in enumerate(seen.free):
        assert reply.headers["ratelimit-policy"] == '"free";q=5;w=60'
        assert reply.headers["x-ratelimit-remaining"] == str(max(0, 4 - index))
        assert ("retry-after" in reply.headers) == (reply.status_code == 429), "only who is refused learns when"
    refused = seen.free[5]
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["code"] == "RATE_LIMIT_EXCEEDED"
    assert 1 <= int(refused.headers["retry-after"]) <= 12, "one in twelve seconds"
    assert (seen.without_key.status_code, seen.first.status_code) == (400, 201)
    assert (seen.while_running.status_code, seen.while_running.json()["code"]) == (409, "IDEMPOTENCY_BUSY")
    assert "retry-after" in seen.while_running.headers
    assert (seen.again.status_code, seen.again.text) == (201, seen.first.text), "the first reply again"
    assert "idempotency-replayed" not in seen.first.headers
    assert seen.again.headers["idempotency-replayed"] == "true"
    assert seen.other_body.status_code == 422
    assert seen.shipped == 1


def test_a_slow_store_is_asked_once(reported: Any) -> None:
    seen = reported("slow_store")
    old, new = {"name": "tea", "cents": 420}, {"name": "tea", "cents": 450}
    assert (len(seen.first), seen.loads_first) == (1_000, 1)
    assert all(got == old for got in seen.first)
    assert seen.stale == 100 or seen.stale_took >= 0.3, "nobody waits"
    assert seen.loads_stale == 1, "one loads it anew"
    assert all(got == new for got in seen.after_commit)
    assert (seen.unknown, seen.loads_unknown) == (200, 1)
    assert seen.served_while_down == new
    assert (seen.failed, seen.loads_while_down) == (200, 2), "one load of each product"


def test_every_order_is_charged_once_and_poison_is_kept(reported: Any) -> None:
    seen = reported("order_service")
    assert sorted(seen.charged.values()) == [100 + number for number in range(20)]
    assert [error.split(":")[0] for error in seen.dead] == ["JSONDecodeError"]


def test_an_outbox_is_worked_off_while_its_database_restarts(
    servers: Any, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("asyncpg")
    monkeypatch.syspath_prepend(str(FOLDER))
    postgres, story = servers.postgres(), importlib.import_module("order_service").story

    async def restart() -> None:
        await asyncio.to_thread(postgres.restart)

    seen = asyncio.run(asyncio.wait_for(story(server.url, postgres.url, restart), BOUND))
    assert sorted(seen.charged.values()) == [100 + number for number in range(20)]
    assert [error.split(":")[0] for error in seen.dead] == ["JSONDecodeError"]
    assert seen.connections >= 2, "it was away, and came back by itself"


def test_orders_go_through_an_outbox_and_a_broker_that_restarts(
    servers: Any, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("asyncpg")
    monkeypatch.syspath_prepend(str(FOLDER))
    postgres, rabbit = servers.postgres(), servers.rabbit()
    example = importlib.import_module("order_service")
    monkeypatch.setattr(example, "this_run", lambda: "restarted")

    async def restart() -> None:
        for queue in ("orders-restarted", "orders-restarted.dead"):
            await asyncio.to_thread(rabbit.wait_until_registered, queue)
        await asyncio.to_thread(rabbit.restart)

    seen = asyncio.run(asyncio.wait_for(example.story(server.url, postgres.url, restart, rabbit.url), BOUND))
    assert sorted(seen.charged.values()) == [100 + number for number in range(20)]
    assert [error.split(":")[0] for error in seen.dead] == ["JSONDecodeError"]
    assert seen.connections >= 2, "the broker was away, and the worker came back by itself"


@pytest.mark.parametrize("example", ["payments", "http_api", "order_service", "slow_store"])
def test_a_newcomer_can_run_every_example_without_any_set_up(example: str) -> None:
    package = pathlib.Path(resil.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("RESIL_URL", None)
    program = [sys.executable, "-W", "error", str(FOLDER / f"{example}.py")]
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=BOUND, check=False)
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) >= 5, "it tells a story"
    assert ended.stderr == ""
