//! Items that are still coming, and their results as they come.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use futures_util::stream::{self, Stream};
use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyStopAsyncIteration, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyIterator;
use resil::dispatcher::{Dispatcher, ItemResult};

use crate::answer::Answer;
use crate::dispatcher::{home, prepared, run};
use crate::drive::{Running, refuse_to_block};
use crate::errors::wrong_type;
use crate::event_loop::EventLoop;
use crate::item::PyItemResult;
use crate::iteration::{anext, next};
use crate::kind::Kind;
use crate::runtime;
use crate::task::{LoopTask, Prepared};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    OfItems,
    OfCompletion,
}

enum From {
    Iterable(Py<PyIterator>),
    /// What `__aiter__` gave.
    AsyncIterable(Py<PyAny>),
}

/// Where items come from, and what is done with each.
pub struct Source {
    from: From,
    func: Py<PyAny>,
    kind: Kind,
    /// What it raised. It is told at the end, after the results of what was taken before.
    broken: Broken,
}

type Broken = Arc<Mutex<Option<PyErr>>>;

impl Source {
    pub fn read(items: &Bound<'_, PyAny>, func: &Bound<'_, PyAny>) -> PyResult<Self> {
        let kind = Kind::of(func)?;
        let expected = "something to iterate over";
        let from = if items.hasattr("__aiter__")? {
            From::AsyncIterable(items.call_method0("__aiter__")?.unbind())
        } else {
            From::Iterable(items.try_iter().map_err(|_| wrong_type("items", expected, items))?.unbind())
        };
        Ok(Self { from, func: func.clone().unbind(), kind, broken: Broken::default() })
    }

    /// The next one, ready to be begun. It is asked for by whoever asks for results: on its thread, with the GIL.
    async fn next(&self) -> PyResult<Option<Arc<Prepared>>> {
        let item = match &self.from {
            From::Iterable(iterator) => Python::attach(|py| {
                let item = iterator.bind(py).clone().next().transpose();
                item.map(|item| item.map(Bound::unbind))
            })?,
            From::AsyncIterable(iterator) => {
                let asking = Python::attach(|py| {
                    let asking = Prepared::new(py, iterator.getattr(py, "__anext__")?)?;
                    let look = |py: Python<'_>, result: PyResult<Py<PyAny>>| match result {
                        Err(error) if error.is_instance_of::<PyStopAsyncIteration>(py) => Ok(None),
                        result => result.map(Some),
                    };
                    Ok::<_, PyErr>(LoopTask::start(&EventLoop::current(py)?.1, asking, Box::new(look)))
                })?;
                asking.await??
            }
        };
        let Some(item) = item else { return Ok(None) };
        Python::attach(|py| prepared(self.func.bind(py), item.bind(py)).map(Some))
    }

    fn stream(self) -> impl Stream<Item = Arc<Prepared>> + Send {
        stream::unfold(self, |source| async move {
            match source.next().await {
                Ok(item) => item.map(|item| (item, source)),
                Err(error) => {
                    *source.broken.lock() = Some(error);
                    None
                }
            }
        })
    }
}

type Results = Pin<Box<dyn Stream<Item = ItemResult<Py<PyAny>, PyErr>> + Send>>;

enum State {
    /// Nothing is taken before somebody asks.
    New {
        dispatcher: Dispatcher,
        source: Source,
        order: Order,
    },
    Running {
        results: Results,
        broken: Broken,
        /// Who asked last, to be told if it is closed meanwhile.
        asked_by: Option<Waker>,
    },
    Over,
}

impl State {
    fn begun(self) -> PyResult<Self> {
        let Self::New { dispatcher, source, order } = self else { return Ok(self) };
        let home = Python::attach(|py| home(py, source.kind))?;
        let (broken, items) = (Arc::clone(&source.broken), source.stream());
        let work = move |item| run(home.clone(), item);
        let results: Results = match order {
            Order::OfItems => Box::pin(dispatcher.stream(items, work)),
            Order::OfCompletion => Box::pin(dispatcher.stream_unordered(items, work)),
        };
        Ok(Self::Running { results, broken, asked_by: None })
    }
}

/// The results of a stream of items: to be looped over with `for`, or with `async for` in a coroutine. Closed or forgotten,
/// what is running is cancelled.
#[pyclass(module = "resil", name = "ItemResults", frozen, generic)]
pub struct PyItemResults {
    state: Arc<Mutex<State>>,
    is_async: bool,
}

impl PyItemResults {
    pub fn new(dispatcher: Dispatcher, source: Source, order: Order) -> Self {
        let is_async = source.kind == Kind::Coroutine || matches!(source.from, From::AsyncIterable(_));
        Self { state: Arc::new(Mutex::new(State::New { dispatcher, source, order })), is_async }
    }

    fn next_result(&self) -> Running {
        let state = Arc::clone(&self.state);
        Box::pin(poll_fn(move |context| {
            // Waiting for each other would be for ever: one of them has the GIL.
            let Some(mut state) = state.try_lock() else { return Poll::Ready(Err(elsewhere())) };
            *state = match std::mem::replace(&mut *state, State::Over).begun() {
                Ok(begun) => begun,
                Err(error) => return Poll::Ready(Err(error)),
            };
            let State::Running { results, broken, asked_by } = &mut *state else {
                return Poll::Ready(Python::attach(|py| Ok(py.None())));
            };
            let result = match results.as_mut().poll_next(context) {
                Poll::Pending => {
                    *asked_by = Some(context.waker().clone());
                    return Poll::Pending;
                }
                Poll::Ready(Some(result)) => Python::attach(|py| Ok(PyItemResult::told(py, result)?.into_any())),
                Poll::Ready(None) => {
                    let broken = broken.lock().take();
                    *state = State::Over;
                    broken.map_or_else(|| Python::attach(|py| Ok(py.None())), Err)
                }
            };
            Poll::Ready(result)
        }))
    }

    /// What is running is dropped, where it can still spawn what it has to say.
    fn end(&self) -> PyResult<()> {
        let _inside = runtime::enter()?;
        let former = std::mem::replace(&mut *self.state.try_lock().ok_or_else(elsewhere)?, State::Over);
        if let State::Running { asked_by: Some(waker), .. } = &former {
            waker.wake_by_ref();
        }
        Ok(())
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

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        refuse_to_block(py, "use async for")?;
        if self.is_async {
            return Err(PyTypeError::new_err("items or fn are asynchronous: use async for"));
        }
        next(py, self.next_result())
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__(&self) -> Answer {
        anext("async for result in stream", self.next_result())
    }

    /// Takes nothing more, and cancels what is running.
    fn close(&self) -> PyResult<()> {
        self.end()
    }

    /// The same, for `contextlib.aclosing`.
    fn aclose(&self) -> PyResult<Answer> {
        self.end()?;
        Ok(Answer::on_stage("stream.aclose()", None, crate::block::nothing()))
    }
}
