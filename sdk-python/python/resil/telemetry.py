"""What the SDK says about itself: metrics, spans, log lines and hooks, under the names of ``docs/telemetry.md``.

Nothing here needs another package. With ``opentelemetry-api`` there is :func:`instrument`, with ``prometheus_client`` there is
:class:`PrometheusCollector`.

>>> import resil
>>> from resil import telemetry
>>> client = resil.connect("memory://").wait()
>>> bool(client.limiter("doctest", limit=1, period=60).check("ann").wait())
True
>>> [sample.value for sample in telemetry.metrics() if sample.labels.get("name") == "doctest"]
[1]

Names of handles, primitives and outcomes are all that is ever said: no keys, payloads, owners or passwords. Counting is always on, and costs an
addition. Events are only made while somebody listens. Hooks, log lines and spans are made on the thread ``resil-listeners``, after the call
went on: a hook that blocks holds up other hooks, never a call.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Optional, Union

from ._native import EventSubscription, metric_buckets, metric_names, read_metrics, subscribe_events

__all__ = ["Histogram", "Metric", "PrometheusCollector", "Sample", "Switch", "hooks", "instrument", "log_events", "metrics", "names"]

_log = logging.getLogger("resil")


class Metric(NamedTuple):
    """One line of the list of metrics."""

    name: str
    #: ``counter``, ``gauge`` or ``histogram``.
    kind: str
    labels: tuple[str, ...]
    help: str


@dataclass(frozen=True)
class Histogram:
    """How many were at most as long as each bound, in all, and their sum in seconds."""

    cumulative: tuple[tuple[float, int], ...]
    count: int
    sum: float


class Sample(NamedTuple):
    """One series, and what it stands at."""

    metric: str
    labels: dict[str, str]
    value: Union[int, Histogram]


#: What is on. Kept here, so that it stays on for those who do not keep the switch.
_on: set[Switch] = set()


class Switch:
    """Something that was switched on, until ``close()``: also if nobody keeps this. Closing twice is fine."""

    def __init__(self, *parts: EventSubscription, closed: Optional[threading.Event] = None) -> None:
        self._parts = parts
        self._closed = closed
        _on.add(self)

    def close(self) -> None:
        _on.discard(self)
        if self._closed is not None:
            self._closed.set()
        for part in self._parts:
            part.close()

    def __enter__(self) -> Switch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def names() -> list[Metric]:
    """All metrics there are: the same in Rust, Python and Node."""
    return [Metric(name, kind, tuple(labels), help) for name, kind, labels, help in metric_names()]


def metrics() -> list[Sample]:
    """Every series that moved since the import, in this process."""
    bounds = metric_buckets()
    samples = []
    for metric, labels, value in read_metrics():
        if isinstance(value, tuple):
            cumulative, count, total = value
            value = Histogram(tuple(zip(bounds, cumulative)), count, total)
        samples.append(Sample(metric, labels, value))
    return samples


class _Once:
    """Says once that something of the user's does not work. It must not be said for each call."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_said = False

    def __call__(self, error: BaseException) -> None:
        if not self._is_said:
            self._is_said = True
            # The type alone: its text may be anything.
            _log.error("%s raised %s; calls go on, and it is not said again", self._what, type(error).__name__)


_HOOKS = ("before_sleep", "on_hedge", "on_timeout", "on_open", "on_lost", "on_drop", "on_dead", "on_outlived", "on_away", "on_back")


def hooks(
    *,
    only: Optional[str] = None,
    before_sleep: Optional[Callable[[dict[str, Any]], object]] = None,
    on_hedge: Optional[Callable[[dict[str, Any]], object]] = None,
    on_timeout: Optional[Callable[[dict[str, Any]], object]] = None,
    on_open: Optional[Callable[[dict[str, Any]], object]] = None,
    on_lost: Optional[Callable[[dict[str, Any]], object]] = None,
    on_drop: Optional[Callable[[dict[str, Any]], object]] = None,
    on_dead: Optional[Callable[[dict[str, Any]], object]] = None,
    on_outlived: Optional[Callable[[dict[str, Any]], object]] = None,
    on_away: Optional[Callable[[dict[str, Any]], object]] = None,
    on_back: Optional[Callable[[dict[str, Any]], object]] = None,
) -> Switch:
    """Calls functions of yours when something happens, each with a dict of what is known: ``name`` and, for ``before_sleep``, ``attempt`` and
    ``delay``; for ``on_timeout`` ``scope`` and ``after``; for ``on_lost`` ``primitive`` and ``reason``; for ``on_drop`` ``id`` and ``reason``;
    for ``on_dead`` ``id``, ``deaths`` and ``reason``; for ``on_outlived`` ``took``; for ``on_away`` ``address`` and ``reason``.

    ``only`` names the policy, breaker, worker or label that is meant; servers and brokers have no name, and are heard of all the same. A hook that raises breaks
    nothing, and is logged once. Hooks are plain functions.
    """
    given = dict(zip(_HOOKS, (before_sleep, on_hedge, on_timeout, on_open, on_lost, on_drop, on_dead, on_outlived, on_away, on_back)))
    chosen = {kind: hook for kind, hook in given.items() if hook is not None}
    if only is not None and not isinstance(only, str):
        raise TypeError(f"only must be a str, got {type(only).__name__}")
    for kind, hook in chosen.items():
        if not callable(hook) or inspect.iscoroutinefunction(hook):
            raise TypeError(f"{kind} must be a plain function, not {'a coroutine function' if callable(hook) else type(hook).__name__}")
    failed = {kind: _Once(f"the hook {kind}") for kind in chosen}

    is_closed = threading.Event()

    def hear(kind: str, fields: dict[str, Any]) -> None:
        hook = chosen.get(kind)
        if hook is None or is_closed.is_set() or (only is not None and fields.get("name", only) != only):
            return
        try:
            hook(fields)
        except BaseException as error:
            failed[kind](error)

    # Events that wait for their turn are dropped once it is closed.
    return Switch(subscribe_events(False, hear), closed=is_closed)


_LINES: dict[str, tuple[int, str]] = {
    "before_sleep": (logging.DEBUG, "%(name)s: attempt %(attempt)s failed, the next one in %(delay)s s"),
    "on_hedge": (logging.DEBUG, "%(name)s: the call is late, and is made once more"),
    "on_timeout": (logging.DEBUG, "%(name)s: cut off after %(after)s s (%(scope)s)"),
    "on_open": (logging.WARNING, "the circuit %(name)s is open"),
    "on_transition": (logging.INFO, "the circuit %(name)s is %(new)s, and was %(previous)s"),
    "on_lost": (logging.WARNING, "%(primitive)s %(name)s was lost: %(reason)s"),
}


def log_events() -> Switch:
    """Writes what happens to the logger ``resil``: retries, hedges and timeouts at debug level, transitions of circuits at info level, circuits that
    open and locks that are lost as warnings. That a server or a broker is away, refuses a
    command or is back, that a message died or was dropped, and that an attempt outlived its ticket, is logged without this."""

    def hear(kind: str, fields: dict[str, Any]) -> None:
        level, line = _LINES.get(kind, (logging.NOTSET, ""))
        if line and _log.isEnabledFor(level):
            _log.log(level, line, fields)

    return Switch(subscribe_events(False, hear))


class PrometheusCollector:
    """For ``prometheus_client``: ``REGISTRY.register(PrometheusCollector())``."""

    def collect(self) -> Iterator[Any]:
        from prometheus_client import core

        kinds: dict[str, Any] = {"counter": core.CounterMetricFamily, "gauge": core.GaugeMetricFamily, "histogram": core.HistogramMetricFamily}
        families = {metric.name: kinds[metric.kind](metric.name, metric.help, labels=metric.labels) for metric in names()}
        labels = {metric.name: metric.labels for metric in names()}
        for sample in metrics():
            values = [sample.labels.get(label, "") for label in labels[sample.metric]]
            if isinstance(sample.value, Histogram):
                buckets = [(str(bound), count) for bound, count in sample.value.cumulative]
                families[sample.metric].add_metric(values, [*buckets, ("+Inf", sample.value.count)], sample.value.sum)
            else:
                families[sample.metric].add_metric(values, sample.value)
        yield from families.values()


def instrument(*, tracer_provider: Any = None, meter_provider: Any = None) -> Switch:
    """Makes OpenTelemetry spans of calls, and metrics of counts, with the providers that are named or else the global ones. Needs
    ``opentelemetry-api``.

    A span is called ``resil.limiter``, ``resil.policy`` and so on, and is a child of the span that was current where the call began. It has
    the attributes ``name``, ``operation``, ``outcome`` and, with an error, ``error.type``. OpenTelemetry has no histograms that can be read
    at any time, so each is three counters: ``_bucket`` with the label ``le``, ``_count`` and ``_sum``.
    """
    try:
        from opentelemetry import metrics as otel_metrics
        from opentelemetry import trace
    except ImportError:
        raise ImportError("resil.telemetry.instrument needs opentelemetry: pip install opentelemetry-api") from None
    tracer = trace.get_tracer("resil", tracer_provider=tracer_provider)
    _observe(otel_metrics.get_meter("resil", meter_provider=meter_provider), otel_metrics.Observation)
    failed, parent_of = _Once("OpenTelemetry"), _parents(trace)
    is_failed = trace.Status(trace.StatusCode.ERROR)

    def hear(_kind: str, calls: list[tuple[Any, ...]]) -> None:
        for name, primitive, operation, outcome, error, is_error, began_ns, took_ns, parent in calls:
            try:
                attributes = {"name": name, "operation": operation, "outcome": outcome}
                if is_error:
                    attributes["error.type"] = error or "error"
                span = tracer.start_span(f"resil.{primitive}", context=parent_of(parent), attributes=attributes, start_time=began_ns)
                if is_error:
                    span.set_status(is_failed)
                span.end(began_ns + took_ns)
            except BaseException as raised:
                failed(raised)

    return Switch(subscribe_events(True, hear))


def _parents(trace: Any) -> Callable[[Optional[str]], Any]:
    """The context that a ``traceparent`` says. Calls of one caller come one after another: the last one is kept."""
    from opentelemetry.context import Context

    none = Context()
    last: tuple[Optional[str], Any] = (None, none)

    def parent_of(traceparent: Optional[str]) -> Any:
        nonlocal last
        known, context = last
        if known != traceparent:
            context = made(traceparent or "")
            last = (traceparent, context)
        return context

    def made(traceparent: str) -> Any:
        parts = traceparent.split("-")
        if len(parts) != 4 or (len(parts[1]), len(parts[2])) != (32, 16):
            return none
        context = trace.SpanContext(int(parts[1], 16), int(parts[2], 16), is_remote=False, trace_flags=trace.TraceFlags(int(parts[3], 16)))
        return trace.set_span_in_context(trace.NonRecordingSpan(context), none)

    return parent_of


def _observe(meter: Any, observation: Any) -> None:
    def of(metric: str, read: Callable[[Sample], Iterable[tuple[Any, dict[str, str]]]]) -> list[Callable[[Any], list[Any]]]:
        def observed(_options: Any) -> list[Any]:
            return [observation(value, labels) for sample in metrics() if sample.metric == metric for value, labels in read(sample)]

        return [observed]

    def buckets(sample: Sample) -> Iterator[tuple[int, dict[str, str]]]:
        assert isinstance(sample.value, Histogram)
        for bound, count in (*sample.value.cumulative, ("+Inf", sample.value.count)):
            yield count, {**sample.labels, "le": str(bound)}

    for metric in names():
        if metric.kind == "counter":
            meter.create_observable_counter(metric.name, of(metric.name, lambda s: [(s.value, s.labels)]), description=metric.help)
        elif metric.kind == "gauge":
            meter.create_observable_up_down_counter(metric.name, of(metric.name, lambda s: [(s.value, s.labels)]), description=metric.help)
        else:
            meter.create_observable_counter(f"{metric.name}_bucket", of(metric.name, buckets), description=metric.help)
            meter.create_observable_counter(f"{metric.name}_count", of(metric.name, lambda s: [(s.value.count, s.labels)]))  # type: ignore[union-attr]
            meter.create_observable_counter(f"{metric.name}_sum", of(metric.name, lambda s: [(s.value.sum, s.labels)]), unit="s")  # type: ignore[union-attr]
