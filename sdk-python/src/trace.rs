//! The trace that a call belongs to: reports to a breaker carry its id, so that the event of a transition leads to the request that
//! tripped the circuit.
//!
//! OpenTelemetry is not needed, and not imported: a program that has a current span has imported it.

use resil::correlation::correlated;

use crate::prelude::*;

/// `running` under the trace of its caller.
pub fn traced(py: Python<'_>, running: Running) -> Running {
    match trace_id(py) {
        Some(id) => Box::pin(correlated(id, running)),
        None => running,
    }
}

/// The id of the current span's trace. What goes wrong with it is no reason to fail a call.
fn trace_id(py: Python<'_>) -> Option<String> {
    if !imported!(py, "sys", "modules").ok()?.contains(intern!(py, "opentelemetry.trace")).ok()? {
        return None;
    }
    imported!(py, "resil._functions", "trace_id").ok()?.call0().ok()?.extract().ok()
}
