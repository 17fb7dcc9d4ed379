//! Connecting, and the handle from which everything shared is made.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use resil::Client;

use crate::answer::Answer;
use crate::breaker::{self, PyBreaker};
use crate::convert::{seconds, text};
use crate::errors::{raised_later, wrong_type};
use crate::limiter::{self, PyLimiter};
use crate::runtime::Generation;
use crate::settings::{read, shown};
use crate::testing::{PyClock, is_testing};

/// The handle from which limiters, breakers, locks and the rest are made.
#[pyclass(module = "resil", name = "Client", frozen)]
pub struct PyClient {
    pub client: Client,
    pub generation: Generation,
}

impl PyClient {
    pub fn read(given: &Bound<'_, PyAny>) -> PyResult<Client> {
        let client = given.cast::<Self>().map_err(|_| wrong_type("client", "a resil.Client", given))?.get();
        client.generation.check()?;
        Ok(client.client.clone())
    }
}

/// Connects. `await connect(url)` or `connect(url).wait()`.
#[pyfunction]
#[pyo3(signature = (url, *, clock=None, **settings))]
pub fn connect(
    url: &Bound<'_, PyAny>,
    clock: Option<&Bound<'_, PyAny>>,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<Answer> {
    let url = if is_testing() { "memory://".to_owned() } else { text("url", url)? };
    let settings: resil::settings::ConnectSettings = read(settings)?;
    let clock = PyClock::read(clock)?;
    Ok(Answer::new("connect()", async move {
        let client = match clock {
            Some(clock) => settings.connect_with_clock(&url, clock).await,
            None => settings.connect(&url).await,
        };
        let client = raised_later(client)?;
        Python::attach(|py| Ok(Py::new(py, PyClient { client, generation: Generation::now() })?.into_any()))
    }))
}

#[pymethods]
impl PyClient {
    /// A rate limit under a name: so many cells per period, for each key.
    #[pyo3(signature = (name, **settings))]
    fn limiter(&self, name: &Bound<'_, PyAny>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<PyLimiter> {
        self.generation.check()?;
        limiter::make(&self.client, self.generation, &text("name", name)?, settings)
    }

    /// A circuit breaker under a name, for all who name it the same.
    #[pyo3(signature = (name, *, ignore=None, **settings))]
    fn breaker(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        ignore: Option<&Bound<'_, PyAny>>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyBreaker>> {
        self.generation.check()?;
        breaker::make(py, &self.client, self.generation, &text("name", name)?, ignore, settings)
    }

    /// How everything made from this client is: for readiness probes.
    fn health(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.generation.check()?;
        shown(py, &self.client.health())
    }

    /// Stops taking calls, waits at most `deadline` seconds for those in flight, gives back what is held, and closes the
    /// connections.
    fn shutdown(&self, deadline: &Bound<'_, PyAny>) -> PyResult<Answer> {
        self.generation.check()?;
        let (client, deadline) = (self.client.clone(), seconds("deadline", deadline)?);
        Ok(Answer::new("client.shutdown()", async move {
            let report = client.shutdown(deadline).await;
            Python::attach(|py| shown(py, &report))
        }))
    }

    /// Whether a shutdown has begun.
    #[getter]
    fn is_shutting_down(&self) -> bool {
        self.client.is_shutting_down()
    }
}
