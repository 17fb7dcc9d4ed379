//! Many pieces of the same work, a few at a time.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use resil::Failure;
use resil::dispatcher::{Dispatcher, ItemError};
use resil::settings::DispatcherSettings;

use crate::answer::{Answer, Running, drive};
use crate::convert::said;
use crate::errors::{exception, wrong_type};
use crate::kind::Kind;
use crate::settings::{PYTHON, spelled};
use crate::work::{How, Work};

/// What one item came to.
#[pyclass(module = "resil", name = "ItemResult", frozen, generic)]
pub struct PyItemResult {
    result: PyResult<Py<PyAny>>,
    was_begun: bool,
}

#[pymethods]
impl PyItemResult {
    #[getter]
    fn is_ok(&self) -> bool {
        self.result.is_ok()
    }

    /// None if there is none.
    #[getter]
    fn value(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.result.as_ref().ok().map(|value| value.clone_ref(py))
    }

    /// The exception, if it failed; CancelledError if it was cancelled or never begun.
    #[getter]
    fn error<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.result.as_ref().err().map(|error| error.value(py).clone().into_any())
    }

    /// Whether it may have done something.
    #[getter]
    fn was_begun(&self) -> bool {
        self.was_begun
    }

    /// The value; or its exception is raised.
    fn unwrap(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match &self.result {
            Ok(value) => Ok(value.clone_ref(py)),
            Err(error) => Err(error.clone_ref(py)),
        }
    }

    fn __repr__(&self) -> String {
        format!("<resil.ItemResult ok={}>", self.result.is_ok())
    }
}

/// Runs a function on many items, at most `workers` at once. Whatever one of them does is its own result and nobody else's.
///
/// >>> import resil
/// >>> results = resil.Dispatcher(2).run(["1", "2", "three"], int)
/// >>> [result.value for result in results]
/// [1, 2, None]
#[pyclass(module = "resil", name = "Dispatcher", frozen)]
pub struct PyDispatcher(Dispatcher);

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
        Ok(Self(spelled(settings.dispatcher())?))
    }

    /// Runs `fn(item)` on every item. The results are in the order of the items: a list, or for a coroutine function
    /// something to await that gives one. Plain functions run in threads.
    fn run<'py>(&self, py: Python<'py>, items: &Bound<'py, PyAny>, r#fn: Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
        let kind = Kind::of(&r#fn)?;
        let items = items.try_iter().map_err(|_| wrong_type("items", "something to iterate over", items))?;
        let items = items.map(|item| item.map(Bound::unbind)).collect::<PyResult<Vec<_>>>()?;
        let how = match kind {
            Kind::Plain => How::InThread,
            Kind::Coroutine => How::AsTask,
        };
        let (dispatcher, work) = (self.0.clone(), Work::new(r#fn, PyTuple::empty(py), None, how));
        let running: Running = Box::pin(async move {
            let results = dispatcher.run_local(items, |item| work.attempt_with(item)).await;
            Python::attach(|py| {
                let told = |result: Result<Py<PyAny>, ItemError<Failure<PyErr>>>| {
                    let was_begun = result.as_ref().err().is_none_or(ItemError::was_begun);
                    let result = result.map_err(|error| match error {
                        ItemError::Failed(failure) => work.peek(py, &failure),
                        ItemError::Panicked(text) => PyRuntimeError::new_err(text),
                        ItemError::Cancelled | ItemError::NotRun => exception(py, &resil::Error::Cancelled),
                    });
                    Py::new(py, PyItemResult { result, was_begun })
                };
                let results = results.into_iter().map(told).collect::<PyResult<Vec<_>>>()?;
                Ok(results.into_pyobject(py)?.into_any().unbind())
            })
        });
        match kind {
            Kind::Plain => drive(py, running),
            Kind::Coroutine => Ok(Py::new(py, Answer::on_stage("dispatcher.run()", None, running))?.into_any()),
        }
    }
}
