//! Failures that are the result of work: exceptions to remember, and why a result could not be written. They are kept in the form
//! that all languages share ([`RecordedError`]), and raised again for duplicates.

use std::sync::OnceLock;

use pyo3::exceptions::PyException;
use pyo3::types::PyType;
use resil::idempotency::{RecordedError, Remember};

use crate::prelude::*;

/// Exceptions of these classes are final.
pub struct Final(Py<PyTuple>);

impl Final {
    pub fn read(given: Arg<'_>) -> PyResult<Arc<Self>> {
        let is_class = |given: Arg<'_>| {
            given.cast::<PyType>().is_ok_and(|class| class.is_subclass_of::<PyException>().unwrap_or(false))
        };
        let classes = match given.cast::<PyTuple>() {
            Ok(classes) => classes.clone(),
            Err(_) => PyTuple::new(given.py(), [given])?,
        };
        if classes.is_empty() || !classes.iter().all(|class| is_class(&class)) {
            return Err(wrong_type("remember", "an exception class or a tuple of them", given));
        }
        Ok(Arc::new(Self(classes.unbind())))
    }

    pub fn is_final(&self, py: Python<'_>, error: &PyErr) -> bool {
        error.value(py).is_instance(self.0.bind(py)).unwrap_or(false)
    }

    fn recorded(&self, py: Python<'_>, error: &PyErr) -> Option<RecordedError> {
        if !self.is_final(py, error) {
            return None;
        }
        let recorded = imported!(py, "resil._serializers", "recorded").ok()?.call1((error.value(py), &self.0)).ok()?;
        RecordedError::read(recorded.cast::<PyBytes>().ok()?.as_bytes())
    }

    fn raised(&self, py: Python<'_>, recorded: &RecordedError) -> Option<PyErr> {
        let written = serde_json::to_string(recorded).ok()?;
        let revived =
            imported!(py, "resil._serializers", "revived").and_then(|revive| revive.call1((written, &self.0)));
        Some(revived.map_or_else(|error| error, PyErr::from_value))
    }
}

/// What is recorded of failures: why a result could not be written, once that is known, and those that are final.
pub fn remember(finals: Option<Arc<Final>>, unwritten: Arc<OnceLock<String>>) -> Remember<Failure<PyErr>> {
    let reading = finals.clone();
    let write = move |failure: &Failure<PyErr>| {
        if let Some(reason) = unwritten.get() {
            return Some(RecordedError::unrecorded(reason).to_bytes());
        }
        let (Failure::Inner(error), Some(finals)) = (failure, &finals) else { return None };
        Python::attach(|py| finals.recorded(py, error)).map(|recorded| recorded.to_bytes())
    };
    let read = move |bytes: &[u8]| {
        let recorded = RecordedError::read(bytes)?;
        let raised = Python::attach(|py| match &reading {
            Some(finals) => finals.raised(py, &recorded),
            None => Final(PyTuple::empty(py).unbind()).raised(py, &recorded),
        });
        raised.map(Failure::Inner)
    };
    Remember::with(write, read)
}
