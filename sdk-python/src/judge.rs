//! What exceptions mean: `on=` says which may go away by themselves, `ignore=` which say nothing about what was called.

use std::sync::Arc;

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple, PyType};
use resil::policy::Class;

use crate::convert::seconds;
use crate::errors::wrong_type;
use crate::work::Work;

/// Exception classes, or a function of the exception.
pub enum Which {
    Classes(Py<PyAny>),
    /// Gives true or false, or the seconds after which to try again.
    Function(Py<PyAny>),
}

impl Which {
    pub fn read(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Self> {
        let is_class = |given: &Bound<'_, PyAny>| {
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

    pub fn matches(&self, py: Python<'_>, error: &PyErr) -> PyResult<bool> {
        self.applies(py, error).map(|class| class.is_some())
    }

    /// What a function says: not at all, yes, or yes after a while.
    fn applies(&self, py: Python<'_>, error: &PyErr) -> PyResult<Option<Class>> {
        match self {
            Self::Classes(classes) => Ok(error.value(py).is_instance(classes.bind(py))?.then_some(Class::Retry)),
            Self::Function(function) => {
                let said = function.bind(py).call1((error.value(py),))?;
                if said.is_none() {
                    return Ok(None);
                }
                if let Ok(flag) = said.cast::<PyBool>() {
                    return Ok(flag.is_true().then_some(Class::Retry));
                }
                Ok(Some(Class::RetryAfter(seconds("what on= returned", &said)?)))
            }
        }
    }
}

/// What is said about exceptions.
#[derive(Default)]
pub struct Judge {
    pub on: Option<Which>,
    pub ignore: Option<Which>,
}

impl Judge {
    pub fn read(on: Option<&Bound<'_, PyAny>>, ignore: Option<&Bound<'_, PyAny>>) -> PyResult<Arc<Self>> {
        let on = on.map(|on| Which::read("on", on)).transpose()?;
        let ignore = ignore.map(|ignore| Which::read("ignore", ignore)).transpose()?;
        Ok(Arc::new(Self { on, ignore }))
    }

    /// If the function that judges fails, that is what the caller gets.
    pub fn classify(&self, work: &Work, error: &PyErr) -> Class {
        if self.on.is_none() && self.ignore.is_none() {
            return Class::Permanent;
        }
        Python::attach(|py| {
            let asked = |which: &Option<Which>| which.as_ref().map_or(Ok(None), |which| which.applies(py, error));
            let judged = asked(&self.ignore).and_then(|ignored| match ignored {
                Some(_) => Ok(Class::Ignore),
                None => asked(&self.on).map(|class| class.unwrap_or(Class::Permanent)),
            });
            judged.unwrap_or_else(|broken| {
                work.break_with(broken);
                Class::Permanent
            })
        })
    }
}
