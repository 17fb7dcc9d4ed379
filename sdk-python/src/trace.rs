//! The trace that a call belongs to, as a W3C `traceparent`: reports to a breaker carry it, so that the event of a transition leads to the
//! request that tripped the circuit, and spans of calls are children of it.
//!
//! OpenTelemetry is not needed, and not imported: a program that has a current span has imported it.

use resil::correlation::correlated;

use crate::prelude::*;

/// `running` under the trace of its caller.
pub fn traced(py: Python<'_>, running: Running) -> Running {
    match traceparent(py) {
        Some(parent) => Box::pin(correlated(parent, running)),
        None => running,
    }
}

/// The same for what only spans are made of: while nobody makes any, nothing is looked for.
pub fn of_caller(py: Python<'_>, running: Running) -> Running {
    if crate::telemetry::makes_spans() { traced(py, running) } else { running }
}

/// Of the current span. What goes wrong with it is no reason to fail a call.
fn traceparent(py: Python<'_>) -> Option<String> {
    if !imported!(py, "sys", "modules").ok()?.contains(intern!(py, "opentelemetry.trace")).ok()? {
        return None;
    }
    imported!(py, "resil._functions", "traceparent").ok()?.call0().ok()?.extract().ok()
}
