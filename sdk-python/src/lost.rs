//! The signal that something held was lost, as an event; and what it does to a block of `async with`.

use resil::CancellationToken;
use resil::lock::Held;

use crate::prelude::*;

/// Set when what was held is lost: because the server said so, or because the deadline passed. `await lost`, or
/// `lost.wait(timeout)` in a thread.
#[pyclass(module = "resil", frozen)]
pub struct Lost {
    lost: OfProcess<CancellationToken>,
    /// Knows it by the clock as well.
    held: OfProcess<Option<Held>>,
    generation: Generation,
}

impl Lost {
    /// Of what was held since `generation`.
    pub fn of_held(held: Held, generation: Generation) -> Self {
        Self { lost: OfProcess::new(held.lost()), held: OfProcess::new(Some(held)), generation }
    }

    pub fn of_run(lost: CancellationToken, generation: Generation) -> Self {
        Self { lost: OfProcess::new(lost), held: OfProcess::new(None), generation }
    }

    /// Ready when it is lost. A child of a fork never had it.
    fn until_set(&self) -> impl Future<Output = ()> + Send + use<> {
        let (is_here, lost) = (self.generation.is_here(), self.lost.clone_value());
        let until_lost = self.held.as_ref().filter(|_| is_here).map(Held::until_lost);
        async move {
            match until_lost {
                Some(until_lost) => until_lost.await,
                None if is_here => lost.cancelled().await,
                None => {}
            }
        }
    }
}

#[pymethods]
impl Lost {
    /// By the clock, now: what is not held any more, and was not let go, is lost.
    fn is_set(&self) -> bool {
        let is_lost = || self.held.as_ref().map_or_else(|| self.lost.is_cancelled(), |held| held.loss().is_some());
        !self.generation.is_here() || is_lost()
    }

    /// Waits until it is lost, for at most `timeout` seconds. Whether it is.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: OptArg<'_>) -> PyResult<bool> {
        let (lost, timeout) = (self.until_set(), optional_seconds("timeout", timeout)?);
        refuse_to_block(py, "await it")?;
        let waiting = async move {
            match timeout {
                None => lost.await,
                Some(timeout) => drop(tokio::time::timeout(timeout, lost).await),
            }
            none()
        };
        drive(py, Box::pin(waiting))?;
        Ok(self.is_set())
    }

    fn __await__(&self) -> Pending {
        let lost = self.until_set();
        Pending::done("lost", async move {
            lost.await;
            Ok(())
        })
    }

    fn __repr__(&self) -> &'static str {
        if self.is_set() { "<resil.Lost: set>" } else { "<resil.Lost: not set>" }
    }
}

/// Watches a block of `async with`: when what it holds is lost, or its time is over, the task is cancelled.
pub struct Watch {
    watching: OfProcess<tokio::task::JoinHandle<()>>,
    task: Object,
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
    /// From inside of the task: it is cancelled when `end` has come.
    pub fn until(py: Python<'_>, end: impl Future<Output = ()> + Send + 'static) -> PyResult<Self> {
        let (_, home) = EventLoop::current(py)?;
        let task = py.import("asyncio")?.call_method0("current_task")?.unbind();
        let course = Arc::new(Mutex::new(Course::Watching));
        let (victim, shared) = (task.clone_ref(py), Arc::clone(&course));
        let watching = runtime::handle()?.spawn(async move {
            end.await;
            home.later(move |py| {
                let mut course = shared.lock();
                if *course == Course::Watching {
                    *course = Course::Struck;
                    drop(course);
                    let _ = victim.call_method0(py, "cancel");
                }
            });
        });
        Ok(Self { watching: OfProcess::new(watching), task, course })
    }

    /// The block is left. Whether its cancellation was ours, and only ours.
    pub fn end(self, py: Python<'_>, error: Arg<'_>) -> PyResult<bool> {
        self.watching.generation().check()?;
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
