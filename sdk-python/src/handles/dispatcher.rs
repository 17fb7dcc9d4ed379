//! Many pieces of the same work, a few at a time.

use resil::dispatcher::{Dispatcher, ItemError, ItemResult};

use crate::items::{Order, PyItemResults, Source};
use crate::prelude::*;

/// Runs a function on many items, at most `workers` at once. What one of them does is its own result alone.
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

impl PyDispatcher {
    /// A batch, and what is made of its results.
    fn batch<'py, F, T>(
        &self,
        what: &'static str,
        items: Arg<'py>,
        func: Arg<'py>,
        run: impl FnOnce(Dispatcher, Option<Arc<EventLoop>>, Vec<Arc<Prepared>>) -> F + Send + 'static,
        each: impl Fn(Python<'_>, T) -> PyResult<Object> + Send + 'static,
    ) -> PyResult<Object>
    where
        F: Future<Output = Vec<T>> + Send,
    {
        let (py, kind, dispatcher) = (func.py(), Kind::of(func)?, self.0.clone());
        if kind == Kind::Plain {
            refuse_to_block(py, "make fn a coroutine function, or use async for with dispatcher.stream()")?;
        }
        let items = items.try_iter().map_err(|_| wrong_type("items", "something to iterate over", items))?;
        let items = items.map(|item| Prepared::with(func, &item?)).collect::<PyResult<Vec<_>>>()?;
        let running: Running = Box::pin(async move {
            let home = Python::attach(|py| EventLoop::of(py, kind))?;
            let results = run(dispatcher, home, items).await;
            Python::attach(|py| {
                let results = results.into_iter().map(|result| each(py, result)).collect::<PyResult<Vec<_>>>()?;
                results.into_py_any(py)
            })
        });
        match kind {
            Kind::Plain => drive(py, running),
            Kind::Coroutine => Pending::on_stage(what, None, running).into_py_any(py),
        }
    }
}

#[pymethods]
impl PyDispatcher {
    #[new]
    #[pyo3(signature = (workers, *, on_error=None))]
    fn new(workers: Arg<'_>, on_error: OptArg<'_>) -> PyResult<Self> {
        let settings = PyDict::new(workers.py());
        settings.set_item("workers", workers)?;
        if let Some(on_error) = on_error {
            settings.set_item("on_error", on_error)?;
        }
        let settings: resil::settings::DispatcherSettings = read(Some(&settings))?;
        spelled(Dispatcher::new(settings)).map(Self)
    }

    /// Runs `fn(item)` on every item. The results are in the order of the items: a list, or for a coroutine function
    /// something to await that gives one. Plain functions run in threads.
    fn run(&self, items: Arg<'_>, r#fn: Arg<'_>) -> PyResult<Object> {
        let run = |dispatcher: Dispatcher, home: Option<Arc<EventLoop>>, items| async move {
            dispatcher.run_local(items, |item| task::run(home.clone(), item)).await
        };
        self.batch("dispatcher.run()", items, r#fn, run, |py, result| PyItemResult::of(py, result).into_py_any(py))
    }

    /// The same in the order of completion: pairs of an item's number, from 0, and its result. Items that were not begun come
    /// last.
    fn run_unordered(&self, items: Arg<'_>, r#fn: Arg<'_>) -> PyResult<Object> {
        let run = |dispatcher: Dispatcher, home: Option<Arc<EventLoop>>, items| async move {
            dispatcher.run_unordered(items, move |item| task::run(home.clone(), item)).await
        };
        self.batch("dispatcher.run_unordered()", items, r#fn, run, |py, (number, result)| {
            (number, PyItemResult::of(py, result)).into_py_any(py)
        })
    }

    /// Runs `fn(item)` on items as they come, from an iterable or an async iterable: results for `for` or `async for`, in the order
    /// of the items. Nothing is taken from `items` unless a worker is free for it.
    fn stream(&self, items: Arg<'_>, r#fn: Arg<'_>) -> PyResult<PyItemResults> {
        Ok(PyItemResults::new(self.0.clone(), Source::read(items, r#fn)?, Order::OfItems))
    }

    /// The same in the order of completion: a slow item holds back nobody.
    fn stream_unordered(&self, items: Arg<'_>, r#fn: Arg<'_>) -> PyResult<PyItemResults> {
        Ok(PyItemResults::new(self.0.clone(), Source::read(items, r#fn)?, Order::OfCompletion))
    }
}

/// What one item came to.
#[pyclass(module = "resil", name = "ItemResult", frozen, generic, get_all)]
pub struct PyItemResult {
    is_ok: bool,
    /// None if there is none.
    value: Option<Object>,
    /// The exception, if it failed; CancelledError if it was cancelled or never begun.
    error: Option<Object>,
    /// Whether it may have done something.
    was_begun: bool,
}

impl PyItemResult {
    pub fn of(py: Python<'_>, result: ItemResult<Object, PyErr>) -> Self {
        let was_begun = result.as_ref().err().is_none_or(ItemError::was_begun);
        let error = match result {
            Ok(value) => return Self { is_ok: true, value: Some(value), error: None, was_begun },
            Err(ItemError::Failed(error)) => error,
            Err(ItemError::Crashed(text)) => PyRuntimeError::new_err(text),
            Err(ItemError::Cancelled | ItemError::NotRun) => exception(py, &Error::Cancelled),
        };
        Self { is_ok: false, value: None, error: Some(error.into_value(py).into_any()), was_begun }
    }
}

#[pymethods]
impl PyItemResult {
    /// The value; or its exception is raised.
    fn unwrap(&self, py: Python<'_>) -> PyResult<Object> {
        match (&self.value, &self.error) {
            (_, Some(error)) => Err(PyErr::from_value(error.bind(py).clone())),
            (value, None) => Ok(value.as_ref().map_or_else(|| py.None(), |value| value.clone_ref(py))),
        }
    }

    fn __repr__(&self) -> String {
        format!("<resil.ItemResult ok={}>", python_bool(self.is_ok))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.value)?;
        visit.call(&self.error)
    }
}
