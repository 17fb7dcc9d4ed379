//! Exceptions that are the result of work: written down by their names and words, and raised again for duplicates.

use bytes::Bytes;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use resil::Failure;
use resil::idempotency::Remember;

use crate::errors::wrong_type;

/// Exceptions of these classes.
pub fn final_exceptions(given: &Bound<'_, PyAny>) -> PyResult<Remember<Failure<PyErr>>> {
    let is_class = |given: &Bound<'_, PyAny>| {
        given.cast::<PyType>().is_ok_and(|class| class.is_subclass_of::<PyException>().unwrap_or(false))
    };
    let classes = match given.cast::<PyTuple>() {
        Ok(classes) => classes.clone(),
        Err(_) => PyTuple::new(given.py(), [given])?,
    };
    if classes.is_empty() || !classes.iter().all(|class| is_class(&class)) {
        return Err(wrong_type("remember", "an exception class or a tuple of them", given));
    }
    let (writing, reading) = (classes.clone().unbind(), classes.unbind());
    let write = move |failure: &Failure<PyErr>| {
        let Failure::Inner(error) = failure else { return None };
        Python::attach(|py| {
            let value = error.value(py);
            if !value.is_instance(writing.bind(py)).unwrap_or(false) {
                return None;
            }
            let (kind, words) = (value.get_type().name().ok()?.to_string(), value.str().ok()?.to_string());
            serde_json::to_vec(&serde_json::json!({ "error": kind, "message": words })).ok().map(Bytes::from)
        })
    };
    let read = move |bytes: &[u8]| {
        let kept: serde_json::Value = serde_json::from_slice(bytes).ok()?;
        let (kind, words) = (kept.get("error")?.as_str()?, kept.get("message")?.as_str()?);
        Python::attach(|py| {
            let classes = reading.bind(py);
            let named = |class: &Bound<'_, PyAny>| {
                class.cast::<PyType>().is_ok_and(|class| class.name().is_ok_and(|name| name == kind))
            };
            // A subclass that is not named here comes back as the first that is.
            let class = classes.iter().find(named).or_else(|| classes.iter().next())?;
            Some(Failure::Inner(class.call1((words,)).map_or_else(|error| error, PyErr::from_value)))
        })
    };
    Ok(Remember::with(write, read))
}
