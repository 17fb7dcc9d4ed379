//! A function of the user's as a future of the SDK: polled, it is called in place.
//!
//! - A plain function is called and has returned.
//! - A plain function that may have to be left alone (under a timeout, beside a hedge) runs in a thread. It cannot be
//!   cancelled: whoever stops waiting for it lets it run to its end.
//! - A coroutine runs inside of the task that awaits the whole: see [`Answer`](crate::answer::Answer).
//! - Several coroutines at once (hedges, a dispatcher) are tasks.

mod attempt;

use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use resil::{Error, Failure};

pub use self::attempt::Attempt;
use crate::drive::Running;
use crate::pending::call;
use crate::stage::Stage;

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
        Attempt::new(Arc::clone(self), None)
    }

    /// The same with one more argument in front of the others.
    pub fn attempt_with(self: &Arc<Self>, first: Py<PyAny>) -> Attempt {
        Attempt::new(Arc::clone(self), Some(first))
    }

    /// What another function says to the same arguments.
    pub fn asked<'py>(&self, py: Python<'py>, function: &Py<PyAny>) -> PyResult<Bound<'py, PyAny>> {
        call(function.bind(py), self.args.bind(py), self.kwargs.as_ref().map(|kwargs| kwargs.bind(py)))
    }

    fn call(&self, py: Python<'_>, first: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        let kwargs = self.kwargs.as_ref().map(|kwargs| kwargs.bind(py));
        let func = self.func.bind(py);
        match first {
            None => call(func, self.args.bind(py), kwargs).map(Bound::unbind),
            Some(first) => {
                let first = PyTuple::new(py, [first])?;
                let args = first.as_sequence().concat(self.args.bind(py).as_sequence())?.to_tuple()?;
                call(func, &args, kwargs).map(Bound::unbind)
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
