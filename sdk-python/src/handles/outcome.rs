//! What a function knows of its run, and how the work came out.

use resil::idempotency::{Outcome, RecordedState, Run};

use crate::prelude::*;

/// What a function knows of its run, if it asks for it (`with_run=True`).
#[pyclass(module = "resil", name = "Run", frozen, get_all)]
pub struct PyRun {
    /// Goes to the store of the effect, which refuses numbers below the highest it has seen.
    fence: Option<u64>,
    /// 1 the first time. Above it, an earlier run fell silent, and may have had its effect: look before doing it again.
    attempt: Option<u32>,
    /// Whether the server vouches that nobody has begun this work before.
    is_first: bool,
    /// Set when the lease is lost.
    lost: Py<Lost>,
}

impl PyRun {
    pub fn of(py: Python<'_>, run: &Run) -> PyResult<Object> {
        let lost = Py::new(py, Lost::of_run(run.lost().clone(), Generation::now()))?;
        let (fence, attempt, is_first) = (run.fence(), run.attempt(), run.is_first());
        Self { fence, attempt, is_first, lost }.into_py_any(py)
    }
}

/// How the work came out.
#[pyclass(module = "resil", name = "Outcome", frozen, generic, get_all)]
pub struct PyOutcome {
    /// The result.
    pub value: Object,
    /// Whether it was done before, and this is what came of it.
    replayed: bool,
    /// Which attempt this was; 0 for a replay.
    attempt: u32,
    /// How long ago a replayed result was recorded, in seconds.
    age: f64,
    /// False if the work is done but the server could not record it.
    recorded: bool,
}

impl PyOutcome {
    pub fn of<T>(value: Object, outcome: &Outcome<T>) -> Self {
        let Outcome { replayed, attempt, age, recorded, .. } = *outcome;
        Self { value, replayed, attempt, age: age.as_secs_f64(), recorded }
    }
}

#[pymethods]
impl PyOutcome {
    fn __repr__(&self) -> String {
        format!("<resil.Outcome replayed={}>", python_bool(self.replayed))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.value)
    }
}

/// What is known of a key, as a dict.
pub fn known(py: Python<'_>, known: RecordedState) -> PyResult<Object> {
    let dict = PyDict::new(py);
    match known {
        RecordedState::Unknown => dict.set_item("state", "unknown")?,
        RecordedState::Running { attempt, remaining } => {
            dict.set_item("state", "running")?;
            dict.set_item("attempt", attempt)?;
            dict.set_item("remaining", remaining.as_secs_f64())?;
        }
        RecordedState::Done { result, is_error, age } => {
            dict.set_item("state", "done")?;
            dict.set_item("result", result.map(|result| PyBytes::new(py, &result)))?;
            dict.set_item("is_error", is_error)?;
            dict.set_item("age", age.as_secs_f64())?;
        }
        RecordedState::Held { attempt } => {
            dict.set_item("state", "held")?;
            dict.set_item("attempt", attempt)?;
        }
    }
    Ok(dict.into_any().unbind())
}
