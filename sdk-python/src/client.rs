//! Connecting, and the handle from which everything shared is made. The methods that make it are in the file of each handle.

use std::time::Duration;

use resil::{Client, ConnectSettings};

use crate::prelude::*;
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

    /// The client of the SDK, for the methods that make handles.
    pub fn get(&self) -> PyResult<Client> {
        self.0.get()
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
        let settings = settings.url(url).runtime(runtime).on_notice(listeners::hear).on_behalf_of("resil-python", None);
        let client = clock.into_iter().fold(settings, ConnectSettings::clock).connect().await?;
        Ok(PyClient(Owned::new(client)))
    }))
}

#[pymethods]
impl PyClient {
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
                let shown_report = shown(py, &report)?;
                shown_report.bind(py).set_item("is_clean", report.is_clean())?;
                Ok(shown_report)
            })
        }))
    }

    /// Whether a shutdown has begun.
    #[getter]
    fn is_shutting_down(&self) -> bool {
        self.0.peek().is_shutting_down()
    }
}
