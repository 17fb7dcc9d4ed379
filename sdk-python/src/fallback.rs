//! An answer in place of none.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{PyTraverseError, PyVisit};
use resil::policy::Fallback;
use resil::policy::fallback::all_but_invalid;
use resil::{Code, Failure};

use crate::around::{Around, Runs};
use crate::convert::optional_text;
use crate::drive::Running;
use crate::errors::wrong_type;
use crate::judge::Which;
use crate::kind::Kind;
use crate::work::{How, Work};

enum Instead {
    Value(Py<PyAny>),
    /// Of the exception.
    Function(Py<PyAny>, Kind),
}

struct Plan {
    instead: Instead,
    on: Option<Which>,
    name: Option<String>,
}

impl Runs for Arc<Plan> {
    fn run(&self, _py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let (plan, outer) = (Arc::clone(self), Arc::clone(&work));
        Ok(Arc::clone(&work).running(async move {
            let (judged, judging) = (Arc::clone(&plan), Arc::clone(&outer));
            let name = plan.name.clone();
            let answer = move |failure: Failure<PyErr>| {
                let (plan, outer) = (Arc::clone(&plan), Arc::clone(&outer));
                async move {
                    let (begun, original) = Python::attach(|py| {
                        let original = outer.peek(py, &failure);
                        (plan.answer(py, &outer, original.clone_ref(py)), original)
                    });
                    match begun {
                        Ok(Answered::At(value)) => Ok(value),
                        Ok(Answered::By(work)) => work.attempt().await.map_err(|failure| {
                            Python::attach(|py| Failure::Inner(while_handling(py, work.error(py, failure), &original)))
                        }),
                        Err(error) => Err(Failure::Inner(error)),
                    }
                }
            };
            let mut fallback = Fallback::async_function(answer).when(move |failure| judged.applies(&judging, failure));
            if let Some(name) = name {
                fallback = fallback.named(&name);
            }
            fallback.around(|| work.attempt()).await
        }))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Calls in flight may still ask: then it is not only this object's.
        if Arc::strong_count(self) > 1 {
            return Ok(());
        }
        let (Instead::Value(held) | Instead::Function(held, _)) = &self.instead;
        visit.call(held)?;
        self.on.as_ref().map_or(Ok(()), |on| on.traverse(visit))
    }
}

enum Answered {
    At(Py<PyAny>),
    By(Arc<Work>),
}

/// As if the fallback had been an `except` block: its own failure names the one it was to answer for.
fn while_handling(py: Python<'_>, error: PyErr, original: &PyErr) -> PyErr {
    let (raised, handled) = (error.value(py), original.value(py));
    if !raised.is(handled) && raised.getattr("__context__").is_ok_and(|context| context.is_none()) {
        // An exception takes any other as its context.
        let _ = raised.setattr("__context__", handled);
    }
    error
}

impl Plan {
    fn applies(&self, work: &Work, failure: &Failure<PyErr>) -> bool {
        // Whoever wants out is let out.
        if failure.code() == Some(Code::Cancelled) {
            return false;
        }
        let Some(on) = &self.on else { return all_but_invalid(failure) };
        Python::attach(|py| {
            let error = work.peek(py, failure);
            on.matches(py, &error).unwrap_or_else(|broken| {
                work.break_with(broken);
                false
            })
        })
    }

    fn answer(&self, py: Python<'_>, work: &Arc<Work>, error: PyErr) -> PyResult<Answered> {
        match &self.instead {
            Instead::Value(value) => Ok(Answered::At(value.clone_ref(py))),
            Instead::Function(function, kind) => {
                let how = match (kind, work.how()) {
                    (Kind::Coroutine, How::Here | How::InThread) => {
                        return Err(PyTypeError::new_err("function is a coroutine function, and fn is not"));
                    }
                    (Kind::Coroutine, how) => how.clone(),
                    (Kind::Plain, _) => How::Here,
                };
                let args = PyTuple::new(py, [error.value(py)])?;
                Ok(Answered::By(Work::new(function.bind(py).clone(), args, None, how)))
            }
        }
    }
}

/// Answers with `value`, or with what `function(exception)` returns, when a call fails; only to what `on` names, if it is said.
///
/// >>> import resil
/// >>> @resil.Fallback("nobody", on=LookupError)
/// ... def name(user):
/// ...     return {42: "Ada"}[user]
/// >>> name(42), name(43)
/// ('Ada', 'nobody')
#[pyclass(module = "resil", name = "Fallback", extends = Around, frozen)]
pub struct PyFallback;

#[pymethods]
impl PyFallback {
    #[new]
    #[pyo3(signature = (value=None, *, function=None, on=None, name=None))]
    fn new(
        py: Python<'_>,
        value: Option<Py<PyAny>>,
        function: Option<&Bound<'_, PyAny>>,
        on: Option<&Bound<'_, PyAny>>,
        name: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let instead = match (value, function) {
            (Some(_), Some(_)) => return Err(PyTypeError::new_err("value does not go with function")),
            (_, Some(function)) if !function.is_callable() => return Err(wrong_type("function", "callable", function)),
            (_, Some(function)) => Instead::Function(function.clone().unbind(), Kind::of(function)?),
            (value, None) => Instead::Value(value.unwrap_or_else(|| py.None())),
        };
        let on = on.map(|on| Which::read("on", on)).transpose()?;
        let plan = Arc::new(Plan { instead, on, name: optional_text("name", name)? });
        Ok(PyClassInitializer::from(Around::new("a call with a fallback", plan)).add_subclass(Self))
    }

    fn __repr__(&self) -> &'static str {
        "<resil.Fallback>"
    }
}
