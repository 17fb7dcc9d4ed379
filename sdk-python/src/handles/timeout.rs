//! A call that does not end in time is not waited for.

use resil::policy::Timeout;

use crate::prelude::*;

impl Runs for Timeout {
    fn run(&self, _py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let timeout = self.clone();
        Ok(work.running(|work| async move { timeout.around(|| work.attempt()).await }))
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
/// no result within 10 ms
/// no result within 10 ms
#[pyclass(module = "resil", name = "Timeout", extends = Around, frozen)]
pub struct PyTimeout {
    timeout: Timeout,
    entered: Entered<Watch>,
}

#[pymethods]
impl PyTimeout {
    #[new]
    #[pyo3(signature = (after, *, name=None, clock=None))]
    fn new(after: Arg<'_>, name: OptArg<'_>, clock: OptArg<'_>) -> PyResult<PyClassInitializer<Self>> {
        let timeout = spelled(Timeout::attempt(seconds("after", after)?).map_err(|error| match error {
            Error::InvalidPolicy { reason, .. } => Error::InvalidPolicy { field: "after".to_owned(), reason },
            other => other,
        }))?;
        let timeout = optional_text("name", name)?.iter().fold(timeout, |timeout, name| timeout.named(name));
        let timeout = PyClock::read(clock)?.into_iter().fold(timeout, Timeout::with_clock);
        let around =
            Around::local("a call in time", format!("after={}", timeout.after().as_secs_f64()), timeout.clone());
        Ok(around.alone(Self { timeout, entered: Entered::default() }))
    }

    /// In seconds.
    #[getter]
    fn after(&self) -> f64 {
        self.timeout.after().as_secs_f64()
    }

    fn __aenter__(&self, py: Python<'_>) -> PyResult<Pending> {
        let timeout = self.timeout.clone();
        let watch = Watch::until(py, async move {
            // Nothing else can end it.
            let _: Result<(), Failure<()>> = timeout.call(std::future::pending).await;
        })?;
        self.entered.push(Who::is_here(py)?, watch);
        Ok(Pending::new("async with timeout", async { none() }))
    }

    #[pyo3(signature = (_type, value, _traceback, /))]
    fn __aexit__(&self, py: Python<'_>, _type: Arg<'_>, value: Arg<'_>, _traceback: Arg<'_>) -> PyResult<Pending> {
        let is_over = self.entered.pop(Who::is_here(py)?)?.end(py, value)?;
        let after = self.timeout.after();
        Ok(Pending::done(
            "async with timeout",
            async move { if is_over { Err(Error::Timeout { after }) } else { Ok(()) } },
        ))
    }
}
