//! Errors of the SDK as exceptions of `resil.errors`, and back.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use resil::Code;

use crate::prelude::*;

fn made(py: Python<'_>, code: Code, message: String, wait: Option<Duration>, fields: Kwargs<'_>) -> PyResult<PyErr> {
    fields.set_item("retry_after", wait.map(|wait| wait.as_secs_f64()))?;
    let class = imported!(py, "resil.errors", "BY_CODE")?.get_item(code.text())?;
    Ok(PyErr::from_value(class.call((message,), Some(fields))?))
}

pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let fields = PyDict::new(py);
    let named = match (error.resource(), error) {
        (Some(name), Error::RedriveRefused { reason, .. }) => {
            fields.set_item("resource", name).and_then(|()| fields.set_item("reason", reason))
        }
        (Some(name), _) => fields.set_item("resource", name),
        (None, Error::InvalidPolicy { field, .. }) => fields.set_item("field", field),
        (None, Error::RetryExhausted { attempts }) => fields.set_item("attempts", attempts),
        (None, Error::Timeout { after }) => fields.set_item("after", after.as_secs_f64()),
        _ => Ok(()),
    };
    let made = named.and_then(|()| made(py, error.code(), error.to_string(), error.retry_after(), &fields));
    made.unwrap_or_else(|error| error)
}

/// Retries were given up; `cause` is how the last attempt failed.
pub fn exhausted(py: Python<'_>, attempts: u32, retry_after: Option<Duration>, cause: PyErr) -> PyErr {
    let (fields, message) = (PyDict::new(py), format!("all {attempts} attempts failed; the last: {}", cause.value(py)));
    let made = fields.set_item("attempts", attempts);
    let made = made.and_then(|()| self::made(py, Code::RetryExhausted, message, retry_after, &fields));
    let error = made.unwrap_or_else(|error| error);
    error.set_cause(py, Some(cause));
    error
}

/// An exception of the family as the SDK's own error, so that policies around policies judge it by what it is.
pub fn ours(py: Python<'_>, error: &PyErr) -> Option<Error> {
    let value = error.value(py);
    if !value.is_instance(imported!(py, "resil.errors", "ResilError").ok()?).unwrap_or(false) {
        return None;
    }
    let text: String = value.getattr(intern!(py, "code")).ok()?.extract().ok()?;
    let code = Code::all().find(|code| code.text() == text)?;
    let seconds: Option<f64> = value.getattr(intern!(py, "retry_after")).ok()?.extract().ok()?;
    let retry_after = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let message: String = value.getattr(intern!(py, "message")).ok()?.extract().unwrap_or_default();
    let resource: Option<String> = value.getattr(intern!(py, "resource")).ok()?.extract().unwrap_or_default();
    Some(Error::restored(code, &resource.unwrap_or_default(), &message, retry_after))
}

/// For `?` where nobody can be raised to but the caller.
pub fn raised<T>(py: Python<'_>, result: Result<T, Error>) -> PyResult<T> {
    result.map_err(|error| exception(py, &error))
}

/// The same inside of a future.
pub fn raised_later<T>(result: Result<T, Error>) -> PyResult<T> {
    result.map_err(|error| Python::attach(|py| exception(py, &error)))
}

pub fn wrong_type(name: &str, expected: &str, got: Arg<'_>) -> PyErr {
    let got = got.get_type().name().map_or_else(|_| "something else".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{name} must be {expected}, not {got}"))
}

pub fn wrong_value(name: &str, why: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{name} {why}"))
}
