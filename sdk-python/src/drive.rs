//! A future of the SDK, polled on the thread that asks for it.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::prelude::*;

pub type Object = Py<PyAny>;

/// None, inside of a future.
pub fn none() -> PyResult<Object> {
    Python::attach(|py| Ok(py.None()))
}

/// A future of the SDK with its result already made a Python object.
pub type Running = Pin<Box<dyn Future<Output = PyResult<Object>> + Send>>;

/// How often a thread that waits looks whether it was interrupted (Ctrl-C).
const LOOK_FOR_SIGNALS: Duration = Duration::from_millis(50);

/// Runs to the end on this thread, which sleeps without the GIL while there is nothing to do.
pub fn drive(py: Python<'_>, running: Running) -> PyResult<Object> {
    // The function may fork: then what is left of the call is the parent's.
    let mut running = OfProcess::new(of_caller(py, entered::within_blocks(py, running)?));
    let _inside = runtime::enter()?;
    if let Poll::Ready(result) = poll_caught(&mut running, Waker::noop()) {
        return result;
    }
    let waker = Waker::from(Arc::new(Sleeper(std::thread::current())));
    loop {
        running.generation().check()?;
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
}

/// No panic gets out: it would take the interpreter along.
pub fn poll_caught(running: &mut Running, waker: &Waker) -> Poll<PyResult<Object>> {
    let mut context = Context::from_waker(waker);
    catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(&mut context))).unwrap_or_else(|_| {
        let error = resil::Error::Internal("a panic inside of the SDK".to_owned());
        Poll::Ready(Err(Python::attach(|py| crate::errors::exception(py, &error))))
    })
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
