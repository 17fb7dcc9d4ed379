//! Functions that run beside the one who asked: in a thread of the runtime, or as a task of an event loop.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::event_loop::EventLoop;
use crate::runtime;

/// The context variables as they are here: what is called beside sees them, too.
fn context(py: Python<'_>) -> PyResult<Py<PyAny>> {
    static COPY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    COPY.import(py, "contextvars", "copy_context")?.call0().map(Bound::unbind)
}

/// A plain function in a thread.
pub struct Threaded(JoinHandle<PyResult<Py<PyAny>>>);

impl Threaded {
    pub fn start(py: Python<'_>, func: Py<PyAny>) -> PyResult<Self> {
        let context = context(py)?;
        let run = move || Python::attach(|py| context.call_method1(py, "run", (func,)));
        Ok(Self(runtime::handle()?.spawn_blocking(run)))
    }
}

impl Future for Threaded {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|joined| {
            joined.unwrap_or_else(|_| Err(PyRuntimeError::new_err("the thread of a function ended without a word")))
        })
    }
}

/// A coroutine as a task of a loop. Dropped, the task is cancelled.
pub struct LoopTask {
    home: Arc<EventLoop>,
    shared: Arc<Mutex<Shared>>,
    result: oneshot::Receiver<PyResult<Py<PyAny>>>,
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    task: Option<Py<PyAny>>,
    is_unwanted: bool,
}

impl LoopTask {
    /// Begins at once if this is the loop's thread, else as soon as the loop comes to it.
    pub fn start(py: Python<'_>, home: &Arc<EventLoop>, func: Py<PyAny>) -> PyResult<Self> {
        let (tell, result) = oneshot::channel();
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (context, theirs) = (context(py)?, Arc::clone(&shared));
        let begin = move |py: Python<'_>| {
            if theirs.lock().is_unwanted {
                return;
            }
            match begin(py, &context, func) {
                Ok(task) => {
                    let done = Py::new(py, Done(Mutex::new(Some(tell))));
                    let added = done.and_then(|done| task.call_method1(py, "add_done_callback", (done,)));
                    match added {
                        Ok(_) => theirs.lock().task = Some(task),
                        Err(error) => error.write_unraisable(py, None),
                    }
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        };
        let is_here = EventLoop::current(py).is_ok_and(|(_, current)| Arc::ptr_eq(&current, home));
        if is_here { begin(py) } else { home.later(begin) }
        Ok(Self { home: Arc::clone(home), shared, result, is_over: false })
    }
}

fn begin(py: Python<'_>, context: &Py<PyAny>, func: Py<PyAny>) -> PyResult<Py<PyAny>> {
    static BEGIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let begin = BEGIN.import(py, "resil._functions", "begin_task")?;
    context.call_method1(py, "run", (begin, func))
}

/// Tells what a task came to.
#[pyclass(frozen)]
struct Done(Mutex<Option<oneshot::Sender<PyResult<Py<PyAny>>>>>);

#[pymethods]
impl Done {
    fn __call__(&self, task: &Bound<'_, PyAny>) {
        if let Some(tell) = self.0.lock().take() {
            let _ = tell.send(task.call_method0("result").map(Bound::unbind));
        }
    }
}

impl Future for LoopTask {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.result).poll(context);
        self.is_over |= polled.is_ready();
        polled.map(|result| {
            result.unwrap_or_else(|_| Err(PyRuntimeError::new_err("the event loop of a function was closed")))
        })
    }
}

impl Drop for LoopTask {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.home.later(move |py| {
            let mut shared = shared.lock();
            shared.is_unwanted = true;
            if let Some(task) = shared.task.take() {
                let _ = task.call_method0(py, "cancel");
            }
        });
    }
}
