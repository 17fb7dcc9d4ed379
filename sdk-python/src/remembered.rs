//! Failures that are the result of work: exceptions to remember, and why a result could not be written. They are kept in the form
//! that all languages share ([`RecordedError`]), and raised again for duplicates.

use std::sync::{Arc, OnceLock};

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};
use resil::Failure;
use resil::idempotency::{RecordedError, Remember};
use serde::de::DeserializeOwned;

use crate::errors::wrong_type;

/// Exceptions of these classes are final.
pub struct Final(Py<PyTuple>);

impl Final {
    pub fn read(given: &Bound<'_, PyAny>) -> PyResult<Arc<Self>> {
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
        Ok(Arc::new(Self(classes.unbind())))
    }

    pub fn is_final(&self, py: Python<'_>, error: &PyErr) -> bool {
        error.value(py).is_instance(self.0.bind(py)).unwrap_or(false)
    }

    fn recorded(&self, py: Python<'_>, error: &PyErr) -> Option<RecordedError> {
        if !self.is_final(py, error) {
            return None;
        }
        let value = error.value(py);
        let (name, message) = (value.get_type().name().ok()?.to_string(), value.str().ok()?.to_string());
        let mut recorded = RecordedError::new(name, message);
        recorded.bases = self.bases(py, value, &recorded.name);
        recorded.args = written("arguments", value);
        recorded.properties = written("properties", value);
        Some(recorded)
    }

    /// Which of the classes it falls under, the nearest first; None if its own name says so.
    fn bases(&self, py: Python<'_>, error: &Bound<'_, PyAny>, name: &str) -> Option<Vec<String>> {
        let classes = self.0.bind(py);
        let is_named = |base: &Bound<'_, PyType>| classes.iter().any(|class| class.is(base));
        let line = error.get_type().mro();
        let named = line.iter().filter_map(|base| base.cast_into::<PyType>().ok()).filter(is_named);
        let names: Vec<String> = named.filter_map(|base| base.name().ok()).map(|name| name.to_string()).collect();
        (names.first().map(String::as_str) != Some(name) && !names.is_empty()).then_some(names)
    }

    /// The class that is named, or else the nearest that it fell under; or the only one there is.
    fn class<'py>(&self, py: Python<'py>, recorded: &RecordedError) -> Option<Bound<'py, PyAny>> {
        let classes = self.0.bind(py);
        let called = |wanted: &String| {
            let is_it = |class: &Bound<'_, PyAny>| {
                class.cast::<PyType>().is_ok_and(|class| class.name().is_ok_and(|name| name == wanted.as_str()))
            };
            classes.iter().find(is_it)
        };
        let only = || classes.iter().next().filter(|_| classes.len() == 1);
        let names = std::iter::once(&recorded.name).chain(recorded.bases.iter().flatten());
        names.map(called).find_map(|class| class).or_else(only)
    }

    fn raised(&self, py: Python<'_>, recorded: &RecordedError) -> Option<PyErr> {
        static REVIVE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let args = recorded.args.as_ref().and_then(|args| serde_json::to_string(args).ok());
        let properties = recorded.properties.as_ref().and_then(|properties| serde_json::to_string(properties).ok());
        let revive = REVIVE.import(py, "resil._serializers", "revived");
        let made = revive.and_then(|revive| {
            let class = self.class(py, recorded);
            revive.call1((class, &recorded.name, &recorded.message, args, &recorded.code, properties))
        });
        Some(made.map_or_else(|error| error, PyErr::from_value))
    }
}

/// Something of an exception, if JSON has it.
fn written<T: DeserializeOwned>(what: &str, error: &Bound<'_, PyAny>) -> Option<T> {
    let write = error.py().import("resil._serializers").and_then(|module| module.getattr(what)).ok()?;
    let written: Option<String> = write.call1((error,)).ok()?.extract().ok()?;
    serde_json::from_str(&written?).ok()
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
        let (recorded, finals) = (RecordedError::read(bytes)?, reading.as_ref()?);
        Python::attach(|py| finals.raised(py, &recorded)).map(Failure::Inner)
    };
    Remember::with(write, read)
}
