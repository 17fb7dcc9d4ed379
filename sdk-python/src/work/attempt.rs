//! One run of a function of the user's, polled.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pyo3::exceptions::{PyRuntimeError, PyStopIteration, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;

use super::{Ended, How, Work};
use crate::event_loop::EventLoop;
use crate::kind::is_coroutine;
use crate::stage::Stage;
use crate::task::{LoopTask, Prepared, Threaded};

enum State {
    New,
    Inside { stage: Arc<Stage>, coroutine: Py<PyAny> },
    Elsewhere(Pin<Box<dyn Future<Output = PyResult<Py<PyAny>>> + Send>>),
    Over,
}

/// One run of the function. Dropped, it is left alone or cancelled.
pub struct Attempt {
    work: Arc<Work>,
    first: Option<Py<PyAny>>,
    state: State,
}

impl Attempt {
    pub(super) fn new(work: Arc<Work>, first: Option<Py<PyAny>>) -> Self {
        Self { work, first, state: State::New }
    }

    fn begin(&mut self, py: Python<'_>) -> PyResult<Poll<PyResult<Py<PyAny>>>> {
        let first = self.first.take();
        match &self.work.how {
            How::Here => {
                self.state = State::Over;
                let value = self.work.call(py, first)?;
                if is_coroutine(py, &value)? {
                    let _ = value.call_method0(py, "close");
                    return Err(PyTypeError::new_err(
                        "fn returned a coroutine: pass the coroutine function itself, and await what comes back",
                    ));
                }
                Ok(Poll::Ready(Ok(value)))
            }
            How::InThread => {
                let prepared = Prepared::new(py, self.work.bound(py, first)?)?;
                let threaded = Threaded::start(prepared, Box::new(|_, result| result))?;
                self.state = State::Elsewhere(Box::pin(async move { threaded.await? }));
                Ok(Poll::Pending)
            }
            How::AsTask => {
                let prepared = Prepared::new(py, self.work.bound(py, first)?)?;
                let home = EventLoop::current(py)?.1;
                let task = LoopTask::start(&home, prepared, Box::new(|_, result| result));
                self.state = State::Elsewhere(Box::pin(async move { task.await? }));
                Ok(Poll::Pending)
            }
            How::Inside(stage) => {
                if stage.is_unwinding() {
                    // The one before is still cleaning up; the answer polls again when it has ended.
                    self.first = first;
                    return Ok(Poll::Pending);
                }
                let stage = Arc::clone(stage);
                let awaitable = self.work.call(py, first)?;
                let coroutine = if is_coroutine(py, &awaitable)? {
                    awaitable
                } else {
                    awaitable.call_method0(py, intern!(py, "__await__"))?
                };
                stage.begin(py);
                self.state = State::Inside { stage, coroutine };
                Ok(Poll::Pending)
            }
        }
    }
}

impl Future for Attempt {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ended> {
        Python::attach(|py| {
            let this = &mut *self;
            if matches!(this.state, State::New) {
                match this.begin(py) {
                    Ok(Poll::Ready(result)) => return Poll::Ready(this.work.judged(py, result)),
                    Ok(Poll::Pending) => {}
                    Err(error) => {
                        this.state = State::Over;
                        return Poll::Ready(this.work.judged(py, Err(error)));
                    }
                }
            }
            let result = match &mut this.state {
                State::New => return Poll::Pending,
                State::Over => Err(PyRuntimeError::new_err("a run of the function was polled after its end")),
                State::Elsewhere(running) => match running.as_mut().poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(result) => result,
                },
                State::Inside { stage, coroutine } => {
                    let Some(resume) = stage.take_resume() else { return Poll::Pending };
                    match resume.give_to(py, coroutine) {
                        Ok(yielded) => {
                            stage.yields(yielded);
                            return Poll::Pending;
                        }
                        Err(error) if error.is_instance_of::<PyStopIteration>(py) => {
                            error.value(py).getattr(intern!(py, "value")).map(Bound::unbind)
                        }
                        Err(error) => Err(error),
                    }
                }
            };
            this.state = State::Over;
            Poll::Ready(this.work.judged(py, result))
        })
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let State::Inside { stage, coroutine } = std::mem::replace(&mut self.state, State::Over) {
            // It was begun: it has to run to its end.
            stage.unwind(coroutine);
        }
    }
}
