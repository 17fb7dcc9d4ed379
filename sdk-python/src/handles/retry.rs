//! The same call again, later, while that makes sense: around a function, or around a block with
//! `for attempt in retry: with attempt: ...`.
//!
//! Around a block the policy runs as ever. Its operation hands an attempt to the loop, and waits for how its block ended.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use pyo3::exceptions::PyException;
use resil::clock::Clock;
use resil::policy::{Budget, BudgetSettings, Retry, RetrySettings, classified, settled};
use tokio::sync::oneshot;

use crate::items::{anext, next};
use crate::prelude::*;

struct Again {
    retry: Mode<Retry>,
    judge: Arc<Judge>,
}

impl Runs for Arc<Again> {
    fn run(&self, _py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let (retry, judge) = (self.retry.get(), Arc::clone(&self.judge));
        Ok(work.running(|work| async move {
            let attempt = || judge.attempt(&work, work.attempt());
            settled(retry.around(classified(judge.of(&work)), attempt).await)
        }))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.judge.traverse(visit)
    }
}

/// Retries what `on` names. Nothing is retried that was not named.
///
/// `on` is an exception class, a tuple of them, or a function of the exception: true, false, or the seconds to wait. When all
/// attempts have failed, RetryExhaustedError is raised from the last exception; with `reraise=True`, that one itself.
///
/// `on_result` is a function of a result, and says which are failures: true, false, or the seconds to wait. When there is no other attempt,
/// the result is returned as it came. `budget` is a dict of settings, or a resil.Budget that several policies share.
///
/// >>> import resil
/// >>> results = iter([ConnectionError("down"), "up"])
/// >>> @resil.Retry(on=ConnectionError, max_attempts=3, initial_backoff=0.001)
/// ... def fetch():
/// ...     result = next(results)
/// ...     if isinstance(result, Exception):
/// ...         raise result
/// ...     return result
/// >>> fetch()
/// 'up'
///
/// By hand, around a block (`async for` in a coroutine):
///
/// >>> failures = [ConnectionError("down"), ConnectionError("down")]
/// >>> for attempt in resil.Retry(on=ConnectionError, initial_backoff=0.001):
/// ...     with attempt:
/// ...         if failures:
/// ...             raise failures.pop()
/// >>> attempt.number
/// 3
#[pyclass(module = "resil", name = "Retry", extends = Around, frozen)]
pub struct PyRetry {
    /// Attempts in all, the first included.
    #[pyo3(get)]
    max_attempts: u32,
    again: Arc<Again>,
}

#[pymethods]
impl PyRetry {
    #[new]
    #[pyo3(signature = (*, on=None, ignore=None, on_result=None, name=None, clock=None, seed=None, **settings))]
    fn new(
        on: OptArg<'_>,
        ignore: OptArg<'_>,
        on_result: OptArg<'_>,
        name: OptArg<'_>,
        clock: OptArg<'_>,
        seed: OptArg<'_>,
        settings: Option<Kwargs<'_>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let judges_nothing = on.is_none() && on_result.is_none();
        let judge = Judge::read(on, ignore, on_result)?;
        let budget = PyBudget::take(settings)?;
        let beside = ["on", "ignore", "on_result", "name", "clock", "seed"];
        let settings: RetrySettings = read_beside(&beside, settings)?;
        let (name, clock) = (optional_text("name", name)?, PyClock::read(clock)?);
        let seed: Option<u64> = seed.map(|seed| whole("seed", seed)).transpose()?;
        let build = move |settings: &RetrySettings| {
            let retry = name.iter().fold(Retry::new(settings)?, |retry, name| retry.named(name));
            let retry = clock.iter().cloned().fold(retry, Retry::with_clock);
            let retry = budget.iter().cloned().fold(retry, Retry::with_budget);
            Ok(seed.into_iter().fold(retry, Retry::with_seed))
        };
        let (usual, max_attempts) = (spelled(build(&settings))?, settings.max_attempts);
        if judges_nothing {
            return Err(PyTypeError::new_err("Retry() missing 1 required keyword argument: 'on', or 'on_result'"));
        }
        let retry = Mode::of(usual, move |attempts| build(&settings.at_once(attempts)).ok());
        let again = Arc::new(Again { retry, judge });
        Ok(Around::local("a call that is retried", format!("max_attempts={max_attempts}"), Arc::clone(&again))
            .alone(Self { max_attempts, again }))
    }

    fn __iter__(&self, py: Python<'_>) -> PyAttempts {
        PyAttempts::new(py, self.again.retry.get(), Arc::clone(&self.again.judge))
    }

    fn __aiter__(&self, py: Python<'_>) -> PyAttempts {
        self.__iter__(py)
    }
}

/// A limit on extra load that several policies share: so many retries and hedges for the calls that they all make.
///
/// >>> import resil
/// >>> budget = resil.Budget(percent=10, min_per_second=2)
/// >>> reads = resil.Retry(on=ConnectionError, budget=budget)
/// >>> writes = resil.Retry(on=ConnectionError, max_attempts=2, budget=budget)
/// >>> budget.available
/// 20
#[pyclass(module = "resil", name = "Budget", frozen)]
pub struct PyBudget(Budget);

impl PyBudget {
    /// Out of the settings of a policy, if it is there. Settings of a budget of its own stay.
    pub fn take(settings: Option<Kwargs<'_>>) -> PyResult<Option<Budget>> {
        let Some(settings) = settings else { return Ok(None) };
        let given = settings.get_item("budget")?;
        let Some(Ok(budget)) = given.as_ref().map(|given| given.cast::<Self>()) else { return Ok(None) };
        settings.del_item("budget")?;
        Ok(Some(budget.get().0.clone()))
    }
}

#[pymethods]
impl PyBudget {
    #[new]
    #[pyo3(signature = (*, clock=None, **settings))]
    fn new(clock: OptArg<'_>, settings: Option<Kwargs<'_>>) -> PyResult<Self> {
        let settings: BudgetSettings = read_beside(&["clock"], settings)?;
        let clock = PyClock::read(clock)?.unwrap_or_else(Clock::system);
        spelled(Budget::with_clock(&settings, clock)).map(Self)
    }

    /// How many extra calls would be granted now.
    #[getter]
    fn available(&self) -> u64 {
        self.0.available()
    }
}

/// How the block of an attempt ended.
type Tell = oneshot::Sender<Ended>;

struct Attempts {
    running: OfProcess<Mutex<Option<Running>>>,
    /// An attempt that the loop was not given yet.
    due: Arc<Mutex<Option<Tell>>>,
    work: Arc<Work>,
    count: AtomicU32,
}

/// The attempts of one loop.
#[pyclass(module = "resil", name = "Attempts", frozen)]
pub struct PyAttempts(Arc<Attempts>);

impl PyAttempts {
    fn new(py: Python<'_>, retry: Retry, judge: Arc<Judge>) -> Self {
        let work = Work::new(py.None().bind(py), &PyTuple::empty(py), None, How::Here);
        let due: Arc<Mutex<Option<Tell>>> = Arc::default();
        let offered = Arc::clone(&due);
        let running = Arc::clone(&work).running(|work| async move {
            let attempt = || {
                let (tell, ended) = oneshot::channel();
                *offered.lock() = Some(tell);
                async { ended.await.unwrap_or(Err(Failure::Resil(Error::Cancelled))) }
            };
            retry.around(judge.of(&work), attempt).await
        });
        let running = OfProcess::new(Mutex::new(Some(running)));
        Self(Arc::new(Attempts { running, due, work, count: AtomicU32::new(0) }))
    }

    /// The next attempt; None if there is none, because the last one was the last.
    fn next(&self) -> Running {
        let of = Arc::clone(&self.0);
        Box::pin(poll_fn(move |context| {
            if let Err(forked) = of.running.generation().check() {
                return Poll::Ready(Err(forked));
            }
            // Waiting for each other would be for ever: one of them has the GIL.
            let Some(mut running) = of.running.try_lock() else {
                return Poll::Ready(Err(PyRuntimeError::new_err("these attempts are being made in another thread")));
            };
            let Some(future) = running.as_mut() else { return Poll::Ready(none()) };
            if let Poll::Ready(ended) = future.as_mut().poll(context) {
                *running = None;
                return Poll::Ready(ended.and_then(|_| none()));
            }
            let Some(tell) = of.due.lock().take() else { return Poll::Pending };
            let number = of.count.fetch_add(1, Ordering::Relaxed) + 1;
            let attempt = PyAttempt { number, tell: Mutex::new(Some(tell)), work: Arc::clone(&of.work) };
            Poll::Ready(Python::attach(|py| attempt.into_py_any(py)))
        }))
    }
}

#[pymethods]
impl PyAttempts {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Object>> {
        refuse_to_block(py, "use async for")?;
        next(py, self.next())
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__(&self) -> Pending {
        anext("async for attempt in retry", self.next())
    }
}

/// One attempt: a block to be tried. What it raises is judged; if it may not be tried again, the loop raises it.
#[pyclass(module = "resil", name = "Attempt", frozen)]
pub struct PyAttempt {
    /// From 1.
    #[pyo3(get)]
    number: u32,
    tell: Mutex<Option<Tell>>,
    work: Arc<Work>,
}

#[pymethods]
impl PyAttempt {
    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (_type, value, _traceback, /))]
    fn __exit__(&self, py: Python<'_>, _type: Arg<'_>, value: Arg<'_>, _traceback: Arg<'_>) -> PyResult<bool> {
        let result = if value.is_none() { Ok(py.None()) } else { Err(PyErr::from_value(value.clone())) };
        let tell = self.tell.lock().take().ok_or_else(|| PyRuntimeError::new_err("this attempt ended before"))?;
        let _ = tell.send(self.work.judged(py, result));
        // Only an error is for the policy to judge: KeyboardInterrupt and its like leave the loop.
        Ok(value.is_instance_of::<PyException>())
    }
}
