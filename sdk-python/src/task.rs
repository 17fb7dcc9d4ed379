//! Functions that run beside their caller: in a thread of the runtime, or as a task of an event loop.
//!
//! Both begin without the GIL, so that threads of the runtime can ask for them; what came of them is looked at where they ran.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::edge::{attached, call, call_method1};
use crate::prelude::*;

/// A function with its arguments and the context variables of the caller.
pub struct Prepared {
    func: Object,
    context: Object,
}

impl Prepared {
    pub fn new(py: Python<'_>, func: Object) -> PyResult<Arc<Self>> {
        let context = imported!(py, "contextvars", "copy_context")?.call0()?.unbind();
        Ok(Arc::new(Self { func, context }))
    }

    /// `func(argument)`.
    pub fn with(func: Arg<'_>, argument: Arg<'_>) -> PyResult<Arc<Self>> {
        let bound = imported!(func.py(), "functools", "partial")?.call1((func, argument))?;
        Self::new(func.py(), bound.unbind())
    }

    /// A plain function, called here.
    pub fn call(&self, py: Python<'_>) -> PyResult<Object> {
        call_method1(self.context.bind(py), intern!(py, "run"), self.func.clone_ref(py)).map(Bound::unbind)
    }

    /// A coroutine function, run here to its end, on an event loop of its own.
    pub fn run(&self, py: Python<'_>) -> PyResult<Object> {
        let run = imported!(py, "resil._functions", "run_on_own_loop")?;
        let context = self.context.bind(py).call_method0(intern!(py, "copy"))?;
        let args = PyTuple::new(py, [run.as_any(), self.func.bind(py)])?;
        call(&context.getattr(intern!(py, "run"))?, &args, None).map(Bound::unbind)
    }
}

/// What came of it, while the GIL is there to look at it.
pub type Look<T> = Box<dyn FnOnce(Python<'_>, PyResult<Object>) -> T + Send>;

/// Runs a function on that loop; in a thread if there is none.
pub async fn run(home: Option<Arc<EventLoop>>, prepared: Arc<Prepared>) -> PyResult<Object> {
    let look = Box::new(|_: Python<'_>, result| result);
    match home {
        Some(home) => LoopTask::start(&home, prepared, look).await?,
        None => in_thread(prepared, Prepared::call, look).await?,
    }
}

/// Runs a function in a thread: a plain one ([`Prepared::call`]), or a coroutine function ([`Prepared::run`]).
pub async fn in_thread<T: Send + 'static>(
    prepared: Arc<Prepared>,
    run: fn(&Prepared, Python<'_>) -> PyResult<Object>,
    look: Look<T>,
) -> PyResult<T> {
    let running = runtime::handle()?.spawn_blocking(move || attached(|py| look(py, run(&prepared, py))));
    running.await.map_err(|_| PyRuntimeError::new_err("the thread of a function ended without a word"))
}

/// A coroutine as a task of a loop. Dropped, the task is cancelled.
pub struct LoopTask<T> {
    home: Arc<EventLoop>,
    task: Arc<Mutex<Option<Object>>>,
    result: oneshot::Receiver<T>,
    is_over: bool,
}

impl<T: Send + 'static> LoopTask<T> {
    /// Begins as soon as the loop comes to it.
    pub fn start(home: &Arc<EventLoop>, prepared: Arc<Prepared>, look: Look<T>) -> Self {
        let (tell, result) = oneshot::channel();
        let task: Arc<Mutex<Option<Object>>> = Arc::default();
        let theirs = Arc::clone(&task);
        home.later(move |py| {
            let done = move |py: Python<'_>, result: PyResult<Object>| drop(tell.send(look(py, result)));
            match begin(py, &prepared, Box::new(done)) {
                Ok(task) => *theirs.lock() = Some(task),
                Err(error) => error.write_unraisable(py, None),
            }
        });
        Self { home: Arc::clone(home), task, result, is_over: false }
    }
}

fn begin(py: Python<'_>, prepared: &Prepared, done: Look<()>) -> PyResult<Object> {
    let begin = imported!(py, "resil._functions", "begin_task")?;
    let task = prepared.context.call_method1(py, "run", (begin, &prepared.func))?;
    task.call_method1(py, "add_done_callback", (Py::new(py, Done(Mutex::new(Some(done))))?,))?;
    Ok(task)
}

/// Tells what a task came to.
#[pyclass(frozen)]
struct Done(Mutex<Option<Look<()>>>);

#[pymethods]
impl Done {
    fn __call__(&self, task: Arg<'_>) {
        if let Some(look) = self.0.lock().take() {
            look(task.py(), task.call_method0("result").map(Bound::unbind));
        }
    }
}

impl<T> Future for LoopTask<T> {
    type Output = PyResult<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.result).poll(context);
        self.is_over |= polled.is_ready();
        polled.map(|result| result.map_err(|_| PyRuntimeError::new_err("the event loop of a function was closed")))
    }
}

impl<T> Drop for LoopTask<T> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // The loop does what it is asked in order: the task was begun before this.
        let task = Arc::clone(&self.task);
        self.home.later(move |py| {
            let task = task.lock().take();
            let _ = task.map(|task| task.call_method0(py, "cancel"));
        });
    }
}
