"""What `scripts/python wheel` runs in an empty environment: the wheel is there, typed, native, and works."""

import asyncio
import pathlib

import resil

package = pathlib.Path(resil.__file__).parent
assert "site-packages" in package.parts, f"{package} is not the installed one"
assert (package / "py.typed").is_file(), "the wheel says nothing about types"
assert list(package.glob("_native.abi3.*")), "the library is not for every CPython 3"


async def limited_and_locked() -> None:
    client = await resil.connect("memory://")
    api = client.limiter("api", limit=2, period=60)
    verdicts = [bool(await api.check("ann")) for _ in range(3)]
    assert verdicts == [True, True, False], verdicts
    async with client.lock("stock") as held:
        assert held.fence is not None and held.fence > 0, held.fence


asyncio.run(limited_and_locked())
client = resil.connect("memory://").wait()
assert client.breaker("bank").call(len, "four") == 4
try:
    resil.connect("nonsense://").wait()
except resil.ResilError as error:
    assert error.code == "INVALID_ARGUMENT", error.code
else:
    raise AssertionError("nonsense was connected to")
