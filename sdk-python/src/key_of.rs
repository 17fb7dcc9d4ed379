//! A key as text, or as a function of a call's arguments.

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use crate::convert::text;
use crate::errors::wrong_type;
use crate::work::Work;

pub enum KeyOf {
    Is(String),
    Function(Py<PyAny>),
}

impl KeyOf {
    pub fn read(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Self> {
        match text(name, given) {
            Ok(text) => Ok(Self::Is(text)),
            Err(_) if given.is_callable() => Ok(Self::Function(given.clone().unbind())),
            Err(_) => Err(wrong_type(name, "str, or a function of the arguments", given)),
        }
    }

    pub fn of(&self, py: Python<'_>, work: &Work) -> PyResult<String> {
        match self {
            Self::Is(text) => Ok(text.clone()),
            Self::Function(function) => text("what key= returned", &work.asked(py, function)?),
        }
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Is(_) => Ok(()),
            Self::Function(function) => visit.call(function),
        }
    }
}
