//! What a function is told about its run, and how the work came out.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyo3::{PyTraverseError, PyVisit};
use resil::idempotency::{Known, Outcome, Run};

use crate::lost::Lost;
use crate::runtime::Generation;

/// What a function is told about its run, if it asks for it (`with_run=True`).
#[pyclass(module = "resil", name = "Run", frozen)]
pub struct PyRun {
    pub run: Run,
    pub generation: Generation,
}

#[pymethods]
impl PyRun {
    /// Goes to the store of the effect, which refuses numbers below the highest it has seen.
    #[getter]
    fn fence(&self) -> Option<u64> {
        self.run.fence()
    }

    /// 1 the first time. Above it, an earlier run fell silent, and may have had its effect: look before doing it again.
    #[getter]
    fn attempt(&self) -> Option<u32> {
        self.run.attempt()
    }

    /// Whether the server vouches that nobody has begun this work before.
    #[getter]
    fn is_first(&self) -> bool {
        self.run.is_first()
    }

    /// Set when the lease is lost.
    #[getter]
    fn lost(&self) -> Lost {
        Lost::of_run(self.run.lost().clone(), self.generation)
    }
}

/// How the work came out.
#[pyclass(module = "resil", name = "Outcome", frozen, generic)]
pub struct PyOutcome {
    pub value: Py<PyAny>,
    pub told: Outcome<()>,
}

#[pymethods]
impl PyOutcome {
    /// The result.
    #[getter]
    fn value(&self, py: Python<'_>) -> Py<PyAny> {
        self.value.clone_ref(py)
    }

    /// Whether it was done before, and this is what came of it.
    #[getter]
    fn replayed(&self) -> bool {
        self.told.replayed
    }

    /// Which attempt this was; 0 for a replay.
    #[getter]
    fn attempt(&self) -> u32 {
        self.told.attempt
    }

    /// How long ago a replayed result was recorded, in seconds.
    #[getter]
    fn age(&self) -> f64 {
        self.told.age.as_secs_f64()
    }

    /// False if the work is done but the server could not be told.
    #[getter]
    fn recorded(&self) -> bool {
        self.told.recorded
    }

    fn __repr__(&self) -> String {
        format!("<resil.Outcome replayed={}>", self.told.replayed)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.value)
    }
}

/// What is known of a key, as a dict.
pub fn known(py: Python<'_>, known: Known) -> PyResult<Py<PyAny>> {
    let dict = PyDict::new(py);
    match known {
        Known::Nothing => dict.set_item("state", "nothing")?,
        Known::Running { attempt, remaining } => {
            dict.set_item("state", "running")?;
            dict.set_item("attempt", attempt)?;
            dict.set_item("remaining", remaining.as_secs_f64())?;
        }
        Known::Done { result, is_error, age } => {
            dict.set_item("state", "done")?;
            dict.set_item("result", result.map(|result| PyBytes::new(py, &result)))?;
            dict.set_item("is_error", is_error)?;
            dict.set_item("age", age.as_secs_f64())?;
        }
        Known::Held { attempt } => {
            dict.set_item("state", "held")?;
            dict.set_item("attempt", attempt)?;
        }
    }
    Ok(dict.into_any().unbind())
}
