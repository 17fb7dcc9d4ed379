//! What can also be put around a block: `with policy:` and `async with policy:`.

use pyo3::prelude::*;

use crate::answer::Answer;
use crate::around::Around;
use crate::drive::{Running, drive, refuse_to_block};

/// Who goes in: a coroutine can be cancelled there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entrant {
    Thread,
    Task,
}

/// A policy, as its blocks see it.
pub trait Enters: Send + Sync + 'static {
    /// Gives what `as` names.
    fn enter(&self, py: Python<'_>, entrant: Entrant) -> PyResult<Running>;

    /// `error` is what the block raised, or None. `None` if there is nothing to wait for.
    fn leave(&self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<Option<Running>>;
}

/// Something that can be put around a function or a block.
///
/// Besides what every Around does: `with policy:` in a thread, and `async with policy:` in a coroutine.
#[pyclass(module = "resil", extends = Around, subclass, frozen, generic)]
pub struct Block {
    enters: Box<dyn Enters>,
    what: &'static str,
}

impl Block {
    pub fn around(what: &'static str, enters: impl Enters, around: Around) -> PyClassInitializer<Self> {
        PyClassInitializer::from(around).add_subclass(Self { enters: Box::new(enters), what })
    }
}

#[pymethods]
impl Block {
    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        refuse_to_block(py, "use async with")?;
        drive(py, self.enters.enter(py, Entrant::Thread)?)
    }

    #[pyo3(signature = (_type, value, _traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _type: Bound<'_, PyAny>,
        value: Bound<'_, PyAny>,
        _traceback: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.enters.leave(py, &value)?.map_or(Ok(()), |leaving| drive(py, leaving).map(drop))
    }

    fn __aenter__(&self, py: Python<'_>) -> PyResult<Answer> {
        Ok(Answer::on_stage(self.what, None, self.enters.enter(py, Entrant::Task)?))
    }

    #[pyo3(signature = (_type, value, _traceback, /))]
    fn __aexit__(
        &self,
        py: Python<'_>,
        _type: Bound<'_, PyAny>,
        value: Bound<'_, PyAny>,
        _traceback: Bound<'_, PyAny>,
    ) -> PyResult<Answer> {
        let leaving = self.enters.leave(py, &value)?;
        Ok(Answer::on_stage(self.what, None, leaving.unwrap_or_else(nothing)))
    }
}

/// None, at once.
pub fn nothing() -> Running {
    Box::pin(async { Python::attach(|py| Ok(py.None())) })
}
