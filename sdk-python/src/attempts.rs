//! A retry around a block: `for attempt in retry: with attempt: ...`.
//!
//! The policy runs as ever; its operation is a rendezvous that hands an attempt to the loop and waits for how its block ended.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use resil::policy::Retry;

use crate::answer::Answer;
use crate::drive::Running;
use crate::iteration::{anext, next};
use crate::judge::Judge;
use crate::work::{Ended, How, Work};

/// What passes between the policy and the blocks.
#[derive(Default)]
struct Meeting {
    /// An attempt that the loop was not given yet.
    is_due: bool,
    /// How the block ended.
    ended: Option<Ended>,
    waker: Option<Waker>,
}

/// The attempts of one loop.
#[pyclass(module = "resil", name = "Attempts", frozen)]
pub struct PyAttempts {
    running: Arc<Mutex<Option<Running>>>,
    meeting: Arc<Mutex<Meeting>>,
    work: Arc<Work>,
    count: Arc<AtomicU32>,
}

impl PyAttempts {
    pub fn new(py: Python<'_>, retry: Retry, judge: Arc<Judge>) -> Self {
        let work = Work::new(py.None().into_bound(py), PyTuple::empty(py), None, How::Here);
        let meeting: Arc<Mutex<Meeting>> = Arc::default();
        let (judged, meets) = (Arc::clone(&work), Arc::clone(&meeting));
        let running = Arc::clone(&work).running(async move {
            let classify = |error: &PyErr| judge.classify(&judged, error);
            let attempt = || {
                meets.lock().is_due = true;
                let meets = Arc::clone(&meets);
                poll_fn(move |context| {
                    let mut meeting = meets.lock();
                    match meeting.ended.take() {
                        Some(ended) => Poll::Ready(ended),
                        None => {
                            meeting.waker = Some(context.waker().clone());
                            Poll::Pending
                        }
                    }
                })
            };
            retry.around(classify, attempt).await
        });
        Self { running: Arc::new(Mutex::new(Some(running))), meeting, work, count: Arc::default() }
    }

    /// The next attempt; None if there is none, because the last one was the last.
    fn next(&self) -> Running {
        let (running, meeting) = (Arc::clone(&self.running), Arc::clone(&self.meeting));
        let (work, count) = (Arc::clone(&self.work), Arc::clone(&self.count));
        Box::pin(poll_fn(move |context| {
            // Waiting for each other would be for ever: one of them has the GIL.
            let Some(mut running) = running.try_lock() else {
                return Poll::Ready(Err(PyRuntimeError::new_err("these attempts are being made in another thread")));
            };
            let Some(future) = running.as_mut() else { return Poll::Ready(Python::attach(|py| Ok(py.None()))) };
            if let Poll::Ready(ended) = future.as_mut().poll(context) {
                *running = None;
                return Poll::Ready(ended.map(|_| Python::attach(|py| py.None())));
            }
            if !std::mem::take(&mut meeting.lock().is_due) {
                return Poll::Pending;
            }
            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
            let attempt = PyAttempt { meeting: Arc::clone(&meeting), work: Arc::clone(&work), number };
            Poll::Ready(Python::attach(|py| Ok(Py::new(py, attempt)?.into_any())))
        }))
    }
}

#[pymethods]
impl PyAttempts {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        next(py, self.next())
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__(&self) -> Answer {
        anext("async for attempt in retry", self.next())
    }
}

/// One attempt: a block to be tried. What it raises is judged; if it may not be tried again, the loop raises it.
#[pyclass(module = "resil", name = "Attempt", frozen)]
pub struct PyAttempt {
    meeting: Arc<Mutex<Meeting>>,
    work: Arc<Work>,
    number: u32,
}

#[pymethods]
impl PyAttempt {
    /// From 1.
    #[getter]
    fn number(&self) -> u32 {
        self.number
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (_type, value, _traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _type: Bound<'_, PyAny>,
        value: Bound<'_, PyAny>,
        _traceback: Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let is_error = value.is_instance_of::<PyException>();
        let result = if value.is_none() { Ok(py.None()) } else { Err(PyErr::from_value(value)) };
        let was_raised = result.is_err();
        let ended = self.work.judged(py, result);
        let waker = {
            let mut meeting = self.meeting.lock();
            if meeting.ended.is_some() {
                return Err(PyRuntimeError::new_err("this attempt ended before"));
            }
            meeting.ended = Some(ended);
            meeting.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        // Whoever wants out is let out; an error is for the policy to judge.
        Ok(was_raised && is_error)
    }
}
