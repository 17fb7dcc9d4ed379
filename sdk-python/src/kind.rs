//! Whether a function is a coroutine function, and whether a value is a coroutine.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Whether a function is a coroutine function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Plain,
    Coroutine,
}

impl Kind {
    const CO_COROUTINE: u32 = 0x80;

    pub fn of(func: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = func.py();
        static FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let function = FUNCTION.import(py, "types", "FunctionType")?;
        if func.get_type().is(function) {
            let flags: u32 = func.getattr(intern!(py, "__code__"))?.getattr(intern!(py, "co_flags"))?.extract()?;
            if flags & Self::CO_COROUTINE != 0 {
                return Ok(Self::Coroutine);
            }
        }
        if !func.is_callable() {
            return Err(PyTypeError::new_err(format!("fn must be callable, not {}", func.get_type().name()?)));
        }
        static LOOK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let look = LOOK.import(py, "resil._functions", "is_coroutine_function")?;
        if !func.get_type().is(function) && look.call1((func,))?.is_truthy()? {
            return Ok(Self::Coroutine);
        }
        Ok(Self::Plain)
    }
}

/// Exactly a coroutine: other awaitables make their iterators themselves.
pub fn is_coroutine(py: Python<'_>, value: &Py<PyAny>) -> PyResult<bool> {
    static TYPE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    Ok(value.bind(py).get_type().is(TYPE.import(py, "types", "CoroutineType")?))
}
