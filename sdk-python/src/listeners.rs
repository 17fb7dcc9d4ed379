//! Transitions on their way to listeners, and notices of the connection on their way to the log.
//!
//! They are seen on threads of the runtime, which must never wait for the GIL, least of all while the interpreter ends. So
//! what is seen is put in a line, from which a thread of Python's takes it (`resil._listeners`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use resil::Notice;
use resil::breaker::Transition;

use crate::event_loop::Waiter;

/// Listeners that do not return do not fill the memory.
const WAITING_MAX: usize = 10_000;

#[derive(Default)]
struct Line {
    waiting: Mutex<Waiting>,
    moved: Condvar,
}

#[derive(Default)]
struct Waiting {
    seen: VecDeque<Seen>,
    is_closed: bool,
}

enum Seen {
    Transition(Arc<Py<PyAny>>, Transition),
    Notice(Notice),
    Abandoned(Arc<Waiter>),
}

static LINE: AtomicPtr<Line> = AtomicPtr::new(std::ptr::null_mut());

/// The one of this process.
fn line() -> &'static Line {
    let made = LINE.load(Ordering::Acquire);
    if !made.is_null() {
        // SAFETY: what is stored came from `Box::into_raw` and is never freed.
        return unsafe { &*made };
    }
    let ours = Box::into_raw(Box::<Line>::default());
    match LINE.compare_exchange(std::ptr::null_mut(), ours, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: as above.
        Ok(_) => unsafe { &*ours },
        Err(theirs) => {
            // SAFETY: nobody else has seen ours; theirs came the same way.
            drop(unsafe { Box::from_raw(ours) });
            unsafe { &*theirs }
        }
    }
}

/// A child of a fork has a line of its own: who stood in the old one may have it locked for ever.
pub fn after_fork() {
    LINE.store(std::ptr::null_mut(), Ordering::Release);
}

pub struct Listener(Arc<Py<PyAny>>);

impl Listener {
    pub fn new(listener: Bound<'_, PyAny>) -> PyResult<Self> {
        begin(listener.py())?;
        Ok(Self(Arc::new(listener.unbind())))
    }

    /// On any thread, without the GIL.
    pub fn tell(&self, seen: &Transition) {
        put(Seen::Transition(Arc::clone(&self.0), *seen));
    }
}

/// Starts the thread that takes them.
pub fn begin(py: Python<'_>) -> PyResult<()> {
    static BEGIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    BEGIN.import(py, "resil._listeners", "begin")?.call0().map(drop)
}

/// What happens to a connection. On any thread, without the GIL.
pub fn hear(notice: &Notice) {
    put(Seen::Notice(notice.clone()));
}

/// Who waits on a loop that was closed. On any thread, with or without the GIL.
pub fn abandon(waiter: Arc<Waiter>) {
    put(Seen::Abandoned(waiter));
}

fn put(seen: Seen) {
    let line = line();
    let mut waiting = line.waiting.lock();
    if !waiting.is_closed && waiting.seen.len() < WAITING_MAX {
        waiting.seen.push_back(seen);
        line.moved.notify_one();
    }
}

/// As `resil._listeners` takes it: who is called, and with what.
fn shown(py: Python<'_>, seen: Seen) -> PyResult<Py<PyAny>> {
    static AWAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static BACK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let told = match seen {
        Seen::Transition(listener, seen) => {
            (listener.bind(py), (seen.previous.text(), seen.new.text(), seen.generation)).into_pyobject(py)?
        }
        Seen::Notice(Notice::Away { address, reason }) => {
            (AWAY.import(py, "resil._listeners", "log_away")?, (address, reason)).into_pyobject(py)?
        }
        Seen::Notice(Notice::Back { address }) => {
            (BACK.import(py, "resil._listeners", "log_back")?, (address,)).into_pyobject(py)?
        }
        Seen::Abandoned(waiter) => (Py::new(py, Abandoned(waiter))?, ()).into_pyobject(py)?,
    };
    Ok(told.into_any().unbind())
}

/// What is told next, waited for without the GIL: the listener and its arguments; None once the line is closed.
#[pyfunction]
pub fn next_transition(py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
    let next = py.detach(|| {
        let line = line();
        let mut waiting = line.waiting.lock();
        loop {
            if waiting.is_closed {
                return None;
            }
            if let Some(next) = waiting.seen.pop_front() {
                return Some(next);
            }
            line.moved.wait(&mut waiting);
        }
    });
    next.map(|seen| shown(py, seen)).transpose()
}

#[pyclass(frozen)]
struct Abandoned(Arc<Waiter>);

#[pymethods]
impl Abandoned {
    fn __call__(&self, py: Python<'_>) {
        self.0.abandon(py);
    }
}

/// No listener is called from now on: the interpreter ends. What is left for the log is handed over.
#[pyfunction]
pub fn close_transitions(py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
    let line = line();
    let left = {
        let mut waiting = line.waiting.lock();
        waiting.is_closed = true;
        std::mem::take(&mut waiting.seen)
    };
    line.moved.notify_all();
    left.into_iter().filter(|seen| matches!(seen, Seen::Notice(_))).map(|seen| shown(py, seen)).collect()
}
