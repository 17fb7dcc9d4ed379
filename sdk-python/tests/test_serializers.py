"""Results that duplicates get as they were, and results that cannot be kept: refused, never lost in silence."""

from __future__ import annotations

import builtins
import datetime
import enum
import json
import pickle
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Callable, Dict, List, Optional, Tuple

import pydantic
import pytest
import resil
from resil.testing import raw


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Line:
    product: str
    cents: Decimal


@dataclass
class Order:
    number: int
    at: datetime.datetime
    lines: List[Line] = field(default_factory=list)
    colour: Optional[Colour] = None
    seal: bytes = b""
    by_day: Dict[str, datetime.date] = field(default_factory=dict)
    pair: Tuple[int, Line] = (0, Line("", Decimal(0)))
    id: Optional[uuid.UUID] = None


ORDER = Order(
    7,
    datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.timezone.utc),
    [Line("tea", Decimal("4.20"))],
    Colour.RED,
    b"\x00\xff",
    {"monday": datetime.date(2026, 11, 16)},
    (3, Line("cup", Decimal("9"))),
    uuid.UUID(int=5),
)


class Receipt(pydantic.BaseModel):
    number: int
    at: datetime.datetime
    cents: Decimal


RECEIPT = Receipt(number=7, at=datetime.datetime(2026, 11, 17), cents=Decimal("4.20"))


NOT_JSON = {
    "dataclass": Line("tea", Decimal(1)),
    "datetime": datetime.datetime(2026, 11, 17),
    "Decimal": Decimal("4.20"),
    "bytes": b"raw",
    "NaN": float("nan"),
    "infinity": [1.0, float("inf")],
    "set": {1, 2},
    "int keys": {"lines": [{1: "tea"}]},
    "none keys": {None: 1},
    "object": object(),
    "lone surrogate": "\ud800",
    "model": RECEIPT,
}


@pytest.mark.parametrize("kind", NOT_JSON)
def test_what_json_does_not_have_is_refused_to_all(client: resil.Client, kind: str) -> None:
    payments, runs = client.idempotent("payments"), []

    def pay() -> Any:
        runs.append(1)
        return NOT_JSON[kind]

    with pytest.raises(resil.ResultUnrecordedError, match="the work .*is done, and its result could not be recorded") as own:
        payments.run("order", pay)
    assert own.value.result is NOT_JSON[kind], "nothing is lost to the one who did the work"
    with pytest.raises(resil.ResultUnrecordedError, match="the work .*is done, and its result could not be recorded") as duplicate:
        payments.run("order", pay)
    assert duplicate.value.result is None
    assert str(own.value.__cause__) in str(duplicate.value), "a duplicate learns why"
    assert len(runs) == 1, "it is done once all the same"


def test_coroutines_and_decorated_functions_are_refused_the_same(client: resil.Client, run: Any) -> None:
    payments, runs = client.idempotent("payments"), []

    @payments.by(lambda order: order)
    async def pay(order: str) -> Any:
        runs.append(order)
        return {1, 2}

    async def main() -> None:
        for _ in range(2):
            with pytest.raises(resil.ResultUnrecordedError):
                await pay("a")

    run(main())
    assert runs == ["a"]


def test_another_process_learns_why(server: Any) -> None:
    first, second = (resil.connect_sync(server.url).idempotent("payments", lease="2s") for _ in range(2))
    with pytest.raises(resil.ResultUnrecordedError):
        first.run("order", lambda: {1, 2})
    with pytest.raises(resil.ResultUnrecordedError, match="set is not JSON serializable"):
        second.run("order", lambda: "never")


def test_a_result_beyond_what_the_server_keeps_is_no_none(servers: Any) -> None:
    server = servers.start()
    try:
        first, second = (resil.connect_sync(server.url).idempotent("payments") for _ in range(2))
        large = "x" * (2 << 20)
        assert first.run("order", lambda: large).value == large
        with pytest.raises(resil.ResultUnrecordedError, match="could not be recorded: it was too large"):
            second.run("order", lambda: "never")
    finally:
        server.stop()


def test_an_error_of_writing_is_neither_retried_nor_counted(client: resil.Client) -> None:
    bank = client.policy("bank", retry={"max_attempts": 3}, breaker={"consecutive_failures": 1}, on=Exception)
    payments, runs = client.idempotent("payments"), []

    def pay() -> Any:
        runs.append(1)
        return {1, 2}

    for _ in range(2):
        with pytest.raises(resil.ResultUnrecordedError):
            bank.call_once(payments, "order", pay)
    assert len(runs) == 1
    assert bank.call(lambda: "still closed") == "still closed"


@pytest.mark.parametrize("returned", ["dict", "str", "None", "Any"])
def test_what_json_has_comes_back_as_it_was(client: resil.Client, returned: str) -> None:
    payments = client.idempotent("payments")
    for number, value in enumerate([None, True, 0, -1.5, "é\n", [], {}, {"a": [1, {"b": None}]}, 2**80, "\x00"]):
        assert payments.run(str(number), lambda value=value: value).value == value
        again = payments.run(str(number), lambda: "never")
        assert (again.value, again.replayed) == (value, True)
    assert payments.run("tuple", lambda: (1, (2,))).value == (1, (2,))
    assert payments.run("tuple", lambda: None).value == [1, [2]], "a tuple is a list to JSON"


def annotated(returned: Any) -> Any:
    def work() -> Any:
        raise AssertionError("it must not run")

    work.__annotations__["return"] = returned
    return work


@pytest.mark.parametrize("returned", [bytes, "bytes", Decimal, "Decimal", Order, "Order", "datetime.datetime", set, Receipt])
def test_a_declared_result_that_cannot_be_kept_is_refused(client: resil.Client, returned: Any) -> None:
    payments, users = client.idempotent("payments"), client.cached("user")
    with pytest.raises(TypeError, match="which this serializer cannot write: choose another with serializer="):
        payments.run("order", annotated(returned))
    with pytest.raises(TypeError, match="which this serializer cannot write"):
        payments.by("order")(annotated(returned))
    with pytest.raises(TypeError, match="which this serializer cannot write"):
        users.by("order")(annotated(returned))
    with pytest.raises(TypeError, match="which this serializer cannot write"):
        client.idempotent("raw", serializer="bytes").by("order")(annotated(dict))


@pytest.mark.parametrize("returned", [dict, "dict[str, int]", "Optional[str]", List[int], "not.there", 7, "None"])
def test_other_annotations_are_no_reason_to_refuse(client: resil.Client, returned: Any) -> None:
    def work() -> Any:
        return {"paid": 1}

    work.__annotations__["return"] = returned
    assert client.idempotent("payments").run("order", work).value == {"paid": 1}


SERIALIZERS: dict[str, tuple[Any, Any]] = {
    "json": ("json", {"paid": [1, None]}),
    "bytes": ("bytes", b"\x00\xff"),
    "pickle": ("pickle", {1: {2, 3}, "at": ORDER.at}),
    "dataclass": (Order, ORDER),
    "no dataclass": (Order, None),
    "pydantic": (Receipt, RECEIPT),
    "no model": (Receipt, None),
    "adapter": (pydantic.TypeAdapter(List[Receipt]), [RECEIPT]),
    "own": ((lambda value: repr(value), lambda text: eval(text.decode(), {"Decimal": Decimal})), Decimal("4.20")),
}


@pytest.mark.parametrize("name", SERIALIZERS)
def test_a_serializer_gives_duplicates_what_the_function_returned(client: resil.Client, name: str) -> None:
    serializer, value = SERIALIZERS[name]
    payments = client.idempotent("payments", serializer=serializer)
    assert payments.run("order", lambda: value).value is value
    again = payments.run("order", lambda: "never")
    assert (again.value, again.replayed, type(again.value)) == (value, True, type(value))
    if value is not None:
        users = client.cached("user", serializer=serializer)
        assert [users.get("k", lambda key: value).wait() for _ in range(2)] == [value, value]
        rows = client.versioned_cached("row", serializer=serializer)
        assert [rows.get("k", lambda key: (3, value)).wait() for _ in range(2)] == [(3, value), (3, value)]


def test_what_is_written_for_a_type_is_json(client: resil.Client) -> None:
    payments = client.idempotent("payments", serializer=Order)
    payments.run("order", lambda: ORDER)
    written = json.loads(payments.get("order").wait()["result"])
    assert written["lines"] == [{"product": "tea", "cents": "4.20"}]
    assert written["at"] == "2026-11-17T12:00:00+00:00"
    bank = client.policy("bank", {})
    assert bank.call_once(payments, "other", lambda: ORDER).value is ORDER
    assert bank.call_once(payments, "other", lambda: ORDER).value == ORDER


def test_a_value_of_another_type_is_refused(client: resil.Client) -> None:
    for serializer, value in [(Order, "text"), (Receipt, {"number": 7}), ("bytes", "text"), ((lambda value: 7, bytes), 1)]:
        with pytest.raises(resil.ResultUnrecordedError):
            client.idempotent("payments", serializer=serializer).run(repr(value), lambda value=value: value)

    @dataclass
    class Loose:
        anything: Any

    with pytest.raises(resil.ResultUnrecordedError, match="would come back as something else"):
        client.idempotent("payments", serializer=Loose).run("loose", lambda: Loose(Decimal(1)))


def test_a_loader_that_brings_what_cannot_be_kept_fails_loudly(client: resil.Client) -> None:
    users = client.cached("user")
    with pytest.raises(TypeError, match="JSON does not have it: the key 1"):
        users.get("k", lambda key: {1: "tea"}).wait()
    with pytest.raises(resil.LoadFailedError, match="JSON does not have it: the key 1"):
        users.get("k", lambda key: "never").wait()


@pytest.mark.parametrize("garbage", ["yaml", int, 7, (json.dumps,), (json.dumps, 7), dict])
def test_what_is_no_serializer_is_refused_by_name(client: resil.Client, garbage: Any) -> None:
    for make in (client.idempotent, client.cached, client.versioned_cached):
        with pytest.raises((TypeError, ValueError), match="^serializer must be"):
            make("name", serializer=garbage)


# ---- exceptions to remember ---------------------------------------------------------------------------------------------------


class Declined(Exception):
    """With arguments of its own, as most have."""

    def __init__(self, card: int, *, reason: str = "no money") -> None:
        super().__init__(f"card {card} was declined: {reason}")
        self.card = card
        self.reason = reason


class Simple(Exception):
    pass


@pytest.mark.parametrize("error", [Simple("no money"), Simple("no money", 17), Simple(), Simple({"cents": 7}), Simple(17)])
def test_an_exception_to_remember_keeps_its_arguments(client: resil.Client, error: Exception) -> None:
    payments = client.idempotent("payments", remember=Simple)

    def fail() -> None:
        raise error

    for _ in range(2):
        with pytest.raises(Simple) as raised:
            payments.run("order", fail)
        assert raised.value.args == error.args


def test_an_exception_with_its_own_constructor_keeps_what_it_heard(client: resil.Client) -> None:
    payments = client.idempotent("payments", remember=Declined)

    def fail() -> None:
        raise Declined(17, reason="stolen")

    for _ in range(2):
        with pytest.raises(Declined, match="^card 17 was declined: stolen$") as raised:
            payments.run("order", fail)
        assert (raised.value.card, raised.value.reason) == (17, "stolen")
        assert str(pickle.loads(pickle.dumps(Simple("x")))) == "x"


def test_arguments_that_json_does_not_have_leave_the_message(client: resil.Client) -> None:
    payments = client.idempotent("payments", remember=Simple)

    def fail() -> None:
        raise Simple("no money", object)

    with pytest.raises(Simple):
        payments.run("order", fail)
    with pytest.raises(Simple, match="no money"):
        payments.run("order", fail)


def test_a_policy_that_is_done_once_remembers_too(client: resil.Client) -> None:
    bank, runs = client.policy("bank", retry={"max_attempts": 2}, on=ConnectionError), []
    payments = client.idempotent("payments", remember=Declined)

    def pay() -> None:
        runs.append(1)
        raise Declined(17)

    for _ in range(2):
        with pytest.raises(Declined) as raised:
            bank.call_once(payments, "order", pay)
        assert raised.value.card == 17
    assert len(runs) == 1


def test_what_is_final_is_not_tried_again(client: resil.Client) -> None:
    bank, runs = client.policy("bank", retry={"max_attempts": 3}, on=Exception), []
    payments = client.idempotent("payments", remember=Simple)

    def pay() -> None:
        runs.append(1)
        raise Simple("no money")

    with pytest.raises(Simple, match="no money"):
        bank.call_once(payments, "order", pay)
    assert len(runs) == 1


def test_an_exception_is_kept_in_every_languages_form(client: resil.Client) -> None:
    payments = client.idempotent("payments", remember=Declined)

    def fail() -> None:
        error = Declined(17)
        error.request = object()  # type: ignore[attr-defined]
        raise error

    with pytest.raises(Declined):
        payments.run("order", fail)
    known = payments.get("order").wait()
    assert known["is_error"]
    assert json.loads(known["result"] or b"") == {
        "name": "Declined",
        "message": "card 17 was declined: no money",
        "properties": {"card": 17, "reason": "no money"},
    }


def record(client: resil.Client, key: str, written: dict[str, Any]) -> None:
    """As another language would."""
    raw(client, ["RES.IDEMP", "BEGIN", f"resil:idemp:payments:{{{key}}}", "t", "10s"]).wait()
    words = ["RES.IDEMP", "COMMIT", f"resil:idemp:payments:{{{key}}}", "t", "1d", json.dumps(written), "ERROR"]
    raw(client, words).wait()


RECORDED = {"name": "Declined", "message": "no", "args": ["no"], "code": "51", "properties": {"card": 17}}


def test_an_exception_of_another_language_has_its_class(client: resil.Client) -> None:
    record(client, "order", RECORDED)
    record(client, "other", {**RECORDED, "name": "CardError"})
    for key, remember in [("order", (Simple, Declined)), ("other", (Declined,))]:
        with pytest.raises(Declined, match="^no$") as raised:
            client.idempotent("payments", remember=remember).run(key, lambda: "never")
        assert (raised.value.card, raised.value.code) == (17, "51")  # type: ignore[attr-defined]


def test_an_exception_of_an_unknown_name_has_no_class(client: resil.Client) -> None:
    record(client, "order", {**RECORDED, "name": "CardError"})
    recorded = {"name": "CardError", "message": "no", "args": ["no"], "code": "51", "properties": {"card": 17}}
    for remember in ({"remember": (Declined, Simple)}, {}):
        with pytest.raises(resil.IdempotencyFailedError, match="failed finally, by CardError: no$") as raised:
            client.idempotent("payments", **remember).run("order", lambda: "never")
        assert raised.value.recorded == recorded and not raised.value.retryable
        assert pickle.loads(pickle.dumps(raised.value)).recorded == recorded


class Expired(Declined):
    pass


@pytest.mark.parametrize("remember", [(KeyError, Declined), (Declined, KeyError), (Exception, Declined, KeyError)])
def test_a_subclass_comes_back_as_its_remembered_class(client: resil.Client, remember: Any) -> None:
    payments = client.idempotent("payments", remember=remember)

    def fail() -> None:
        raise Expired(17)

    with pytest.raises(Expired):
        payments.run("order", fail)
    with pytest.raises(Declined, match="^card 17 was declined: no money$") as raised:
        payments.run("order", fail)
    assert raised.value.card == 17


def not_text() -> None:
    b"\xff".decode()


def no_file() -> None:
    raise FileNotFoundError(2, "nope", "/f")


def no_group() -> None:
    raise builtins.ExceptionGroup("several", [ValueError("one")])  # type: ignore[attr-defined]


@pytest.mark.parametrize("fail", [not_text, no_file] + ([no_group] if hasattr(builtins, "ExceptionGroup") else []))
def test_an_exception_with_another_constructor_says_the_same(
    client: resil.Client, fail: Callable[[], None]
) -> None:
    try:
        fail()
    except Exception as error:
        original = error
    payments = client.idempotent("payments", remember=(type(original), Simple))
    for _ in range(2):
        with pytest.raises(resil.ResilError if fail is no_group and _ else type(original)) as raised:
            payments.run("order", fail)
        assert str(original) in str(raised.value)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


# ---- results that are declared ------------------------------------------------------------------------------------------------

DECLARED = [Optional[Line], List[datetime.datetime], Dict[str, Decimal], Dict[int, str], List[Dict[str, Optional[uuid.UUID]]],
            Tuple[int, Colour], "Optional[Line]", "List[Line]"]  # fmt: skip


@pytest.mark.parametrize("declared", DECLARED, ids=str)
def test_a_declared_result_with_parts_outside_json_is_refused_first(
    client: resil.Client, declared: Any
) -> None:
    runs: list[int] = []

    def work() -> Any:
        runs.append(1)

    work.__annotations__["return"] = declared
    payments = client.idempotent("payments")
    for use in (lambda: payments.run("order", work), lambda: payments.by("order")(work)):
        with pytest.raises(TypeError, match="^fn returns .*choose another with serializer="):
            use()
    assert runs == []


@pytest.mark.parametrize(
    "declared", [Optional[str], List[int], Dict[str, List[float]], Tuple[int, ...], Any, "Unknown", "List[Unknown]", object]
)
def test_a_declared_result_that_json_may_have_is_let_through(client: resil.Client, declared: Any) -> None:
    def work() -> Any:
        return None

    work.__annotations__["return"] = declared
    assert client.idempotent("payments").run("order", work).value is None
