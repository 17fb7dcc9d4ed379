//! What can be put around a function, in the shapes that all of them share: `policy.call(fn, ...)` and `@policy`.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::answer::Answer;
use crate::drive::{Running, drive};
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

    /// Refuses a function that cannot be put in it, when it is decorated.
    fn check(&self, _func: &Bound<'_, PyAny>) -> PyResult<()> {
        Ok(())
    }

    /// Shows the collector the functions it holds. Each is held by one object: see [`Judge::again`](crate::judge::Judge::again).
    fn traverse(&self, _visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        Ok(())
    }
}

/// A function of the user's with its arguments, and whether it is a coroutine function.
pub struct Call<'py> {
    pub kind: Kind,
    pub func: Bound<'py, PyAny>,
    pub args: Bound<'py, PyTuple>,
    pub kwargs: Option<Bound<'py, PyDict>>,
}

impl<'py> Call<'py> {
    pub fn of(
        func: Bound<'py, PyAny>,
        args: Bound<'py, PyTuple>,
        kwargs: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Self> {
        Ok(Self { kind: Kind::of(&func)?, func, args, kwargs })
    }

    /// Runs it through something that needs this of it: the result, or something to await.
    pub fn through(
        self,
        py: Python<'py>,
        what: &'static str,
        needs: Needs,
        run: impl FnOnce(Arc<Work>) -> PyResult<Running>,
    ) -> PyResult<Py<PyAny>> {
        let Self { kind, func, args, kwargs } = self;
        let stage = (kind == Kind::Coroutine && needs != Needs::Several).then(|| Arc::new(Stage::default()));
        let how = match (kind, &stage) {
            (Kind::Plain, _) if needs == Needs::Nothing => How::Here,
            (Kind::Plain, _) => How::InThread,
            (Kind::Coroutine, None) => How::AsTask,
            (Kind::Coroutine, Some(stage)) => How::Inside(Arc::clone(stage)),
        };
        let running = run(Work::new(func, args, kwargs, how))?;
        match kind {
            Kind::Plain => drive(py, running),
            Kind::Coroutine => Ok(Py::new(py, Answer::on_stage(what, stage, running))?.into_any()),
        }
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

    fn go<'py>(&self, py: Python<'py>, call: Call<'py>) -> PyResult<Py<PyAny>> {
        call.through(py, self.what, self.runs.needs(), |work| self.runs.run(py, work))
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
        self.go(py, Call::of(r#fn, args, kwargs)?)
    }

    /// As a decorator: the same function with this policy around it.
    fn __call__<'py>(slf: &Bound<'py, Self>, r#fn: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().runs.check(&r#fn)?;
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
        self.go(py, Call { kind: Kind::Plain, func, args, kwargs })
    }

    /// What decorated coroutine functions await.
    fn _run_async<'py>(
        &self,
        py: Python<'py>,
        func: Bound<'py, PyAny>,
        args: Bound<'py, PyTuple>,
        kwargs: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        self.go(py, Call { kind: Kind::Coroutine, func, args, kwargs })
    }

    // There is no `__clear__`: it cannot be changed, so every circle it is in has something in it that can.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.runs.traverse(&visit)
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
