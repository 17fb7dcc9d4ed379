"""Every conformance vector through the package: in memory, and on a real server. Same file, same verdicts.

`tests/vectors/README.md` says what a vector means.
"""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Callable

import resil
from resil.testing import raw, raw_at

FOLDER = pathlib.Path(__file__).parents[2] / "tests" / "vectors"
#: 2100: whatever a vector stores, no clock of this machine expires any of it meanwhile.
BASE_US = 4_102_444_800_000_000

Ask = Callable[[list[Any], int], Any]


def vectors() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        if path.name != "schema.json":
            content = json.loads(path.read_text())
            assert content["spec_version"] == 1, path.name
            found += [(path.name, vector) for vector in content["vectors"]]
    return found


def word(text: str, prefix: str, names: dict[str, Any]) -> str:
    if text.startswith("key:"):
        return prefix + text[len("key:") :]
    if text.startswith("$"):
        return str(names[text[1:]])
    return text


def fits(expected: Any, got: Any, names: dict[str, Any]) -> bool:
    if isinstance(expected, dict):
        names[expected["bind"]] = got
        return got is not None
    if isinstance(expected, list) and isinstance(got, list):
        return len(expected) == len(got) and all(fits(e, g, names) for e, g in zip(expected, got))
    if isinstance(expected, str) and expected.startswith("$"):
        return bool(names.get(expected[1:]) == got)
    return bool(expected == got)


def plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list) and value and all(isinstance(pair, tuple) for pair in value):
        # A map: its names and values in turn.
        return [plain(part) for pair in value for part in pair]
    if isinstance(value, list):
        return [plain(element) for element in value]
    return value


def play_all(who: str, ask: Ask) -> int:
    failures = []
    played = set()
    for index, (file, vector) in enumerate(vectors()):
        assert not vector["needs"], f"{file}: {vector['name']} needs what nobody has"
        assert vector["steps"], f"{file}: {vector['name']} says nothing"
        names: dict[str, Any] = {}
        for step in vector["steps"]:
            words = [word(text, f"vector:{index}:", names) for text in step["call"]]
            try:
                got = plain(ask(words, BASE_US + step["at_us"]))
                is_met = "reply" in step and fits(step["reply"], got, names)
            except resil.ResilError as error:
                got = f"{error.code} {error}"
                is_met = "error" in step and step["error"] in got
            if not is_met:
                failures.append(f"{file}: {vector['name']}: {words} got {got!r}")
                break
        played.add((file, vector["name"]))
    assert not failures, "\n".join(failures)
    tell_what_was_played(who, played)
    return len(played)


def tell_what_was_played(who: str, played: set[tuple[str, str]]) -> None:
    """For ``scripts/played``, which looks that every runner of every language played every vector."""
    if "RESIL_VECTORS_PLAYED" in os.environ:
        folder = pathlib.Path(os.environ["RESIL_VECTORS_PLAYED"])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{who}.json").write_text(json.dumps(sorted(played)))


def test_every_vector_holds_in_memory(client: resil.Client) -> None:
    played = play_all("python-memory", lambda words, at_us: raw_at(client, words, at_us))
    assert played == len(vectors()) >= 190


def test_every_vector_holds_on_a_server(servers: Any) -> None:
    server = servers.start(module_args=["test-clock", "yes"])
    client = resil.connect(server.url).wait()

    def ask(words: list[Any], at_us: int) -> Any:
        server.say("RES._CLOCK", str(at_us))
        return raw(client, words).wait()

    played = play_all("python-server", ask)
    assert played == len(vectors()) >= 190
    server.stop()
