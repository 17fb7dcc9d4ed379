//! Loops over what comes one by one: `for` in a thread, `async for` in a coroutine. None is the end.

use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;

use crate::answer::Answer;
use crate::drive::{Running, drive};

pub fn next(py: Python<'_>, running: Running) -> PyResult<Option<Py<PyAny>>> {
    let next = drive(py, running)?;
    Ok((!next.is_none(py)).then_some(next))
}

pub fn anext(what: &'static str, running: Running) -> Answer {
    Answer::new(what, async move {
        let next = running.await?;
        if Python::attach(|py| next.is_none(py)) { Err(PyStopAsyncIteration::new_err(())) } else { Ok(next) }
    })
}
