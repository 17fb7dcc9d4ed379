"""The family of exceptions: one for each code of commands/errors.json, and each survives a pickle."""

from __future__ import annotations

import json
import pathlib
import pickle

import pytest
import resil
import resil.errors

TABLE = json.loads((pathlib.Path(__file__).parents[2] / "commands" / "errors.json").read_text())


def test_every_code_of_the_table_has_its_class_and_no_other_has() -> None:
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
    error = kind("what happened", retry_after=1.5, name="bank")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.retry_after, again.details) == ("what happened", 1.5, {"name": "bank"})


def test_a_refusal_says_when_to_come_back(client: resil.Client) -> None:
    limiter = client.limiter("api", limit=1, period=60)
    limiter.acquire("ann").wait()
    with pytest.raises(resil.RateLimitExceededError) as raised:
        limiter.acquire("ann").wait()
    error = pickle.loads(pickle.dumps(raised.value))
    assert error.retry_after == pytest.approx(60, abs=2)
    assert error.details == {"name": "api"}


def test_what_is_wrong_is_named_as_it_was_said(client: resil.Client) -> None:
    with pytest.raises(resil.InvalidPolicyError, match="^max_attempts must be from 1 to 100") as raised:
        resil.Retry(on=ConnectionError, max_attempts=0)
    assert isinstance(raised.value, ValueError)
    assert raised.value.details == {"field": "max_attempts"}
    with pytest.raises(ValueError, match="^consecutive_failurs is not known"):
        client.breaker("bank", consecutive_failurs=3)  # type: ignore[call-arg]


def test_a_secret_in_a_url_is_not_in_the_error() -> None:
    with pytest.raises(resil.ResilError) as raised:
        resil.connect("ftp://user:hunter2@host/").wait()
    assert "hunter2" not in str(raised.value)
