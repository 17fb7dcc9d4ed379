//! A function of the user's as a future of the SDK: polled, it is called in place.
//!
//! - A plain function is called and has returned.
//! - A plain function that may have to be left alone (under a timeout, beside a hedge) runs in a thread. It cannot be
//!   cancelled: a policy that stops waiting for it lets it run to its end.
//! - A coroutine runs inside of the task that awaits the whole: see [`Pending`](crate::pending::Pending).
//! - Several coroutines at once (hedges, a dispatcher) are tasks.

mod attempt;

use std::future::Future;

use pyo3::exceptions::PyException;

pub use self::attempt::{Resume, SharedStage};
use crate::edge::call;
use crate::prelude::*;

/// What a function of the user's came to, to the SDK.
pub type Ended = Result<Object, Failure<PyErr>>;

/// How a function is run.
#[derive(Clone)]
pub enum How {
    /// Called in place.
    Here,
    /// A plain function in a thread, a coroutine function as a task.
    Beside(Kind),
    /// A coroutine, inside of the awaiting task.
    Inside(SharedStage),
}

/// A function of the user's with its arguments.
pub struct Work {
    func: Object,
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
    pub fn new(func: Arg<'_>, args: Args<'_>, kwargs: Option<Kwargs<'_>>, how: How) -> Arc<Self> {
        let (func, args) = (func.clone().unbind(), args.clone().unbind());
        let kwargs = kwargs.map(|kwargs| kwargs.clone().unbind());
        Arc::new(Self { func, args, kwargs, how, seen: Mutex::new(None), broken: Mutex::new(None) })
    }

    /// A whole policy around it, with its end as the user is to see it.
    pub fn running<F>(self: Arc<Self>, policy: impl FnOnce(Arc<Self>) -> F) -> Running
    where
        F: Future<Output = Ended> + Send + 'static,
    {
        let running = policy(Arc::clone(&self));
        Box::pin(async move {
            let ended = running.await;
            Python::attach(|py| self.finish(py, ended))
        })
    }

    /// One attempt at it.
    pub fn attempt(self: &Arc<Self>) -> impl Future<Output = Ended> + Send + use<> {
        self.attempt_with(None)
    }

    /// The same with one more argument in front of the others.
    pub fn attempt_with(self: &Arc<Self>, first: Option<Object>) -> impl Future<Output = Ended> + Send + use<> {
        Arc::clone(self).run(first)
    }

    /// What another function says to the same arguments.
    pub fn asked<'py>(&self, py: Python<'py>, function: &Object) -> PyResult<Bound<'py, PyAny>> {
        call(function.bind(py), self.args.bind(py), self.kwargs.as_ref().map(|kwargs| kwargs.bind(py)))
    }

    fn call(&self, py: Python<'_>, first: Option<Object>) -> PyResult<Object> {
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
    pub fn bound(&self, py: Python<'_>, first: Option<Object>) -> PyResult<Object> {
        let head: Vec<_> = std::iter::once(self.func.clone_ref(py)).chain(first).collect();
        let head = PyTuple::new(py, head)?;
        let args = head.as_sequence().concat(self.args.bind(py).as_sequence())?.to_tuple()?;
        let kwargs = self.kwargs.as_ref().map(|kwargs| kwargs.bind(py));
        imported!(py, "functools", "partial")?.call(args, kwargs).map(Bound::unbind)
    }

    pub fn how(&self) -> &How {
        &self.how
    }

    /// A failure as an exception.
    pub fn error(&self, py: Python<'_>, failure: &Failure<PyErr>) -> PyErr {
        match failure {
            Failure::Inner(error) => error.clone_ref(py),
            Failure::Resil(error) => {
                let seen = self.seen.lock().as_ref().filter(|(seen, _)| seen == error).map(|(_, it)| it.clone_ref(py));
                seen.unwrap_or_else(|| exception(py, error))
            }
            Failure::Exhausted { attempts, last } => {
                crate::errors::exhausted(py, *attempts, last.retry_after(), self.error(py, last))
            }
        }
    }

    pub fn break_with(&self, error: PyErr) {
        self.broken.lock().get_or_insert(error);
    }

    /// What the function came to, as policies are to see it.
    pub fn judged(&self, py: Python<'_>, result: PyResult<Object>) -> Ended {
        result.map_err(|error| {
            let (failure, original) = failure(py, error);
            if let (Failure::Resil(ours), Some(original)) = (&failure, original) {
                *self.seen.lock() = Some((ours.clone(), original));
            }
            failure
        })
    }

    /// What the whole came to, as the user is to see it.
    pub fn finish(&self, py: Python<'_>, ended: Ended) -> PyResult<Object> {
        let broken = self.broken.lock().take();
        broken.map_or_else(|| ended.map_err(|failure| self.error(py, &failure)), Err)
    }
}

/// An exception as policies are to see it; and itself, if they do not.
pub fn failure(py: Python<'_>, error: PyErr) -> (Failure<PyErr>, Option<PyErr>) {
    match crate::errors::ours(py, &error) {
        Some(ours) => (Failure::Resil(ours), Some(error)),
        None if error.is_instance_of::<PyException>(py) => (Failure::Inner(error), None),
        // Not an error of the call: its caller wants out.
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
