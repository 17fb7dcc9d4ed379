"""The family of exceptions: one for each code of commands/errors.json, and each survives a pickle."""

from __future__ import annotations

import json
import pathlib
import datetime
import pickle

from typing import Any

import pytest
import resil
import resil.errors

TABLE = json.loads((pathlib.Path(__file__).parents[2] / "commands" / "errors.json").read_text())


def test_every_code_of_the_table_has_exactly_one_class() -> None:
    assert [row["code"] for row in TABLE] == list(resil.errors.BY_CODE)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["code"])
def test_a_class_says_what_the_table_says(row: dict[str, object]) -> None:
    kind = resil.errors.BY_CODE[str(row["code"])]
    name = "".join(word.capitalize() for word in str(row["code"]).split("_")) + "Error"
    assert (kind.__name__, getattr(resil, name)) == (name, kind)
    assert issubclass(kind, resil.ResilError)
    said = (kind.code, kind.retryable, kind.http_status, kind.grpc_status, kind.meaning)
    assert said == (row["code"], row["retryable"], row["http"], row["grpc"], row["meaning"])


@pytest.mark.parametrize("kind", resil.errors.BY_CODE.values(), ids=lambda kind: kind.code)
def test_an_error_survives_a_pickle(kind: type[resil.ResilError]) -> None:
    error = kind("what happened", retry_after=1.5, resource="bank")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.retry_after, again.resource) == ("what happened", 1.5, "bank")


def test_a_refusal_says_when_to_come_back(client: resil.Client) -> None:
    limiter = client.limiter("api", limit=1, period=60)
    limiter.acquire("ann").wait()
    with pytest.raises(resil.RateLimitExceededError) as raised:
        limiter.acquire("ann").wait()
    error = pickle.loads(pickle.dumps(raised.value))
    assert error.retry_after == pytest.approx(60, abs=2)
    assert error.resource == "api"


def test_what_is_wrong_is_named_as_it_was_said(client: resil.Client) -> None:
    with pytest.raises(resil.InvalidPolicyError, match="^max_attempts must be from 1 to 100") as raised:
        resil.Retry(on=ConnectionError, max_attempts=0)
    assert isinstance(raised.value, ValueError)
    assert raised.value.field == "max_attempts"
    with pytest.raises(ValueError, match="^consecutive_failurs is not known"):
        client.breaker("bank", consecutive_failurs=3)  # type: ignore[call-arg]


def test_a_secret_in_a_url_is_not_in_the_error() -> None:
    with pytest.raises(resil.ResilError) as raised:
        resil.connect("ftp://user:hunter2@host/").wait()
    assert "hunter2" not in str(raised.value)


# ---- what is wrong is said in the words of the caller -------------------------------------------------------------------------


def test_a_timedelta_is_no_whole_number(client: resil.Client) -> None:
    five = datetime.timedelta(seconds=5)
    for make, name in [
        (lambda: client.limiter("a", limit=five, period=1), "limit"),
        (lambda: client.breaker("b", consecutive_failures=five), "consecutive_failures"),
        (lambda: client.shared_bulkhead("c", five), "max_concurrent_calls"),
        (lambda: resil.Retry(on=KeyError, max_attempts=five), "max_attempts"),
        (lambda: resil.Dispatcher(five), "workers"),
    ]:
        with pytest.raises(ValueError, match=f"^{name} "):
            make()
    client.limiter("a", limit=1, period=five)


@pytest.mark.parametrize("cells", [0, -1, 10**9 + 1, 2**70])
def test_a_number_of_cells_is_named_as_the_argument_is(client: resil.Client, cells: int) -> None:
    limiter = client.limiter("a", limit=1, period=1)
    for use, name in [
        (lambda: limiter.check("k", cost=cells).wait(), "cost"),
        (lambda: limiter.acquire("k", cost=cells).wait(), "cost"),
        (lambda: limiter.by("k", cost=cells), "cost"),
        (lambda: limiter.up_to("k", cells).wait(), "most"),
        (lambda: limiter.refund("k", cells).wait(), "cells"),
    ]:
        with pytest.raises(ValueError, match=f"^{name} (must be from 1 to 1000000000, got|is out of range)"):
            use()


def test_times_and_tokens_are_refused_in_the_callers_words(client: resil.Client) -> None:
    events = client.idempotent("events")
    for use, text in [
        (lambda: events.once("k", 0), "^ttl must be from 1ms to 366d, got 0$"),
        (lambda: events.once("k", 10**9), "^ttl must be from 1ms to 366d, got"),
        (lambda: events.once("k", 1, token=""), "^token must have from 1 to 512 bytes$"),
        (lambda: events.once("k", 1, token="x" * 513), "^token must have from 1 to 512 bytes$"),
        (lambda: events.once("", 1), "^key must not be empty$"),
        (lambda: events.get(""), "^key must not be empty$"),
    ]:
        with pytest.raises(ValueError, match=text):
            use().wait()
    for run in (events.run, lambda *call: client.policy("p", {}).call_once(events, *call)):
        with pytest.raises(ValueError, match="^key must not be empty$"):
            run("", lambda: pytest.fail("it ran"))


@pytest.mark.parametrize("url", ["memory", "memory:", "memory:/x", "", "redis", "redis:/host", "host:6379"])
def test_an_address_without_scheme_is_refused_with_known_schemes(url: str) -> None:
    with pytest.raises(ValueError, match="must begin with redis://.* or memory://"):
        resil.connect(url).wait()


def test_a_judge_that_fails_raises_from_the_calls_error(client: resil.Client, run: Any) -> None:
    def judge(error: BaseException) -> bool:
        raise ZeroDivisionError("of the judge")

    own = KeyError("of the call")

    def fail() -> None:
        raise own

    async def fail_later() -> None:
        raise own

    def block() -> None:
        with client.breaker("c", ignore=judge):
            fail()

    async def main() -> None:
        await resil.Retry(on=judge).call(fail_later)

    for use in (
        lambda: resil.Retry(on=judge).call(fail),
        lambda: resil.Retry(on=KeyError, ignore=judge).call(fail),
        lambda: client.breaker("b", ignore=judge).call(fail),
        lambda: resil.Fallback(1, when=judge).call(fail),
        lambda: client.policy("p", retry={"max_attempts": 2}, on=judge).call(fail),
        block,
        lambda: run(main()),
    ):
        with pytest.raises(ZeroDivisionError) as raised:
            use()
        assert raised.value.__cause__ is own


def test_a_repr_is_in_the_words_of_python(client: resil.Client) -> None:
    with client.lock("l") as held:
        assert repr(held) == f"<resil.LockGuard fence={held.fence}>"
    assert repr(client.idempotent("i").run("k", lambda: 1)) == "<resil.Outcome replayed=False>"
    assert repr(resil.Fallback(1)) == "<resil.Fallback name=None>"
    assert repr(resil.Fallback(1, name="x")) == '<resil.Fallback name="x">'
    assert repr(client.cached("c").lookup("k", lambda key: 1).wait()) == "<resil.Loaded found=True stale=False>"


def test_an_unknown_option_is_notified_of_every_one_there_is(client: resil.Client) -> None:
    for make, known in [
        (lambda: client.idempotent("a", oops=1), ("serializer", "remember", "lease", "abort_on_cancel")),
        (lambda: client.cached("a", oops=1), ("serializer", "ttl")),
        (lambda: client.breaker("a", oops=1), ("ignore", "consecutive_failures")),
        (lambda: resil.Retry(on=KeyError, oops=1), ("on", "ignore", "name", "clock", "seed", "max_attempts")),
        (lambda: resil.Hedge(on=KeyError, oops=1), ("on", "name", "clock", "hedging_delay")),
        (lambda: resil.Bulkhead("a", oops=1), ("clock", "max_concurrent_calls")),
        (lambda: client.policy("a", oops=1), ("on", "ignore", "timeout")),
        (lambda: resil.connect("memory://", oops=1), ("clock", "command_timeout")),
    ]:
        with pytest.raises(ValueError, match="^oops is not known") as raised:
            make()
        reported = str(raised.value).partition("known: ")[2].split(", ")
        assert set(known) <= set(reported), reported
