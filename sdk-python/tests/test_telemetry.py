"""Metrics, spans, logs and hooks: the scene of tests/telemetry_scene.json, and what goes wrong with functions of users."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import pathlib
import statistics
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any, Callable

import pytest
import resil
from resil import telemetry

SCENE = json.loads((pathlib.Path(__file__).parents[2] / "tests" / "telemetry_scene.json").read_text())


def until(what: str, is_so: Callable[[], object]) -> None:
    until = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < until, f"{what} does not happen"
        time.sleep(0.01)


def series() -> dict[str, Any]:
    def text(labels: dict[str, str]) -> str:
        return ",".join(f"{label}={value}" for label, value in labels.items())

    return {f"{sample.metric}{{{text(sample.labels)}}}": sample.value for sample in telemetry.metrics()}


def play(client: resil.Client, server: Any) -> None:
    limit = client.limiter("scene", limit=2, period=60)
    assert [bool(limit.check("secret-key").wait()) for _ in range(3)] == [True, True, False]
    attempts = []

    def flaky() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError("secret-error")

    resil.Retry(on=(ConnectionError,), initial_backoff=0.001, name="scene").call(flaky)

    calls = []

    async def slow() -> None:
        calls.append(1)
        await asyncio.sleep(5 if len(calls) == 1 else 0)

    async def never() -> None:
        await asyncio.sleep(5)

    async def main() -> None:
        await resil.Hedge(on=(ConnectionError,), hedging_delay=0.005, name="scene").call(slow)
        with pytest.raises(resil.TimeoutError):
            await resil.Timeout(0.005, name="scene").call(never)

    asyncio.run(main())
    breaker = client.breaker("scene", consecutive_failures=1)
    with pytest.raises(ConnectionError), breaker:
        raise ConnectionError("secret-error")
    breaker.state().wait()
    with pytest.raises(resil.CircuitOpenError), breaker:
        pass
    server.kill()
    until("away", lambda: client.health()["overall"] != "healthy")
    assert limit.check("another").wait()
    server.restart()
    until("back", lambda: client.health()["overall"] == "healthy")


def test_counts_hooks_and_logs_show_the_scene_without_secrets(servers: Any, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG, logger="resil")
    server = servers.start(config=[("requirepass", "secret-password")])
    heard: list[str] = []
    hooks = {kind: (lambda said, kind=kind: heard.append(kind)) for kind in telemetry._HOOKS if kind != "on_lost"}
    with telemetry.hooks(only="scene", **hooks), telemetry.log_events():
        client = resil.connect(server.url.replace("redis://", "redis://:secret-password@"), name="scene").wait()
        play(client, server)
        until("every hook", lambda: len(heard) >= 6)
    found = series()
    assert {name: found.get(name) for name in SCENE["expected"]} == SCENE["expected"]
    assert sorted(heard) == ["before_sleep", "on_away", "on_back", "on_hedge", "on_open", "on_timeout"]
    assert [line for line in caplog.messages if "is away" in line] and [line for line in caplog.messages if "is back" in line]
    assert "secret" not in str(found) and "secret" not in caplog.text
    client.shutdown().wait()
    server.stop()


def test_hooks_that_raise_block_or_ask_again_break_nothing(client: resil.Client, caplog: Any) -> None:
    limiter = client.limiter("hooked", limit=100, period=60)
    asked: list[bool] = []

    def raises(_said: object) -> None:
        raise KeyboardInterrupt("secret-text")

    def asks(_said: object) -> None:
        asked.append(bool(limiter.check("inside").wait()))
        switches[0].close()

    switches = [telemetry.hooks(before_sleep=raises), telemetry.hooks(before_sleep=asks)]
    for _ in range(3):
        with pytest.raises(resil.RetryExhaustedError):
            resil.Retry(on=(ZeroDivisionError,), max_attempts=2, initial_backoff=0.001, name="hooked").call(lambda: 1 / 0)
    until("the second hook", lambda: len(asked) == 3)
    for switch in switches:
        switch.close()
        switch.close()
    said = [line for line in caplog.messages if "before_sleep" in line]
    assert len(said) == 1 and "KeyboardInterrupt" in said[0] and "secret" not in caplog.text

    async def later(_said: object) -> None: ...

    with pytest.raises(TypeError, match="plain function"):
        telemetry.hooks(on_open=later)
    with pytest.raises(TypeError, match="only must be"):
        telemetry.hooks(only=3)  # type: ignore[arg-type]


def test_a_closed_hook_is_not_called_for_waiting_events() -> None:
    calls: list[object] = []
    is_called, goes_on = threading.Event(), threading.Event()

    def slow(said: object) -> None:
        calls.append(said)
        is_called.set()
        goes_on.wait(30)

    retry = resil.Retry(on=ValueError, max_attempts=2, initial_backoff=0.000001, budget=None)

    @retry
    def fail() -> None:
        raise ValueError

    hooks = telemetry.hooks(before_sleep=slow)
    for _ in range(6):
        with pytest.raises(resil.RetryExhaustedError):
            fail()
    assert is_called.wait(30)
    hooks.close()
    goes_on.set()
    # One that is reported after them all: the queue has come so far.
    reported: list[object] = []
    with telemetry.hooks(before_sleep=reported.append), pytest.raises(resil.RetryExhaustedError):
        fail()
    until("the last one is notified", lambda: reported)
    assert len(calls) == 1


def test_behind_very_many_retries_a_circuit_that_opened_is_reported(caplog: Any) -> None:
    retries = 12_000
    opened: list[object] = []
    heard: list[object] = []
    goes_on = threading.Event()
    retry = resil.Retry(on=ValueError, max_attempts=2, initial_backoff=0.000001, budget=None)
    breaker = resil.connect("memory://").wait().breaker("many-retries", consecutive_failures=1)

    @retry
    def fail() -> None:
        raise ValueError

    @breaker
    def trip() -> None:
        raise ValueError

    def slow(said: object) -> None:
        heard.append(said)
        goes_on.wait(60)

    with caplog.at_level(logging.WARNING, logger="resil"), telemetry.hooks(before_sleep=slow), telemetry.hooks(only="many-retries", on_open=opened.append):
        for _ in range(retries):
            with pytest.raises(resil.RetryExhaustedError):
                fail()
        with pytest.raises(ValueError):
            trip()
        goes_on.set()
        until("it is notified", lambda: opened)
        until("it is logged that some were not", lambda: "were not reported to hooks" in caplog.text)
    assert len(opened) == 1 and len(heard) < retries


def test_a_switch_stays_on_if_nobody_keeps_it() -> None:
    heard: list[dict[str, Any]] = []
    before = set(telemetry._on)
    telemetry.hooks(before_sleep=heard.append, only="kept")
    gc.collect()
    with pytest.raises(resil.RetryExhaustedError):
        resil.Retry(on=(ZeroDivisionError,), max_attempts=2, initial_backoff=0.001, name="kept").call(lambda: 1 / 0)
    until("the hook", lambda: heard)
    for switch in telemetry._on - before:
        switch.close()
    assert telemetry._on == before


def test_the_last_spans_are_made_when_the_program_ends() -> None:
    program = textwrap.dedent(
        """
        import resil
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
        from resil import telemetry

        provider = TracerProvider()
        shown = lambda span: f"{span.name} {span.attributes['outcome']}\\n"
        provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=shown)))
        telemetry.instrument(tracer_provider=provider)
        limiter = resil.connect("memory://").wait().limiter("last", limit=1, period=60)
        for _ in range(2):
            limiter.check("ann").wait()
        """
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60, env=dict(os.environ))
    assert (done.returncode, done.stdout) == (0, "resil.limiter granted\nresil.limiter denied\n"), done.stderr


def test_a_lock_that_is_taken_away_is_reported(server: Any) -> None:
    heard: list[dict[str, Any]] = []
    client, other = resil.connect(server.url).wait(), resil.connect(server.url).wait()
    with telemetry.hooks(on_lost=heard.append):
        held = client.lock("secret-42").acquire().wait()
        assert other.lock("secret-42").break_lock("ann", "it hangs").wait() == 1
        until("it is notified", lambda: heard)
        with pytest.raises(resil.LockLostError):
            held.release().wait()
    assert [(said["primitive"], said["name"], said["reason"]) for said in heard] == [("lock", "default", "broken")]
    assert series()["resil_lost_total{name=default,primitive=lock}"] >= 1


def test_spans_have_current_parents_and_survive_broken_exporters(client: resil.Client, run: Any) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    class Broken(SpanExporter):
        def export(self, spans: Any) -> Any:
            raise RuntimeError("secret-exporter")

    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Broken()))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    limiter = client.limiter("spanned", limit=1, period=60)

    async def main() -> Any:
        with trace.get_tracer("test", tracer_provider=provider).start_as_current_span("request") as request:
            await limiter.check("secret-key")
            assert not await limiter.check("secret-key")
            with pytest.raises(resil.RateLimitExceededError):
                await limiter.acquire("secret-key")
        return request.get_span_context()

    with telemetry.instrument(tracer_provider=provider, meter_provider=MeterProvider([reader])):
        request = run(main())
        until("three spans", lambda: sum(span.name == "resil.limiter" for span in exporter.get_finished_spans()) >= 3)
    spans = [span for span in exporter.get_finished_spans() if span.name == "resil.limiter"]
    assert [span.attributes["outcome"] for span in spans] == ["granted", "denied", "denied"]
    assert {(span.parent.trace_id, span.parent.span_id) for span in spans} == {(request.trace_id, request.span_id)}
    assert all(span.end_time >= span.start_time for span in spans)
    assert "resil_granted_total" in str(reader.get_metrics_data())
    assert "secret" not in "".join(span.to_json() for span in spans)


def test_prometheus_reads_every_metric() -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(telemetry.PrometheusCollector())
    client = resil.connect("memory://").wait()
    client.limiter("scraped", limit=1, period=60).check("ann").wait()
    client.lock("stock:42").acquire().wait().release().wait()
    text = generate_latest(registry).decode()
    assert 'resil_granted_total{name="scraped",primitive="limiter"} 1.0' in text
    assert 'resil_wait_seconds_bucket{le="+Inf",name="default",primitive="lock"}' in text


def test_a_forks_child_hears_of_its_own_and_ends() -> None:
    program = textwrap.dedent(
        """
        import os, resil, time
        from resil import telemetry
        heard = []
        hooks = telemetry.hooks(before_sleep=heard.append)
        child = os.fork()
        if child == 0:
            own = telemetry.hooks(before_sleep=heard.append)
        try:
            resil.Retry(on=(ZeroDivisionError,), max_attempts=2, initial_backoff=0.001, name="forked").call(lambda: 1 / 0)
        except resil.RetryExhaustedError:
            pass
        until = time.monotonic() + 20
        while not heard and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.1)
        assert len(heard) == 1, heard
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60, env=dict(os.environ))
    assert done.returncode == 0, done.stderr


def test_logs_hooks_and_metrics_cost_a_twentieth_at_most(server: Any) -> None:
    """Rounds with and without take turns, so that what disturbs the machine disturbs both; the median of their ratios is compared."""
    from prometheus_client import CollectorRegistry

    limiter = resil.connect(server.url).wait().limiter("cost", limit=1_000_000_000, period=1)

    def took() -> float:
        began = time.process_time()
        for _ in range(150):
            limiter.check("ann").wait()
        return time.process_time() - began

    took()
    ratios = []
    for _ in range(60):
        without = took()
        registry = CollectorRegistry()
        registry.register(telemetry.PrometheusCollector())
        with telemetry.log_events(), telemetry.hooks(**{kind: (lambda said: None) for kind in telemetry._HOOKS}):
            ratios.append(took() / without)
    ratio = statistics.median(ratios)
    print(f"{ratio:.3f} of the processor time without")
    assert ratio <= 1.05
