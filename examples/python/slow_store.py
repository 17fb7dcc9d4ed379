"""A cache in front of a store that is slow, and sometimes down.

- Of all who need a value that is not there, in all processes, one loads it; the others get what it loaded.
- A value that is out of date is served while one loads it anew: nobody waits for the store twice.
- After a change is committed it is invalidated, and no process returns the old value to a get that begins afterwards.
- That there is no such thing is remembered, too. So is, for a moment, that the store is down.

``python examples/python/slow_store.py [url]``
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, Union

import resil
from running import connect, this_run, url

SLOW = 0.3
Product = dict[str, Any]


# ---- the store: a database that takes its time ---------------------------------------------------------------------------------


class StoreError(Exception):
    pass


@dataclass
class Store:
    rows: dict[str, Product] = field(default_factory=dict)
    is_down: bool = False
    loads: int = 0

    async def load(self, id: str) -> Product | None:
        self.loads += 1
        await asyncio.sleep(SLOW)
        if self.is_down:
            raise StoreError("too many connections")
        return self.rows.get(id)

    def loads_since(self) -> int:
        """How many loads there were since this was last asked."""
        loads, self.loads = self.loads, 0
        return loads


# ---- the service ---------------------------------------------------------------------------------------------------------------


class Catalogue:
    def __init__(self, client: resil.Client, store: Store) -> None:
        self.store = store
        self.cached = client.cached("product", ttl=60, stale=600, negative_ttl=30, error_ttl=30, load_timeout=10)

    async def product(self, id: str) -> resil.Loaded[Product]:
        return await self.cached.lookup(id, self.store.load)

    async def change(self, id: str, product: Product) -> None:
        """The order matters: what is invalidated before the commit may be loaded again before it, and stays old."""
        self.store.rows[id] = product
        await self.cached.invalidate(id)


Got = Union["resil.Loaded[Product]", BaseException]


async def crowd(processes: list[Catalogue], many: int, id: str) -> list[Got]:
    """What `many` callers of each process got for `id`, all at once."""
    callers = (process.product(id) for process in processes for _ in range(many))
    return await asyncio.gather(*callers, return_exceptions=True)


def value(got: Got) -> Product | None:
    if isinstance(got, BaseException):
        raise got
    return got.value


def is_the_stores_error(got: Got) -> bool:
    """In the process that loaded it is the error itself, in the others its words."""
    return isinstance(got, StoreError) or (isinstance(got, resil.LoadFailedError) and "too many connections" in str(got))


# ---- the story -----------------------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What was seen, for the tests to judge."""

    first: list[Product | None]
    loads_first: int
    stale: int
    stale_took: float
    loads_stale: int
    after_commit: list[Product | None]
    unknown: int
    loads_unknown: int
    served_while_down: Product | None
    failed: int
    loads_while_down: int


async def story(url: str) -> Seen:
    store, run = Store(), this_run()
    processes = [Catalogue(await connect(url, "slow_store", process), store) for process in ("web-1", "web-2")]
    tea, no_such_thing, coffee = f"tea-{run}", f"none-{run}", f"coffee-{run}"

    print("A thousand callers in two processes want a product that nobody has loaded:")
    store.rows[tea] = {"name": "tea", "cents": 420}
    first = [value(got) for got in await crowd(processes, 500, tea)]
    loads_first = store.loads_since()
    print(f"  {len(first)} results, {loads_first} load")

    print("It is out of date, but better than nothing:")
    await processes[0].cached.invalidate_soft(tea)
    begun = time.monotonic()
    got = await crowd(processes, 50, tea)
    stale_took = time.monotonic() - begun
    stale = sum(isinstance(one, resil.Loaded) and one.is_stale for one in got)
    print(f"  {stale} of {len(got)} were served the old one, within {stale_took * 1e3:.0f} ms")
    # One of them was asked to load it anew, behind its back.
    while (await processes[1].product(tea)).is_stale:
        await asyncio.sleep(0.02)
    loads_stale = store.loads_since()
    print(f"  meanwhile: {loads_stale} load")

    print("The price changes; web-1 commits, and invalidates:")
    new = {"name": "tea", "cents": 450}
    await processes[0].change(tea, new)
    after_commit = [value(got) for got in await crowd(processes, 50, tea)]
    print(f"  {len(after_commit)} replies, all new: {all(got == new for got in after_commit)}")
    store.loads_since()

    print("A hundred ask for something that is not there, twice:")
    nobody = [*await crowd(processes, 50, no_such_thing), *await crowd(processes, 50, no_such_thing)]
    unknown = sum(isinstance(one, resil.Loaded) and not one.is_found for one in nobody)
    loads_unknown = store.loads_since()
    print(f'  {unknown} times "not found", {loads_unknown} load')

    print("The store is down:")
    store.is_down = True
    await processes[0].cached.invalidate_soft(tea)
    served_while_down = (await processes[1].product(tea)).value
    print(f"  what is known is still served: {served_while_down}")
    failed = sum(is_the_stores_error(one) for one in await crowd(processes, 100, coffee))
    # The refresh of what is known failed, too, once.
    await asyncio.sleep(SLOW)
    loads_while_down = store.loads_since()
    print(f"  {failed} callers of another product get the store's error; it was asked {loads_while_down} times")
    return Seen(
        first=first,
        loads_first=loads_first,
        stale=stale,
        stale_took=stale_took,
        loads_stale=loads_stale,
        after_commit=after_commit,
        unknown=unknown,
        loads_unknown=loads_unknown,
        served_while_down=served_while_down,
        failed=failed,
        loads_while_down=loads_while_down,
    )


if __name__ == "__main__":
    asyncio.run(story(url()))
