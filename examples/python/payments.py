"""A payment service: every order is paid once, whatever happens to the process that pays it.

Three things, and each does what the others cannot:

- **idempotency**: of all who ask for the same order one pays, the others get its receipt;
- **a lock** on the account: one change at a time, so that nobody reads a balance that is about to change;
- **fences**: a process may sleep over its lease and not know it. Whatever it writes then carries an old number, and the
  ledger refuses it. Leases make accidents rare; fences make them harmless.

``python examples/python/payments.py [url]``
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Callable

import resil
from running import connect, this_run, url

#: How long a process that fell silent is waited for. Short, so that the story is; 30 s and 10 s by default.
LEASE = 1.0
PATIENCE = 30.0

ACCOUNT = "account:ann"
Receipt = dict[str, Any]


# ---- the ledger: a table outside of Redis, which takes keys and fences ---------------------------------------------------------


class TooPoor(Exception):
    pass


class StaleFence(Exception):
    """Somebody with a higher fence was here: this writer's lease is over, and it did not know."""


@dataclass
class Ledger:
    balances: dict[str, int] = field(default_factory=lambda: {ACCOUNT: 100_000})
    receipts: dict[str, Receipt] = field(default_factory=dict)
    #: Fences that were refused, each with the highest that had been seen.
    refused: list[tuple[int, int]] = field(default_factory=list)
    _highest_fences: dict[str, int] = field(default_factory=dict)
    _transaction: threading.Lock = field(default_factory=threading.Lock)

    def pay(self, order: str, order_fence: int, account: str, account_fence: int, cents: int) -> Receipt:
        """In one transaction: both fences are checked, and an order that is paid stays paid as it was."""
        with self._transaction:
            for key, carried in ((order, order_fence), (account, account_fence)):
                seen = self._highest_fences.get(key, 0)
                if carried < seen:
                    self.refused.append((carried, seen))
                    raise StaleFence
                self._highest_fences[key] = carried
            if order in self.receipts:
                return self.receipts[order]
            if self.balances[account] < cents:
                raise TooPoor
            self.balances[account] -= cents
            self.receipts[order] = {"order": order, "cents": cents, "number": len(self.receipts) + 1}
            return self.receipts[order]


# ---- the service ---------------------------------------------------------------------------------------------------------------


async def nothing() -> None:
    pass


class Service:
    def __init__(self, client: resil.Client, ledger: Ledger) -> None:
        self.ledger = ledger
        self.orders = client.idempotent("orders", lease=LEASE, wait=PATIENCE)
        # A process that is swapped out renews nothing. In this story only one thread sleeps, and leases are renewed on another: so not
        # this one, neither by the watchdog nor because its connection is heard of.
        self.account = client.lock(ACCOUNT, lease=LEASE, wait=PATIENCE, watchdog=False, bound=False)

    @classmethod
    async def start(cls, url: str, process: str, ledger: Ledger) -> Service:
        return cls(await connect(url, "payments", process), ledger)

    async def pay(
        self,
        order: str,
        cents: int,
        *,
        before: Callable[[], object] = lambda: None,
        after: Callable[[], Awaitable[object]] = nothing,
    ) -> resil.Outcome[Receipt]:
        """The same order may come any number of times, to any process. `before` and `after` are where accidents happen."""

        async def once(run: resil.Run) -> Receipt:
            async with self.account as held:
                before()
                # There is a fence unless one asked to go on while the server is away, which this service did not.
                receipt = self.ledger.pay(order, run.fence or 0, ACCOUNT, held.fence or 0, cents)
                await after()
                return receipt

        return await self.orders.run(order, once, fingerprint=str(cents), with_run=True)


# ---- the story -----------------------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What was seen, for the tests to judge."""

    requests: int
    replays: int
    payments_after_duplicates: int
    mismatch: str
    #: What the caller of the sleeper got.
    sleeper: BaseException | None
    refused_fences: list[tuple[int, int]]
    meanwhile: resil.Outcome[Receipt]
    sleeper_again: resil.Outcome[Receipt]
    after_crash: resil.Outcome[Receipt]
    payments_in_all: int
    balance: int


async def story(url: str) -> Seen:
    ledger, today = Ledger(), this_run()
    first = await Service.start(url, "pod-1", ledger)
    second = await Service.start(url, "pod-2", ledger)

    def order(number: int) -> str:
        return f"order-{today}-{number}"

    print("A customer clicks a hundred times; half of the clicks reach pod-1, half pod-2.")
    outcomes = await asyncio.gather(*((second if click % 2 else first).pay(order(1), 700) for click in range(100)))
    replays, payments_after_duplicates = sum(outcome.replayed for outcome in outcomes), len(ledger.receipts)
    assert all(outcome.value == ledger.receipts[order(1)] for outcome in outcomes)
    print(f"  {len(outcomes)} replies, all with a receipt: {replays} replays, {payments_after_duplicates} payment")

    print("The same order with another amount is not the same order.")
    try:
        await second.pay(order(1), 70_000)
        mismatch = "no"
    except resil.IdempotencyMismatchError as error:
        mismatch = error.code
    print(f"  refused: {mismatch}")

    print("pod-1 takes order 2, has the account and falls asleep before it pays: a pause, a swapped-out machine.")
    fell_asleep, wake = threading.Event(), threading.Event()

    async def sleeping() -> tuple[BaseException | None, resil.Outcome[Receipt]]:
        service = await Service.start(url, "pod-1", ledger)

        def nap() -> None:
            # Inside of the lock, whose lease nobody renews.
            fell_asleep.set()
            wake.wait(PATIENCE)

        outcome: BaseException | None = None
        try:
            await service.pay(order(2), 900, before=nap)
        except (resil.ResilError, StaleFence) as error:
            outcome = error
        return outcome, await service.pay(order(2), 900)

    asleep = asyncio.create_task(asyncio.to_thread(asyncio.run, sleeping()))
    assert await asyncio.to_thread(fell_asleep.wait, PATIENCE)
    meanwhile = await second.pay(order(4), 500)
    print("  pod-2 waited for its lease to end, and pays another order of the same account")
    wake.set()
    sleeper, sleeper_again = await asleep
    print(f"  pod-1 wakes and pays, as it thinks it may; refused, (its fence, the highest seen): {ledger.refused}")
    # Either the ledger's refusal, or LOCK_LOST, if the block sees first that its lease is over.
    print(f"  the caller of pod-1 gets {getattr(sleeper, 'code', repr(sleeper))}")
    print(f"  it asks again, with a lease of its own, and the order is paid: {sleeper_again.value}")

    print("pod-1 pays order 3 and dies before it can say so.")
    has_paid: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def die() -> None:
        has_paid.set_result(None)
        await asyncio.Event().wait()

    dying = asyncio.create_task(first.pay(order(3), 300, after=die))
    await asyncio.wait_for(has_paid, PATIENCE)
    dying.cancel()
    after_crash = await second.pay(order(3), 300)
    print(f"  pod-2 gets attempt {after_crash.attempt}; the ledger has the payment, and it stays one")

    payments, balance = len(ledger.receipts), ledger.balances[ACCOUNT]
    print(f"{payments} orders, {payments} payments, {100_000 - balance} cents spent.")
    return Seen(
        requests=len(outcomes),
        replays=replays,
        payments_after_duplicates=payments_after_duplicates,
        mismatch=mismatch,
        sleeper=sleeper,
        refused_fences=ledger.refused,
        meanwhile=meanwhile,
        sleeper_again=sleeper_again,
        after_crash=after_crash,
        payments_in_all=payments,
        balance=balance,
    )


if __name__ == "__main__":
    asyncio.run(story(url()))
