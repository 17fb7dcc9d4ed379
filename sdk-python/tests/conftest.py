"""What the tests share: event loops of both kinds, a real server, and a package that is as it was after each test."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import pathlib
import sys
from collections.abc import Coroutine, Iterator
from typing import Any, Callable

import pytest
import resil

Runner = Callable[[Coroutine[Any, Any, Any]], Any]
PATIENCE = 60.0
#: A program that tests start.
collect_ignore = ["renewing.py"]
_stores = itertools.count()


def _run_with(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> Runner:
    def run(main: Coroutine[Any, Any, Any]) -> Any:
        loop = new_loop()
        try:
            asyncio.set_event_loop(loop)
            return loop.run_until_complete(asyncio.wait_for(main, PATIENCE))
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            loop.close()

    return run


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Runner:
    """Runs a coroutine, on asyncio's own loop and on uvloop's. Never for longer than a minute."""
    if request.param == "asyncio":
        return _run_with(asyncio.new_event_loop)
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not there on this platform")
    return _run_with(uvloop.new_event_loop)


@pytest.fixture
def client() -> resil.Client:
    return resil.connect("memory://").wait()


@pytest.fixture(autouse=True)
def _not_testing() -> Iterator[None]:
    yield
    resil.set_testing(False)


def _servers_module() -> Any:
    path = pathlib.Path(__file__).parents[2] / "tests" / "harness" / "servers.py"
    spec = importlib.util.spec_from_file_location("resil_test_servers", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def servers() -> Iterator[Any]:
    """Starts real servers; they end with the tests."""
    started = _servers_module().Servers()
    yield started
    started.close()


@pytest.fixture
def server(servers: Any) -> Iterator[Any]:
    started = servers.start()
    yield started
    started.stop()


@pytest.fixture(params=["memory", "server"])
def url(request: pytest.FixtureRequest) -> str:
    """One store for all clients of a test: in memory, and on a server."""
    if request.param == "memory":
        return f"memory://store-{next(_stores)}"
    return str(request.getfixturevalue("server").url)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Telemetry first: a process keeps 10,000 series, and all these tests together have more names than that."""
    items.sort(key=lambda item: "telemetry" not in str(item.path))
