//! What comes one by one: items that are still coming, and their results as they come.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, Waker};

use futures_util::StreamExt;
use futures_util::stream::{self, Stream};
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::types::PyIterator;
use resil::dispatcher::{Dispatcher, ItemResult};

use crate::dispatcher::PyItemResult;
use crate::prelude::*;

/// The next one of a `for` loop, in a thread. None is the end.
pub fn next(py: Python<'_>, running: Running) -> PyResult<Option<Object>> {
    let next = drive(py, running)?;
    Ok((!next.is_none(py)).then_some(next))
}

/// The next one of an `async for` loop, in a coroutine.
pub fn anext(what: &'static str, running: Running) -> Pending {
    Pending::new(what, async move {
        let next = running.await?;
        if Python::attach(|py| next.is_none(py)) { Err(PyStopAsyncIteration::new_err(())) } else { Ok(next) }
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    OfItems,
    OfCompletion,
}

/// What is iterated over.
pub enum Iterated {
    Iterable(Py<PyIterator>),
    /// What `__aiter__` gave.
    AsyncIterable(Object),
}

impl Iterated {
    /// `name`: of the argument.
    pub fn read(name: &str, items: Arg<'_>) -> PyResult<Self> {
        if items.hasattr("__aiter__")? {
            return Ok(Self::AsyncIterable(items.call_method0("__aiter__")?.unbind()));
        }
        let items = items.try_iter().map_err(|_| wrong_type(name, "something to iterate over", items))?;
        Ok(Self::Iterable(items.unbind()))
    }

    /// The next one, if there is one. It is taken on the thread that asks, with the GIL.
    pub async fn next(&self) -> PyResult<Option<Object>> {
        match self {
            Self::Iterable(iterator) => Python::attach(|py| {
                let item = iterator.bind(py).clone().next().transpose();
                item.map(|item| item.map(Bound::unbind))
            }),
            Self::AsyncIterable(iterator) => {
                let asking = Python::attach(|py| {
                    let asking = Prepared::new(py, iterator.getattr(py, "__anext__")?)?;
                    let look = |py: Python<'_>, result: PyResult<Object>| match result {
                        Err(error) if error.is_instance_of::<PyStopAsyncIteration>(py) => Ok(None),
                        result => result.map(Some),
                    };
                    Ok::<_, PyErr>(LoopTask::start(&EventLoop::current(py)?.1, asking, Box::new(look)))
                })?;
                asking.await?
            }
        }
    }
}

/// Where items come from, and what is done with each.
pub struct Source {
    from: Iterated,
    func: Object,
    kind: Kind,
    /// What it raised: raised at the end, after the results of what was taken before.
    broken: Broken,
}

type Broken = Arc<Mutex<Option<PyErr>>>;
type Results = Pin<Box<dyn Stream<Item = ItemResult<Object, PyErr>> + Send>>;

impl Source {
    pub fn read(items: Arg<'_>, func: Arg<'_>) -> PyResult<Self> {
        let kind = Kind::of(func)?;
        let from = Iterated::read("items", items)?;
        Ok(Self { from, func: func.clone().unbind(), kind, broken: Broken::default() })
    }

    /// The next one, ready to be begun.
    async fn next(&self) -> PyResult<Option<Arc<Prepared>>> {
        let Some(item) = self.from.next().await? else { return Ok(None) };
        Python::attach(|py| Prepared::with(self.func.bind(py), item.bind(py)).map(Some))
    }

    fn results(self, dispatcher: &Dispatcher, order: Order) -> Results {
        let home = match Python::attach(|py| EventLoop::of(py, self.kind)) {
            Ok(home) => home,
            Err(error) => {
                *self.broken.lock() = Some(error);
                return Box::pin(stream::empty());
            }
        };
        let items = stream::unfold(self, |source| async move {
            match source.next().await {
                Ok(item) => item.map(|item| (item, source)),
                Err(error) => {
                    *source.broken.lock() = Some(error);
                    None
                }
            }
        });
        let work = move |item| task::run(home.clone(), item);
        match order {
            Order::OfItems => Box::pin(dispatcher.stream(items, work)),
            Order::OfCompletion => Box::pin(dispatcher.stream_unordered(items, work)),
        }
    }
}

/// What is still to come.
struct Rest {
    results: Results,
    /// The last that asked, to be woken if it is closed meanwhile.
    asked_by: Option<Waker>,
}

/// The results of a stream of items: to be looped over with `for`, or with `async for` in a coroutine. Closed or forgotten,
/// what is running is cancelled.
#[pyclass(module = "resil", name = "ItemResults", frozen, generic)]
pub struct PyItemResults {
    rest: OfProcess<Arc<Mutex<Option<Rest>>>>,
    broken: Broken,
    is_async: bool,
}

impl PyItemResults {
    pub fn new(dispatcher: Dispatcher, source: Source, order: Order) -> Self {
        let is_async = source.kind == Kind::Coroutine || matches!(source.from, Iterated::AsyncIterable(_));
        let broken = Arc::clone(&source.broken);
        // Nothing is taken before somebody asks.
        let results = stream::once(async move { source.results(&dispatcher, order) }).flatten();
        let rest = Rest { results: Box::pin(results), asked_by: None };
        Self { rest: OfProcess::new(Arc::new(Mutex::new(Some(rest)))), broken, is_async }
    }

    fn next_result(&self) -> Running {
        let (rest, broken) = (self.rest.clone(), Arc::clone(&self.broken));
        Box::pin(poll_fn(move |context| {
            if let Err(forked) = rest.generation().check() {
                return Poll::Ready(Err(forked));
            }
            // Waiting for each other would be for ever: one of them has the GIL.
            let Some(mut rest) = rest.try_lock() else { return Poll::Ready(Err(elsewhere())) };
            let Some(running) = &mut *rest else { return Poll::Ready(none()) };
            Poll::Ready(match running.results.as_mut().poll_next(context) {
                Poll::Pending => {
                    running.asked_by = Some(context.waker().clone());
                    return Poll::Pending;
                }
                Poll::Ready(Some(result)) => Python::attach(|py| PyItemResult::of(py, result).into_py_any(py)),
                Poll::Ready(None) => {
                    *rest = None;
                    let broken = broken.lock().take();
                    broken.map_or_else(none, Err)
                }
            })
        }))
    }
}

fn elsewhere() -> PyErr {
    PyRuntimeError::new_err("these results are being asked for elsewhere")
}

#[pymethods]
impl PyItemResults {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Object>> {
        refuse_to_block(py, "use async for")?;
        if self.is_async {
            return Err(PyTypeError::new_err("items or fn are asynchronous: use async for"));
        }
        next(py, self.next_result())
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__(&self) -> Pending {
        anext("async for result in stream", self.next_result())
    }

    /// Takes nothing more, and cancels what is running.
    fn close(&self) -> PyResult<()> {
        self.rest.generation().check()?;
        // What is running is dropped where it can still spawn its clean-up.
        let _inside = runtime::enter()?;
        let rest = self.rest.try_lock().ok_or_else(elsewhere)?.take();
        if let Some(Rest { asked_by: Some(waker), .. }) = &rest {
            waker.wake_by_ref();
        }
        Ok(())
    }

    /// The same, for `contextlib.aclosing`.
    fn aclose(&self) -> PyResult<Pending> {
        self.close()?;
        Ok(Pending::new("stream.aclose()", async { none() }))
    }
}
