//! What `with` and `async with` hold, by task and thread: one object serves many tasks and threads at once.
//!
//! # Inside of a block
//! What the task or thread that runs here is inside of by a block: a lock, which is granted again at once; a call in flight, whose parts
//! are let in while a shutdown waits for the rest of it.
//!
//! It follows the task and not its context variables: what a task starts inherits those, and would take itself for the
//! holder. Whatever is awaited or waited for is looked at once, when it begins: a task that waits leaves no block meanwhile.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use resil::CallInFlight;
use resil::lock::Held;

use crate::leased::Presence;
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

    /// The one of this task or thread. Else one of another: an async generator that nobody wants any more is closed by a task of the
    /// loop's own, and leaves its block there. Nobody else can be inside of a lock then; permits are all alike.
    pub fn pop_any(&self, who: Who) -> PyResult<G> {
        let entered = {
            let inside = self.0.lock();
            if inside.contains_key(&who) { Some(who) } else { inside.keys().next().copied() }
        };
        self.pop(entered.unwrap_or(who))
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

/// What a block is, to those who run inside of it.
#[derive(Clone)]
pub enum Inside {
    /// A guard that was released by hand holds nothing for the rest of its block.
    Lock(Held, Presence),
    Call(Arc<CallInFlight>),
}

impl Inside {
    fn around(self, running: Running) -> Running {
        match self {
            Self::Lock(_, presence) if presence.is_gone() => running,
            Self::Lock(held, _) => Box::pin(async move { held.reentrant(running).await }),
            Self::Call(call) => Box::pin(call.part(running)),
        }
    }
}

struct MarkedBlock {
    id: u64,
    inside: Inside,
    generation: Generation,
    /// The address of a task that ended is given to another one.
    task: Option<Py<PyWeakrefReference>>,
}

static MARKED: LazyLock<Mutex<HashMap<Who, Vec<MarkedBlock>>>> = LazyLock::new(Mutex::default);
/// Most of the time none, and then nobody looks any further.
static BLOCKS: AtomicUsize = AtomicUsize::new(0);

/// A block. Dropped, it was left.
pub struct Mark {
    who: Who,
    id: u64,
}

impl Mark {
    /// For the task or thread that runs here.
    pub fn new(py: Python<'_>, inside: Inside) -> PyResult<Self> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let (who, task) = Who::with_task(py)?;
        let task = task.map(|task| PyWeakrefReference::new(&task).map(Bound::unbind)).transpose()?;
        let id = LAST.fetch_add(1, Ordering::Relaxed);
        MARKED.lock().entry(who).or_default().push(MarkedBlock { id, inside, generation: Generation::now(), task });
        BLOCKS.fetch_add(1, Ordering::Release);
        Ok(Self { who, id })
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        BLOCKS.fetch_sub(1, Ordering::Release);
        let mut inside = MARKED.lock();
        let Some(blocks) = inside.get_mut(&self.who) else { return };
        blocks.retain(|block| block.id != self.id);
        if blocks.is_empty() {
            inside.remove(&self.who);
        }
    }
}

/// What runs here, inside of the blocks of the task or thread that runs it.
pub fn within_blocks(py: Python<'_>, running: Running) -> PyResult<Running> {
    if BLOCKS.load(Ordering::Acquire) == 0 {
        return Ok(running);
    }
    Ok(blocks(py)?.into_iter().fold(running, |running, block| block.around(running)))
}

fn blocks(py: Python<'_>) -> PyResult<Vec<Inside>> {
    let (who, task) = Who::with_task(py)?;
    let inside = MARKED.lock();
    let is_its = |block: &&MarkedBlock| match (&block.task, &task) {
        (None, None) => true,
        (Some(block), Some(task)) => block.bind(py).upgrade().is_some_and(|block| block.is(task)),
        _ => false,
    };
    let is_here = |block: &&MarkedBlock| block.generation.is_here();
    let blocks = inside.get(&who).map_or(&[][..], Vec::as_slice);
    Ok(blocks.iter().filter(is_here).filter(is_its).map(|block| block.inside.clone()).collect())
}
