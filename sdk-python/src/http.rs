//! Answers over HTTP: the words are the SDK's.

use std::time::SystemTime;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use resil::http::{IdempotencyKey, RateLimit, Reset, fingerprint};

use crate::convert::{text, truth};
use crate::errors::{ours, raised, wrong_type};
use crate::limiter::PyVerdict;

/// The headers that tell a client about a limit it knows as `policy`.
#[pyfunction]
pub fn rate_limit_headers(policy: &Bound<'_, PyAny>, verdict: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    let policy = text("policy", policy)?;
    let verdict = verdict.cast::<PyVerdict>().map_err(|_| wrong_type("verdict", "a resil.Verdict", verdict))?;
    let headers = RateLimit::of(&policy, &verdict.get().0).headers(Reset::At(SystemTime::now()));
    Ok(headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// A whole answer for a ResilError: status, headers and a problem body. `policies` names the limits that were exceeded.
#[pyfunction]
#[pyo3(signature = (error, *, policies=None))]
pub fn problem<'py>(error: &Bound<'py, PyAny>, policies: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyDict>> {
    let py = error.py();
    let is_exception = error.is_instance_of::<pyo3::exceptions::PyBaseException>();
    let own = is_exception.then(|| ours(py, &PyErr::from_value(error.clone()))).flatten();
    let own = own.ok_or_else(|| wrong_type("error", "a resil.ResilError", error))?;
    let mut problem = resil::http::Problem::of(&own);
    if let Some(policies) = policies {
        let names: Vec<String> = policies.extract().map_err(|_| wrong_type("policies", "a list of str", policies))?;
        problem = problem.violated_policies(&names.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let dict = PyDict::new(py);
    dict.set_item("status", problem.status)?;
    dict.set_item("headers", problem.headers.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>())?;
    dict.set_item("body", PyBytes::new(py, problem.body().as_bytes()))?;
    Ok(dict)
}

/// The key of an `Idempotency-Key` header; None if there is none and none is required. One that is malformed is refused.
#[pyfunction]
#[pyo3(signature = (header, *, required=None))]
pub fn idempotency_key(header: &Bound<'_, PyAny>, required: Option<&Bound<'_, PyAny>>) -> PyResult<Option<String>> {
    let py = header.py();
    let bytes = if header.is_none() {
        None
    } else {
        Some(header.cast::<PyBytes>().map_err(|_| wrong_type("header", "bytes or None", header))?.as_bytes())
    };
    let key = if truth("required", required)? {
        IdempotencyKey::required(bytes).map(Some)
    } else {
        IdempotencyKey::optional(bytes)
    };
    Ok(raised(py, key)?.map(|key| key.as_str().to_owned()))
}

/// What a request says, for `fingerprint=`.
#[pyfunction]
pub fn request_fingerprint(
    method: &Bound<'_, PyAny>,
    path: &Bound<'_, PyAny>,
    body: &Bound<'_, PyAny>,
) -> PyResult<String> {
    let body = body.cast::<PyBytes>().map_err(|_| wrong_type("body", "bytes", body))?;
    Ok(fingerprint(&text("method", method)?, &text("path", path)?, body.as_bytes()))
}
