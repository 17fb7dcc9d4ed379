//! What is counted and what happens, on its way to Python: `resil.telemetry` makes metrics, spans and log lines of it.
//!
//! MetricCounts are kept by the SDK, and read when somebody asks: no call takes the GIL for them. Events go through the queue of `listeners`, and only
//! while somebody listens.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

use resil::Code;
use resil::telemetry::{
    CallEnded, Event, Interest, METRICS, MetricCounts, MetricValue, Primitive, Subscribed, subscribe,
};

use crate::prelude::*;

static COUNTS: OnceLock<MetricCounts> = OnceLock::new();

/// From the import on, so that whatever is made is counted.
pub fn begin_counting() {
    let counts = COUNTS.get_or_init(MetricCounts::new);
    // The facade is this library's own; a second import finds the first one's recorder.
    let _ = metrics::set_global_recorder(counts.clone());
}

/// Name, kind, labels and meaning of every metric.
#[pyfunction]
pub fn metric_names(py: Python<'_>) -> PyResult<Object> {
    let all = METRICS.iter().map(|metric| (metric.name, metric.kind.text(), metric.labels.to_vec(), metric.help));
    all.collect::<Vec<_>>().into_py_any(py)
}

/// The upper bounds of the buckets of histograms.
#[pyfunction]
pub fn metric_buckets() -> Vec<f64> {
    resil::telemetry::BUCKETS_SECONDS.to_vec()
}

/// Every series that moved: metric, labels, and a number, or of a histogram its cumulative buckets, count and sum.
#[pyfunction]
pub fn read_metrics(py: Python<'_>) -> PyResult<Object> {
    // Without the GIL: it waits while a handle is made.
    let samples = py.detach(|| COUNTS.get().map(MetricCounts::read).unwrap_or_default());
    let mut all = Vec::with_capacity(samples.len());
    for sample in samples {
        let labels = PyDict::new(py);
        for (label, value) in &sample.labels {
            labels.set_item(label, value)?;
        }
        let value = match sample.value {
            MetricValue::Counter(count) => count.into_py_any(py)?,
            MetricValue::Gauge(level) => level.into_py_any(py)?,
            MetricValue::Histogram { cumulative, count, sum_seconds } => {
                (cumulative, count, sum_seconds).into_py_any(py)?
            }
        };
        all.push((sample.metric, labels.unbind(), value));
    }
    all.into_py_any(py)
}

/// How many make spans of calls.
static SPANS: AtomicUsize = AtomicUsize::new(0);

pub fn makes_spans() -> bool {
    SPANS.load(Ordering::Relaxed) > 0
}

/// A function that hears of events, on the thread of listeners, until this is closed.
#[pyclass(frozen)]
pub struct EventSubscription(Mutex<Option<OfProcess<(Subscribed, Spans)>>>);

/// MetricCounts one who makes spans.
struct Spans(usize);

impl Drop for Spans {
    fn drop(&mut self) {
        SPANS.fetch_sub(self.0, Ordering::Relaxed);
    }
}

#[pymethods]
impl EventSubscription {
    fn close(&self) {
        let subscribed = self.0.lock().take();
        drop(subscribed);
    }
}

/// `hear("calls", tuples)` for calls that ended, some milliseconds' worth at once; or `hear(kind, fields)` for everything else that happens.
#[pyfunction]
pub fn subscribe_events(py: Python<'_>, calls: bool, hear: Object) -> PyResult<EventSubscription> {
    listeners::begin(py)?;
    let interest = if calls { Interest::Calls } else { Interest::Happenings };
    let (hear, generation) = (Arc::new(hear), Generation::now());
    let subscribed = subscribe(interest, move |event| {
        // A child of a fork has listeners of its own.
        if generation.is_here() {
            listeners::happened(&hear, event);
        }
    });
    let spans = Spans(usize::from(calls));
    SPANS.fetch_add(spans.0, Ordering::Relaxed);
    Ok(EventSubscription(Mutex::new(Some(OfProcess::new((subscribed, spans))))))
}

/// What the calls of one kind have in common.
type CallKind<'a> = (&'a str, Primitive, &'static str, &'static str, Option<Code>, bool);

/// Calls that ended, a tuple for each: name, primitive, operation, outcome, code of the error, whether it is one, when it began and how long it
/// took in nanoseconds, and the context of the caller. Tuples, because a dict costs more than the event itself; and texts that many of them
/// share, because to make them anew costs more than all else.
pub fn shown_calls(py: Python<'_>, calls: &[CallEnded]) -> PyResult<Vec<Object>> {
    let nanos = |span: std::time::Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    let mut kinds: HashMap<CallKind<'_>, [Object; 6]> = HashMap::new();
    let mut last_parent: Option<(&Arc<str>, Object)> = None;
    let mut shown = Vec::with_capacity(calls.len());
    for CallEnded { name, primitive, operation, outcome, error, is_error, began, took, parent, .. } in calls {
        let kind = match kinds.entry((name, *primitive, operation, outcome, *error, *is_error)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert([
                (&**name).into_py_any(py)?,
                primitive.text().into_py_any(py)?,
                (*operation).into_py_any(py)?,
                (*outcome).into_py_any(py)?,
                error.map(Code::text).into_py_any(py)?,
                is_error.into_py_any(py)?,
            ]),
        };
        // Calls of one caller come one after another.
        let parent = match (parent, &last_parent) {
            (None, _) => py.None(),
            (Some(parent), Some((last, shown))) if parent == *last => shown.clone_ref(py),
            (Some(parent), _) => last_parent.insert((parent, (&**parent).into_py_any(py)?)).1.clone_ref(py),
        };
        let [name, primitive, operation, outcome, error, is_error] = &*kind;
        let began = nanos(began.duration_since(UNIX_EPOCH).unwrap_or_default());
        let all = (name, primitive, operation, outcome, error, is_error, began, nanos(*took), parent);
        shown.push(all.into_py_any(py)?);
    }
    Ok(shown)
}

/// The kind of an event that is no call, and its fields.
pub fn shown_event(py: Python<'_>, event: &Event) -> PyResult<(&'static str, Py<PyDict>)> {
    let fields = PyDict::new(py);
    let set = |name: &str, value: Object| fields.set_item(name, value);
    if let Some(name) = event.name() {
        set("name", (&**name).into_py_any(py)?)?;
    }
    let kind = match event {
        Event::Retry { attempt, delay, .. } => {
            set("attempt", attempt.into_py_any(py)?)?;
            set("delay", delay.as_secs_f64().into_py_any(py)?)?;
            "before_sleep"
        }
        Event::Hedge { .. } => "on_hedge",
        Event::Timeout { scope, after, .. } => {
            set("scope", scope.into_py_any(py)?)?;
            set("after", after.as_secs_f64().into_py_any(py)?)?;
            "on_timeout"
        }
        Event::Transition { previous, new, generation, .. } => {
            set("previous", previous.text().into_py_any(py)?)?;
            set("new", new.text().into_py_any(py)?)?;
            set("generation", generation.into_py_any(py)?)?;
            if *new == resil::breaker::State::Open { "on_open" } else { "on_transition" }
        }
        Event::Lost { primitive, reason, .. } => {
            set("primitive", primitive.text().into_py_any(py)?)?;
            set("reason", reason.into_py_any(py)?)?;
            "on_lost"
        }
        Event::Dropped { id, reason, .. } => {
            set("id", id.into_py_any(py)?)?;
            set("reason", reason.into_py_any(py)?)?;
            "on_drop"
        }
        Event::Dead { id, deaths, reason, .. } => {
            set("id", id.into_py_any(py)?)?;
            set("deaths", deaths.into_py_any(py)?)?;
            set("reason", reason.into_py_any(py)?)?;
            "on_dead"
        }
        Event::Outlived { took, .. } => {
            set("took", took.as_secs_f64().into_py_any(py)?)?;
            "on_outlived"
        }
        Event::Away { address, reason } => {
            set("address", address.into_py_any(py)?)?;
            set("reason", reason.into_py_any(py)?)?;
            "on_away"
        }
        Event::Refused { address, reason } => {
            set("address", address.into_py_any(py)?)?;
            set("reason", reason.into_py_any(py)?)?;
            "on_refused"
        }
        Event::Back { address } => {
            set("address", address.into_py_any(py)?)?;
            "on_back"
        }
        _ => "other",
    };
    Ok((kind, fields.unbind()))
}
