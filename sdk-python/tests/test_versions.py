"""Values that are loaded once, with versions: something older never takes the place of something newer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import resil


def test_a_version_comes_with_its_value(client: resil.Client, run: Any) -> None:
    users = client.versioned_cached("user", ttl=60)

    async def load(key: str) -> tuple[int, dict[str, str]] | None:
        return (7, {"name": key}) if key == "ada" else None

    async def main() -> None:
        assert await users.get("ada", load) == (7, {"name": "ada"})
        assert await users.get("nobody", load) is None
        loaded = await users.lookup("ada", load)
        assert (loaded.version, loaded.value, loaded.is_found) == (7, {"name": "ada"}, True)
        missing = await users.lookup("nobody", load)
        assert (missing.version, missing.is_found) == (None, False)

    run(main())
    assert client.cached("user").lookup("ada", lambda key: 1).wait().version is None


def test_a_caller_with_a_version_gets_it_or_newer(client: resil.Client) -> None:
    users = client.versioned_cached("user", ttl=60)
    loads: list[str] = []

    def load(version: int) -> Any:
        def loader(key: str) -> tuple[int, str]:
            loads.append(key)
            return version, f"of version {version}"

        return loader

    assert users.get("ada", load(1)).wait() == (1, "of version 1")
    assert users.get("ada", load(2), at_least=1).wait() == (1, "of version 1")
    assert users.get("ada", load(2), at_least=2).wait() == (2, "of version 2")
    assert len(loads) == 2
    # The source lags behind what was committed.
    with pytest.raises(resil.LoadFailedError, match="older"):
        users.get("ada", load(2), at_least=3).wait()
    assert users.get("ada", load(2**64 - 1), at_least=3).wait() == (2**64 - 1, f"of version {2**64 - 1}")


def test_a_lagging_source_does_not_replace_what_is_known(client: resil.Client) -> None:
    users = client.versioned_cached("user", ttl=60, stale=600)
    assert users.get("ada", lambda key: (5, "new")).wait() == (5, "new")
    assert users.invalidate_soft("ada").wait()
    for _ in range(3):
        assert users.get("ada", lambda key: (4, "old")).wait() == (5, "new")


def test_one_loads_for_many(client: resil.Client, run: Any) -> None:
    loads = 0

    async def load(key: str) -> tuple[int, str]:
        nonlocal loads
        loads += 1
        await asyncio.sleep(0.01)
        return 1, key

    async def main() -> list[Any]:
        users = client.versioned_cached("user", ttl=60)
        return await asyncio.gather(*(users.get("ada", load) for _ in range(20)))

    assert run(main()) == [(1, "ada")] * 20
    assert loads == 1


def test_as_a_decorator_it_gives_what_the_function_would(client: resil.Client, run: Any) -> None:
    users = client.versioned_cached("user", ttl=60)

    @users.by(lambda user: user)
    async def load(user: str) -> tuple[int, str]:
        return len(user), user

    async def main() -> None:
        assert await load("ada") == await load("ada") == (3, "ada")

    run(main())


def test_bytes_are_kept_as_they_are(client: resil.Client) -> None:
    users = client.versioned_cached("user", serializer="bytes")
    assert users.get("ada", lambda key: (1, b"\xff\0")).wait() == (1, b"\xff\0")


@pytest.mark.parametrize("brought", [7, "text", (1,), (1, 2, 3), ("1", "text"), (-1, "text"), (True, "text"), (2**64, 1)])
def test_what_is_no_version_with_a_value_is_refused(client: resil.Client, brought: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="version"):
        client.versioned_cached("user").get("ada", lambda key: brought).wait()


def test_the_loaders_own_error_is_raised(client: resil.Client) -> None:
    def broken(key: str) -> tuple[int, str]:
        raise KeyError(key)

    with pytest.raises(KeyError):
        client.versioned_cached("user").get("ada", broken).wait()
