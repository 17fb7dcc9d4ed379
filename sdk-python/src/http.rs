//! Answers over HTTP: the words are the SDK's.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use resil::http::{IdempotencyKey, RateLimit, Reset, fingerprint};

use crate::convert::{seconds, text, truth, whole};
use crate::errors::{ours, raised, wrong_type};
use crate::http_answers::answer;
use crate::verdict::PyVerdict;

/// The headers that tell a client about a limit it knows as `policy`: of several tiers, about the one that binds. Its quota is what
/// can be had at once, in the time in which that fills again; `limit` and `period` say another.
#[pyfunction]
#[pyo3(signature = (policy, verdict, *, limit=None, period=None))]
pub fn rate_limit_headers(
    policy: &Bound<'_, PyAny>,
    verdict: &Bound<'_, PyAny>,
    limit: Option<&Bound<'_, PyAny>>,
    period: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<(String, String)>> {
    let policy = text("policy", policy)?;
    let verdict = verdict.cast::<PyVerdict>().map_err(|_| wrong_type("verdict", "a resil.Verdict", verdict))?;
    let mut told = RateLimit::of(&policy, &verdict.get().0);
    if let Some(period) = period {
        told.window = Some(seconds("period", period)?);
    }
    told.limit = limit.map_or(Ok(told.limit), |limit| whole("limit", limit))?;
    let headers = told.headers(Reset::After);
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
    answer(py, &problem)
}

/// The key of an `Idempotency-Key` header, or of all of that name in a list; None if there is none and none is required. One that is
/// malformed is refused, and so are two. It is in the scope of `tenant`: no two tenants share a key, and None has a scope of its own,
/// which no tenant and no key can name.
#[pyfunction]
#[pyo3(signature = (header, *, required=None, tenant=None))]
pub fn idempotency_key(
    header: &Bound<'_, PyAny>,
    required: Option<&Bound<'_, PyAny>>,
    tenant: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<String>> {
    let py = header.py();
    let expected = || wrong_type("header", "bytes, a list of bytes, or None", header);
    let headers: Vec<Bound<'_, PyBytes>> = if header.is_none() {
        Vec::new()
    } else if let Ok(header) = header.cast::<PyBytes>() {
        vec![header.clone()]
    } else {
        header.cast::<PyList>().map_err(|_| expected())?.extract().map_err(|_| expected())?
    };
    let key = raised(py, IdempotencyKey::only(headers.iter().map(|header| header.as_bytes())))?;
    let tenant = tenant.filter(|tenant| !tenant.is_none()).map(|tenant| text("tenant", tenant)).transpose()?;
    match key {
        Some(key) => Ok(Some(key.scoped(tenant.as_deref()))),
        None if truth("required", required)? => raised(py, IdempotencyKey::required(None)).map(|_| None),
        None => Ok(None),
    }
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
