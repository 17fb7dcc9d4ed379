//! A result in place of a failure.

use resil::Code;
use resil::policy::Fallback;
use resil::policy::fallback::all_but_invalid;

use crate::prelude::*;

enum Instead {
    Value(Object),
    /// Of the exception.
    Function(Object, Kind),
}

struct Plan {
    instead: Instead,
    when: Option<Which>,
    name: Option<String>,
}

impl Runs for Arc<Plan> {
    fn run(&self, _py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let (plan, judge) = (Arc::clone(self), Arc::clone(self));
        Ok(work.running(|work| async move {
            let (outer, judged) = (Arc::clone(&work), Arc::clone(&work));
            let name = plan.name.clone();
            let instead = move |failure| Arc::clone(&plan).instead_of(Arc::clone(&outer), failure);
            let fallback = Fallback::async_function(instead).when(move |failure| judge.applies(&judged, failure));
            name.iter().fold(fallback, |fallback, name| fallback.named(name)).around(|| work.attempt()).await
        }))
    }

    fn needs(&self) -> Needs {
        Needs::NoWait
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Calls in flight may still ask: then it is not only this object's.
        if Arc::strong_count(self) > 1 {
            return Ok(());
        }
        let (Instead::Value(held) | Instead::Function(held, _)) = &self.instead;
        visit.call(held)?;
        self.when.as_ref().map_or(Ok(()), |when| when.traverse(visit))
    }
}

/// As if the fallback had been an `except` block: its own failure names the one it was to stand in for.
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
        // A caller that wants out is let out.
        if failure.code() == Some(Code::Cancelled) {
            return false;
        }
        let Some(when) = &self.when else { return all_but_invalid(failure) };
        Python::attach(|py| {
            let error = work.error(py, failure);
            when.matches(py, &error).unwrap_or_else(|broken| {
                work.break_with(broken);
                false
            })
        })
    }

    async fn instead_of(self: Arc<Self>, outer: Arc<Work>, failure: Failure<PyErr>) -> Ended {
        let begun = Python::attach(|py| {
            let (function, how) = match (&self.instead, outer.how()) {
                (Instead::Value(value), _) => return Ok(Err(value.clone_ref(py))),
                (Instead::Function(function, Kind::Plain), _) => (function, How::Here),
                (Instead::Function(_, Kind::Coroutine), How::Here | How::Beside(Kind::Plain)) => {
                    return Err(PyTypeError::new_err("function is a coroutine function, and fn is not"));
                }
                (Instead::Function(function, Kind::Coroutine), how) => (function, how.clone()),
            };
            let original = outer.error(py, &failure);
            let args = PyTuple::new(py, [original.value(py)])?;
            Ok(Ok((Work::new(function.bind(py), &args, None, how), original)))
        });
        match begun.map_err(Failure::Inner)? {
            Err(value) => Ok(value),
            Ok((work, original)) => work.attempt().await.map_err(|failure| {
                Python::attach(|py| Failure::Inner(while_handling(py, work.error(py, &failure), &original)))
            }),
        }
    }
}

/// Returns `value`, or what `function(exception)` returns, when a call fails; with `when`, only for the exceptions it names.
///
/// >>> import resil
/// >>> @resil.Fallback("nobody", when=LookupError)
/// ... def name(user):
/// ...     return {42: "Ada"}[user]
/// >>> name(42), name(43)
/// ('Ada', 'nobody')
#[pyclass(module = "resil", name = "Fallback", extends = Around, frozen)]
pub struct PyFallback;

#[pymethods]
impl PyFallback {
    #[new]
    #[pyo3(signature = (value=None, *, function=None, when=None, name=None))]
    fn new(
        py: Python<'_>,
        value: Option<Object>,
        function: OptArg<'_>,
        when: OptArg<'_>,
        name: OptArg<'_>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let instead = match (value, function) {
            (Some(_), Some(_)) => return Err(PyTypeError::new_err("value does not go with function")),
            (_, Some(function)) if !function.is_callable() => return Err(wrong_type("function", "callable", function)),
            (_, Some(function)) => Instead::Function(function.clone().unbind(), Kind::of(function)?),
            (value, None) => Instead::Value(value.unwrap_or_else(|| py.None())),
        };
        let when = when.map(|when| Which::read("when", when)).transpose()?;
        let plan = Plan { instead, when, name: optional_text("name", name)? };
        Ok(Around::local(
            "a call with a fallback",
            format!("name={}", plan.name.as_ref().map_or_else(|| "None".to_owned(), |name| format!("{name:?}"))),
            Arc::new(plan),
        )
        .alone(Self))
    }
}
