//! What can be put around a function, in the shapes that all of them share: `policy.call(fn, ...)` and `@policy`.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::answer::{Answer, Running, drive};
use crate::kind::Kind;
use crate::stage::Stage;
use crate::work::{How, Work};

/// What a policy needs of the functions in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// It waits for them to end.
    Nothing,
    /// It may stop waiting for one: a plain function runs in a thread.
    ToLeave,
    /// It may run several at once.
    Several,
}

/// A policy, as its functions see it.
pub trait Runs: Send + Sync + 'static {
    fn run(&self, py: Python<'_>, work: Arc<Work>) -> PyResult<Running>;

    fn needs(&self) -> Needs {
        Needs::Nothing
    }
}

/// Something that can be put around a function.
///
/// As a decorator (`@policy`) or with `policy.call(fn, *args, **kwargs)`. A plain function gives its result; a coroutine
/// function gives something to await.
#[pyclass(module = "resil", subclass, frozen)]
pub struct Around {
    pub runs: Box<dyn Runs>,
    what: &'static str,
}

impl Around {
    pub fn new(what: &'static str, runs: impl Runs) -> Self {
        Self { runs: Box::new(runs), what }
    }

    pub fn go<'py>(
        &self,
        py: Python<'py>,
        kind: Kind,
        func: Bound<'py, PyAny>,
        args: Bound<'py, PyTuple>,
        kwargs: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let needs = self.runs.needs();
        match kind {
            Kind::Plain => {
                let how = if needs == Needs::Nothing { How::Here } else { How::InThread };
                drive(py, self.runs.run(py, Work::new(func, args, kwargs, how))?)
            }
            Kind::Coroutine if needs == Needs::Several => {
                let running = self.runs.run(py, Work::new(func, args, kwargs, How::AsTask))?;
                Ok(Py::new(py, Answer::on_stage(self.what, None, running))?.into_any())
            }
            Kind::Coroutine => {
                let stage = Arc::new(Stage::default());
                let running = self.runs.run(py, Work::new(func, args, kwargs, How::Inside(Arc::clone(&stage))))?;
                Ok(Py::new(py, Answer::on_stage(self.what, Some(stage), running))?.into_any())
            }
        }
    }
}

#[pymethods]
impl Around {
    /// Runs `fn(*args, **kwargs)` through this policy: its result, or for a coroutine function something to await.
    #[pyo3(signature = (r#fn, /, *args, **kwargs))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        r#fn: Bound<'py, PyAny>,
        args: Bound<'py, PyTuple>,
        kwargs: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let kind = Kind::of(&r#fn)?;
        self.go(py, kind, r#fn, args, kwargs)
    }

    /// As a decorator: the same function with this policy around it.
    fn __call__<'py>(slf: &Bound<'py, Self>, r#fn: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        decorated(slf.as_any(), &r#fn)
    }

    /// What decorated plain functions do.
    fn _run<'py>(
        &self,
        py: Python<'py>,
        func: Bound<'py, PyAny>,
        args: Bound<'py, PyTuple>,
        kwargs: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        self.go(py, Kind::Plain, func, args, kwargs)
    }

    /// What decorated coroutine functions await.
    fn _run_async<'py>(
        &self,
        py: Python<'py>,
        func: Bound<'py, PyAny>,
        args: Bound<'py, PyTuple>,
        kwargs: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        self.go(py, Kind::Coroutine, func, args, kwargs)
    }
}

/// A function with something of ours around it: still a function, with its name, its signature and its kind.
pub fn decorated<'py>(policy: &Bound<'py, PyAny>, func: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = policy.py();
    static PLAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static COROUTINE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if !func.is_callable() {
        return Err(PyTypeError::new_err(format!("fn must be callable, not {}", func.get_type().name()?)));
    }
    let decorate = match Kind::of(func)? {
        Kind::Plain => PLAIN.import(py, "resil._functions", "decorate")?,
        Kind::Coroutine => COROUTINE.import(py, "resil._functions", "decorate_async")?,
    };
    decorate.call1((policy, func))
}
