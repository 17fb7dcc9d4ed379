//! Answers over HTTP that are kept for duplicates, and what is said where there is none. The words are the SDK's.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use resil::http::{Limited, Problem, REPLAYED_HEADER, RecordedAnswer, Reset, Shown};

use crate::convert::text;
use crate::limiter::PyLimiter;
use crate::verdict::PyVerdict;

/// Headers of ours.
type Named = Vec<(&'static str, String)>;
/// Headers of theirs.
type Headers<'py> = Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>;

/// What a verdict does to an answer: the headers to add, and if it is a refusal, the whole answer. Clients know the limit by
/// `name`, or else by the limiter's own.
#[pyfunction]
pub fn limited_answer<'py>(
    limiter: &Bound<'py, PyLimiter>,
    verdict: &Bound<'py, PyVerdict>,
    name: Option<&Bound<'py, PyAny>>,
) -> PyResult<(Named, Option<Bound<'py, PyDict>>)> {
    let limiter = &limiter.get().limiter;
    let name = name.map_or_else(|| Ok(limiter.name().to_owned()), |name| text("name", name))?;
    let verdict_told = &verdict.get().0;
    let limited = Limited::of(&name, verdict_told, Shown::All, Reset::After);
    let refusal = limited.refusal.map(|refusal| answer(verdict.py(), &refusal)).transpose()?;
    Ok((limited.headers, refusal))
}

/// Whether an answer with this status is the end of the matter, to be given to every duplicate. What may be otherwise the next time
/// is not.
#[pyfunction]
pub fn is_final(status: u16) -> bool {
    resil::http::is_final(status)
}

/// An answer as bytes to keep; `resil.asgi` keeps them under the key of the request.
#[pyfunction]
pub fn record_answer<'py>(
    py: Python<'py>,
    status: u16,
    headers: Headers<'py>,
    body: &Bound<'py, PyBytes>,
) -> Bound<'py, PyBytes> {
    let headers = headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    PyBytes::new(py, &RecordedAnswer::new(status, headers, body.as_bytes().to_vec()).to_bytes())
}

/// The answer of a duplicate: status, headers and body of what was kept, and a header that says so. If nothing was, a problem.
#[pyfunction]
pub fn replayed_answer<'py>(
    py: Python<'py>,
    kept: Option<&Bound<'py, PyBytes>>,
) -> (u16, Headers<'py>, Bound<'py, PyBytes>) {
    let header = |name: &[u8], value: &[u8]| (PyBytes::new(py, name), PyBytes::new(py, value));
    let Some(answer) = kept.and_then(|kept| RecordedAnswer::read(kept.as_bytes())) else {
        let problem = Problem::answer_not_kept();
        let headers = problem.headers.iter().map(|(name, value)| header(name.as_bytes(), value.as_bytes()));
        return (problem.status, headers.collect(), PyBytes::new(py, problem.body().as_bytes()));
    };
    let mut headers: Headers<'py> = answer.headers().iter().map(|(name, value)| header(name, value)).collect();
    let (name, value) = REPLAYED_HEADER;
    headers.push(header(name.as_bytes(), value.as_bytes()));
    (answer.status(), headers, PyBytes::new(py, answer.body()))
}

/// A whole answer to a request whose body is longer than what is read.
#[pyfunction]
pub fn body_too_large(py: Python<'_>, bytes_max: usize) -> PyResult<Bound<'_, PyDict>> {
    answer(py, &Problem::body_too_large(bytes_max))
}

pub fn answer<'py>(py: Python<'py>, problem: &Problem) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("status", problem.status)?;
    dict.set_item("headers", problem.headers.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>())?;
    dict.set_item("body", PyBytes::new(py, problem.body().as_bytes()))?;
    Ok(dict)
}
