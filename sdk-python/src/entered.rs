//! What `with` and `async with` hold, by who is inside: one object serves many tasks and threads at once.

use std::collections::HashMap;

use crate::prelude::*;

/// A task, or a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Who {
    Task(usize),
    Thread(std::thread::ThreadId),
}

impl Who {
    pub fn is_here(py: Python<'_>) -> PyResult<Self> {
        Ok(Self::with_task(py)?.0)
    }

    /// The same, with the task if it is one.
    pub fn with_task(py: Python<'_>) -> PyResult<(Self, Option<Bound<'_, PyAny>>)> {
        if event_loop::running(py)?.is_none() {
            return Ok((Self::Thread(std::thread::current().id()), None));
        }
        let task = imported!(py, "asyncio", "current_task")?.call0()?;
        Ok((Self::Task(task.as_ptr() as usize), Some(task)))
    }
}

/// The last one in is the first one out.
pub struct Entered<G>(Mutex<HashMap<Who, Vec<G>>>);

impl<G> Default for Entered<G> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<G> Entered<G> {
    pub fn push(&self, who: Who, guard: G) {
        self.0.lock().entry(who).or_default().push(guard);
    }

    pub fn pop(&self, who: Who) -> PyResult<G> {
        let mut inside = self.0.lock();
        let guard = inside.get_mut(&who).and_then(Vec::pop);
        if inside.get(&who).is_some_and(Vec::is_empty) {
            inside.remove(&who);
        }
        guard.ok_or_else(|| PyRuntimeError::new_err("left without having been entered"))
    }
}
