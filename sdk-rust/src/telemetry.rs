//! The names of all metrics and events, in one place.
//!
//! Metrics go through the `metrics` facade. Handles are made when a policy is made, so install the recorder first: what
//! was made before stays silent. Without a recorder a count is one comparison.
//!
//! | name | kind | labels | what it counts |
//! | --- | --- | --- | --- |
//! | `resil_retries_total` | counter | `name` | attempts after the first |
//! | `resil_retries_given_up_total` | counter | `name`, `reason` (`attempts`, `budget`, `deadline`, `retry_after`, `open`) | calls that failed although the error may be retried |
//! | `resil_hedges_total` | counter | `name` | extra calls that were begun |
//! | `resil_hedges_won_total` | counter | `name` | extra calls whose answer was used |
//! | `resil_timeouts_total` | counter | `name`, `scope` (`attempt`, `total`) | calls that were cut off |
//! | `resil_rejections_total` | counter | `name`, `policy` | calls that were refused before they began |
//! | `resil_fallbacks_total` | counter | `name` | failures that were answered by a fallback |
//! | `resil_breaker_transitions_total` | counter | `name` | changes of a circuit's state seen by this process |
//! | `resil_call_seconds` | histogram | `name`, `outcome` (`ok`, `error`, `exhausted`, `timeout`, `refused`, `cancelled`) | calls through a whole policy |
//! | `resil_bulkhead_active` | gauge | `name` | calls that are running |
//! | `resil_bulkhead_queued` | gauge | `name` | calls that wait for their turn |
//! | `resil_lock_acquired_total` | counter | `name` | grants that were handed to somebody |
//! | `resil_lock_refused_total` | counter | `name`, `reason` (`busy`, `unavailable`) | who asked and got none: not free in time, or no server that answers |
//! | `resil_lock_lost_total` | counter | `name` | holdings that ended before they were let go |
//! | `resil_lock_unprotected_total` | counter | `name` | who was let through without a lock while the server was away |
//! | `resil_lock_wait_seconds` | histogram | `name` | from asking until it was granted |
//! | `resil_lock_held_seconds` | histogram | `name` | from the grant until it was let go or lost |
//! | `resil_shared_bulkhead_acquired_total` | counter | `name` | permits, as with locks |
//! | `resil_shared_bulkhead_refused_total` | counter | `name`, `reason` (`busy`, `unavailable`) | as with locks |
//! | `resil_shared_bulkhead_lost_total` | counter | `name` | as with locks |
//! | `resil_shared_bulkhead_unprotected_total` | counter | `name` | as with locks |
//! | `resil_shared_bulkhead_wait_seconds` | histogram | `name` | as with locks |
//! | `resil_shared_bulkhead_held_seconds` | histogram | `name` | as with locks |
//! | `resil_idempotent_calls_total` | counter | `name`, `outcome` (see below) | calls, each once |
//! | `resil_idempotent_run_seconds` | histogram | `name` | functions that ran to their end |
//! | `resil_once_total` | counter | `name`, `answer` (`first`, `again`) | events that were asked for with `once` |
//! | `resil_cache_gets_total` | counter | `name`, `outcome` (`local`, `hit`, `stale`, `miss`, `error`) | gets, each once: answered by the small tier, by what was known, by what is past its ttl, by a load that was waited for, by an error |
//! | `resil_cache_loads_total` | counter | `name`, `outcome` (`found`, `not_found`, `error`, `timeout`) | loaders that were run here |
//! | `resil_cache_load_seconds` | histogram | `name` | how long they took |
//! | `resil_worker_messages_total` | counter | `name`, `outcome` (see below) | messages of a worker, each once |
//! | `resil_worker_handler_seconds` | histogram | `name` | how long handlers took |
//! | `resil_worker_running` | gauge | `name` | messages that are being handled |
//! | `resil_worker_pauses_total` | counter | `name`, `reason` (`handler`, `ledger`) | times that a worker stopped taking: a handler said so, or the ledger could not be told |
//! | `resil_worker_connections_total` | counter | `name` | connections that a source made |
//! | `resil_published_total` | counter | `name`, `outcome` (`confirmed`, `unroutable`, `failed`, `retried`) | messages of a publisher, each once, and attempts after the first |
//!
//! The outcomes of a message: `done`, `retried`, `dead`, `dropped`, `given_back`, `known` (the ledger has it, or it is parked behind others), `stale` (not
//! ours any more before it began), `unsettled` (its source could not be told, and will deliver it again).
//!
//! The outcomes of an idempotent call: `ran` (and its result is recorded), `unrecorded` (it ran, and no server could be
//! told), `failed` (it ran, and came to an error), `replayed`, `busy`, `mismatch`, `held`, `lost`, `unavailable`, `error`
//! (shutting down, or what is recorded cannot be read), `cancelled` (its caller dropped it).
//!
//! Names of locks and of shared bulkheads are often made of ids, and have no end, so that their `name` is `default` unless
//! they are given one: `Lock::labelled`, `SharedBulkhead::labelled`. A whole policy labels its bulkhead with its own name.
//!
//! Events of `tracing` are at debug level and carry the policy's name: `resil.retry`, `resil.retry.given_up`,
//! `resil.hedge`, `resil.timeout`, `resil.reject`, `resil.fallback`. A whole policy opens a span `resil.policy` per call,
//! at debug level, with its name. A circuit's `resil.breaker.transition` is at info level.

use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram};

use crate::holding::HoldingKind;

/// What a policy is called in metrics until it is given a name.
pub(crate) const UNNAMED: &str = "default";

fn label(name: &Arc<str>) -> metrics::SharedString {
    metrics::SharedString::from(Arc::clone(name))
}

/// One function for each metric: `kind function(label) = name`. The label beside `name`, if there is one, says of what kind a count is.
macro_rules! metrics {
    ($($kind:ident $function:ident($($label:ident)?) -> $handle:ty = $metric:literal;)*) => {
        $(pub(crate) fn $function(name: &Arc<str> $(, $label: &'static str)?) -> $handle {
            metrics::$kind!($metric, "name" => label(name) $(, stringify!($label) => $label)?)
        })*
    };
}

metrics! {
    counter retries() -> Counter = "resil_retries_total";
    counter retries_given_up(reason) -> Counter = "resil_retries_given_up_total";
    counter hedges() -> Counter = "resil_hedges_total";
    counter hedges_won() -> Counter = "resil_hedges_won_total";
    counter timeouts(scope) -> Counter = "resil_timeouts_total";
    counter rejections(policy) -> Counter = "resil_rejections_total";
    counter breaker_transitions() -> Counter = "resil_breaker_transitions_total";
    counter fallbacks() -> Counter = "resil_fallbacks_total";
    histogram call_seconds(outcome) -> Histogram = "resil_call_seconds";
    gauge bulkhead_active() -> Gauge = "resil_bulkhead_active";
    gauge bulkhead_queued() -> Gauge = "resil_bulkhead_queued";
    counter idempotent_calls(outcome) -> Counter = "resil_idempotent_calls_total";
    histogram idempotent_run_seconds() -> Histogram = "resil_idempotent_run_seconds";
    counter once(answer) -> Counter = "resil_once_total";
    counter cache_gets(outcome) -> Counter = "resil_cache_gets_total";
    counter cache_loads(outcome) -> Counter = "resil_cache_loads_total";
    histogram cache_load_seconds() -> Histogram = "resil_cache_load_seconds";
    counter worker_messages(outcome) -> Counter = "resil_worker_messages_total";
    histogram worker_handler_seconds() -> Histogram = "resil_worker_handler_seconds";
    gauge worker_running() -> Gauge = "resil_worker_running";
    counter worker_pauses(reason) -> Counter = "resil_worker_pauses_total";
}

#[cfg(any(feature = "redis", feature = "amqp", feature = "postgres"))]
metrics! {
    counter worker_connections() -> Counter = "resil_worker_connections_total";
}

#[cfg(any(feature = "redis", feature = "amqp"))]
metrics! {
    counter published(outcome) -> Counter = "resil_published_total";
}

/// What is counted of holdings of one kind.
#[derive(Debug)]
pub(crate) struct HoldingMeters {
    pub acquired: Counter,
    pub busy: Counter,
    pub unavailable: Counter,
    pub lost: Counter,
    pub unprotected: Counter,
    pub wait: Histogram,
    pub held: Histogram,
}

impl HoldingMeters {
    pub fn new(kind: HoldingKind, name: &Arc<str>) -> Self {
        let [acquired, refused, lost, unprotected, wait, held] = match kind {
            HoldingKind::Lock => [
                "resil_lock_acquired_total",
                "resil_lock_refused_total",
                "resil_lock_lost_total",
                "resil_lock_unprotected_total",
                "resil_lock_wait_seconds",
                "resil_lock_held_seconds",
            ],
            HoldingKind::Bulkhead => [
                "resil_shared_bulkhead_acquired_total",
                "resil_shared_bulkhead_refused_total",
                "resil_shared_bulkhead_lost_total",
                "resil_shared_bulkhead_unprotected_total",
                "resil_shared_bulkhead_wait_seconds",
                "resil_shared_bulkhead_held_seconds",
            ],
        };
        Self {
            acquired: metrics::counter!(acquired, "name" => label(name)),
            busy: metrics::counter!(refused, "name" => label(name), "reason" => "busy"),
            unavailable: metrics::counter!(refused, "name" => label(name), "reason" => "unavailable"),
            lost: metrics::counter!(lost, "name" => label(name)),
            unprotected: metrics::counter!(unprotected, "name" => label(name)),
            wait: metrics::histogram!(wait, "name" => label(name)),
            held: metrics::histogram!(held, "name" => label(name)),
        }
    }
}
