//! Where a coroutine of the user's runs inside of a pending call.

use crate::edge::call_method1;
use crate::prelude::*;

/// What a task says to a coroutine.
pub enum Resume {
    Send(Object),
    Throw(PyErr),
}

impl Resume {
    /// What it waits on next; or how it ended.
    pub fn give_to(self, py: Python<'_>, coroutine: &Object) -> PyResult<Object> {
        let coroutine = coroutine.bind(py);
        let next = match self {
            Self::Send(value) => call_method1(coroutine, intern!(py, "send"), value),
            Self::Throw(error) => call_method1(coroutine, intern!(py, "throw"), error.into_value(py).into_any()),
        };
        next.map(Bound::unbind)
    }
}

/// What passes between a pending call and the coroutine that runs inside of it.
#[derive(Default)]
pub struct Stage {
    /// What the coroutine waits on, on its way out.
    pub yielded: Option<Object>,
    /// What the task says, on its way in.
    pub resume: Option<Resume>,
    /// A coroutine that was begun and given up on.
    pub unwinding: Option<Object>,
    /// Whether that one was told.
    pub is_told: bool,
}

pub type SharedStage = Arc<Mutex<Stage>>;
