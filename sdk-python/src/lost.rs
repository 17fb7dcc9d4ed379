//! The signal that something held was lost, as an event; and what it does to a block of `async with`.

use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use resil::CancellationToken;
use resil::lock::Held;

use crate::answer::Answer;
use crate::convert::optional_seconds;
use crate::drive::{drive, refuse_to_block};
use crate::event_loop::EventLoop;
use crate::runtime::{self, Generation};

/// Set when what was held is lost: because the server said so, or because the deadline passed. `await lost`, or
/// `lost.wait(timeout)` in a thread.
#[pyclass(module = "resil", frozen)]
pub struct Lost {
    of: Of,
    generation: Generation,
}

/// Who knows of it.
enum Of {
    Held(Held),
    Run(CancellationToken),
}

impl Lost {
    /// Of what was held since `generation`.
    pub fn of_held(held: Held, generation: Generation) -> Self {
        Self { of: Of::Held(held), generation }
    }

    pub fn of_run(lost: CancellationToken, generation: Generation) -> Self {
        Self { of: Of::Run(lost), generation }
    }

    /// Ready when it is lost. A child of a fork never had it.
    fn until_set(&self) -> impl Future<Output = ()> + Send + 'static {
        let until_lost: Option<Pin<Box<dyn Future<Output = ()> + Send>>> = match &self.of {
            _ if !self.generation.is_here() => None,
            Of::Held(held) => Some(Box::pin(held.until_lost())),
            Of::Run(lost) => Some(Box::pin(lost.clone().cancelled_owned())),
        };
        async move {
            if let Some(until_lost) = until_lost {
                until_lost.await;
            }
        }
    }
}

#[pymethods]
impl Lost {
    /// By the clock, now: what is not held any more, and was not let go, is lost.
    fn is_set(&self) -> bool {
        match &self.of {
            _ if !self.generation.is_here() => true,
            Of::Held(held) => held.loss().is_some(),
            Of::Run(lost) => lost.is_cancelled(),
        }
    }

    /// Waits until it is lost, for at most `timeout` seconds. Whether it is.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let (lost, timeout) = (self.until_set(), optional_seconds("timeout", timeout)?);
        refuse_to_block(py, "await it")?;
        let waiting = async move {
            match timeout {
                None => lost.await,
                Some(timeout) => drop(tokio::time::timeout(timeout, lost).await),
            }
            Python::attach(|py| Ok(py.None()))
        };
        drive(py, Box::pin(waiting))?;
        Ok(self.is_set())
    }

    fn __await__(&self, py: Python<'_>) -> PyResult<Py<Answer>> {
        let lost = self.until_set();
        Py::new(
            py,
            Answer::new("lost", async move {
                lost.await;
                Python::attach(|py| Ok(py.None()))
            }),
        )
    }

    fn __repr__(&self) -> &'static str {
        if self.is_set() { "<resil.Lost: set>" } else { "<resil.Lost: not set>" }
    }
}

/// Watches a block of `async with`: when what it holds is lost, or its time is over, the task is cancelled.
pub struct Watch {
    watching: tokio::task::JoinHandle<()>,
    task: Py<PyAny>,
    course: Arc<Mutex<Course>>,
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Watching,
    /// The task was cancelled.
    Struck,
    /// The block was left: what is on its way comes too late.
    Over,
}

impl Watch {
    /// From inside of the task: it is cancelled when `lost` is set.
    pub fn begin(py: Python<'_>, lost: CancellationToken) -> PyResult<Self> {
        Self::until(py, async move { lost.cancelled().await })
    }

    /// The same when `end` has come.
    pub fn until(py: Python<'_>, end: impl Future<Output = ()> + Send + 'static) -> PyResult<Self> {
        let (_, home) = EventLoop::current(py)?;
        let task = py.import("asyncio")?.call_method0("current_task")?.unbind();
        let course = Arc::new(Mutex::new(Course::Watching));
        let (victim, shared) = (task.clone_ref(py), Arc::clone(&course));
        let watching = runtime::handle()?.spawn(async move {
            end.await;
            home.later(move |py| {
                let is_watching = {
                    let mut course = shared.lock();
                    let is_watching = *course == Course::Watching;
                    if is_watching {
                        *course = Course::Struck;
                    }
                    is_watching
                };
                if is_watching {
                    let _ = victim.call_method0(py, "cancel");
                }
            });
        });
        Ok(Self { watching, task, course })
    }

    /// The block is left. Whether its cancellation was ours, and only ours.
    pub fn end(self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.watching.abort();
        if std::mem::replace(&mut *self.course.lock(), Course::Over) != Course::Struck {
            return Ok(false);
        }
        let left = match self.task.call_method0(py, "uncancel") {
            Ok(left) => left.extract::<usize>(py)?,
            // Before Python 3.11 nobody counts.
            Err(_) => 0,
        };
        let cancelled = py.import("asyncio")?.getattr("CancelledError")?;
        Ok(left == 0 && error.is_instance(&cancelled)?)
    }
}
