//! What is held for a time, to those who work under it.

use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use resil::lock::Held;

use crate::errors::raised;
use crate::lost::Lost;
use crate::slot::{IsGone, Slot};

/// Something that is held for a time. Forgotten, it is let go in the background.
#[pyclass(module = "resil", name = "Held", subclass, frozen)]
pub struct PyHeld {
    slot: Arc<dyn IsGone>,
    pub held: Held,
}

impl PyHeld {
    pub fn new<G: Send + 'static>(slot: &Arc<Slot<G>>, held: Held) -> PyClassInitializer<Self> {
        PyClassInitializer::from(Self { slot: Arc::clone(slot) as Arc<dyn IsGone>, held })
    }
}

#[pymethods]
impl PyHeld {
    /// Whether this process may believe that it holds it.
    #[getter]
    fn is_held(&self) -> bool {
        !self.slot.is_gone() && self.held.is_held()
    }

    /// What it is called.
    #[getter]
    fn name(&self) -> &str {
        self.held.name()
    }

    /// Who holds it, as the server knows it: for `lock.check(owner)` and for who looks into it.
    #[getter]
    fn owner(&self) -> String {
        self.held.owner()
    }

    /// Raises LockLostError if it is not held any more: to be asked before each step that must not be done without it.
    fn ensure(&self, py: Python<'_>) -> PyResult<()> {
        self.slot.generation().check()?;
        if self.slot.is_gone() {
            return Err(PyRuntimeError::new_err("it was let go before"));
        }
        raised(py, self.held.ensure())
    }

    /// Seconds until it has to be heard of again.
    #[getter]
    fn remaining(&self) -> f64 {
        if !self.slot.generation().is_here() { 0.0 } else { self.held.remaining().as_secs_f64() }
    }

    /// Set when it is lost.
    #[getter]
    fn lost(&self) -> Lost {
        Lost::of_held(self.held.clone(), self.slot.generation())
    }
}
