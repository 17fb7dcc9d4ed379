//! The signal that something held was lost, as an event; and what it does to a block of `async with`.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use resil::CancellationToken;

use crate::answer::Answer;
use crate::convert::optional_seconds;
use crate::drive::{drive, refuse_to_block};
use crate::event_loop::EventLoop;
use crate::runtime;

/// Set when what was held is lost: because the server said so, or because the deadline passed. `await lost`, or
/// `lost.wait(timeout)` in a thread.
#[pyclass(module = "resil", frozen)]
pub struct Lost(pub CancellationToken);

#[pymethods]
impl Lost {
    fn is_set(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until it is lost, for at most `timeout` seconds. Whether it is.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let (lost, timeout) = (self.0.clone(), optional_seconds("timeout", timeout)?);
        refuse_to_block(py, "await it")?;
        let set = self.0.clone();
        let waiting = async move {
            match timeout {
                None => lost.cancelled().await,
                Some(timeout) => drop(tokio::time::timeout(timeout, lost.cancelled()).await),
            }
            Python::attach(|py| Ok(py.None()))
        };
        drive(py, Box::pin(waiting))?;
        Ok(set.is_cancelled())
    }

    fn __await__(&self, py: Python<'_>) -> PyResult<Py<Answer>> {
        let lost = self.0.clone();
        Py::new(
            py,
            Answer::new("lost", async move {
                lost.cancelled().await;
                Python::attach(|py| Ok(py.None()))
            }),
        )
    }

    fn __repr__(&self) -> &'static str {
        if self.0.is_cancelled() { "<resil.Lost: set>" } else { "<resil.Lost: not set>" }
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
