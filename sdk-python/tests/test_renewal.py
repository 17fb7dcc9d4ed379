"""Leases are renewed whatever the user's code does to its thread, to its event loop, and to the interpreter's lock.

Two processes want the same thing at the same time, for work that takes four leases. What is done once is done once, and what is
held alone is held alone: nobody is let in because the one who works could not say that it still does.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

#: The work and its lease, in seconds. Twelve processes that keep the interpreter's lock need a moment to start beside each other.
WORK = {"plain": (2.0, 0.5), "blocking": (2.0, 0.5), "awaiting": (2.0, 0.5), "greedy": (4.0, 1.0)}
KINDS = {
    "plain": "a plain function that sleeps",
    "blocking": "a coroutine that blocks its loop",
    "awaiting": "a coroutine that awaits a thread",
    "greedy": "a plain function that keeps the interpreter's lock",
}
ONCE = ["run", "run_with_run", "by", "call_once", "call_once_in_time", "cached", "cached_by", "versioned"]
ALONE = ["lock", "lock_block", "lock_by_hand", "bulkhead", "bulkhead_block", "bulkhead_by_hand", "policy", "policy_in_time"]
HERE = pathlib.Path(__file__).parent
#: A caller that keeps the interpreter's lock stops all threads of its process: one primitive for each, and a few of them.
GREEDY = ["run", "call_once", "cached", "lock", "bulkhead_by_hand", "policy"]
CASES = [(kind, primitive) for kind in KINDS for primitive in [*ONCE, *ALONE] if kind != "greedy" or primitive in GREEDY]


@pytest.fixture(scope="module")
def worked(servers: Any) -> Any:
    """What two processes did, for each kind of function: by primitive, when each piece of work began and ended."""
    server = servers.start()
    done: dict[str, dict[str, list[tuple[float, float]]]] = {}

    def of(kind: str) -> dict[str, list[tuple[float, float]]]:
        if kind not in done:
            done[kind] = {}
            command = [sys.executable, str(HERE / "renewing.py"), server.url, kind, *map(str, WORK[kind])]
            groups = [[primitive] for primitive in GREEDY] if kind == "greedy" else [[*ONCE, *ALONE]]
            commands = [[*command, *group] for group in groups for _ in range(2)]
            processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
            reported = [process.communicate(timeout=120)[0] for process in processes]
            assert not any(process.returncode for process in processes)
            for line in "".join(reported).splitlines():
                primitive, began, ended = json.loads(line)
                done[kind].setdefault(primitive, []).append((began, ended))
        return done[kind]

    yield of
    server.stop()


@pytest.mark.parametrize(("kind", "primitive"), [case for case in CASES if case[1] in ONCE])
def test_work_that_outlives_its_lease_is_done_once(worked: Any, kind: str, primitive: str) -> None:
    runs = worked(kind)[primitive]
    assert len(runs) == 1, f"{primitive} of {KINDS[kind]} ran {len(runs)} times: {runs}"
    assert runs[0][1] - runs[0][0] >= WORK[kind][0]


@pytest.mark.parametrize(("kind", "primitive"), [case for case in CASES if case[1] in ALONE])
def test_what_outlives_its_lease_is_held_alone(worked: Any, kind: str, primitive: str) -> None:
    first, second = sorted(worked(kind)[primitive])
    assert first[1] <= second[0], f"{primitive} of {KINDS[kind]} was held twice at once: {first}, {second}"
