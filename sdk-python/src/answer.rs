//! What every method gives back: an answer that can be awaited, or waited for.
//!
//! `await answer` under asyncio, `answer.wait()` in a thread: one object, one path. Nothing happens before that, as with a
//! coroutine, and like one it complains if it was forgotten.
//!
//! # How it is driven
//! The future of the SDK is polled here, on the thread that asks. Most are ready at once. One that is not gives its task a
//! future of asyncio, or lets go of the GIL and sleeps. While a coroutine of the user's runs inside, whatever it
//! waits on goes out to the task as it is: there is no second task, so context variables, cancellation and tracebacks are
//! as if the policy were not there.
//!
//! # When the policy gives up on a coroutine
//! (A timeout, a lost lock.) The coroutine is cancelled as asyncio does it, by cancelling what it waits on, and has run to
//! its end before anything else happens.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyRuntimeWarning, PyStopIteration, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;

use crate::event_loop::{self, Waiter};
use crate::runtime;
use crate::stage::{Resume, Stage};

/// A future of the SDK with its result already made a Python object.
pub type Running = Pin<Box<dyn Future<Output = PyResult<Py<PyAny>>> + Send>>;

/// How often a thread that waits looks whether it was interrupted (Ctrl-C).
const LOOK_FOR_SIGNALS: Duration = Duration::from_millis(50);

/// An answer to be awaited (`await answer`) or waited for (`answer.wait()`).
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> client.is_shutting_down
/// False
#[pyclass(module = "resil", weakref, generic)]
pub struct Answer {
    /// Never locked: only what is lent for writing is polled.
    running: Mutex<Option<Running>>,
    /// Where a function of the user's runs, if one does.
    stage: Option<Arc<Stage>>,
    waiter: Option<Arc<Waiter>>,
    /// The result, while a coroutine that was given up on runs to its end.
    ended: Option<PyResult<Py<PyAny>>>,
    /// What the task was given to wait on for the user's coroutine.
    waits_on: Option<Py<PyAny>>,
    /// Whether it is on us that what it waits on was cancelled, and how often the task had been cancelled before.
    cancelled_by_us: Option<usize>,
    what: &'static str,
    is_begun: bool,
}

impl Answer {
    pub fn new(what: &'static str, running: impl Future<Output = PyResult<Py<PyAny>>> + Send + 'static) -> Self {
        Self::on_stage(what, None, Box::pin(running))
    }

    pub fn on_stage(what: &'static str, stage: Option<Arc<Stage>>, running: Running) -> Self {
        Self {
            running: Mutex::new(Some(running)),
            stage,
            waiter: None,
            ended: None,
            waits_on: None,
            cancelled_by_us: None,
            what,
            is_begun: false,
        }
    }

    fn poll(&mut self, waker: &Waker) -> PyResult<Poll<PyResult<Py<PyAny>>>> {
        let Some(running) = self.running.get_mut() else {
            return Err(PyRuntimeError::new_err(format!("{} was awaited before", self.what)));
        };
        let _inside = runtime::enter()?;
        let polled = poll_caught(running, waker);
        if polled.is_ready() {
            *self.running.get_mut() = None;
        }
        Ok(polled)
    }

    /// Drops what runs, where it can still spawn what it has to say.
    fn drop_running(&mut self) {
        if self.running.get_mut().is_some() {
            let _inside = runtime::enter();
            *self.running.get_mut() = None;
        }
    }

    /// Goes on until there is a result (`Err(StopIteration)`) or something to wait on.
    fn step(slf: &Bound<'_, Self>, resume: Resume) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let mut this = slf.try_borrow_mut().map_err(|_| PyRuntimeError::new_err("already being awaited"))?;
        this.is_begun = true;
        if let Some(waiter) = &this.waiter {
            waiter.nothing();
        }
        let stage = this.stage.clone();
        match (&stage, resume) {
            (Some(stage), resume) if this.waits_on.take().is_some() => {
                if let Some(yielded) = this.go_on_unwinding(py, stage, resume)? {
                    return Ok(yielded);
                }
            }
            // Nobody of the user's is inside: what runs is dropped where it is.
            (_, Resume::Throw(error)) => {
                this.drop_running();
                this.ended = None;
                return Err(error);
            }
            (_, Resume::Send(_)) => {}
        }
        if let Some(ended) = this.ended.take() {
            return Err(this.finished(py, ended));
        }
        loop {
            let waker = this.waiter.as_ref().map(|waiter| Waker::from(Arc::clone(waiter)));
            let polled = this.poll(waker.as_ref().unwrap_or(Waker::noop()))?;
            if let Poll::Ready(result) = polled {
                this.ended = Some(result);
            }
            if let Some(stage) = &stage
                && let Some(yielded) = this.tell_given_up(py, stage)?
            {
                return Ok(yielded);
            }
            if let Some(ended) = this.ended.take() {
                return Err(this.finished(py, ended));
            }
            let Some(waiter) = this.waiter.clone() else {
                // The first time that it is not ready at once: from now on somebody listens.
                this.waiter = Some(Waiter::new(py)?);
                continue;
            };
            if let Some(yielded) = stage.as_ref().and_then(|stage| stage.take_yielded()) {
                this.waits_on = Some(yielded.clone_ref(py));
                waiter.theirs(slf)?;
                if waiter.take_woken() {
                    // Something of ours moved while the coroutine ran.
                    std::task::Wake::wake_by_ref(&waiter);
                }
                return Ok(yielded);
            }
            if !waiter.take_woken() {
                return Ok(waiter.future(py)?.unbind());
            }
        }
    }

    /// Hands on what the task says, to the coroutine that runs or to one that was given up on. `Some`: it waits again.
    fn go_on_unwinding(&mut self, py: Python<'_>, stage: &Stage, resume: Resume) -> PyResult<Option<Py<PyAny>>> {
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
    fn tell_given_up(&mut self, py: Python<'_>, stage: &Stage) -> PyResult<Option<Py<PyAny>>> {
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

    fn finished(&mut self, py: Python<'_>, result: PyResult<Py<PyAny>>) -> PyErr {
        *self.running.get_mut() = None;
        match result {
            Ok(value) => stop_iteration(py, value),
            Err(error) => error,
        }
    }
}

fn stop_iteration(py: Python<'_>, value: Py<PyAny>) -> PyErr {
    match py.get_type::<PyStopIteration>().call1((value,)) {
        Ok(stop) => PyErr::from_value(stop),
        Err(error) => error,
    }
}

/// No panic gets out: it would take the interpreter along.
fn poll_caught(running: &mut Running, waker: &Waker) -> Poll<PyResult<Py<PyAny>>> {
    let mut context = Context::from_waker(waker);
    catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(&mut context))).unwrap_or_else(|_| {
        let error = resil::Error::Internal("a panic inside of the SDK".to_owned());
        Poll::Ready(Err(Python::attach(|py| crate::errors::exception(py, &error))))
    })
}

fn cancelled(py: Python<'_>) -> PyResult<PyErr> {
    Ok(PyErr::from_value(py.import("asyncio")?.getattr("CancelledError")?.call0()?))
}

/// How often the task that runs was cancelled by others; 0 where Python cannot tell (before 3.11).
fn times_cancelled(py: Python<'_>) -> usize {
    let task = py.import("asyncio").and_then(|asyncio| asyncio.call_method0("current_task"));
    task.and_then(|task| task.call_method0("cancelling")).and_then(|times| times.extract()).unwrap_or(0)
}

/// Runs to the end on this thread, which sleeps without the GIL while there is nothing to do.
pub fn drive(py: Python<'_>, mut running: Running) -> PyResult<Py<PyAny>> {
    let _inside = runtime::enter()?;
    if let Poll::Ready(result) = poll_caught(&mut running, Waker::noop()) {
        return result;
    }
    let waker = Waker::from(Arc::new(Sleeper(std::thread::current())));
    loop {
        if let Poll::Ready(result) = poll_caught(&mut running, &waker) {
            return result;
        }
        py.detach(|| std::thread::park_timeout(LOOK_FOR_SIGNALS));
        py.check_signals()?;
    }
}

struct Sleeper(std::thread::Thread);

impl std::task::Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

#[pymethods]
impl Answer {
    /// Waits for it on this thread, and gives the value. Other threads run meanwhile. Not under a running event loop: await
    /// it there.
    fn wait(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        refuse_to_block(py, "await it")?;
        let (running, what) = {
            let mut this = slf.try_borrow_mut().map_err(|_| PyRuntimeError::new_err("already being awaited"))?;
            let is_first = !std::mem::replace(&mut this.is_begun, true);
            (this.running.get_mut().take().filter(|_| is_first), this.what)
        };
        match running {
            Some(running) => drive(py, running),
            None => Err(PyRuntimeError::new_err(format!("{what} was awaited before"))),
        }
    }

    fn __await__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        Self::step(slf, Resume::Send(slf.py().None()))
    }

    fn send(slf: &Bound<'_, Self>, value: Py<PyAny>) -> PyResult<Py<PyAny>> {
        Self::step(slf, Resume::Send(value))
    }

    #[pyo3(signature = (typ, val=None, tb=None, /))]
    fn throw(
        slf: &Bound<'_, Self>,
        typ: Bound<'_, PyAny>,
        val: Option<Bound<'_, PyAny>>,
        tb: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let _ = tb;
        let error = match val {
            Some(value) if value.is_instance_of::<pyo3::exceptions::PyBaseException>() => PyErr::from_value(value),
            Some(value) => PyErr::from_value(typ.call1((value,))?),
            None => PyErr::from_value(typ),
        };
        Self::step(slf, Resume::Throw(error))
    }

    fn close(&mut self) {
        self.is_begun = true;
        self.drop_running();
        self.ended = None;
        self.waits_on = None;
    }

    /// An answer that nobody waited for says nothing: `if limiter.check(key)` would always be true.
    fn __bool__(&self) -> PyResult<bool> {
        Err(PyTypeError::new_err(format!("{} has no answer yet: await it, or call .wait()", self.what)))
    }

    fn __repr__(&self) -> String {
        format!("<resil.Answer of {}>", self.what)
    }
}

/// Says so where a thread would block its own event loop.
pub fn refuse_to_block(py: Python<'_>, instead: &str) -> PyResult<()> {
    match event_loop::running(py)? {
        None => Ok(()),
        Some(_) => {
            Err(PyRuntimeError::new_err(format!("this would block the event loop that runs on this thread: {instead}")))
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.drop_running();
        if !self.is_begun {
            let text = format!("{} was never awaited, nor waited for: it did not happen", self.what);
            Python::attach(|py| {
                let Ok(text) = std::ffi::CString::new(text) else { return };
                if let Err(error) = PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1) {
                    error.write_unraisable(py, None);
                }
            });
        }
    }
}
