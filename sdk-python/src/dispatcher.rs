//! Many pieces of the same work, a few at a time.

use std::sync::Arc;

use pyo3::prelude::*;
use resil::dispatcher::Dispatcher;
use resil::settings::DispatcherSettings;

use crate::answer::Answer;
use crate::convert::said;
use crate::drive::{Running, drive};
use crate::errors::wrong_type;
use crate::event_loop::EventLoop;
use crate::item::PyItemResult;
use crate::items::{Order, PyItemResults, Source};
use crate::kind::Kind;
use crate::settings::{PYTHON, spelled};
use crate::task::{Prepared, elsewhere};

/// Runs a function on many items, at most `workers` at once. Whatever one of them does is its own result and nobody else's.
///
/// >>> import resil
/// >>> few = resil.Dispatcher(2)
/// >>> [result.value for result in few.run(["1", "2", "three"], int)]
/// [1, 2, None]
///
/// Items that are still coming, and results as they come:
///
/// >>> for result in few.stream(iter(range(3)), str):
/// ...     print(result.unwrap())
/// 0
/// 1
/// 2
#[pyclass(module = "resil", name = "Dispatcher", frozen)]
pub struct PyDispatcher(Dispatcher);

/// The function on one item; on the loop that runs here if it is a coroutine function, else in a thread.
pub async fn run(home: Option<Arc<EventLoop>>, prepared: Arc<Prepared>) -> PyResult<Py<PyAny>> {
    elsewhere(home, prepared, Box::new(|_, result| result)).await?
}

/// Where functions of this kind run.
pub fn home(py: Python<'_>, kind: Kind) -> PyResult<Option<Arc<EventLoop>>> {
    match kind {
        Kind::Plain => Ok(None),
        Kind::Coroutine => Ok(Some(EventLoop::current(py)?.1)),
    }
}

/// `fn(item)`, ready to be begun without the GIL.
pub fn prepared(func: &Bound<'_, PyAny>, item: &Bound<'_, PyAny>) -> PyResult<Arc<Prepared>> {
    let py = func.py();
    let bound = py.import("functools")?.call_method1("partial", (func, item))?;
    Prepared::new(py, bound.unbind())
}

impl PyDispatcher {
    /// A batch, and what is made of its results.
    fn batch<'py, F>(
        &self,
        what: &'static str,
        items: &Bound<'py, PyAny>,
        func: &Bound<'py, PyAny>,
        run: impl FnOnce(Dispatcher, Option<Arc<EventLoop>>, Vec<Arc<Prepared>>) -> F + Send + 'static,
    ) -> PyResult<Py<PyAny>>
    where
        F: Future<Output = PyResult<Py<PyAny>>> + Send,
    {
        let (py, kind) = (func.py(), Kind::of(func)?);
        let items = items.try_iter().map_err(|_| wrong_type("items", "something to iterate over", items))?;
        let items = items.map(|item| prepared(func, &item?)).collect::<PyResult<Vec<_>>>()?;
        let dispatcher = self.0.clone();
        let running: Running = Box::pin(async move {
            let home = Python::attach(|py| home(py, kind))?;
            run(dispatcher, home, items).await
        });
        match kind {
            Kind::Plain => drive(py, running),
            Kind::Coroutine => Ok(Py::new(py, Answer::on_stage(what, None, running))?.into_any()),
        }
    }
}

#[pymethods]
impl PyDispatcher {
    #[new]
    #[pyo3(signature = (workers, *, on_error=None))]
    fn new(workers: &Bound<'_, PyAny>, on_error: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let mut settings = serde_json::Map::new();
        settings.insert("workers".to_owned(), said("workers", workers)?);
        if let Some(on_error) = on_error {
            settings.insert("on_error".to_owned(), said("on_error", on_error)?);
        }
        let settings: DispatcherSettings = spelled(PYTHON.read(settings.into()))?;
        Ok(Self(spelled(Dispatcher::new(settings))?))
    }

    /// Runs `fn(item)` on every item. The results are in the order of the items: a list, or for a coroutine function
    /// something to await that gives one. Plain functions run in threads.
    fn run<'py>(&self, items: &Bound<'py, PyAny>, r#fn: &Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
        self.batch("dispatcher.run()", items, r#fn, |dispatcher, home, items| async move {
            let results = dispatcher.run_local(items, |item| run(home.clone(), item)).await;
            Python::attach(|py| {
                let told = |result| PyItemResult::told(py, result);
                let results = results.into_iter().map(told).collect::<PyResult<Vec<_>>>()?;
                Ok(results.into_pyobject(py)?.into_any().unbind())
            })
        })
    }

    /// The same in the order of completion: pairs of an item's number, from 0, and its result. Items that were not begun come
    /// last.
    fn run_unordered<'py>(&self, items: &Bound<'py, PyAny>, r#fn: &Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
        self.batch("dispatcher.run_unordered()", items, r#fn, |dispatcher, home, items| async move {
            let results = dispatcher.run_unordered(items, move |item| run(home.clone(), item)).await;
            Python::attach(|py| {
                let told = |(number, result)| Ok((number, PyItemResult::told(py, result)?));
                let results = results.into_iter().map(told).collect::<PyResult<Vec<_>>>()?;
                Ok(results.into_pyobject(py)?.into_any().unbind())
            })
        })
    }

    /// Runs `fn(item)` on items as they come, from an iterable or an async iterable: results for `for` or `async for`, in the order
    /// of the items. Nothing is taken from `items` unless a worker is free for it.
    fn stream(&self, items: &Bound<'_, PyAny>, r#fn: &Bound<'_, PyAny>) -> PyResult<PyItemResults> {
        Ok(PyItemResults::new(self.0.clone(), Source::read(items, r#fn)?, Order::OfItems))
    }

    /// The same in the order of completion: a slow item holds back nobody.
    fn stream_unordered(&self, items: &Bound<'_, PyAny>, r#fn: &Bound<'_, PyAny>) -> PyResult<PyItemResults> {
        Ok(PyItemResults::new(self.0.clone(), Source::read(items, r#fn)?, Order::OfCompletion))
    }
}
