//! What can also be put around a block: `with policy:` and `async with policy:`.

use crate::prelude::*;

/// Who enters: a coroutine can be cancelled there.
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
    fn leave(&self, py: Python<'_>, error: Arg<'_>) -> PyResult<Option<Running>>;
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

    fn enter(slf: &Bound<'_, Self>, entrant: Entrant) -> PyResult<Running> {
        slf.as_super().get().check_process()?;
        slf.get().enters.enter(slf.py(), entrant)
    }
}

#[pymethods]
impl Block {
    fn __enter__(slf: &Bound<'_, Self>) -> PyResult<Object> {
        refuse_to_block(slf.py(), "use async with")?;
        drive(slf.py(), Self::enter(slf, Entrant::Thread)?)
    }

    #[pyo3(signature = (_type, value, _traceback, /))]
    fn __exit__(&self, py: Python<'_>, _type: Arg<'_>, value: Arg<'_>, _traceback: Arg<'_>) -> PyResult<()> {
        self.enters.leave(py, value)?.map_or(Ok(()), |leaving| drive(py, leaving).map(drop))
    }

    fn __aenter__(slf: &Bound<'_, Self>) -> PyResult<Pending> {
        Ok(Pending::on_stage(slf.get().what, None, Self::enter(slf, Entrant::Task)?))
    }

    #[pyo3(signature = (_type, value, _traceback, /))]
    fn __aexit__(&self, py: Python<'_>, _type: Arg<'_>, value: Arg<'_>, _traceback: Arg<'_>) -> PyResult<Pending> {
        let leaving = self.enters.leave(py, value)?;
        Ok(Pending::on_stage(self.what, None, leaving.unwrap_or_else(|| Box::pin(async { none() }))))
    }
}
