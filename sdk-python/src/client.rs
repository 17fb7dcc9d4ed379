//! Connecting, and the handle from which everything shared is made.

use std::time::Duration;

use resil::{Client, ConnectSettings};

use crate::breaker::PyBreaker;
use crate::cached::{PyCached, PyVersionedCached};
use crate::idempotent::PyIdempotent;
use crate::limiter::{self, PyLimiter};
use crate::loading::{Cache, Store};
use crate::lock::PyLock;
use crate::policy::{PyPolicies, PyPolicy, settings_of};
use crate::prelude::*;
use crate::shared_bulkhead::PySharedBulkhead;
use crate::testing::is_testing;

/// How long the end of `with client` waits for calls in flight, and a shutdown by default.
const BLOCK_DEADLINE: Duration = Duration::from_secs(5);
/// How long a server is waited for by default.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// The handle from which limiters, breakers, locks and the rest are made. As a block (`with`, `async with`) it is shut down at
/// its end, with a deadline of 5 seconds.
#[pyclass(module = "resil", name = "Client", frozen)]
pub struct PyClient(Owned<Client>);

impl PyClient {
    pub fn read(given: Arg<'_>) -> PyResult<Client> {
        given.cast::<Self>().map_err(|_| wrong_type("client", "a resil.Client", given))?.get().0.get()
    }

    /// The end of a block.
    fn leaving(&self) -> PyResult<Running> {
        let client = self.0.get()?;
        Ok(Box::pin(async move {
            client.shutdown(BLOCK_DEADLINE).await;
            none()
        }))
    }
}

/// Connects. `await connect(url)` or `connect(url).wait()`.
#[pyfunction]
#[pyo3(signature = (url, *, clock=None, **settings))]
pub fn connect(py: Python<'_>, url: Arg<'_>, clock: OptArg<'_>, settings: Option<Kwargs<'_>>) -> PyResult<Pending> {
    let url = if is_testing() { "memory://".to_owned() } else { text("url", url)? };
    let settings: ConnectSettings = read_beside(&["clock"], settings)?;
    let (clock, runtime) = (PyClock::read(clock)?, crate::runtime::handle()?);
    if !url.starts_with("memory:") {
        listeners::begin(py)?;
    }
    Ok(Pending::ask("connect()", async move {
        let settings = settings.url(url).runtime(runtime).on_notice(listeners::hear);
        let client = clock.into_iter().fold(settings, ConnectSettings::clock).connect().await?;
        Ok(PyClient(Owned::new(client)))
    }))
}

#[pymethods]
impl PyClient {
    /// A rate limit under a name: so many cells per period, for each key.
    #[pyo3(signature = (name, **settings))]
    fn limiter(&self, name: Arg<'_>, settings: Option<Kwargs<'_>>) -> PyResult<PyLimiter> {
        PyLimiter::make(&self.0.get()?, &text("name", name)?, read(settings)?)
    }

    /// A circuit breaker under a name, for all who name it the same.
    #[pyo3(signature = (name, *, ignore=None, **settings))]
    fn breaker(
        &self,
        py: Python<'_>,
        name: Arg<'_>,
        ignore: OptArg<'_>,
        settings: Option<Kwargs<'_>>,
    ) -> PyResult<Py<PyBreaker>> {
        PyBreaker::make(py, &self.0.get()?, &text("name", name)?, ignore, read_beside(&["ignore"], settings)?)
    }

    /// A lock under a name, for all who use the same server.
    #[pyo3(signature = (name, **settings))]
    fn lock(&self, py: Python<'_>, name: Arg<'_>, settings: Option<Kwargs<'_>>) -> PyResult<Py<PyLock>> {
        PyLock::make(py, &self.0.get()?, &text("name", name)?, read(settings)?)
    }

    /// A bulkhead under a name, with at most `max_concurrent_calls` inside at once, of all who use the same server.
    #[pyo3(signature = (name, max_concurrent_calls, **settings))]
    fn shared_bulkhead(
        &self,
        py: Python<'_>,
        name: Arg<'_>,
        max_concurrent_calls: Arg<'_>,
        settings: Option<Kwargs<'_>>,
    ) -> PyResult<Py<PySharedBulkhead>> {
        let settings = settings.map_or_else(|| Ok(PyDict::new(py)), |settings| settings.copy())?;
        settings.set_item("max_concurrent_calls", max_concurrent_calls)?;
        PySharedBulkhead::make(py, &self.0.get()?, &text("name", name)?, read(Some(&settings))?)
    }

    /// Work that is done once; `name` says what kind of work. Results are kept as JSON, or as `serializer` says: "bytes", "pickle",
    /// a dataclass, a pydantic model, or a pair of functions (dumps, loads). Exceptions to `remember` are final: duplicates get them, too.
    #[pyo3(signature = (name, *, serializer=None, remember=None, **settings))]
    fn idempotent(
        &self,
        name: Arg<'_>,
        serializer: OptArg<'_>,
        remember: OptArg<'_>,
        settings: Option<Kwargs<'_>>,
    ) -> PyResult<PyIdempotent> {
        PyIdempotent::make(&self.0.get()?, name, serializer, remember, settings)
    }

    /// Values that are loaded once; `name` says what they are. They are kept as JSON, or as
    /// `serializer` says; see `idempotent`.
    #[pyo3(signature = (name, *, serializer=None, **settings))]
    fn cached(&self, name: Arg<'_>, serializer: OptArg<'_>, settings: Option<Kwargs<'_>>) -> PyResult<PyCached> {
        Store::make(&self.0.get()?, name, serializer, settings, Cache::plain).map(PyCached)
    }

    /// The same with versions, for sources that lag behind a commit: what is known is never replaced by something older.
    #[pyo3(signature = (name, *, serializer=None, **settings))]
    fn versioned_cached(
        &self,
        name: Arg<'_>,
        serializer: OptArg<'_>,
        settings: Option<Kwargs<'_>>,
    ) -> PyResult<PyVersionedCached> {
        Store::make(&self.0.get()?, name, serializer, settings, Cache::versioned).map(PyVersionedCached)
    }

    /// A whole policy, of a dict or of keywords. `on` says which exceptions are retried.
    #[pyo3(signature = (name, settings=None, *, on=None, ignore=None, **more))]
    fn policy(
        &self,
        py: Python<'_>,
        name: Arg<'_>,
        settings: OptArg<'_>,
        on: OptArg<'_>,
        ignore: OptArg<'_>,
        more: Option<Kwargs<'_>>,
    ) -> PyResult<Py<PyPolicy>> {
        PyPolicy::make(py, self.0.get()?, settings_of(name, settings, more)?, on, ignore)
    }

    /// Policies from a file of JSON or YAML, or from its text.
    #[pyo3(signature = (path=None, *, text=None))]
    fn policies(&self, path: OptArg<'_>, text: OptArg<'_>) -> PyResult<PyPolicies> {
        PyPolicies::read(self.0.get()?, path, text)
    }

    /// Takes `cost` cells from every limit, or from none.
    #[pyo3(signature = (limits, cost=None))]
    fn check_all(&self, limits: Arg<'_>, cost: OptArg<'_>) -> PyResult<Pending> {
        limiter::check_all(self.0.get()?, limits, cost)
    }

    /// Waits until the server can be reached, for at most `within` seconds (10 by default); else raises the reason why it cannot.
    #[pyo3(signature = (within=None))]
    fn wait_ready(&self, within: OptArg<'_>) -> PyResult<Pending> {
        let (client, within) = (self.0.get()?, optional_seconds("within", within)?.unwrap_or(READY_WITHIN));
        Ok(Pending::done("client.wait_ready()", async move { client.wait_ready(within).await }))
    }

    /// How everything made from this client is, and while the server is away why: for readiness probes.
    fn health(&self, py: Python<'_>) -> PyResult<Object> {
        shown(py, &self.0.get()?.health())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Shuts down, with a deadline of 5 seconds.
    #[pyo3(signature = (_type, _value, _traceback, /))]
    fn __exit__(&self, py: Python<'_>, _type: Arg<'_>, _value: Arg<'_>, _traceback: Arg<'_>) -> PyResult<()> {
        refuse_to_block(py, "use async with")?;
        drive(py, self.leaving()?).map(drop)
    }

    fn __aenter__(slf: Bound<'_, Self>) -> Pending {
        let client = slf.unbind().into_any();
        Pending::new("async with client", async move { Ok(client) })
    }

    /// Shuts down, with a deadline of 5 seconds.
    #[pyo3(signature = (_type, _value, _traceback, /))]
    fn __aexit__(&self, _type: Arg<'_>, _value: Arg<'_>, _traceback: Arg<'_>) -> PyResult<Pending> {
        Ok(Pending::on_stage("async with client", None, self.leaving()?))
    }

    /// Stops taking calls, waits at most `deadline` seconds (5 by default) for those in flight, gives back what is held, and closes
    /// the connections.
    #[pyo3(signature = (deadline=None))]
    fn shutdown(&self, deadline: OptArg<'_>) -> PyResult<Pending> {
        let (client, deadline) = (self.0.get()?, optional_seconds("deadline", deadline)?.unwrap_or(BLOCK_DEADLINE));
        Ok(Pending::new("client.shutdown()", async move {
            let report = client.shutdown(deadline).await;
            Python::attach(|py| {
                let told = shown(py, &report)?;
                told.bind(py).set_item("is_clean", report.is_clean())?;
                Ok(told)
            })
        }))
    }

    /// Whether a shutdown has begun.
    #[getter]
    fn is_shutting_down(&self) -> bool {
        self.0.peek().is_shutting_down()
    }
}
