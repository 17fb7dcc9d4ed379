"""What a cache offers beyond get: set, many keys at once, tags, clearing, refreshing, events. In memory, and on a server."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import resil

_names = itertools.count()


@pytest.fixture(scope="module")
def shared_server(servers: Any) -> Iterator[Any]:
    started = servers.start()
    yield started
    started.stop()


@pytest.fixture(params=["memory", "server"])
def place(request: pytest.FixtureRequest) -> Any:
    """How a client is made: in memory, or on a server."""
    if request.param == "memory":
        return lambda **settings: resil.connect("memory://", **settings).wait()
    url = request.getfixturevalue("shared_server").url
    return lambda **settings: resil.connect(url, **settings).wait()


class Source:
    """Where values come from; it counts how often each is asked for."""

    def __init__(self) -> None:
        self.loads: list[str] = []
        self._lock = threading.Lock()

    def load(self, key: str) -> str | None:
        with self._lock:
            self.loads.append(key)
            number = self.loads.count(key)
        return None if key.startswith("no") else f"{key}#{number}"

    async def load_later(self, key: str) -> str | None:
        await asyncio.sleep(0)
        return self.load(key)


def cache(place: Any, **settings: Any) -> resil.Cached:
    return place().cached(f"things-{next(_names)}", ttl=60, **settings)


def test_a_value_that_is_set_is_not_loaded(place: Any) -> None:
    source, things = Source(), cache(place)
    things.set("a", "known").wait()
    assert things.get("a", source.load).wait() == "known"
    things.set("a", "newer", ttl="1h", tags=["x"]).wait()
    assert things.get("a", source.load).wait() == "newer"
    assert source.loads == []
    things.invalidate_tag("x").wait()
    assert things.get("a", source.load).wait() == "a#1"
    with pytest.raises(ValueError, match="value must not be None"):
        things.set("a", None)


def test_many_keys_keep_their_order_and_only_missing_ones_load(place: Any, run: Any) -> None:
    source, things = Source(), cache(place)
    things.set("b", "set").wait()
    assert things.get_many(["a", "b", "no", "a"], source.load).wait() == ["a#1", "set", None, "a#1"]
    assert sorted(source.loads) == ["a", "no"]
    assert things.get_many((key for key in ["no", "a", "c"]), source.load).wait() == [None, "a#1", "c#1"]
    assert things.get_many([], source.load).wait() == []

    async def main() -> None:
        assert await things.get_many(["c", "d", "e"], source.load_later) == ["c#1", "d#1", "e#1"]

    run(main())
    assert things.invalidate_many(["a", "b", "never"]).wait() == 2
    assert things.get_many(["a", "b", "c"], source.load).wait() == ["a#2", "b#1", "c#1"]
    with pytest.raises(TypeError, match="keys must be a list of str"):
        things.get_many("abc", source.load)


def test_one_of_many_keys_raises_its_own_error(place: Any) -> None:
    things = cache(place, error_ttl=0, retry=0)

    def load(key: str) -> str:
        if key == "b":
            raise ConnectionError("b is down")
        return key

    with pytest.raises(ConnectionError, match="b is down"):
        things.get_many(["a", "b"], load).wait()
    assert things.get("a", load).wait() == "a"


def test_an_invalidated_tag_takes_only_its_own_values(place: Any) -> None:
    source, things = Source(), cache(place)
    things.get("a", source.load, tags=["red"]).wait()
    things.get("b", lambda key: resil.CacheEntry(source.load(key), tags=["red", "round"])).wait()
    things.get("c", source.load, tags=["blue"]).wait()
    things.invalidate_tag("red").wait()
    assert [things.get(key, source.load).wait() for key in "abc"] == ["a#2", "b#2", "c#1"]
    things.clear().wait()
    assert [things.get(key, source.load).wait() for key in "abc"] == ["a#3", "b#3", "c#2"]


def test_a_loader_says_how_long_its_value_is_kept(place: Any) -> None:
    source, things = Source(), cache(place)
    entry = resil.CacheEntry("x", ttl=5, tags=["t"])
    assert (entry.value, entry.ttl, entry.tags, entry.keep) == ("x", 5.0, ["t"], True)

    def unkept(key: str) -> Any:
        return resil.CacheEntry(source.load(key), keep=False)

    assert [things.get("a", unkept).wait() for _ in range(3)] == ["a#1", "a#2", "a#3"]
    short = resil.CacheEntry("short", ttl="20ms")
    assert things.get("b", lambda _: short).wait() == "short"
    assert _eventually(lambda: things.get("b", source.load).wait() == "b#1")
    assert things.get("c", source.load, ttl="20ms").wait() == "c#1"
    assert _eventually(lambda: things.get("c", source.load).wait() == "c#2")
    for wrong in ({"ttl": -1}, {"tags": ["x"] * 17}, {"tags": [""]}):
        with pytest.raises((ValueError, resil.InvalidPolicyError)):
            resil.CacheEntry("x", **wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tags must be a list of str"):
        things.get("d", source.load, tags="team")


def test_refresh_loads_anew_and_returns_what_was_loaded(place: Any, run: Any) -> None:
    source, things = Source(), cache(place, stale=60)
    assert things.get("a", source.load).wait() == "a#1"
    assert things.refresh("a", source.load).wait() == "a#2"
    assert things.get("a", source.load).wait() == "a#2"

    async def main() -> None:
        assert await things.refresh("a", source.load_later, tags=["t"]) == "a#3"
        assert await things.get("a", source.load_later) == "a#3"
        await things.invalidate_tag("t")
        assert await things.get("a", source.load_later) == "a#4"

    run(main())


def test_a_decorated_function_invalidates_by_its_own_arguments(place: Any, run: Any) -> None:
    source, things = Source(), cache(place)

    @things.by(lambda user, *, lang="en": f"{user}:{lang}", tags=["names"])
    def name_of(user: int, *, lang: str = "en") -> str | None:
        return source.load(f"{user}:{lang}")

    assert [name_of(7), name_of(7), name_of(7, lang="de")] == ["7:en#1", "7:en#1", "7:de#1"]
    assert name_of.invalidate(7, lang="de").wait() is True
    assert name_of.invalidate(8).wait() is False
    assert [name_of(7), name_of(7, lang="de")] == ["7:en#1", "7:de#2"]
    things.invalidate_tag("names").wait()
    assert name_of(7) == "7:en#2"

    @things.by("all")
    async def everything() -> str | None:
        return await source.load_later("all")

    async def main() -> None:
        assert [await everything(), await everything()] == ["all#1", "all#1"]
        assert await everything.invalidate()
        assert await everything() == "all#2"

    run(main())
    broken = things.by(lambda: 7)
    with pytest.raises(TypeError, match="what key= returned must be str"):
        broken.invalidate()


def test_keys_of_an_iterator_are_invalidated_one_after_another(place: Any, run: Any) -> None:
    source, things = Source(), cache(place)
    things.get_many(["a", "b", "c"], source.load).wait()
    assert things.invalidate_on(iter(["a", "b"])).wait() == 2
    assert things.get_many(["a", "b", "c"], source.load).wait() == ["a#2", "b#2", "c#1"]
    acknowledged: list[str] = []

    async def events() -> AsyncIterator[str]:
        for key in ["a", "c"]:
            yield key
            # The server knows: a get that begins now loads anew.
            assert await things.get(key, source.load_later) == f"{key}#{3 if key == 'a' else 2}"
            acknowledged.append(key)

    async def main() -> None:
        assert await things.invalidate_on(events()) == 2

    run(main())
    assert acknowledged == ["a", "c"]

    def broken() -> Iterator[Any]:
        yield "a"
        raise OSError("the broker is gone")

    with pytest.raises(OSError, match="the broker is gone"):
        things.invalidate_on(broken()).wait()
    with pytest.raises(TypeError, match="a key of keys must be str"):
        things.invalidate_on([7]).wait()  # type: ignore[list-item]
    with pytest.raises(TypeError, match="keys must be something to iterate over"):
        things.invalidate_on(7)  # type: ignore[arg-type]


def test_a_wait_for_events_is_cancelled_with_its_task(place: Any, run: Any) -> None:
    things = cache(place)
    is_closed = asyncio.Event()

    async def main() -> None:
        async def silent() -> AsyncIterator[str]:
            try:
                await asyncio.Event().wait()
                yield "never"
            finally:
                is_closed.set()

        async def listen() -> None:
            await things.invalidate_on(silent())

        task = asyncio.get_running_loop().create_task(listen())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(is_closed.wait(), 10)

    run(main())


def test_events_are_insisted_on_while_the_server_is_away(servers: Any, run: Any) -> None:
    server = servers.start()

    async def main() -> None:
        client = await resil.connect(server.url, command_timeout=0.2)
        things = client.cached("things", ttl=60)
        source = Source()
        assert await things.get("a", source.load_later) == "a#1"
        await asyncio.to_thread(server.kill)
        waiting = asyncio.ensure_future(_awaited(things.invalidate_eventually("a")))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await asyncio.to_thread(server.restart)
        assert await asyncio.wait_for(waiting, 30) is True

    run(main())
    server.stop()


async def _awaited(pending: Any) -> Any:
    return await pending


def _eventually(holds: Any) -> bool:
    for _ in range(2_000):
        if holds():
            return True
        threading.Event().wait(0.005)
    return False
