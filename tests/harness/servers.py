"""Real servers for tests in Python: started on free ports, killed when the tests end, however they end.

    with Servers() as servers:
        server = servers.start(module_args=["test-clock", "yes"])
        server.say("RES._CLOCK", 4102444800000000)
        server.kill()       # as kill -9
        server.restart()    # same port, same folder

It speaks JSON lines with the program `resil-servers` (see its main.rs), which `cargo build -p resil-harness`
makes. Every call waits for its reply; within asyncio use `await asyncio.to_thread(server.kill)`.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import subprocess
import threading
from typing import Any, Mapping, Optional, Sequence, Union

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

Word = Union[str, int, float, bytes]
Config = Union[Mapping[str, str], Sequence[Sequence[str]]]


class Refused(Exception):
    """The server answered a command with an error; the text is the line it wrote, code first."""


def program() -> pathlib.Path:
    """`RESIL_SERVERS_PROGRAM`, or else what the workspace's dev build leaves behind."""
    named = os.environ.get("RESIL_SERVERS_PROGRAM")
    if named:
        return pathlib.Path(named)
    # A relative target folder is meant from the workspace, as cargo does it there.
    built = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug" / "resil-servers"
    if not built.is_file():
        raise FileNotFoundError(f"{built} is not there: cargo build -p resil-harness")
    return built


class Servers:
    """The starter, and all servers it started. Calls may come from any thread."""

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        # A session of its own: a Ctrl-C at the terminal reaches the tests, which then close this.
        self._process = subprocess.Popen(
            [str(program())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )

    def start(
        self,
        *,
        flavor: Optional[str] = None,
        module_args: Sequence[str] = (),
        config: Config = (),
        without_module: bool = False,
    ) -> Server:
        """A server of its own process, port and folder; `flavor` is a folder of target/servers."""
        options = _options(flavor, module_args, config, without_module)
        return Server(self, self.ask("start", options=options))

    def rabbit(self) -> Broker:
        """A RabbitMQ of its own; users are guest, consumer and producer."""
        return Broker(self, self.ask("rabbit"))

    def postgres(self) -> Broker:
        """A Postgres of its own, with the database postgres."""
        return Broker(self, self.ask("postgres"))

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """One request as it is; RuntimeError if it cannot be met."""
        line = json.dumps({"do": do, **fields}) + "\n"
        with self._one_at_a_time:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.write(line)
            self._process.stdin.flush()
            text = self._process.stdout.readline()
        if not text:
            raise RuntimeError(f"resil-servers ended before it answered {do}")
        reply: dict[str, Any] = json.loads(text)
        if "error" in reply:
            raise RuntimeError(f"{do}: {reply['error']}")
        return reply

    def close(self) -> None:
        """Ends all servers. RuntimeError if one of them had crashed; its log is on standard error."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        if self._process.wait(timeout=60) != 0:
            raise RuntimeError("a server crashed during the tests")

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Broker:
    """A broker or a database; `url` says where it is."""

    url: str

    def __init__(self, servers: Servers, description: Mapping[str, Any]) -> None:
        self._servers = servers
        self._id: int = description["id"]
        self.url = description["url"]

    def kill(self) -> None:
        """The crash, as by kill -9."""
        self._servers.ask("kill_broker", id=self._id)

    def restart(self) -> None:
        """Up again on the same folder and port; one that still runs is killed first."""
        self._servers.ask("restart_broker", id=self._id)

    def wait_until_registered(self, queue: str) -> None:
        """Until a kill cannot make RabbitMQ forget a new queue."""
        self._servers.ask("registered", id=self._id, queue=queue)


class Server:
    """One server; `url`, `port` and `pid` say where it is."""

    url: str
    port: int
    pid: int

    def __init__(self, servers: Servers, description: Mapping[str, Any]) -> None:
        self._servers = servers
        self._id: int = description["id"]
        self._is_at(description)

    def _is_at(self, description: Mapping[str, Any]) -> None:
        self.url, self.port, self.pid = description["url"], description["port"], description["pid"]

    def say(self, *words: Word, resp3: bool = False) -> Any:
        """One command on a connection of its own. Bytes that are not UTF-8 come back as bytes."""
        sent = [{"base64": base64.b64encode(word).decode()} if isinstance(word, bytes) else word for word in words]
        reply = self._servers.ask("say", id=self._id, words=sent, resp3=resp3)
        if "refusal" in reply:
            raise Refused(reply["refusal"])
        return _plain(reply["reply"])

    def kill(self) -> None:
        """The crash, as by kill -9."""
        self._servers.ask("kill", id=self._id)

    def restart(self) -> None:
        """Up again on the same folder and port; one that still runs is killed first."""
        self._is_at(self._servers.ask("restart", id=self._id))

    def restart_orderly(self) -> None:
        """Down by SIGTERM and up again: what the configuration says is saved is there."""
        self._is_at(self._servers.ask("restart_orderly", id=self._id))

    def pause(self) -> None:
        """Frozen: connections stay open and nothing replies."""
        self._servers.ask("pause", id=self._id)

    def resume(self) -> None:
        self._servers.ask("resume", id=self._id)

    def replica(
        self,
        *,
        flavor: Optional[str] = None,
        module_args: Sequence[str] = (),
        config: Config = (),
        without_module: bool = False,
    ) -> Server:
        """A server that replicates this one, in step with it."""
        options = _options(flavor, module_args, config, without_module)
        return Server(self._servers, self._servers.ask("replica", of=self._id, options=options))

    def wait_for_sync(self, replica: Server) -> None:
        """Until `replica` has all that was written here so far."""
        self._servers.ask("sync", id=self._id, replica=replica._id)

    def log(self) -> str:
        text: str = self._servers.ask("log", id=self._id)["log"]
        return text

    def stop(self) -> None:
        """Ends it and removes its folder."""
        self._servers.ask("stop", id=self._id)


def _options(
    flavor: Optional[str], module_args: Sequence[str], config: Config, without_module: bool
) -> dict[str, Any]:
    lines = dict(config) if isinstance(config, Mapping) else [list(pair) for pair in config]
    return {
        "flavor": flavor,
        "module_args": list(module_args),
        "config": lines,
        "without_module": without_module,
    }


def _plain(reply: Any) -> Any:
    if isinstance(reply, list):
        return [_plain(element) for element in reply]
    if isinstance(reply, dict):
        if set(reply) == {"base64"}:
            return base64.b64decode(reply["base64"])
        return {key: _plain(value) for key, value in reply.items()}
    return reply
