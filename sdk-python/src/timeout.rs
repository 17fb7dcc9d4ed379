//! An answer that does not come in time is not waited for.

use std::sync::Arc;

use pyo3::prelude::*;
use resil::policy::Timeout;

use crate::answer::Running;
use crate::around::{Around, Needs, Runs};
use crate::convert::{optional_text, seconds};
use crate::settings::spelled;
use crate::testing::PyClock;
use crate::work::Work;

struct InTime(Timeout);

impl Runs for InTime {
    fn run(&self, _py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let timeout = self.0.clone();
        Ok(Arc::clone(&work).running(async move { timeout.around(|| work.attempt()).await }))
    }

    fn needs(&self) -> Needs {
        Needs::ToLeave
    }
}

/// Raises TimeoutError when `after` seconds are over. A coroutine is cancelled then; a plain function runs in a thread, and is
/// only left alone.
#[pyclass(module = "resil", name = "Timeout", extends = Around, frozen)]
pub struct PyTimeout(Timeout);

#[pymethods]
impl PyTimeout {
    #[new]
    #[pyo3(signature = (after, *, name=None, clock=None))]
    fn new(
        after: &Bound<'_, PyAny>,
        name: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let mut timeout = Timeout::attempt(seconds("after", after)?).map_err(|error| match error {
            resil::Error::InvalidPolicy { reason, .. } => {
                resil::Error::InvalidPolicy { field: "after".to_owned(), reason }
            }
            other => other,
        });
        if let Some(name) = optional_text("name", name)? {
            timeout = timeout.map(|timeout| timeout.named(&name));
        }
        if let Some(clock) = PyClock::read(clock)? {
            timeout = timeout.map(|timeout| timeout.with_clock(clock));
        }
        let timeout = spelled(timeout)?;
        Ok(PyClassInitializer::from(Around::new("a call in time", InTime(timeout.clone()))).add_subclass(Self(timeout)))
    }

    /// In seconds.
    #[getter]
    fn after(&self) -> f64 {
        self.0.after().as_secs_f64()
    }

    fn __repr__(&self) -> String {
        format!("<resil.Timeout after={}>", self.0.after().as_secs_f64())
    }
}
