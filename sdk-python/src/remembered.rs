//! Failures that are the result of work: exceptions to remember, and results that could not be written. They are kept as JSON
//! that every language reads, and raised again for duplicates.
//!
//! ```text
//! {"error":"CardDeclined","message":"card 17 was declined","args":["card 17 was declined",17]}
//! ```
//! `args` are those of the exception, if JSON has them; else the message alone is given to the class.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple, PyType};
use resil::Failure;
use resil::idempotency::Remember;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::codec::not_kept_for;
use crate::errors::wrong_type;

/// Where a result could not be written, in place of the name of an exception.
const NOT_KEPT: &str = "resil.ResultNotKept";

#[derive(Serialize, Deserialize)]
struct Kept {
    error: String,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    args: Option<Box<RawValue>>,
}

impl Kept {
    fn to_bytes(&self) -> Option<Bytes> {
        serde_json::to_vec(self).ok().map(Bytes::from)
    }
}

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

    fn kept(&self, py: Python<'_>, error: &PyErr) -> Option<Kept> {
        let value = error.value(py);
        if !value.is_instance(self.0.bind(py)).unwrap_or(false) {
            return None;
        }
        let (error, message) = (value.get_type().name().ok()?.to_string(), value.str().ok()?.to_string());
        Some(Kept { error, message, args: arguments(value) })
    }

    fn raised(&self, py: Python<'_>, kept: &Kept) -> Option<PyErr> {
        let classes = self.0.bind(py);
        let named = |class: &Bound<'_, PyAny>| {
            class.cast::<PyType>().is_ok_and(|class| class.name().is_ok_and(|name| name == kept.error.as_str()))
        };
        // A subclass that is not named here comes back as the first that is.
        let class = classes.iter().find(named).or_else(|| classes.iter().next())?;
        static REVIVE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let args = kept.args.as_ref().map(|args| PyBytes::new(py, args.get().as_bytes()));
        let revive = REVIVE.import(py, "resil._serializers", "revived");
        let made = revive.and_then(|revive| revive.call1((class, &kept.message, args)));
        Some(made.map_or_else(|error| error, PyErr::from_value))
    }
}

/// The arguments of an exception, if JSON has them.
fn arguments(error: &Bound<'_, PyAny>) -> Option<Box<RawValue>> {
    static WRITE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let write = WRITE.import(error.py(), "resil._serializers", "arguments").ok()?;
    let written: Option<String> = write.call1((error,)).ok()?.extract().ok()?;
    RawValue::from_string(written?).ok()
}

/// What is recorded of failures: why a result could not be written, once that is known, and those that are final.
pub fn remember(finals: Option<Arc<Final>>, not_kept: Arc<OnceLock<String>>) -> Remember<Failure<PyErr>> {
    let reading = finals.clone();
    let write = move |failure: &Failure<PyErr>| {
        if let Some(words) = not_kept.get() {
            return Kept { error: NOT_KEPT.to_owned(), message: words.clone(), args: None }.to_bytes();
        }
        let (Failure::Inner(error), Some(finals)) = (failure, &finals) else { return None };
        Python::attach(|py| finals.kept(py, error))?.to_bytes()
    };
    let read = move |bytes: &[u8]| {
        let kept: Kept = serde_json::from_slice(bytes).ok()?;
        let raised = Python::attach(|py| match &reading {
            _ if kept.error == NOT_KEPT => Some(not_kept_for(py, Some(&kept.message))),
            Some(finals) => finals.raised(py, &kept),
            None => None,
        });
        raised.map(Failure::Inner)
    };
    Remember::with(write, read)
}
