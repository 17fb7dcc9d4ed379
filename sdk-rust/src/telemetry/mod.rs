//! What the SDK says about itself: metrics, spans and events, under one list of names for Rust, Python and Node.
//!
//! - **Metrics** go through the `metrics` facade. [`METRICS`] is the list; `docs/telemetry.md` shows it. Handles are made when a limiter, a
//!   lock or a policy is made, so install the recorder first: what was made before stays silent. Without a recorder a count is one
//!   comparison. [`MetricCounts`] is a recorder that keeps what is counted in this process, to be read at any time: the other languages do.
//! - **Spans** go through `tracing`, at debug level: one for each call of a primitive, `resil.limiter` to `resil.worker`, with the fields
//!   `name`, `operation`, `outcome`, and for errors `error.type` and `otel.status_code`.
//! - **Events** are [`Event`]s, for [`subscribe`] and [`Hooks`].
//!
//! # What is never said
//! Keys, payloads, owners, tokens and passwords. Labels are the name of a handle, the primitive, and words of a fixed list. Names of locks and of
//! shared bulkheads are often made of ids, and have no end, so their `name` is `default` unless they are given one: `Lock::labelled`,
//! `SharedBulkhead::labelled`.

mod call;
mod counts;
mod event;
mod hooks;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use metrics::{Counter, Gauge, Histogram};

pub(crate) use self::call::{CallEnding, CallWatch, watch, watched};
pub use self::counts::{BUCKETS_SECONDS, MetricCounts, MetricSample, MetricValue};
#[doc(hidden)]
pub use self::event::subscribe_at_home;
pub use self::event::{CallEnded, Event, Interest, Subscribed, subscribe};
pub(crate) use self::event::{Home, emit};
pub use self::hooks::Hooks;

/// What a policy is called in metrics until it is given a name.
pub(crate) const UNNAMED: &str = "default";

/// Of what kind a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    /// Of seconds.
    Histogram,
}

impl MetricKind {
    pub fn text(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One line of the list.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    pub name: &'static str,
    pub kind: MetricKind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

/// What a call is made of: the label `primitive`, and the name of its span behind `resil.`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Primitive {
    Limiter,
    Breaker,
    Lock,
    /// Of this process.
    Bulkhead,
    SharedBulkhead,
    Idempotency,
    Cache,
    DeadLetters,
    Policy,
    Worker,
}

impl Primitive {
    pub const ALL: [Self; 10] = [
        Self::Limiter,
        Self::Breaker,
        Self::Lock,
        Self::Bulkhead,
        Self::SharedBulkhead,
        Self::Idempotency,
        Self::Cache,
        Self::DeadLetters,
        Self::Policy,
        Self::Worker,
    ];

    pub fn text(self) -> &'static str {
        match self {
            Self::Limiter => "limiter",
            Self::Breaker => "breaker",
            Self::Lock => "lock",
            Self::Bulkhead => "bulkhead",
            Self::SharedBulkhead => "shared_bulkhead",
            Self::Idempotency => "idempotency",
            Self::Cache => "cache",
            Self::DeadLetters => "dead_letters",
            Self::Policy => "policy",
            Self::Worker => "worker",
        }
    }
}

fn label(name: &Arc<str>) -> metrics::SharedString {
    metrics::SharedString::from(Arc::clone(name))
}

/// The list of metrics, and one function for each: `kind function(labels) -> handle = name, help`. Every one has the label `name`; the others
/// are words of a fixed list.
macro_rules! metrics {
    ($($kind:ident $function:ident($($label:ident),*) -> $handle:ident = $metric:literal, $help:literal;)*) => {
        /// All metrics there are.
        pub const METRICS: &[Metric] = &[$(Metric {
            name: $metric,
            kind: MetricKind::$handle,
            labels: &["name" $(, stringify!($label))*],
            help: $help,
        }),*];

        $(#[allow(dead_code, reason = "some are of features")]
        pub(crate) fn $function(name: &Arc<str> $(, $label: &'static str)*) -> $handle {
            metrics::$kind!($metric, "name" => label(name) $(, stringify!($label) => $label)*)
        })*
    };
}

metrics! {
    counter granted(primitive) -> Counter = "resil_granted_total", "Calls that were let through.";
    counter denied(primitive) -> Counter = "resil_denied_total", "Calls that were refused before they began: limited, open, full, not free in time.";
    counter unavailable(primitive) -> Counter = "resil_unavailable_total", "Calls that were refused because no server answered.";
    counter decided_locally(primitive) -> Counter = "resil_decided_locally_total", "Calls that were decided without the server, because it was away.";
    histogram wait_seconds(primitive) -> Histogram = "resil_wait_seconds", "Waited: from asking until it was granted.";
    counter lost(primitive) -> Counter = "resil_lost_total", "Locks and permits that ended before they were released.";
    histogram held_seconds(primitive) -> Histogram = "resil_held_seconds", "From the grant until it was released or lost.";
    counter retried() -> Counter = "resil_retried_total", "Attempts after the first.";
    counter retries_given_up(reason) -> Counter = "resil_retries_given_up_total", "Calls that failed although the error may be retried. reason: attempts, budget, deadline, retry_after, open.";
    counter hedged() -> Counter = "resil_hedged_total", "Extra calls that were begun because the first was late.";
    counter hedges_won() -> Counter = "resil_hedges_won_total", "Extra calls whose result was used.";
    counter timed_out(scope) -> Counter = "resil_timed_out_total", "Calls that were cut off. scope: attempt, total.";
    counter opened() -> Counter = "resil_opened_total", "Circuits that this process saw open.";
    counter breaker_transitions() -> Counter = "resil_breaker_transitions_total", "Changes of a circuit's state that this process saw.";
    counter fallbacks() -> Counter = "resil_fallbacks_total", "Failures that a fallback answered.";
    histogram call_seconds(outcome) -> Histogram = "resil_call_seconds", "Calls through a whole policy. outcome: ok, error, exhausted, timeout, refused, cancelled.";
    gauge in_flight() -> Gauge = "resil_in_flight", "Commands that wait for the reply of the server.";
    histogram round_trip_seconds() -> Histogram = "resil_round_trip_seconds", "From a command until its reply. One command in 16 is timed.";
    gauge away() -> Gauge = "resil_away", "Clients whose server is away.";
    counter gone_away() -> Counter = "resil_gone_away_total", "Times that a server went away.";
    counter reconnects() -> Counter = "resil_reconnects_total", "Connections that were made again.";
    gauge bulkhead_active() -> Gauge = "resil_bulkhead_active", "Calls that are running in a bulkhead of this process.";
    gauge bulkhead_queued() -> Gauge = "resil_bulkhead_queued", "Calls that wait for their turn in a bulkhead of this process.";
    counter idempotent_calls(outcome) -> Counter = "resil_idempotent_calls_total", "Idempotent calls. outcome: ran, unrecorded, failed, replayed, busy, mismatch, held, lost, unavailable, error, cancelled.";
    histogram idempotent_run_seconds() -> Histogram = "resil_idempotent_run_seconds", "Idempotent functions that ran to their end.";
    counter once(answer) -> Counter = "resil_once_total", "Events that were asked for with once. answer: first, again.";
    counter cache_gets(outcome) -> Counter = "resil_cache_gets_total", "Gets of a cache. outcome: local, hit, stale, miss, error.";
    counter cache_loads(outcome) -> Counter = "resil_cache_loads_total", "Loaders that ran here. outcome: found, not_found, error, timeout.";
    histogram cache_load_seconds() -> Histogram = "resil_cache_load_seconds", "How long loaders took.";
    counter worker_messages(outcome) -> Counter = "resil_worker_messages_total", "Messages of a worker. outcome: done, retried, dead, dropped, given_back, known, stale, unsettled.";
    histogram worker_handler_seconds() -> Histogram = "resil_worker_handler_seconds", "How long handlers took.";
    gauge worker_running() -> Gauge = "resil_worker_running", "Messages that are being handled.";
    counter worker_pauses(reason) -> Counter = "resil_worker_pauses_total", "Times that a worker stopped taking messages. reason: handler, ledger.";
    counter worker_connections() -> Counter = "resil_worker_connections_total", "Connections that the source of a worker made.";
    counter published(outcome) -> Counter = "resil_published_total", "Messages of a publisher. outcome: confirmed, unroutable, failed, retried.";
}

/// What is counted of whatever grants and denies.
#[derive(Debug, Clone)]
pub(crate) struct VerdictMeters {
    pub granted: Counter,
    pub denied: Counter,
    pub locally: Counter,
}

impl VerdictMeters {
    pub fn new(primitive: Primitive, name: &Arc<str>) -> Self {
        let primitive = primitive.text();
        Self {
            granted: granted(name, primitive),
            denied: denied(name, primitive),
            locally: decided_locally(name, primitive),
        }
    }
}

/// What is counted of holdings of one kind.
#[derive(Debug)]
pub(crate) struct HoldingMeters {
    pub primitive: Primitive,
    pub name: Arc<str>,
    pub verdicts: VerdictMeters,
    pub unavailable: Counter,
    pub lost: Counter,
    pub wait: Histogram,
    pub held: Histogram,
}

impl HoldingMeters {
    pub fn new(primitive: Primitive, name: &Arc<str>) -> Self {
        let text = primitive.text();
        Self {
            primitive,
            name: Arc::clone(name),
            verdicts: VerdictMeters::new(primitive, name),
            unavailable: unavailable(name, text),
            lost: lost(name, text),
            wait: wait_seconds(name, text),
            held: held_seconds(name, text),
        }
    }
}

/// What is counted of the connection of a client.
#[derive(Debug)]
#[cfg_attr(not(feature = "redis"), allow(dead_code))]
pub(crate) struct LinkMeters {
    pub in_flight: Gauge,
    pub round_trip: Histogram,
    pub away: Gauge,
    pub gone_away: Counter,
    pub reconnects: Counter,
    /// Commands that were sent.
    pub asked: AtomicU32,
}

#[cfg_attr(not(feature = "redis"), allow(dead_code))]
impl LinkMeters {
    pub fn new(name: Option<&str>) -> Self {
        let name = name.unwrap_or(UNNAMED).into();
        Self {
            in_flight: in_flight(&name),
            round_trip: round_trip_seconds(&name),
            away: away(&name),
            gone_away: gone_away(&name),
            reconnects: reconnects(&name),
            asked: AtomicU32::new(0),
        }
    }
}
