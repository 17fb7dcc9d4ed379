//! What is counted and what happens, on its way to JavaScript: `lib/telemetry.js` makes metrics, spans, channels and hooks of it.
//!
//! MetricCounts are kept by the SDK, and read when somebody asks. Events are made while somebody listens, and go to the queue of one thread: the
//! one that made the call, or the one whose client it is about. No thread hears of another's.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::UNIX_EPOCH;

use napi::bindgen_prelude::{Array, Env, Float64Array, Object};
use napi_derive::napi;
use parking_lot::Mutex;
use resil::Code;
use resil::telemetry::{
    CallEnded, Event, Interest, METRICS, MetricCounts, MetricValue, Primitive, Subscribed, subscribe_at_home,
};

use crate::executor::queue::{Message, Notification, Queue};
use crate::executor::{is_here, queue};

/// Under this number JavaScript hears of events.
pub const EVENTS: u32 = 1;

static COUNTS: OnceLock<MetricCounts> = OnceLock::new();
/// Threads that opened, by their homes.
static HOMES: Mutex<BTreeMap<u64, Weak<Queue>>> = Mutex::new(BTreeMap::new());
static LAST_HOME: AtomicU64 = AtomicU64::new(0);

/// A thread opens: whatever is made from now on is counted, and its events have a home.
pub fn begin(queue: &Arc<Queue>) -> u64 {
    let counts = COUNTS.get_or_init(MetricCounts::new);
    // The facade is this library's own; the second thread finds the first one's recorder.
    let _ = metrics::set_global_recorder(counts.clone());
    let home = LAST_HOME.fetch_add(1, Ordering::Relaxed) + 1;
    let mut homes = HOMES.lock();
    homes.retain(|_, queue| queue.strong_count() > 0);
    homes.insert(home, Arc::downgrade(queue));
    home
}

/// Events for the thread that made this, until it is dropped.
#[napi]
pub struct Events(Option<Subscribed>);

/// Calls, or everything else that happens.
#[napi]
pub fn subscribe_events(calls: bool) -> napi::Result<Events> {
    let (mine, interest) = (queue()?, if calls { Interest::Calls } else { Interest::Happenings });
    let mine = Arc::downgrade(&mine);
    let subscribed = subscribe_at_home(interest, move |event, home| {
        let Some(mine) = mine.upgrade() else { return };
        if is_for(&mine, home) {
            match event {
                Event::Call(call) => mine.post_call(call.clone()),
                event => {
                    let is_frequent =
                        matches!(event, Event::Retry { .. } | Event::Hedge { .. } | Event::Timeout { .. });
                    let notification = Notification::Event(Box::new(event.clone()));
                    mine.post_event(Message::Notify(EVENTS, notification), is_frequent);
                }
            }
        }
    });
    Ok(Events(Some(subscribed)))
}

#[napi]
impl Events {
    #[napi]
    pub fn close(&mut self) {
        self.0 = None;
    }
}

/// Whether an event belongs to the thread of this queue: it happened there, or to a client of it. What no thread made, and no client, is for the first.
fn is_for(mine: &Arc<Queue>, home: Option<u64>) -> bool {
    if let Some(is_here) = is_here(mine) {
        return is_here;
    }
    let homes = HOMES.lock();
    let at = |queue: Option<&Weak<Queue>>| queue.is_some_and(|queue| Weak::as_ptr(queue) == Arc::as_ptr(mine));
    match home {
        Some(home) => at(homes.get(&home)),
        None => at(homes.values().find(|queue| queue.strong_count() > 0)),
    }
}

/// Name, kind, labels and meaning of every metric, one after the other.
#[napi]
pub fn metric_names() -> Vec<Vec<String>> {
    let line = |metric: &resil::telemetry::Metric| {
        let labels = metric.labels.join(",");
        vec![metric.name.to_owned(), metric.kind.text().to_owned(), labels, metric.help.to_owned()]
    };
    METRICS.iter().map(line).collect()
}

/// The upper bounds of the buckets of histograms.
#[napi]
pub fn metric_buckets() -> Vec<f64> {
    resil::telemetry::BUCKETS_SECONDS.to_vec()
}

/// Every series that moved.
#[napi]
pub fn read_metrics(env: &Env) -> napi::Result<Array<'_>> {
    crate::cached::count_answered();
    let samples = COUNTS.get().map(MetricCounts::read).unwrap_or_default();
    let mut all = env.create_array(0)?;
    for (at, sample) in samples.into_iter().enumerate() {
        let (mut object, mut labels) = (Object::new(env)?, Object::new(env)?);
        for (label, value) in &sample.labels {
            labels.set(label, value)?;
        }
        object.set("metric", sample.metric)?;
        object.set("labels", labels)?;
        match sample.value {
            MetricValue::Counter(count) => object.set("value", count as f64)?,
            MetricValue::Gauge(level) => object.set("value", level as f64)?,
            MetricValue::Histogram { cumulative, count, sum_seconds } => {
                let mut histogram = Object::new(env)?;
                histogram.set("cumulative", cumulative.into_iter().map(|count| count as f64).collect::<Vec<_>>())?;
                histogram.set("count", count as f64)?;
                histogram.set("sum", sum_seconds)?;
                object.set("value", histogram)?;
            }
        }
        all.set(u32::try_from(at).unwrap_or(u32::MAX), object)?;
    }
    Ok(all)
}

/// The calls that ended and were not reported yet: at the end of the process, and when a listener is removed.
#[napi]
pub fn take_calls(env: &Env) -> napi::Result<Object<'_>> {
    shown_calls(env, &queue()?.drain_calls())
}

/// What the calls of one kind have in common.
type CallKind<'a> = (&'a str, Primitive, &'static str, &'static str, Option<Code>, bool);

/// The report of calls that ended, as `lib/telemetry.js` reads it. Texts cost more than all else, and few of them differ: `kinds` has what
/// calls have in common, six values for each kind; `parents` the contexts of callers; `numbers` four for each call: its kind, its parent or -1,
/// when it began and how long it took.
pub fn shown_calls<'env>(env: &'env Env, calls: &[CallEnded]) -> napi::Result<Object<'env>> {
    let mut kinds: HashMap<CallKind<'_>, usize> = HashMap::new();
    let mut shown_kinds = env.create_array(0)?;
    let (mut parents, mut last_parent): (Vec<&str>, Option<&Arc<str>>) = (Vec::new(), None);
    let mut numbers = Vec::with_capacity(calls.len() * 4);
    for CallEnded { name, primitive, operation, outcome, error, is_error, began, took, parent } in calls {
        let count = kinds.len();
        let kind = match kinds.entry((name, *primitive, operation, outcome, *error, *is_error)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let at = (count * 6) as u32;
                shown_kinds.set(at, &**name)?;
                shown_kinds.set(at + 1, primitive.text())?;
                shown_kinds.set(at + 2, *operation)?;
                shown_kinds.set(at + 3, *outcome)?;
                shown_kinds.set(at + 4, *is_error)?;
                shown_kinds.set(at + 5, error.map(Code::text))?;
                *new.insert(count)
            }
        };
        // Calls of one caller come one after another.
        if let Some(parent) = parent
            && last_parent != Some(parent)
        {
            parents.push(parent);
            last_parent = Some(parent);
        }
        let parent = if parent.is_some() { parents.len() as f64 - 1.0 } else { -1.0 };
        let began = began.duration_since(UNIX_EPOCH).unwrap_or_default();
        numbers.extend([kind as f64, parent, began.as_secs_f64() * 1e3, took.as_secs_f64() * 1e3]);
    }
    let mut object = Object::new(env)?;
    object.set("kinds", shown_kinds)?;
    object.set("parents", parents)?;
    object.set("numbers", Float64Array::new(numbers))?;
    Ok(object)
}

/// The kind of an event that is no call, and its fields.
pub fn shown<'env>(env: &'env Env, event: &Event) -> napi::Result<Object<'env>> {
    let mut object = Object::new(env)?;
    if let Some(name) = event.name() {
        object.set("name", &**name)?;
    }
    let kind = match event {
        Event::Retry { attempt, delay, .. } => {
            object.set("attempt", *attempt)?;
            object.set("delayMs", delay.as_secs_f64() * 1e3)?;
            "beforeSleep"
        }
        Event::Hedge { .. } => "onHedge",
        Event::Timeout { scope, after, .. } => {
            object.set("scope", *scope)?;
            object.set("afterMs", after.as_secs_f64() * 1e3)?;
            "onTimeout"
        }
        Event::Transition { previous, new, generation, .. } => {
            object.set("previous", previous.text())?;
            object.set("new", new.text())?;
            object.set("generation", *generation as f64)?;
            if *new == resil::breaker::State::Open { "onOpen" } else { "onTransition" }
        }
        Event::Lost { primitive, reason, .. } => {
            object.set("primitive", primitive.text())?;
            object.set("reason", *reason)?;
            "onLost"
        }
        Event::Dropped { id, reason, .. } => {
            object.set("id", id.as_str())?;
            object.set("reason", reason.as_str())?;
            "onDrop"
        }
        Event::Dead { id, deaths, reason, .. } => {
            object.set("id", id.as_str())?;
            object.set("deaths", *deaths)?;
            object.set("reason", *reason)?;
            "onDead"
        }
        Event::Outlived { took, .. } => {
            object.set("tookMs", took.as_secs_f64() * 1e3)?;
            "onOutlived"
        }
        Event::Away { address, reason } | Event::Refused { address, reason } => {
            object.set("address", address.as_str())?;
            object.set("reason", reason.as_str())?;
            if matches!(event, Event::Away { .. }) { "onAway" } else { "onRefused" }
        }
        Event::Back { address } => {
            object.set("address", address.as_str())?;
            "onBack"
        }
        _ => "other",
    };
    object.set("kind", kind)?;
    Ok(object)
}
