//! A function of the user's as a future of the SDK: polled, it is called in place.
//!
//! - A plain function is called and has returned.
//! - A plain function that may have to be left alone (under a timeout, beside a hedge) runs in a thread. It cannot be
//!   cancelled: whoever stops waiting for it lets it run to its end.
//! - A coroutine runs inside of the task that awaits the whole: see [`Answer`](crate::answer::Answer).
//! - Several coroutines at once (hedges, a dispatcher) are tasks.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use pyo3::exceptions::{PyException, PyRuntimeError, PyStopIteration, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use resil::{Error, Failure};

use crate::drive::Running;
use crate::event_loop::EventLoop;
use crate::kind::is_coroutine;
use crate::stage::Stage;
use crate::task::{LoopTask, Prepared, Threaded};

/// What a function of the user's came to, to the SDK.
pub type Ended = Result<Py<PyAny>, Failure<PyErr>>;

/// How a function is run.
#[derive(Clone)]
pub enum How {
    /// Called in place.
    Here,
    InThread,
    /// A coroutine, inside of the awaiting task.
    Inside(Arc<Stage>),
    /// A coroutine, in a task of its own.
    AsTask,
}

/// A function of the user's with its arguments.
pub struct Work {
    func: Py<PyAny>,
    args: Py<PyTuple>,
    kwargs: Option<Py<PyDict>>,
    how: How,
    /// An error of ours that came through a function of the user's, as the object it was; or one that is not for any
    /// policy to judge (KeyboardInterrupt, CancelledError).
    seen: Mutex<Option<(Error, PyErr)>>,
    /// A classifier or a key function that failed: what everybody gets to see instead.
    broken: Mutex<Option<PyErr>>,
}

impl Work {
    pub fn new(
        func: Bound<'_, PyAny>,
        args: Bound<'_, PyTuple>,
        kwargs: Option<Bound<'_, PyDict>>,
        how: How,
    ) -> Arc<Self> {
        let (func, args, kwargs) = (func.unbind(), args.unbind(), kwargs.map(Bound::unbind));
        Arc::new(Self { func, args, kwargs, how, seen: Mutex::new(None), broken: Mutex::new(None) })
    }

    /// A whole policy around it, with its end as the user is to see it.
    pub fn running(self: Arc<Self>, policy: impl Future<Output = Ended> + Send + 'static) -> Running {
        Box::pin(async move {
            let ended = policy.await;
            Python::attach(|py| self.finish(py, ended))
        })
    }

    /// One attempt at it.
    pub fn attempt(self: &Arc<Self>) -> Attempt {
        Attempt { work: Arc::clone(self), first: None, state: State::New }
    }

    /// The same with one more argument in front of the others.
    pub fn attempt_with(self: &Arc<Self>, first: Py<PyAny>) -> Attempt {
        Attempt { work: Arc::clone(self), first: Some(first), state: State::New }
    }

    /// What another function says to the same arguments.
    pub fn asked<'py>(&self, py: Python<'py>, function: &Py<PyAny>) -> PyResult<Bound<'py, PyAny>> {
        function.bind(py).call(self.args.bind(py), self.kwargs.as_ref().map(|kwargs| kwargs.bind(py)))
    }

    fn call(&self, py: Python<'_>, first: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        let kwargs = self.kwargs.as_ref().map(|kwargs| kwargs.bind(py));
        let func = self.func.bind(py);
        match first {
            None => func.call(self.args.bind(py), kwargs).map(Bound::unbind),
            Some(first) => {
                let first = PyTuple::new(py, [first])?;
                let args = first.as_sequence().concat(self.args.bind(py).as_sequence())?.to_tuple()?;
                func.call(args, kwargs).map(Bound::unbind)
            }
        }
    }

    /// The function as something a thread or a task can call.
    pub fn bound(&self, py: Python<'_>, first: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        static PARTIAL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let head: Vec<_> = std::iter::once(self.func.clone_ref(py)).chain(first).collect();
        let head = PyTuple::new(py, head)?;
        let args = head.as_sequence().concat(self.args.bind(py).as_sequence())?.to_tuple()?;
        let kwargs = self.kwargs.as_ref().map(|kwargs| kwargs.bind(py));
        PARTIAL.import(py, "functools", "partial")?.call(args, kwargs).map(Bound::unbind)
    }

    pub fn how(&self) -> &How {
        &self.how
    }

    /// A failure as an exception, for those who judge it; the whole is not over yet.
    pub fn peek(&self, py: Python<'_>, failure: &Failure<PyErr>) -> PyErr {
        match failure {
            Failure::Inner(error) => error.clone_ref(py),
            Failure::Resil(error) => {
                let seen = self.seen.lock().as_ref().map(|(seen, original)| (seen == error, original.clone_ref(py)));
                match seen {
                    Some((true, original)) => original,
                    _ => crate::errors::exception(py, error),
                }
            }
            Failure::Exhausted { attempts, last } => {
                crate::errors::exhausted(py, *attempts, last.retry_after(), self.peek(py, last))
            }
        }
    }

    pub fn break_with(&self, error: PyErr) {
        self.broken.lock().get_or_insert(error);
    }

    /// What the function came to, as policies are to see it.
    pub fn judged(&self, py: Python<'_>, result: PyResult<Py<PyAny>>) -> Ended {
        let error = match result {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let (failure, original) = failure(py, error);
        if let (Failure::Resil(ours), Some(original)) = (&failure, original) {
            *self.seen.lock() = Some((ours.clone(), original));
        }
        Err(failure)
    }

    /// What the whole came to, as the user is to see it.
    pub fn finish(&self, py: Python<'_>, ended: Ended) -> PyResult<Py<PyAny>> {
        let broken = self.broken.lock().take();
        if let Some(broken) = broken {
            return Err(broken);
        }
        let failure = match ended {
            Ok(value) => return Ok(value),
            Err(failure) => failure,
        };
        Err(self.error(py, failure))
    }

    /// The same as an exception that is raised.
    pub fn error(&self, py: Python<'_>, failure: Failure<PyErr>) -> PyErr {
        match failure {
            Failure::Inner(error) => error,
            Failure::Resil(error) => {
                let seen = self.seen.lock().take();
                match seen {
                    Some((seen, original)) if seen == error => original,
                    _ => crate::errors::exception(py, &error),
                }
            }
            Failure::Exhausted { attempts, last } => {
                let retry_after = last.retry_after();
                let cause = self.error(py, *last);
                crate::errors::exhausted(py, attempts, retry_after, cause)
            }
        }
    }
}

/// An exception as policies are to see it; and itself, if they do not.
pub fn failure(py: Python<'_>, error: PyErr) -> (Failure<PyErr>, Option<PyErr>) {
    match crate::errors::ours(py, &error) {
        Some(ours) => (Failure::Resil(ours), Some(error)),
        None if error.is_instance_of::<PyException>(py) => (Failure::Inner(error), None),
        // Not an error of the call: whoever raised it wants out.
        None => (Failure::Resil(Error::Cancelled), Some(error)),
    }
}

/// A failure whose own error is a failure: one failure.
pub fn flat(failure: Failure<Failure<PyErr>>) -> Failure<PyErr> {
    match failure {
        Failure::Inner(failure) => failure,
        Failure::Resil(error) => Failure::Resil(error),
        Failure::Exhausted { attempts, last } => Failure::Exhausted { attempts, last: Box::new(flat(*last)) },
    }
}

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
