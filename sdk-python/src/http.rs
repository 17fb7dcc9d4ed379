//! Responses over HTTP: what they say about limits and errors, and those that are kept for duplicates. The words are the SDK's.

use pyo3::types::PyList;
use resil::http::{
    IdempotencyKey, Limited, Problem, REPLAYED_HEADER, RateLimit, RecordedResponse, Reset, Shown, fingerprint,
};

use crate::limiter::PyLimiter;
use crate::prelude::*;
use crate::verdict::PyVerdict;

/// The headers that tell a client about a limit it knows as `policy`: of several tiers, about the one that binds. Its quota is what
/// can be had at once, in the time in which that fills again; `limit` and `period` say another.
#[pyfunction]
#[pyo3(signature = (policy, verdict, *, limit=None, period=None))]
pub fn rate_limit_headers(policy: Arg<'_>, verdict: Arg<'_>, limit: OptArg<'_>, period: OptArg<'_>) -> PyResult<Named> {
    let policy = text("policy", policy)?;
    let verdict = verdict.cast::<PyVerdict>().map_err(|_| wrong_type("verdict", "a resil.Verdict", verdict))?;
    let mut shown = RateLimit::of(&policy, &verdict.get().0);
    if let Some(period) = period {
        shown.window = Some(seconds("period", period)?);
    }
    shown.limit = limit.map_or(Ok(shown.limit), |limit| whole("limit", limit))?;
    Ok(shown.headers(Reset::After))
}

/// A whole response for a ResilError: status, headers and a problem body. `policies` names the limits that were exceeded.
#[pyfunction]
#[pyo3(signature = (error, *, policies=None))]
pub fn problem(error: Arg<'_>, policies: OptArg<'_>) -> PyResult<Py<PyDict>> {
    let py = error.py();
    let is_exception = error.is_instance_of::<pyo3::exceptions::PyBaseException>();
    let own = is_exception.then(|| ours(py, &PyErr::from_value(error.clone()))).flatten();
    let own = own.ok_or_else(|| wrong_type("error", "a resil.ResilError", error))?;
    let mut problem = Problem::of(&own);
    if let Some(policies) = policies {
        let names: Vec<String> = policies.extract().map_err(|_| wrong_type("policies", "a list of str", policies))?;
        problem = problem.violated_policies(&names.iter().map(String::as_str).collect::<Vec<_>>());
    }
    response(py, &problem)
}

/// The key of an `Idempotency-Key` header, or of all of that name in a list; None if there is none and none is required. One that is
/// malformed is refused, and so are two. It is in the scope of `tenant`: no two tenants share a key, and None has a scope of its own,
/// which no tenant and no key can name.
#[pyfunction]
#[pyo3(signature = (header, *, required=None, tenant=None))]
pub fn idempotency_key(header: Arg<'_>, required: OptArg<'_>, tenant: OptArg<'_>) -> PyResult<Option<String>> {
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
pub fn request_fingerprint(method: Arg<'_>, path: Arg<'_>, body: Arg<'_>) -> PyResult<String> {
    let body = body.cast::<PyBytes>().map_err(|_| wrong_type("body", "bytes", body))?;
    Ok(fingerprint(&text("method", method)?, &text("path", path)?, body.as_bytes()))
}

/// Headers of ours.
type Named = Vec<(&'static str, String)>;
/// Headers of theirs.
type Headers = Vec<(Vec<u8>, Vec<u8>)>;

/// What a verdict does to a response: the headers to add, and if it is a refusal, the whole response. Clients know the limit by
/// `name`, or else by the limiter's own.
#[pyfunction]
pub fn limited_response(
    py: Python<'_>,
    limiter: &PyLimiter,
    verdict: &PyVerdict,
    name: OptArg<'_>,
) -> PyResult<(Named, Option<Py<PyDict>>)> {
    let name = name.map_or_else(|| Ok(limiter.0.peek().name().to_owned()), |name| text("name", name))?;
    let limited = Limited::of(&name, &verdict.0, Shown::All, Reset::After);
    Ok((limited.headers, limited.refusal.map(|refusal| response(py, &refusal)).transpose()?))
}

/// Whether a response with this status is the end of the matter, to be given to every duplicate. What may be otherwise the next time
/// is not.
#[pyfunction]
pub fn is_final(status: u16) -> bool {
    resil::http::is_final(status)
}

/// A response as bytes to keep; `resil.asgi` keeps them under the key of the request.
#[pyfunction]
pub fn record_response(status: u16, headers: Headers, body: Vec<u8>) -> Vec<u8> {
    let headers = headers.iter().map(|(name, value)| (&name[..], &value[..]));
    RecordedResponse::new(status, headers, body).to_bytes().into()
}

/// The response to a duplicate: status, headers and body of what was kept, and a header that says so. If nothing was, a problem.
#[pyfunction]
pub fn replayed_response(kept: Option<&[u8]>) -> (u16, Headers, Vec<u8>) {
    let header = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
    let Some(kept) = kept.and_then(RecordedResponse::read) else {
        let problem = Problem::response_not_kept();
        let headers = problem.headers.iter().map(|(name, value)| header(name.as_bytes(), value.as_bytes()));
        return (problem.status, headers.collect(), problem.body().into());
    };
    let (name, value) = REPLAYED_HEADER;
    let mut headers: Headers = kept.headers().iter().map(|(name, value)| header(name, value)).collect();
    headers.push(header(name.as_bytes(), value.as_bytes()));
    (kept.status(), headers, kept.body().to_vec())
}

/// A whole response to a request whose body is longer than what is read.
#[pyfunction]
pub fn body_too_large(py: Python<'_>, bytes_max: usize) -> PyResult<Py<PyDict>> {
    response(py, &Problem::body_too_large(bytes_max))
}

fn response(py: Python<'_>, problem: &Problem) -> PyResult<Py<PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("status", problem.status)?;
    dict.set_item("headers", problem.headers.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>())?;
    dict.set_item("body", PyBytes::new(py, problem.body().as_bytes()))?;
    Ok(dict.unbind())
}
