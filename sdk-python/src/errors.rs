//! Errors of the SDK as exceptions of `resil.errors`, and back.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use resil::{Code, Error};

/// The class of a code.
fn class<'py>(py: Python<'py>, code: Code) -> PyResult<Bound<'py, PyAny>> {
    static BY_CODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    BY_CODE.import(py, "resil.errors", "BY_CODE")?.get_item(code.text())
}

fn family<'py>(py: Python<'py>) -> PyResult<&'py Bound<'py, PyAny>> {
    static FAMILY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    FAMILY.import(py, "resil.errors", "ResilError")
}

fn made(
    py: Python<'_>,
    code: Code,
    message: String,
    retry_after: Option<Duration>,
    detail: Option<(&str, Py<PyAny>)>,
) -> PyResult<PyErr> {
    let fields = PyDict::new(py);
    fields.set_item("retry_after", retry_after.map(|wait| wait.as_secs_f64()))?;
    if let Some((name, value)) = detail {
        fields.set_item(name, value)?;
    }
    Ok(PyErr::from_value(class(py, code)?.call((message,), Some(&fields))?))
}

/// What it is about, if it has a name.
fn name(error: &Error) -> Option<&Arc<str>> {
    match error {
        Error::CircuitOpen { name, .. }
        | Error::RateLimitExceeded { name, .. }
        | Error::BulkheadFull { name, .. }
        | Error::LockTimeout { name, .. }
        | Error::LockLost { name, .. }
        | Error::Deadlock { name }
        | Error::IdempotencyBusy { name, .. }
        | Error::IdempotencyMismatch { name }
        | Error::IdempotencyHeld { name, .. }
        | Error::ResultUnrecorded { name, .. }
        | Error::LoadFailed { name, .. } => Some(name),
        _ => None,
    }
}

pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let name = name(error).and_then(|name| name.into_pyobject(py).ok()).map(|name| ("name", name.into_any().unbind()));
    let field = match error {
        Error::InvalidPolicy { field, .. } => field.into_pyobject(py).ok().map(|it| ("field", it.into_any().unbind())),
        _ => None,
    };
    made(py, error.code(), error.to_string(), error.retry_after(), name.or(field)).unwrap_or_else(|error| error)
}

/// Retries were given up; `cause` is how the last attempt failed.
pub fn exhausted(py: Python<'_>, attempts: u32, retry_after: Option<Duration>, cause: PyErr) -> PyErr {
    let message = format!("all {attempts} attempts failed; the last: {}", cause.value(py));
    let attempts = attempts.into_pyobject(py).ok().map(|attempts| ("attempts", attempts.into_any().unbind()));
    let error = made(py, Code::RetryExhausted, message, retry_after, attempts).unwrap_or_else(|error| error);
    error.set_cause(py, Some(cause));
    error
}

/// An exception of the family as the SDK's own error, so that policies around policies judge it by what it is.
pub fn ours(py: Python<'_>, error: &PyErr) -> Option<Error> {
    let family = family(py).ok()?;
    let value = error.value(py);
    if !value.is_instance(family).unwrap_or(false) {
        return None;
    }
    let text: String = value.getattr(intern!(py, "code")).ok()?.extract().ok()?;
    let code = Code::all().find(|code| code.text() == text)?;
    let seconds: Option<f64> = value.getattr(intern!(py, "retry_after")).ok()?.extract().ok()?;
    let retry_after = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let message: String = value.getattr(intern!(py, "message")).ok()?.extract().unwrap_or_default();
    let details = value.getattr(intern!(py, "details")).ok()?;
    let name: String = details.get_item("name").and_then(|name| name.extract()).unwrap_or_default();
    Some(Error::told(code, &name, &message, retry_after))
}

/// For `?` where nobody can be raised to but the caller.
pub fn raised<T>(py: Python<'_>, result: Result<T, Error>) -> PyResult<T> {
    result.map_err(|error| exception(py, &error))
}

/// The same inside of a future.
pub fn raised_later<T>(result: Result<T, Error>) -> PyResult<T> {
    result.map_err(|error| Python::attach(|py| exception(py, &error)))
}

pub fn wrong_type(name: &str, expected: &str, got: &Bound<'_, PyAny>) -> PyErr {
    let got = got.get_type().name().map_or_else(|_| "something else".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{name} must be {expected}, not {got}"))
}

pub fn wrong_value(name: &str, why: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{name} {why}"))
}
