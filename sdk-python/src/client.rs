//! Connecting, and the handle from which everything shared is made.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use resil::{Client, ConnectSettings};

use crate::answer::Answer;
use crate::breaker::{self, PyBreaker};
use crate::cached::{self, PyCached};
use crate::convert::{seconds, text};
use crate::drive::{Running, drive, refuse_to_block};
use crate::errors::{raised_later, wrong_type};
use crate::idempotent::{self, PyIdempotent};
use crate::limiter::{self, PyLimiter};
use crate::listeners;
use crate::lock::{self, PyLock};
use crate::policies::{self, PyPolicies};
use crate::policy::{self, PyPolicy, Said};
use crate::runtime::Generation;
use crate::settings::{read, shown};
use crate::shared_bulkhead::{self, PySharedBulkhead};
use crate::testing::{PyClock, is_testing};
use crate::versioned::{self, PyVersionedCached};

/// How long the end of `with client` waits for calls in flight.
const BLOCK_DEADLINE: Duration = Duration::from_secs(5);

/// The handle from which limiters, breakers, locks and the rest are made. As a block (`with`, `async with`) it is shut down at
/// its end, with a deadline of 5 seconds.
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

    /// The end of a block.
    fn leaving(&self) -> Running {
        let client = self.client.clone();
        Box::pin(async move {
            client.shutdown(BLOCK_DEADLINE).await;
            Python::attach(|py| Ok(py.None()))
        })
    }
}

/// Connects. `await connect(url)` or `connect(url).wait()`.
#[pyfunction]
#[pyo3(signature = (url, *, clock=None, **settings))]
pub fn connect(
    py: Python<'_>,
    url: &Bound<'_, PyAny>,
    clock: Option<&Bound<'_, PyAny>>,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<Answer> {
    let url = if is_testing() { "memory://".to_owned() } else { text("url", url)? };
    let settings: resil::settings::ConnectSettings = read(settings)?;
    let (clock, runtime) = (PyClock::read(clock)?, crate::runtime::handle()?);
    if !url.starts_with("memory:") {
        listeners::begin(py)?;
    }
    Ok(Answer::new("connect()", async move {
        let settings = settings.url(url).runtime(runtime).on_notice(listeners::hear);
        let client = raised_later(clock.into_iter().fold(settings, ConnectSettings::clock).connect().await)?;
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

    /// A lock under a name, for all who use the same server.
    #[pyo3(signature = (name, **settings))]
    fn lock(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyLock>> {
        self.generation.check()?;
        lock::make(py, &self.client, self.generation, &text("name", name)?, settings)
    }

    /// A bulkhead under a name, in which at most `max` are inside at once, of all who use the same server.
    #[pyo3(signature = (name, max, **settings))]
    fn shared_bulkhead(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        max: &Bound<'_, PyAny>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PySharedBulkhead>> {
        self.generation.check()?;
        shared_bulkhead::make(py, &self.client, self.generation, &text("name", name)?, max, settings)
    }

    /// Work that is done once; `name` says what kind of work. Results are kept as JSON, or as `serializer` says: "bytes", "pickle",
    /// a dataclass, a pydantic model, or a pair of functions (dumps, loads). Exceptions to `remember` are final: duplicates get them, too.
    #[pyo3(signature = (name, *, serializer=None, remember=None, **settings))]
    fn idempotent(
        &self,
        name: &Bound<'_, PyAny>,
        serializer: Option<&Bound<'_, PyAny>>,
        remember: Option<&Bound<'_, PyAny>>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyIdempotent> {
        self.generation.check()?;
        idempotent::make(&self.client, self.generation, name, serializer, remember, settings)
    }

    /// Values that are loaded once; `name` says what they are. They are kept as JSON, or as
    /// `serializer` says; see `idempotent`.
    #[pyo3(signature = (name, *, serializer=None, **settings))]
    fn cached(
        &self,
        name: &Bound<'_, PyAny>,
        serializer: Option<&Bound<'_, PyAny>>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyCached> {
        self.generation.check()?;
        cached::make(&self.client, self.generation, name, serializer, settings)
    }

    /// The same with versions, for sources that lag behind a commit: what is known is never replaced by something older.
    #[pyo3(signature = (name, *, serializer=None, **settings))]
    fn versioned(
        &self,
        name: &Bound<'_, PyAny>,
        serializer: Option<&Bound<'_, PyAny>>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyVersionedCached> {
        self.generation.check()?;
        versioned::make(&self.client, self.generation, name, serializer, settings)
    }

    /// A whole policy, of a dict or of keywords. `on` says which exceptions are retried.
    #[pyo3(signature = (name, settings=None, *, on=None, ignore=None, **more))]
    fn policy(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        settings: Option<&Bound<'_, PyAny>>,
        on: Option<&Bound<'_, PyAny>>,
        ignore: Option<&Bound<'_, PyAny>>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyPolicy>> {
        self.generation.check()?;
        policy::make(py, &self.client, self.generation, name, settings, Said { on, ignore }, more)
    }

    /// Policies from a file of JSON or YAML, or from its text.
    #[pyo3(signature = (path=None, *, text=None))]
    fn policies(&self, path: Option<&Bound<'_, PyAny>>, text: Option<&Bound<'_, PyAny>>) -> PyResult<PyPolicies> {
        self.generation.check()?;
        policies::read_file(&self.client, self.generation, path, text)
    }

    /// Takes `cost` cells from every limit, or from none.
    #[pyo3(signature = (limits, cost=None))]
    fn check_all(&self, limits: &Bound<'_, PyAny>, cost: Option<&Bound<'_, PyAny>>) -> PyResult<Answer> {
        self.generation.check()?;
        limiter::check_all(&self.client, limits, cost)
    }

    /// Waits until the server can be reached, for at most `within` seconds; else raises the reason why it cannot.
    fn wait_ready(&self, within: &Bound<'_, PyAny>) -> PyResult<Answer> {
        self.generation.check()?;
        let (client, within) = (self.client.clone(), seconds("within", within)?);
        Ok(Answer::new("client.wait_ready()", async move {
            raised_later(client.wait_ready(within).await)?;
            Python::attach(|py| Ok(py.None()))
        }))
    }

    /// How everything made from this client is, and while the server is away why: for readiness probes.
    fn health(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.generation.check()?;
        shown(py, &self.client.health())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Shuts down, with a deadline of 5 seconds.
    #[pyo3(signature = (_type, _value, _traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _type: Bound<'_, PyAny>,
        _value: Bound<'_, PyAny>,
        _traceback: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.generation.check()?;
        refuse_to_block(py, "use async with")?;
        drive(py, self.leaving()).map(drop)
    }

    fn __aenter__(slf: Bound<'_, Self>) -> Answer {
        let client = slf.unbind().into_any();
        Answer::new("async with client", async move { Ok(client) })
    }

    /// Shuts down, with a deadline of 5 seconds.
    #[pyo3(signature = (_type, _value, _traceback, /))]
    fn __aexit__(
        &self,
        _type: Bound<'_, PyAny>,
        _value: Bound<'_, PyAny>,
        _traceback: Bound<'_, PyAny>,
    ) -> PyResult<Answer> {
        self.generation.check()?;
        Ok(Answer::on_stage("async with client", None, self.leaving()))
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
