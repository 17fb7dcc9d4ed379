//! Transitions on their way to listeners, and notices of the connection on their way to the log.
//!
//! They are seen on threads of the runtime, which must never wait for the GIL, least of all while the interpreter ends. So
//! what is seen is put into a queue, from which a thread of Python's takes it (`resil._listeners`).
//!
//! Calls that ended are many, and not urgent: the thread takes those of [`GATHERED_FOR`] at once. To wake it for each would cost more than the
//! call, and it would fight for the GIL with those that call.

use std::collections::VecDeque;
use std::convert::Infallible;
// Not parking_lot's: it keeps the threads that wait in a table of the process, in which a fork leaves those of the parent.
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use resil::Notice;
use resil::breaker::Transition;
use resil::telemetry::{CallEnded, Event};

use crate::edge::PerProcess;
use crate::prelude::*;
use crate::telemetry::{shown_calls, shown_event};

/// Listeners that do not return do not fill the memory.
const WAITING_MAX: usize = 10_000;
/// How long calls wait for others.
const GATHERED_FOR: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    moved: Condvar,
}

#[derive(Default)]
struct Waiting {
    seen: VecDeque<Seen>,
    /// By the function that hears of them.
    calls: Vec<(Arc<Object>, Vec<CallEnded>)>,
    /// When the calls are reported.
    calls_due: Option<Instant>,
    /// What was not kept since that was last said.
    missed: u64,
    is_closed: bool,
}

enum Seen {
    Transition(Arc<Object>, Transition),
    Notice(Notice),
    Abandoned(Arc<Waiter>),
    /// So many events were not kept, because what hears of them is slow.
    Missed(u64),
    /// For a function that makes hooks or log lines of it.
    Event(Arc<Object>, Event),
    /// For a function that makes spans of them.
    Calls(Arc<Object>, Vec<CallEnded>),
}

impl Seen {
    /// What comes with each call. Behind many of these there is still room for a circuit that opened, or a lock that was lost.
    fn is_frequent(&self) -> bool {
        matches!(self, Self::Event(_, Event::Retry { .. } | Event::Hedge { .. } | Event::Timeout { .. }))
    }
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
    match event {
        Event::Call(call) => put_call(hear, call),
        event => put(Seen::Event(Arc::clone(hear), event.clone())),
    }
}

fn put_call(hear: &Arc<Object>, call: &CallEnded) {
    let queue = queue();
    let mut waiting = queue.waiting();
    if waiting.is_closed {
        return;
    }
    let is_first = waiting.calls_due.is_none();
    let place = waiting.calls.iter().position(|(other, _)| Arc::ptr_eq(other, hear));
    let place = place.unwrap_or_else(|| {
        waiting.calls.push((Arc::clone(hear), Vec::new()));
        waiting.calls.len() - 1
    });
    let calls = &mut waiting.calls[place].1;
    if calls.len() < WAITING_MAX {
        calls.push(call.clone());
    }
    if is_first {
        waiting.calls_due = Some(Instant::now() + GATHERED_FOR);
        queue.moved.notify_one();
    }
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
    if waiting.is_closed {
        return;
    }
    if waiting.seen.len() >= WAITING_MAX && (seen.is_frequent() || waiting.seen.len() >= 2 * WAITING_MAX) {
        waiting.missed += 1;
        return;
    }
    waiting.seen.push_back(seen);
    queue.moved.notify_one();
}

/// As `resil._listeners` takes it: who is called, and with what.
fn shown(py: Python<'_>, seen: Seen) -> PyResult<Object> {
    let report = match seen {
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
        Seen::Notice(Notice::SourceAway { name, address, reason }) => {
            (imported!(py, "resil._listeners", "log_source_away")?, (&*name, address, reason)).into_pyobject(py)?
        }
        Seen::Notice(Notice::SourceBack { name, address }) => {
            (imported!(py, "resil._listeners", "log_source_back")?, (&*name, address)).into_pyobject(py)?
        }
        Seen::Notice(Notice::Dead { worker, id, deaths, reason }) => {
            let said = (&*worker, id, deaths, reason.text());
            (imported!(py, "resil._listeners", "log_dead")?, said).into_pyobject(py)?
        }
        Seen::Notice(Notice::NotRecorded { worker, id, reason }) => {
            (imported!(py, "resil._listeners", "log_not_recorded")?, (&*worker, id, reason)).into_pyobject(py)?
        }
        Seen::Missed(count) => (imported!(py, "resil._listeners", "log_missed")?, (count,)).into_pyobject(py)?,
        Seen::Event(hear, event) => (hear.bind(py), shown_event(py, &event)?).into_pyobject(py)?,
        Seen::Calls(hear, calls) => (hear.bind(py), ("calls", shown_calls(py, &calls)?)).into_pyobject(py)?,
        Seen::Abandoned(waiter) => (Py::new(py, Abandoned(waiter))?, ()).into_pyobject(py)?,
    };
    Ok(report.into_any().unbind())
}

/// What is reported next, waited for without the GIL: the listener and its arguments; None once the queue is closed.
#[pyfunction]
pub fn next_transition(py: Python<'_>) -> PyResult<Option<Object>> {
    let next = py.detach(|| {
        let queue = queue();
        let mut waiting = queue.waiting();
        loop {
            if waiting.is_closed {
                return None;
            }
            // Once for a crowd, and not whenever one has left a full queue.
            if waiting.missed > 0 && waiting.seen.len() <= WAITING_MAX / 2 {
                return Some(Seen::Missed(std::mem::take(&mut waiting.missed)));
            }
            if let Some(next) = waiting.seen.pop_front() {
                return Some(next);
            }
            let left = waiting.calls_due.map(|due| due.saturating_duration_since(Instant::now()));
            waiting = match left {
                None => queue.moved.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => match waiting.calls.pop() {
                    Some((hear, calls)) => return Some(Seen::Calls(hear, calls)),
                    None => {
                        waiting.calls_due = None;
                        waiting
                    }
                },
                // Whatever is urgent ends the wait.
                Some(left) => queue.moved.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0,
            };
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

/// No listener is called from now on: the interpreter ends. What is left for the log and for spans is handed over.
#[pyfunction]
pub fn close_transitions(py: Python<'_>) -> PyResult<Vec<Object>> {
    let queue = queue();
    let left = {
        let mut waiting = queue.waiting();
        waiting.is_closed = true;
        let calls = std::mem::take(&mut waiting.calls).into_iter().map(|(hear, calls)| Seen::Calls(hear, calls));
        let notices = std::mem::take(&mut waiting.seen).into_iter().filter(|seen| matches!(seen, Seen::Notice(_)));
        notices.chain(calls).collect::<Vec<_>>()
    };
    queue.moved.notify_all();
    left.into_iter().map(|seen| shown(py, seen)).collect()
}
