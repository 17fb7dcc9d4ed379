//! An answer that does not come in time is not waited for.

use std::sync::Arc;

use pyo3::prelude::*;
use resil::policy::Timeout;
use resil::{Error, Failure};

use crate::answer::Answer;
use crate::around::{Around, Needs, Runs};
use crate::convert::{optional_text, seconds};
use crate::drive::Running;
use crate::entered::{Entered, Who};
use crate::errors::exception;
use crate::lost::Watch;
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
///
/// >>> import asyncio, resil
/// >>> @resil.Timeout(0.01)
/// ... async def slow():
/// ...     await asyncio.sleep(60)
/// >>> async def block():
/// ...     async with resil.Timeout(0.01):
/// ...         await asyncio.sleep(60)
/// >>> for never in (slow, block):
/// ...     try:
/// ...         asyncio.run(never())
/// ...     except TimeoutError as error:
/// ...         print(error)
/// no answer within 10 ms
/// no answer within 10 ms
#[pyclass(module = "resil", name = "Timeout", extends = Around, frozen)]
pub struct PyTimeout {
    timeout: Timeout,
    entered: Entered<Watch>,
}

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
        Ok(PyClassInitializer::from(Around::new("a call in time", InTime(timeout.clone())))
            .add_subclass(Self { timeout, entered: Entered::default() }))
    }

    /// In seconds.
    #[getter]
    fn after(&self) -> f64 {
        self.timeout.after().as_secs_f64()
    }

    fn __aenter__(&self, py: Python<'_>) -> PyResult<Answer> {
        let timeout = self.timeout.clone();
        let watch = Watch::until(py, async move {
            // Nothing else can end it.
            let _: Result<(), Failure<()>> = timeout.call(std::future::pending).await;
        })?;
        self.entered.push(Who::is_here(py)?, watch);
        Ok(Answer::new("async with timeout", async { Python::attach(|py| Ok(py.None())) }))
    }

    #[pyo3(signature = (_type, value, _traceback, /))]
    fn __aexit__(
        &self,
        py: Python<'_>,
        _type: Bound<'_, PyAny>,
        value: Bound<'_, PyAny>,
        _traceback: Bound<'_, PyAny>,
    ) -> PyResult<Answer> {
        let is_over = self.entered.pop(Who::is_here(py)?)?.end(py, &value)?;
        let after = self.timeout.after();
        Ok(Answer::new("async with timeout", async move {
            Python::attach(|py| match is_over {
                true => Err(exception(py, &Error::Timeout { after })),
                false => Ok(py.None()),
            })
        }))
    }

    fn __repr__(&self) -> String {
        format!("<resil.Timeout after={}>", self.timeout.after().as_secs_f64())
    }
}
