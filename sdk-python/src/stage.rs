//! Where a coroutine of the user's runs inside of an answer, and what passes between the two.

use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;

use crate::pending::call_method1;

/// What a task says to a coroutine.
pub enum Resume {
    Send(Py<PyAny>),
    Throw(PyErr),
}

impl Resume {
    /// What it waits on next; or how it ended.
    pub fn give_to(self, py: Python<'_>, coroutine: &Py<PyAny>) -> PyResult<Py<PyAny>> {
        let coroutine = coroutine.bind(py);
        let next = match self {
            Self::Send(value) => call_method1(coroutine, intern!(py, "send"), value),
            Self::Throw(error) => call_method1(coroutine, intern!(py, "throw"), error.into_value(py).into_any()),
        };
        next.map(Bound::unbind)
    }
}

/// Where a coroutine runs inside of an answer: what passes between the two.
#[derive(Default)]
pub struct Stage(Mutex<Props>);

#[derive(Default)]
struct Props {
    /// What the coroutine waits on, on its way out.
    yielded: Option<Py<PyAny>>,
    /// What the task says, on its way in.
    resume: Option<Resume>,
    /// A coroutine that was begun and given up on.
    unwinding: Option<Py<PyAny>>,
    /// Whether that one was told.
    is_told: bool,
}

impl Stage {
    pub fn take_yielded(&self) -> Option<Py<PyAny>> {
        self.0.lock().yielded.take()
    }

    pub fn resume(&self, resume: Resume) {
        self.0.lock().resume = Some(resume);
    }

    pub fn take_resume(&self) -> Option<Resume> {
        self.0.lock().resume.take()
    }

    /// The coroutine waits on this.
    pub fn yields(&self, on: Py<PyAny>) {
        self.0.lock().yielded = Some(on);
    }

    /// The next coroutine begins.
    pub fn begin(&self, py: Python<'_>) {
        let mut props = self.0.lock();
        props.is_told = false;
        props.resume = Some(Resume::Send(py.None()));
    }

    pub fn is_unwinding(&self) -> bool {
        self.0.lock().unwinding.is_some()
    }

    pub fn take_unwinding(&self) -> Option<Py<PyAny>> {
        self.0.lock().unwinding.take()
    }

    pub fn unwind(&self, coroutine: Py<PyAny>) {
        self.0.lock().unwinding = Some(coroutine);
    }

    /// Whether it was told before.
    pub fn set_told(&self) -> bool {
        std::mem::replace(&mut self.0.lock().is_told, true)
    }
}
