//! What one item of many came to.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use resil::dispatcher::{ItemError, ItemResult};

use crate::errors::exception;

/// What one item came to.
#[pyclass(module = "resil", name = "ItemResult", frozen, generic)]
pub struct PyItemResult {
    result: PyResult<Py<PyAny>>,
    was_begun: bool,
}

impl PyItemResult {
    pub fn told(py: Python<'_>, result: ItemResult<Py<PyAny>, PyErr>) -> PyResult<Py<Self>> {
        let was_begun = result.as_ref().err().is_none_or(ItemError::was_begun);
        let result = result.map_err(|error| match error {
            ItemError::Failed(error) => error,
            ItemError::Crashed(text) => PyRuntimeError::new_err(text),
            ItemError::Cancelled | ItemError::NotRun => exception(py, &resil::Error::Cancelled),
        });
        Py::new(py, Self { result, was_begun })
    }
}

#[pymethods]
impl PyItemResult {
    #[getter]
    fn is_ok(&self) -> bool {
        self.result.is_ok()
    }

    /// None if there is none.
    #[getter]
    fn value(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.result.as_ref().ok().map(|value| value.clone_ref(py))
    }

    /// The exception, if it failed; CancelledError if it was cancelled or never begun.
    #[getter]
    fn error<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.result.as_ref().err().map(|error| error.value(py).clone().into_any())
    }

    /// Whether it may have done something.
    #[getter]
    fn was_begun(&self) -> bool {
        self.was_begun
    }

    /// The value; or its exception is raised.
    fn unwrap(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match &self.result {
            Ok(value) => Ok(value.clone_ref(py)),
            Err(error) => Err(error.clone_ref(py)),
        }
    }

    fn __repr__(&self) -> String {
        format!("<resil.ItemResult ok={}>", self.result.is_ok())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.result.as_ref().map_or(Ok(()), |value| visit.call(value))
    }
}
