"""What strikes while a result is written, what cannot be written at all, and what failed finally: recorded, or refused in time."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from typing import Any, List, Optional

import pytest
import resil
from resil.testing import Clock


class Simple(Exception):
    pass


# ---- what interrupts a serializer ---------------------------------------------------------------------------------------------


class Alarm(Exception):
    """Raised by a handler of signals."""


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, Alarm])
@pytest.mark.parametrize("kind", ["json", "own"])
def test_an_interrupted_serializer_keeps_the_keys_lease(error: type, kind: str) -> None:
    if kind == "own" and error is Alarm:
        pytest.skip("code of the user's may raise what it likes for what it cannot write")
    runs: list[int] = []

    def interrupt() -> None:
        raise error

    class Interrupting(dict):  # type: ignore[type-arg]
        """As if the signal came while it is written."""

        def items(self) -> Any:
            interrupt()

    def own(value: Any) -> bytes:
        if isinstance(value, Interrupting):
            interrupt()
        return json.dumps(value).encode()

    clock = Clock.driven()
    client = resil.connect("memory://", clock=clock).wait()
    payments = client.idempotent("payments", serializer=(own, json.loads) if kind == "own" else "json", wait=0)

    def pay() -> Any:
        runs.append(1)
        return Interrupting(a=1) if len(runs) == 1 else {"paid": 7}

    with pytest.raises(error):
        payments.run("order", pay)
    assert payments.get("order").wait()["state"] == "running", "the work is done, and nobody else is to do it at once"
    with pytest.raises(resil.IdempotencyBusyError):
        payments.run("order", pay)
    clock.advance(31)
    again = payments.run("order", pay)
    assert (again.value, again.attempt) == ({"paid": 7}, 2)
    assert payments.run("order", pay).replayed and len(runs) == 2


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers of signals here")
def test_a_signal_during_a_write_never_makes_it_unrecordable(client: resil.Client) -> None:
    payments = client.idempotent("payments", abort_on_cancel=True)
    rows = [{"row": number, "text": "x" * 20} for number in range(20_000)]
    interrupted = 0

    def strike(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, strike)
    try:
        for number in range(30):
            runs: list[int] = []

            def work(number: int = number, runs: list[int] = runs) -> Any:
                runs.append(1)
                if len(runs) == 1:
                    signal.setitimer(signal.ITIMER_REAL, 0.0005 * (number + 1))
                return rows

            try:
                try:
                    payments.run(str(number), work)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
            assert payments.run(str(number), work).value == rows, "recorded, or done again: never refused"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    print(f"{interrupted} of 30 interrupted")


def test_a_signal_during_a_write_is_raised_after_it(client: resil.Client) -> None:
    strikes = [1]

    def dumps(value: Any) -> str:
        if strikes:
            strikes.pop()
            raise KeyboardInterrupt
        return json.dumps(value)

    payments = client.idempotent("payments", serializer=(dumps, json.loads))
    with pytest.raises(KeyboardInterrupt):
        payments.run("order", lambda: 7)
    again = payments.run("order", lambda: 8)
    assert (again.value, again.replayed) == (7, True)


# ---- serializers that cannot work ---------------------------------------------------------------------------------------------


@dataclass
class Unresolved:
    number: "NoSuchClass"  # type: ignore[name-defined]  # noqa: F821


@dataclass
class Outer:
    inner: Optional[List[Unresolved]]


@pytest.mark.parametrize("kind", [Unresolved, Outer])
def test_a_dataclass_with_unknown_types_is_refused_when_made(
    client: resil.Client, kind: type
) -> None:
    for make in (client.idempotent, client.cached, client.versioned_cached):
        with pytest.raises(TypeError, match="serializer cannot be Unresolved: the types of its fields cannot be resolved"):
            make("payments", serializer=kind)


def test_a_final_error_without_remember_has_its_own_class(client: resil.Client, run: Any) -> None:
    def decline() -> None:
        raise Simple("no funds")

    with pytest.raises(Simple):
        client.idempotent("payments", remember=Simple).run("order", decline)
    elsewhere = client.idempotent("payments")

    async def main() -> None:
        async def never() -> None:
            raise AssertionError("the work is done")

        with pytest.raises(resil.IdempotencyFailedError, match="Simple: no funds"):
            await elsewhere.run("order", never)
        with pytest.raises(resil.IdempotencyFailedError):
            await client.policy("p", timeout={"total": 5}).call_once(elsewhere, "order", never)

    run(main())
