"""Rows that take turns: in every round each runs once, beside the others, so that all meet the same weather."""

from __future__ import annotations

import statistics
import sys
from typing import Callable

Row = tuple[str, Callable[[], float]]


def in_turns(rows: list[Row], rounds: int) -> dict[str, list[float]]:
    """What each row gave, round by round. Each round starts at another row: none always follows the same one."""
    found: dict[str, list[float]] = {name: [] for name, _ in rows}
    for turn in range(rounds):
        start = turn % len(rows)
        for name, run in rows[start:] + rows[:start]:
            found[name].append(run())
    return found


def ratio(found: dict[str, list[float]], one: str, other: str) -> float:
    """The median of what `one` is beside `other` in the same round."""
    return statistics.median(mine / its for mine, its in zip(found[one], found[other]))


def percentile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def table(heads: list[str], rows: list[list[str]]) -> None:
    print(f"| {' | '.join(heads)} |")
    print(f"| --- |{' ---: |' * (len(heads) - 1)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print(flush=True)


class Bars:
    """What is promised, and whether it held."""

    def __init__(self) -> None:
        self._rows: list[list[str]] = []

    def at_least(self, promise: str, measured: float, bar: float) -> None:
        self._judge(promise, measured, measured >= bar)

    def at_most(self, promise: str, measured: float, bar: float) -> None:
        self._judge(promise, measured, measured <= bar)

    def _judge(self, promise: str, measured: float, is_met: bool) -> None:
        self._rows.append([promise, f"{measured:.2f}x", "pass" if is_met else "**miss**"])

    def print(self) -> None:
        print("| promise | measured | |\n| --- | --- | --- |")
        for row in self._rows:
            print(f"| {' | '.join(row)} |")
        print(flush=True)


def progress(text: str) -> None:
    print(f"python: {text}", file=sys.stderr, flush=True)
