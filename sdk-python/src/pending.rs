//! What every method that may have to wait returns: a call that is awaited, or waited for.
//!
//! `await pending` under asyncio, `pending.wait()` in a thread: one object, one path. Nothing happens before that, as with a
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

mod given_up;

use std::future::Future;
use std::task::{Poll, Waker};

use pyo3::exceptions::{PyRuntimeWarning, PyStopIteration};

use self::given_up::Others;
use crate::edge::in_destructor;
use crate::prelude::*;

/// A call to be awaited (`await pending`) or waited for (`pending.wait()`).
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> client.is_shutting_down
/// False
#[pyclass(module = "resil", weakref, generic)]
pub struct Pending {
    /// Never locked: it is polled only through an exclusive borrow.
    running: Mutex<Option<OfProcess<Running>>>,
    /// Where a function of the user's runs, if one does.
    stage: Option<SharedStage>,
    waiter: Option<Arc<Waiter>>,
    /// The result, while a coroutine that was given up on runs to its end.
    ended: Option<PyResult<Object>>,
    /// What the task was given to wait on for the user's coroutine.
    waits_on: Option<Object>,
    /// Whether it is on us that what it waits on was cancelled, and who else cancels since.
    cancelled_by_us: Option<Others>,
    what: &'static str,
    is_begun: bool,
    generation: Generation,
}

impl Pending {
    pub fn new(what: &'static str, running: impl Future<Output = PyResult<Object>> + Send + 'static) -> Self {
        Self::on_stage(what, None, Box::pin(running))
    }

    /// A question to the SDK, with its reply as it converts.
    pub fn ask<T>(what: &'static str, asking: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self
    where
        T: for<'py> IntoPyObject<'py>,
    {
        Self::new(what, async move {
            let reply = raised_later(asking.await)?;
            Python::attach(|py| reply.into_py_any(py))
        })
    }

    /// The same where the reply is that it is done: None.
    pub fn done(what: &'static str, asking: impl Future<Output = Result<(), Error>> + Send + 'static) -> Self {
        Self::ask(what, async move { asking.await.map(|()| None::<bool>) })
    }

    /// The same with the reply as a dict.
    pub fn shown<T: serde::Serialize>(
        what: &'static str,
        asking: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Self {
        Self::new(what, async move {
            let reply = raised_later(asking.await)?;
            Python::attach(|py| shown(py, &reply))
        })
    }

    pub fn on_stage(what: &'static str, stage: Option<SharedStage>, running: Running) -> Self {
        let (running, generation) = (Mutex::new(Some(OfProcess::new(running))), Generation::now());
        let (waiter, ended, waits_on, cancelled_by_us, is_begun) = (None, None, None, None, false);
        Self { running, stage, waiter, ended, waits_on, cancelled_by_us, what, is_begun, generation }
    }

    fn poll(&mut self, waker: &Waker) -> PyResult<Poll<PyResult<Object>>> {
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
        if self.running.get_mut().is_some() && self.generation.is_here() {
            let _inside = runtime::enter();
            *self.running.get_mut() = None;
        }
    }

    /// Goes on until there is a result (`Err(StopIteration)`) or something to wait on.
    fn step(slf: &Bound<'_, Self>, resume: Resume) -> PyResult<Object> {
        let py = slf.py();
        let mut this = slf.try_borrow_mut().map_err(|_| PyRuntimeError::new_err("already being awaited"))?;
        this.generation.check()?;
        if !std::mem::replace(&mut this.is_begun, true)
            && let Some(running) = this.running.get_mut().take()
        {
            let running = of_caller(py, entered::within_blocks(py, running.into_inner())?);
            *this.running.get_mut() = Some(OfProcess::new(running));
        }
        if let Some(waiter) = &this.waiter {
            waiter.nothing();
        }
        let stage = this.stage.clone();
        match (&stage, resume) {
            (Some(stage), resume) if this.waits_on.take().is_some() => {
                if let Some(yielded) = this.continue_unwinding(py, stage, resume)? {
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
            if let Some(yielded) = stage.as_ref().and_then(|stage| stage.lock().yielded.take()) {
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

    fn finished(&mut self, py: Python<'_>, result: PyResult<Object>) -> PyErr {
        *self.running.get_mut() = None;
        match result {
            Ok(value) => stop_iteration(py, value),
            // To the caller that awaits, it would be a result. As in a generator, it is an error of its own.
            Err(error) if error.is_instance_of::<PyStopIteration>(py) => {
                let wrapped = PyRuntimeError::new_err("a function that was called raised StopIteration");
                wrapped.set_cause(py, Some(error));
                wrapped
            }
            Err(error) => error,
        }
    }
}

fn stop_iteration(py: Python<'_>, value: Object) -> PyErr {
    match py.get_type::<PyStopIteration>().call1((value,)) {
        Ok(stop) => PyErr::from_value(stop),
        Err(error) => error,
    }
}

#[pymethods]
impl Pending {
    /// Waits for it on this thread, and gives the value. Other threads run meanwhile. Not under a running event loop: await
    /// it there.
    fn wait(slf: &Bound<'_, Self>) -> PyResult<Object> {
        let py = slf.py();
        refuse_to_block(py, "await it")?;
        let (running, what) = {
            let mut this = slf.try_borrow_mut().map_err(|_| PyRuntimeError::new_err("already being awaited"))?;
            this.generation.check()?;
            let is_first = !std::mem::replace(&mut this.is_begun, true);
            (this.running.get_mut().take().filter(|_| is_first), this.what)
        };
        match running {
            Some(running) => drive(py, running.into_inner()),
            None => Err(PyRuntimeError::new_err(format!("{what} was awaited before"))),
        }
    }

    fn __await__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Object> {
        Self::step(slf, Resume::Send(slf.py().None()))
    }

    fn send(slf: &Bound<'_, Self>, value: Object) -> PyResult<Object> {
        Self::step(slf, Resume::Send(value))
    }

    #[pyo3(signature = (typ, val=None, tb=None, /))]
    fn throw(
        slf: &Bound<'_, Self>,
        typ: Bound<'_, PyAny>,
        val: Option<Bound<'_, PyAny>>,
        tb: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Object> {
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

    /// A call that nobody waited for says nothing: `if limiter.check(key)` would always be true.
    fn __bool__(&self) -> PyResult<bool> {
        Err(PyTypeError::new_err(format!("{} has no reply yet: await it, or call .wait()", self.what)))
    }

    fn __repr__(&self) -> String {
        format!("<resil.Pending {}>", self.what)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.drop_running();
        if !self.is_begun && self.generation.is_here() {
            let text = format!("{} was never awaited, nor waited for: it did not happen", self.what);
            in_destructor(|py| {
                let Ok(text) = std::ffi::CString::new(text) else { return };
                if let Err(error) = PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1) {
                    error.write_unraisable(py, None);
                }
            });
        }
    }
}
