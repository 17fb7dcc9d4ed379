//! What exceptions mean: `on=` says which may go away by themselves, `ignore=` which say nothing about what was called. And which
//! results are failures: `on_result=`.

use pyo3::exceptions::PyBaseException;
use pyo3::types::{PyBool, PyType};
use resil::policy::{Class, Unfit};

use crate::edge::call;
use crate::prelude::*;

/// Exception classes, or a function of the exception.
pub enum Which {
    Classes(Object),
    /// Gives true or false, or the seconds after which to try again.
    Function(Object),
}

impl Which {
    pub fn read(name: &str, given: Arg<'_>) -> PyResult<Self> {
        let is_class = |given: Arg<'_>| {
            given.cast::<PyType>().is_ok_and(|class| class.is_subclass_of::<PyBaseException>().unwrap_or(false))
        };
        if is_class(given) {
            return Ok(Self::Classes(given.clone().unbind()));
        }
        if let Ok(classes) = given.cast::<PyTuple>()
            && !classes.is_empty()
            && classes.iter().all(|class| is_class(&class))
        {
            return Ok(Self::Classes(given.clone().unbind()));
        }
        if given.is_callable() && !given.is_instance_of::<PyType>() {
            return Ok(Self::Function(given.clone().unbind()));
        }
        Err(wrong_type(name, "an exception class, a tuple of them, or a function of the exception", given))
    }

    fn again(&self, py: Python<'_>) -> Self {
        match self {
            Self::Classes(classes) => Self::Classes(classes.clone_ref(py)),
            Self::Function(function) => Self::Function(function.clone_ref(py)),
        }
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let (Self::Classes(held) | Self::Function(held)) = self;
        visit.call(held)
    }

    pub fn matches(&self, py: Python<'_>, error: &PyErr) -> PyResult<bool> {
        self.applies(py, error).map(|class| class.is_some())
    }

    /// What a function says: not at all, yes, or yes after a while.
    fn applies(&self, py: Python<'_>, error: &PyErr) -> PyResult<Option<Class>> {
        match self {
            Self::Classes(classes) => Ok(error.value(py).is_instance(classes.bind(py))?.then_some(Class::Retry)),
            Self::Function(function) => {
                let said = call(function.bind(py), &PyTuple::new(py, [error.value(py)])?, None);
                let said = said.inspect_err(|broken| {
                    // Else nobody would see what the call itself came to.
                    if broken.cause(py).is_none() && !broken.value(py).is(error.value(py)) {
                        broken.set_cause(py, Some(error.clone_ref(py)));
                    }
                })?;
                read_said("on", &said)
            }
        }
    }
}

/// True or false, None, or the seconds after which to try again.
fn read_said(name: &str, said: Arg<'_>) -> PyResult<Option<Class>> {
    if said.is_none() {
        return Ok(None);
    }
    if let Ok(flag) = said.cast::<PyBool>() {
        return Ok(flag.is_true().then_some(Class::Retry));
    }
    Ok(Some(Class::RetryAfter(seconds(&format!("what {name}= returned"), said)?)))
}

/// What a call came to: results that are failures are errors, until they are settled.
pub type Judged = Result<Object, Failure<Unfit<Object, PyErr>>>;

/// What is said about exceptions and results.
#[derive(Default)]
pub struct Judge {
    pub on: Option<Which>,
    pub ignore: Option<Which>,
    /// A function of a result.
    pub on_result: Option<Object>,
}

impl Judge {
    pub fn read(on: OptArg<'_>, ignore: OptArg<'_>, on_result: OptArg<'_>) -> PyResult<Arc<Self>> {
        let on = on.map(|on| Which::read("on", on)).transpose()?;
        let ignore = ignore.map(|ignore| Which::read("ignore", ignore)).transpose()?;
        if let Some(function) = on_result.filter(|function| !function.is_callable()) {
            return Err(wrong_type("on_result", "a function of the result", function));
        }
        let on_result = on_result.map(|function| function.clone().unbind());
        Ok(Arc::new(Self { on, ignore, on_result }))
    }

    /// What an exception means. Fails if the function that judges does.
    pub fn class(&self, py: Python<'_>, error: &PyErr) -> PyResult<Class> {
        let asked = |which: &Option<Which>| which.as_ref().map_or(Ok(None), |which| which.applies(py, error));
        Ok(match asked(&self.ignore)? {
            Some(_) => Class::Ignore,
            None => asked(&self.on)?.unwrap_or(Class::Permanent),
        })
    }

    /// The same inside of a policy. If the function that judges fails, that is what the caller gets.
    pub fn classify(&self, work: &Work, error: &PyErr) -> Class {
        if self.on.is_none() && self.ignore.is_none() {
            return Class::Permanent;
        }
        Python::attach(|py| self.class(py, error)).unwrap_or_else(|broken| {
            work.break_with(broken);
            Class::Permanent
        })
    }

    /// For the policies of the SDK.
    pub fn of<'a>(&'a self, work: &'a Work) -> impl Fn(&PyErr) -> Class + 'a {
        move |error| self.classify(work, error)
    }

    /// Waits for an attempt, and judges its result.
    pub async fn attempt(&self, work: &Work, attempt: impl Future<Output = Ended>) -> Judged {
        resil::policy::judged(|value| self.result(work, value), attempt.await)
    }

    fn result(&self, work: &Work, value: &Object) -> Option<Class> {
        let function = self.on_result.as_ref()?;
        let said = Python::attach(|py| {
            let said = call(function.bind(py), &PyTuple::new(py, [value.bind(py)])?, None)?;
            read_said("on_result", &said)
        });
        said.unwrap_or_else(|broken| {
            work.break_with(broken);
            None
        })
    }

    /// Of another object: each holds what it visits.
    pub fn again(&self, py: Python<'_>) -> Arc<Self> {
        let again = |which: &Option<Which>| which.as_ref().map(|which| which.again(py));
        let on_result = self.on_result.as_ref().map(|function| function.clone_ref(py));
        Arc::new(Self { on: again(&self.on), ignore: again(&self.ignore), on_result })
    }

    /// Shows the collector what this object holds. Calls in flight may still ask: then it is not only this object's.
    pub fn traverse(self: &Arc<Self>, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if Arc::strong_count(self) > 1 {
            return Ok(());
        }
        self.on_result.iter().try_for_each(|function| visit.call(function))?;
        [&self.on, &self.ignore].into_iter().flatten().try_for_each(|which| which.traverse(visit))
    }
}
