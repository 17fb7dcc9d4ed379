//! Transitions on their way to listeners, and notices of the connection on their way to the log.
//!
//! They are seen on threads of the runtime, which must never wait for the GIL, least of all while the interpreter ends. So
//! what is seen is put into a queue, from which a thread of Python's takes it (`resil._listeners`).

use std::collections::VecDeque;
use std::convert::Infallible;
// Not parking_lot's: it keeps the threads that wait in a table of the process, in which a fork leaves those of the parent.
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use resil::Notice;
use resil::breaker::Transition;
use resil::telemetry::Event;

use crate::edge::PerProcess;
use crate::prelude::*;
use crate::telemetry::shown_event;

/// Listeners that do not return do not fill the memory.
const WAITING_MAX: usize = 10_000;

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    moved: Condvar,
}

#[derive(Default)]
struct Waiting {
    seen: VecDeque<Seen>,
    is_closed: bool,
}

enum Seen {
    Transition(Arc<Object>, Transition),
    Notice(Notice),
    Abandoned(Arc<Waiter>),
    /// For a function that makes spans or hooks of it.
    Event(Arc<Object>, Event),
}

static QUEUE: PerProcess<Queue> = PerProcess::new();

fn queue() -> &'static Queue {
    let Ok(queue) = QUEUE.get_or_make(|| Ok::<_, Infallible>(Queue::default()));
    queue
}

/// A child of a fork has a queue of its own: a thread of the parent may have the old one locked for ever.
pub fn after_fork() {
    QUEUE.leave_behind();
}

/// For a listener. On any thread, without the GIL.
pub fn tell(listener: &Arc<Object>, seen: &Transition) {
    put(Seen::Transition(Arc::clone(listener), *seen));
}

/// Starts the thread that takes them.
pub fn begin(py: Python<'_>) -> PyResult<()> {
    imported!(py, "resil._listeners", "begin")?.call0().map(drop)
}

/// What happens to a connection. On any thread, without the GIL.
pub fn hear(notice: &Notice) {
    put(Seen::Notice(notice.clone()));
}

/// Telemetry, for a function that subscribed. On any thread, without the GIL.
pub fn happened(hear: &Arc<Object>, event: &Event) {
    put(Seen::Event(Arc::clone(hear), event.clone()));
}

/// A waiter on a loop that was closed. On any thread, with or without the GIL.
pub fn abandon(waiter: Arc<Waiter>) {
    put(Seen::Abandoned(waiter));
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn put(seen: Seen) {
    let queue = queue();
    let mut waiting = queue.waiting();
    if !waiting.is_closed && waiting.seen.len() < WAITING_MAX {
        waiting.seen.push_back(seen);
        queue.moved.notify_one();
    }
}

/// As `resil._listeners` takes it: who is called, and with what.
fn shown(py: Python<'_>, seen: Seen) -> PyResult<Object> {
    let told = match seen {
        Seen::Transition(listener, seen) => {
            (listener.bind(py), (seen.previous.text(), seen.new.text(), seen.generation)).into_pyobject(py)?
        }
        Seen::Notice(Notice::Away { address, reason }) => {
            (imported!(py, "resil._listeners", "log_away")?, (address, reason)).into_pyobject(py)?
        }
        Seen::Notice(Notice::Refused { address, reason }) => {
            (imported!(py, "resil._listeners", "log_refused")?, (address, reason)).into_pyobject(py)?
        }
        Seen::Notice(Notice::Back { address }) => {
            (imported!(py, "resil._listeners", "log_back")?, (address,)).into_pyobject(py)?
        }
        Seen::Notice(Notice::Outlived { policy, took }) => {
            (imported!(py, "resil._listeners", "log_outlived")?, (&*policy, took.as_secs_f64())).into_pyobject(py)?
        }
        Seen::Event(hear, event) => (hear.bind(py), shown_event(py, &event)?).into_pyobject(py)?,
        Seen::Abandoned(waiter) => (Py::new(py, Abandoned(waiter))?, ()).into_pyobject(py)?,
    };
    Ok(told.into_any().unbind())
}

/// What is told next, waited for without the GIL: the listener and its arguments; None once the queue is closed.
#[pyfunction]
pub fn next_transition(py: Python<'_>) -> PyResult<Option<Object>> {
    let next = py.detach(|| {
        let queue = queue();
        let mut waiting = queue.waiting();
        loop {
            if waiting.is_closed {
                return None;
            }
            if let Some(next) = waiting.seen.pop_front() {
                return Some(next);
            }
            waiting = queue.moved.wait(waiting).unwrap_or_else(PoisonError::into_inner);
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
pub fn close_transitions(py: Python<'_>) -> PyResult<Vec<Object>> {
    let queue = queue();
    let left = {
        let mut waiting = queue.waiting();
        waiting.is_closed = true;
        std::mem::take(&mut waiting.seen)
    };
    queue.moved.notify_all();
    left.into_iter().filter(|seen| matches!(seen, Seen::Notice(_))).map(|seen| shown(py, seen)).collect()
}
