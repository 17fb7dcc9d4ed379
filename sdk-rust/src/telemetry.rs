//! The names of all metrics and events, in one place.
//!
//! Metrics go through the `metrics` facade. Handles are made when a policy is made, so install the recorder first: what
//! was made before stays silent. Without a recorder a count is one comparison.
//!
//! | name | kind | labels | what it counts |
//! | --- | --- | --- | --- |
//! | `resil_retries_total` | counter | `name` | attempts after the first |
//! | `resil_retries_given_up_total` | counter | `name`, `reason` (`attempts`, `budget`, `deadline`, `retry_after`) | calls that failed although the error may be retried |
//! | `resil_hedges_total` | counter | `name` | extra calls that were begun |
//! | `resil_hedges_won_total` | counter | `name` | extra calls whose answer was used |
//! | `resil_timeouts_total` | counter | `name`, `scope` (`attempt`, `total`) | calls that were cut off |
//! | `resil_rejections_total` | counter | `name`, `policy` | calls that were refused before they began |
//! | `resil_fallbacks_total` | counter | `name` | failures that were answered by a fallback |
//! | `resil_breaker_transitions_total` | counter | `name` | changes of a circuit's state seen by this process |
//! | `resil_call_seconds` | histogram | `name`, `outcome` (`ok`, `error`, `exhausted`, `timeout`, `refused`, `cancelled`) | calls through a whole policy |
//! | `resil_bulkhead_active` | gauge | `name` | calls that are running |
//! | `resil_bulkhead_queued` | gauge | `name` | calls that wait for their turn |
//!
//! Events of `tracing` are at debug level and carry the policy's name: `resil.retry`, `resil.retry.given_up`,
//! `resil.hedge`, `resil.timeout`, `resil.reject`, `resil.fallback`. A whole policy opens a span `resil.policy` per call,
//! at debug level, with its name. A circuit's `resil.breaker.transition` is at info level.

use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram};

/// What a policy is called in metrics until it is given a name.
pub(crate) const UNNAMED: &str = "default";

fn label(name: &Arc<str>) -> metrics::SharedString {
    metrics::SharedString::from(Arc::clone(name))
}

pub(crate) fn retries(name: &Arc<str>) -> Counter {
    metrics::counter!("resil_retries_total", "name" => label(name))
}

pub(crate) fn retries_given_up(name: &Arc<str>, reason: &'static str) -> Counter {
    metrics::counter!("resil_retries_given_up_total", "name" => label(name), "reason" => reason)
}

pub(crate) fn hedges(name: &Arc<str>) -> Counter {
    metrics::counter!("resil_hedges_total", "name" => label(name))
}

pub(crate) fn hedges_won(name: &Arc<str>) -> Counter {
    metrics::counter!("resil_hedges_won_total", "name" => label(name))
}

pub(crate) fn timeouts(name: &Arc<str>, scope: &'static str) -> Counter {
    metrics::counter!("resil_timeouts_total", "name" => label(name), "scope" => scope)
}

/// `policy` says who refuses: `bulkhead`, `limiter`, `breaker`.
pub(crate) fn rejections(name: &Arc<str>, policy: &'static str) -> Counter {
    metrics::counter!("resil_rejections_total", "name" => label(name), "policy" => policy)
}

pub(crate) fn breaker_transitions(name: &Arc<str>) -> Counter {
    metrics::counter!("resil_breaker_transitions_total", "name" => label(name))
}

pub(crate) fn fallbacks(name: &Arc<str>) -> Counter {
    metrics::counter!("resil_fallbacks_total", "name" => label(name))
}

pub(crate) fn call_seconds(name: &Arc<str>, outcome: &'static str) -> Histogram {
    metrics::histogram!("resil_call_seconds", "name" => label(name), "outcome" => outcome)
}

pub(crate) fn bulkhead_active(name: &Arc<str>) -> Gauge {
    metrics::gauge!("resil_bulkhead_active", "name" => label(name))
}

pub(crate) fn bulkhead_queued(name: &Arc<str>) -> Gauge {
    metrics::gauge!("resil_bulkhead_queued", "name" => label(name))
}
