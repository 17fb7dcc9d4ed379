//! The trace that a call belongs to: reports to a breaker carry its id, so that the event of a transition leads to the request that
//! tripped the circuit.
//!
//! OpenTelemetry is not needed, and not imported: whoever has a current span has imported it.

use pyo3::sync::PyOnceLock;
use resil::correlation::correlated;

use crate::prelude::*;

static CURRENT: PyOnceLock<Object> = PyOnceLock::new();

/// `running` under the trace of whoever calls here.
pub fn traced(py: Python<'_>, running: Running) -> Running {
    match trace_id(py) {
        Some(id) => Box::pin(correlated(id, running)),
        None => running,
    }
}

/// The id of the current span's trace. What goes wrong with it is no reason to fail a call.
fn trace_id(py: Python<'_>) -> Option<String> {
    let current = match CURRENT.get(py) {
        Some(current) => current,
        None => found(py)?,
    };
    let told = current.bind(py).call0().ok()?;
    if told.is_none() { None } else { told.extract().ok() }
}

/// `None` until somebody has imported OpenTelemetry.
fn found(py: Python<'_>) -> Option<&Object> {
    let modules = imported!(py, "sys", "modules").ok()?;
    modules.contains(intern!(py, "opentelemetry.trace")).ok().filter(|is_there| *is_there)?;
    CURRENT.import(py, "resil._functions", "trace_id").ok()?;
    CURRENT.get(py)
}
