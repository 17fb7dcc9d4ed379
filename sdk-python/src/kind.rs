//! Whether a function is a coroutine function, and whether a value is a coroutine.
//!
//! Generator functions are refused: to call one runs nothing of it, so whatever is put around the call protects nothing.

use crate::prelude::*;

/// Whether a function is a coroutine function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Plain,
    Coroutine,
}

impl Kind {
    const CO_COROUTINE: u32 = 0x80;
    /// Of generator functions, also those that `types.coroutine` made, and of async generator functions.
    const CO_GENERATORS: u32 = 0x20 | 0x200;

    pub fn of(func: Arg<'_>) -> PyResult<Self> {
        let py = func.py();
        let function = imported!(py, "types", "FunctionType")?;
        if func.get_type().is(function) {
            let flags: u32 = func.getattr(intern!(py, "__code__"))?.getattr(intern!(py, "co_flags"))?.extract()?;
            if flags & Self::CO_COROUTINE != 0 {
                return Ok(Self::Coroutine);
            }
            if flags & Self::CO_GENERATORS != 0 {
                return Err(generator());
            }
        }
        if !func.is_callable() {
            return Err(PyTypeError::new_err(format!("fn must be callable, not {}", func.get_type().name()?)));
        }
        if func.get_type().is(function) {
            return Ok(Self::Plain);
        }
        match imported!(py, "resil._functions", "kind_of")?.call1((func,))?.extract::<String>()?.as_str() {
            "coroutine" => Ok(Self::Coroutine),
            "generator" => Err(generator()),
            _ => Ok(Self::Plain),
        }
    }
}

fn generator() -> PyErr {
    PyTypeError::new_err(
        "fn is a generator function: calling it runs nothing of it, so nothing would be protected. Put the policy around \
         the function that consumes it, or around a block inside of it (with, async with)",
    )
}

/// Exactly a coroutine: other awaitables make their iterators themselves.
pub fn is_coroutine(py: Python<'_>, value: &Object) -> PyResult<bool> {
    Ok(value.bind(py).get_type().is(imported!(py, "types", "CoroutineType")?))
}
