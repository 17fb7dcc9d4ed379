"""What telemetry costs a limiter call over loopback, one call after the other: each kind beside the same calls without it, in turns.

Spans are of a tracer that records and keeps nothing, within the span of a request. Most of what they cost is OpenTelemetry's own, so they
stand beside the same span made by hand around the call, and beside a program that has OpenTelemetry's API alone, or whose sampler drops them.
What a turn switched on has exported everything before the turn is over: its processor
time has all of it, and the time that passed only what happened while calls were made.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable

from opentelemetry import trace
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult

import resil
from resil import telemetry
from resil._native import subscribe_events
from turns import Bars, progress, table

#: A call with it to a call without, or to a call with a span made by hand.
BOUND = 1.05
HOOKS = ("before_sleep", "on_hedge", "on_timeout", "on_open", "on_lost", "on_drop", "on_outlived", "on_away", "on_back")
UNTIL_HEARD_S = 10.0


class _Counting(SpanProcessor):
    ended = 0

    def on_end(self, span: Any) -> None:
        self.ended += 1


class _Dropping(Sampler):
    asked = 0

    def should_sample(self, *_args: Any, **_named: Any) -> SamplingResult:
        self.asked += 1
        return SamplingResult(Decision.DROP)

    def get_description(self) -> str:
        return "drops all"


class _ApiAlone(trace.NoOpTracer):
    """What `opentelemetry-api` gives a program without an SDK."""

    asked = 0

    def get_tracer(self, *_args: Any, **_named: Any) -> trace.Tracer:
        return self

    def start_span(self, *args: Any, **named: Any) -> trace.Span:
        self.asked += 1
        return super().start_span(*args, **named)


class _Ways:
    """Ways of making so many calls. Each returns how long the calls took."""

    def __init__(self, limiter: Any, calls: int) -> None:
        self._check = lambda: limiter.check("ann").wait()
        self._calls = range(calls)
        self._provider, self._spans = TracerProvider(shutdown_on_exit=False), _Counting()
        self._provider.add_span_processor(self._spans)
        self._tracer = self._provider.get_tracer("by hand")

    def _all(self, call: Callable[[], object]) -> float:
        began = time.perf_counter()
        for _ in self._calls:
            call()
        return time.perf_counter() - began

    def _expect(self, what: str, heard: Callable[[], int]) -> None:
        """Nothing is measured that does not happen."""
        until = time.monotonic() + UNTIL_HEARD_S
        while heard() < len(self._calls):
            assert time.monotonic() < until, f"{what}: {heard()} of {len(self._calls)}"
            time.sleep(0.005)

    def without(self) -> float:
        return self._all(self._check)

    def hooks(self) -> float:
        with telemetry.log_events(), telemetry.hooks(**{kind: (lambda said: None) for kind in HOOKS}):
            return self._all(self._check)

    def listener(self) -> float:
        heard = 0

        def hear(_kind: str, calls: list[Any]) -> None:
            nonlocal heard
            heard += len(calls)

        subscribed = subscribe_events(True, hear)
        took = self._all(self._check)
        self._expect("calls heard", lambda: heard)
        subscribed.close()
        return took

    def spans(self) -> float:
        self._spans.ended = 0
        with self._tracer.start_as_current_span("request"):
            return self._instrumented(self._provider, lambda: self._spans.ended)

    def dropped(self) -> float:
        sampler = _Dropping()
        return self._instrumented(TracerProvider(sampler=sampler, shutdown_on_exit=False), lambda: sampler.asked)

    def api_alone(self) -> float:
        tracer = _ApiAlone()
        return self._instrumented(tracer, lambda: tracer.asked)

    def _instrumented(self, provider: Any, asked: Callable[[], int]) -> float:
        with telemetry.instrument(tracer_provider=provider, meter_provider=NoOpMeterProvider()):
            took = self._all(self._check)
            self._expect("spans asked for", asked)
        return took

    def by_hand(self) -> float:
        tracer, check = self._tracer, self._check
        attributes = {"name": "cost", "operation": "check"}

        def call() -> None:
            with tracer.start_as_current_span("resil.limiter", attributes=attributes) as span:
                verdict = check()
                span.set_attribute("outcome", "granted" if verdict else "denied")

        self._spans.ended = 0
        with tracer.start_as_current_span("request"):
            took = self._all(call)
            self._expect("spans by hand", lambda: self._spans.ended)
        return took


Cost = tuple[float, float]


def _cost(way: Callable[[], float], calls: int) -> Cost:
    """Microseconds for each call: the processor time of the process, and the time that passed."""
    before = time.process_time()
    took = way()
    return (time.process_time() - before) * 1e6 / calls, took * 1e6 / calls


def _beside(one: Callable[[], float], other: Callable[[], float], calls: int, rounds: int) -> tuple[float, float, float]:
    """`one` beside `other`, which has its turn right before or after: CPU, time, and the microseconds of CPU that it adds."""
    found: list[tuple[Cost, Cost]] = []
    for turn in range(rounds + 1):
        if turn % 2 == 0:
            mine, its = _cost(one, calls), _cost(other, calls)
        else:
            its, mine = _cost(other, calls), _cost(one, calls)
        found.append((mine, its))
    # The first is to warm up.
    found = found[1:]
    cpu = statistics.median(mine[0] / its[0] for mine, its in found)
    passed = statistics.median(mine[1] / its[1] for mine, its in found)
    return cpu, passed, statistics.median(mine[0] - its[0] for mine, its in found)


def measure(port: int, calls: int, rounds: int, bars: Bars) -> None:
    progress("telemetry")
    client = resil.connect(f"redis://127.0.0.1:{port}").wait()
    ways = _Ways(client.limiter("cost", limit=1_000_000_000, period=1), calls)
    bare = statistics.median(_cost(ways.without, calls)[0] for _ in range(5))
    print(f"#### What telemetry costs a limiter call of {bare:.1f} µs of CPU\n")
    rows = []
    for title, one, other, is_promised in (
        ("hooks for everything, and the log", ways.hooks, ways.without, True),
        ("a listener of every call that does nothing", ways.listener, ways.without, True),
        ("spans, with OpenTelemetry's API alone", ways.api_alone, ways.without, True),
        ("spans that the sampler drops", ways.dropped, ways.without, False),
        ("spans of a tracer that keeps nothing", ways.spans, ways.without, False),
        ("the same spans made by hand", ways.by_hand, ways.without, False),
        ("spans, beside those made by hand", ways.spans, ways.by_hand, True),
    ):
        cpu, passed, added = _beside(one, other, calls, rounds)
        rows.append([title, f"{(cpu - 1) * 100:.1f} %", f"{(passed - 1) * 100:.1f} %", f"{added:.2f}"])
        if is_promised:
            bars.at_most(f"{title}: at most {BOUND:.2f}x the CPU of a call", cpu, BOUND)
    table(["switched on", "CPU", "time", "CPU added, µs"], rows)
    client.shutdown().wait()
