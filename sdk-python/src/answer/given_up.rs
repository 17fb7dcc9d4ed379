//! A coroutine that the policy around it gave up on: cancelled as asyncio does it, and run to its end.

use std::sync::Arc;
use std::task::{Poll, Waker};

use pyo3::intern;
use pyo3::prelude::*;

use super::Answer;
use crate::stage::{Resume, Stage};

impl Answer {
    /// Hands on what the task says, to the coroutine that runs or to one that was given up on. `Some`: it waits again.
    pub(super) fn go_on_unwinding(
        &mut self,
        py: Python<'_>,
        stage: &Stage,
        resume: Resume,
    ) -> PyResult<Option<Py<PyAny>>> {
        let Some(coroutine) = stage.take_unwinding() else {
            stage.resume(resume);
            return Ok(None);
        };
        let resume = match resume {
            // What it waited on was done before it could be cancelled.
            Resume::Send(_) if self.cancelled_by_us.is_some() && !stage.set_told() => Resume::Throw(cancelled(py)?),
            other => {
                stage.set_told();
                other
            }
        };
        match resume.give_to(py, &coroutine) {
            Ok(yielded) => {
                stage.unwind(coroutine);
                self.waits_on = Some(yielded.clone_ref(py));
                Ok(Some(yielded))
            }
            // However it ended: it is the policy that says what came of it.
            Err(_) => {
                let before = self.cancelled_by_us.take();
                if before.is_some_and(|before| times_cancelled(py) > before) {
                    self.drop_running();
                    self.ended = Some(Err(cancelled(py)?));
                }
                Ok(None)
            }
        }
    }

    /// A coroutine that was given up on just when it was to go on is cancelled in place. `Some`: it waits, to clean up.
    pub(super) fn tell_given_up(&mut self, py: Python<'_>, stage: &Stage) -> PyResult<Option<Py<PyAny>>> {
        let Some(coroutine) = stage.take_unwinding() else { return Ok(None) };
        stage.set_told();
        let before = times_cancelled(py);
        match Resume::Throw(cancelled(py)?).give_to(py, &coroutine) {
            Ok(yielded) => {
                stage.unwind(coroutine);
                self.cancelled_by_us = Some(before);
                self.waits_on = Some(yielded.clone_ref(py));
                Ok(Some(yielded))
            }
            Err(_) => Ok(None),
        }
    }

    /// Something of ours moved while the user's coroutine waits: a timer ran out, a lock was lost.
    pub fn look_again(slf: &Bound<'_, Self>) {
        let py = slf.py();
        let Ok(mut this) = slf.try_borrow_mut() else { return };
        let (Some(waiter), Some(stage)) = (this.waiter.clone(), this.stage.clone()) else { return };
        if this.waits_on.is_none() || this.ended.is_some() {
            return;
        }
        loop {
            waiter.take_woken();
            match this.poll(&Waker::from(Arc::clone(&waiter))) {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(result)) => this.ended = Some(result),
                Err(error) => this.ended = Some(Err(error)),
            }
            if this.ended.is_some() || !waiter.take_woken() {
                break;
            }
        }
        if this.ended.is_none() && !stage.is_unwinding() {
            let _ = waiter.theirs(slf);
            return;
        }
        // The coroutine is not wanted any more.
        this.cancelled_by_us = Some(times_cancelled(py));
        if let Some(waits_on) = &this.waits_on {
            // `None` (a bare yield) goes on by itself, and is told then.
            let _ = waits_on.call_method0(py, intern!(py, "cancel"));
        }
    }
}

fn cancelled(py: Python<'_>) -> PyResult<PyErr> {
    Ok(PyErr::from_value(py.import("asyncio")?.getattr("CancelledError")?.call0()?))
}

/// How often the task that runs was cancelled by others; 0 where Python cannot tell (before 3.11).
fn times_cancelled(py: Python<'_>) -> usize {
    let task = py.import("asyncio").and_then(|asyncio| asyncio.call_method0("current_task"));
    task.and_then(|task| task.call_method0("cancelling")).and_then(|times| times.extract()).unwrap_or(0)
}
