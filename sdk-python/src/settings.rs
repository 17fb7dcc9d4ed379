//! Settings as Python says them: names with underscores, durations as seconds. The SDK reads them, and knows every default.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use resil::Error;
use resil::settings::{Dialect, Numbers, Settings, Spelling};

use crate::convert::{plain, said_by};
use crate::errors::exception;

pub const PYTHON: Dialect = Dialect { spelling: Spelling::Snake, numbers: Numbers::Seconds };

/// Keyword arguments.
pub fn read<T: Settings>(kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<T> {
    spelled(PYTHON.read(said_by(kwargs)?))
}

/// An error with its field as it is called here.
pub fn spelled<T>(result: Result<T, Error>) -> PyResult<T> {
    result.map_err(|error| Python::attach(|py| exception(py, &PYTHON.spell_error(error))))
}

/// Something of the SDK's as dicts, lists, numbers and texts.
pub fn shown(py: Python<'_>, value: &impl serde::Serialize) -> PyResult<Py<PyAny>> {
    plain(py, &spelled(PYTHON.show(value))?)
}
