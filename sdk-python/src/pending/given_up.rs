//! A coroutine that the policy around it gave up on: cancelled as asyncio does it, and run to its end.

use std::task::{Poll, Waker};

use super::Pending;
use crate::prelude::*;

impl Pending {
    /// Hands on what the task says, to the coroutine that runs or to one that was given up on. `Some`: it waits again.
    pub(super) fn continue_unwinding(
        &mut self,
        py: Python<'_>,
        stage: &SharedStage,
        resume: Resume,
    ) -> PyResult<Option<Object>> {
        let unwinding = stage.lock().unwinding.take();
        let Some(coroutine) = unwinding else {
            stage.lock().resume = Some(resume);
            return Ok(None);
        };
        let had_result = std::mem::replace(&mut stage.lock().has_result, true);
        let resume = match resume {
            // What it waited on was done before it could be cancelled.
            Resume::Send(_) if self.cancelled_by_us.is_some() && !had_result => Resume::Throw(cancelled(py)?),
            other => {
                if let Some(others) = self.cancelled_by_us.as_mut().filter(|_| had_result) {
                    others.hear(py, &other)?;
                }
                other
            }
        };
        match resume.give_to(py, &coroutine) {
            Ok(yielded) => {
                stage.lock().unwinding = Some(coroutine);
                self.waits_on = Some(yielded.clone_ref(py));
                Ok(Some(yielded))
            }
            // However it ended: it is the policy that says what came of it.
            Err(_) => {
                if self.cancelled_by_us.take().is_some_and(|others| others.have_cancelled(py)) {
                    self.drop_running();
                    self.ended = Some(Err(cancelled(py)?));
                }
                Ok(None)
            }
        }
    }

    /// A coroutine that was given up on just when it was to go on is cancelled in place. `Some`: it waits, to clean up.
    pub(super) fn tell_given_up(&mut self, py: Python<'_>, stage: &SharedStage) -> PyResult<Option<Object>> {
        let Some(coroutine) = stage.lock().unwinding.take() else { return Ok(None) };
        stage.lock().has_result = true;
        let others = Others::from_now_on(py);
        match Resume::Throw(cancelled(py)?).give_to(py, &coroutine) {
            Ok(yielded) => {
                stage.lock().unwinding = Some(coroutine);
                self.cancelled_by_us = Some(others);
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
        if this.ended.is_none() && stage.lock().unwinding.is_none() {
            let _ = waiter.theirs(slf);
            return;
        }
        // The coroutine is not wanted any more.
        this.cancelled_by_us = Some(Others::from_now_on(py));
        if let Some(waits_on) = &this.waits_on {
            // `None` (a bare yield) goes on by itself, and gets it then.
            let _ = waits_on.call_method0(py, intern!(py, "cancel"));
        }
    }
}

fn cancelled(py: Python<'_>) -> PyResult<PyErr> {
    Ok(PyErr::from_value(py.import("asyncio")?.getattr("CancelledError")?.call0()?))
}

/// Whether somebody else cancels the task while a coroutine cleans up that we gave up on.
pub(super) struct Others {
    /// How often it had been cancelled before. `None`: Python cannot tell (before 3.11).
    before: Option<usize>,
    /// A cancellation came in after ours. Where Python cannot tell whose it is, it is taken for somebody's who cancels the
    /// task: better a cancellation too many than one that is lost.
    is_heard: bool,
}

impl Others {
    fn from_now_on(py: Python<'_>) -> Self {
        Self { before: times_cancelled(py), is_heard: false }
    }

    fn hear(&mut self, py: Python<'_>, resume: &Resume) -> PyResult<()> {
        if let (None, Resume::Throw(error)) = (self.before, resume) {
            self.is_heard |= error.matches(py, py.import("asyncio")?.getattr("CancelledError")?)?;
        }
        Ok(())
    }

    fn have_cancelled(&self, py: Python<'_>) -> bool {
        match self.before {
            Some(before) => times_cancelled(py).is_some_and(|times| times > before),
            None => self.is_heard,
        }
    }
}

/// How often the task that runs was cancelled by others.
fn times_cancelled(py: Python<'_>) -> Option<usize> {
    let task = py.import("asyncio").and_then(|asyncio| asyncio.call_method0("current_task")).ok()?;
    task.call_method0("cancelling").and_then(|times| times.extract()).ok()
}
