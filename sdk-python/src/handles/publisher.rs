//! What is sent: publishers, and the texts of what belongs in a database.

use std::collections::BTreeMap;

use resil::settings::OutgoingSettings;
use resil::worker::{AnyPublisher, OutgoingMessage, postgres};

use super::worker::PyWorkerMessage;
use crate::client::PyClient;
use crate::convert::{PYTHON, json_value};
use crate::prelude::*;

/// The message of what was said.
fn outgoing(
    payload: Arg<'_>,
    headers: OptArg<'_>,
    caused_by: OptArg<'_>,
    how: Option<Kwargs<'_>>,
) -> PyResult<(OutgoingMessage, OutgoingSettings)> {
    let how: OutgoingSettings = read_beside(&["headers", "caused_by"], how)?;
    let mut message = how.message(key("payload", payload)?);
    if let Some(caused_by) = caused_by {
        let cause = caused_by.cast::<PyWorkerMessage>();
        let cause = cause.map_err(|_| wrong_type("caused_by", "a resil.WorkerMessage", caused_by))?;
        message = message.caused_by(&cause.get().message);
    }
    if let Some(headers) = headers {
        let given = headers.extract::<BTreeMap<String, String>>();
        for (name, text) in given.map_err(|_| wrong_type("headers", "a dict of str", headers))? {
            message = message.header(name, text);
        }
    }
    Ok((message, how))
}

/// Sends messages to a queue of RabbitMQ, or to a stream; `client.publisher(...)` makes it.
#[pyclass(module = "resil", name = "Publisher", frozen)]
pub struct PyPublisher(Owned<AnyPublisher>);

#[pymethods]
impl PyPublisher {
    /// Its id, when the broker has confirmed it. It is sent at most five times, under one id; then BackendUnavailableError, and it may be sent
    /// again under that id. InvalidArgumentError if no queue takes it.
    #[pyo3(signature = (payload, *, headers=None, caused_by=None, **how))]
    fn publish(
        &self,
        payload: Arg<'_>,
        headers: OptArg<'_>,
        caused_by: OptArg<'_>,
        how: Option<Kwargs<'_>>,
    ) -> PyResult<Pending> {
        let (publisher, (message, how)) = (self.0.get()?, outgoing(payload, headers, caused_by, how)?);
        Ok(Pending::ask(
            "publisher.publish()",
            async move { publisher.publish(&message, &how).await.map(|()| message.id) },
        ))
    }

    /// Whether it is connected, and why not. It recovers without traffic.
    fn health(&self, py: Python<'_>) -> PyResult<Object> {
        shown(py, &self.0.get()?.health())
    }

    /// Disconnects. What is being sent fails.
    fn close(&self) -> PyResult<Pending> {
        let publisher = self.0.get()?;
        Ok(Pending::done("publisher.close()", async move {
            publisher.close().await;
            Ok(())
        }))
    }

    fn __repr__(&self) -> &'static str {
        "<resil.Publisher>"
    }
}

/// A statement with its values as a driver names them: `$1`, or `%s` for all.
fn statement(text: &str, values: usize, placeholder: OptArg<'_>) -> PyResult<String> {
    match optional_text("placeholder", placeholder)?.as_deref() {
        None | Some("$1") => Ok(text.to_owned()),
        Some("%s") => Ok((1..=values).fold(text.to_owned(), |text, at| text.replacen(&format!("${at}"), "%s", 1))),
        Some(other) => Err(wrong_value("placeholder", format!("must be \"$1\" or \"%s\", got {other:?}"))),
    }
}

/// An outbox table: what makes it, and what adds a message in a transaction of yours.
///
/// >>> import resil
/// >>> outbox = resil.Outbox()
/// >>> outbox.insert("%s")[:26]
/// 'INSERT INTO resil_outbox ('
/// >>> outbox.row(b"7 pieces", id="42", kind="order.placed")[0]
/// '42'
#[pyclass(module = "resil", name = "Outbox", frozen)]
pub struct PyOutbox(postgres::Outbox);

#[pymethods]
impl PyOutbox {
    #[new]
    #[pyo3(signature = (table=None))]
    fn new(table: OptArg<'_>) -> PyResult<Self> {
        match optional_text("table", table)? {
            None => Ok(Self(postgres::Outbox::default())),
            Some(table) => spelled(postgres::Outbox::new(&table)).map(Self),
        }
    }

    /// What makes the table. It may be run again.
    fn migration(&self) -> String {
        self.0.migration()
    }

    /// The statement that adds a row, for asyncpg (`"$1"`) or for psycopg (`"%s"`).
    #[pyo3(signature = (placeholder=None))]
    fn insert(&self, placeholder: OptArg<'_>) -> PyResult<String> {
        statement(&self.0.insert(), 6, placeholder)
    }

    /// The values of a message: id, type, aggregate, schema, headers, payload.
    #[pyo3(signature = (payload, *, headers=None, caused_by=None, **how))]
    fn row<'py>(
        &self,
        payload: Arg<'py>,
        headers: OptArg<'_>,
        caused_by: OptArg<'_>,
        how: Option<Kwargs<'_>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let py = payload.py();
        let (message, _) = outgoing(payload, headers, caused_by, how)?;
        let headers = message.headers.to_bytes().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let payload = PyBytes::new(py, &message.payload);
        (message.id, message.kind, message.aggregate, message.schema, headers, payload).into_pyobject(py)
    }
}

/// Events whose effect happens once: the texts of a table that says which did.
#[pyclass(module = "resil", name = "ProcessedEvents", frozen)]
pub struct PyProcessedEvents;

#[pymethods]
impl PyProcessedEvents {
    /// What makes the table. It may be run again.
    #[staticmethod]
    fn migration() -> &'static str {
        postgres::ProcessedEvents::MIGRATION
    }

    /// The statement that adds an event: the name of the consumer, and the id of the event. Run it in the transaction of the effect. The
    /// event is new if a row was inserted.
    #[staticmethod]
    #[pyo3(signature = (placeholder=None))]
    fn insert(placeholder: OptArg<'_>) -> PyResult<String> {
        statement(postgres::ProcessedEvents::INSERT, 2, placeholder)
    }
}

#[pymethods]
impl PyClient {
    /// Sends messages to where a source of these settings reads: a queue of RabbitMQ, or a stream.
    fn publisher(&self, to: Arg<'_>) -> PyResult<PyPublisher> {
        crate::listeners::begin(to.py())?;
        let (client, to) = (self.get()?, json_value("to", to)?);
        let _inside = runtime::enter()?;
        spelled(AnyPublisher::new(&client, &PYTHON, to)).map(|publisher| PyPublisher(Owned::new(publisher)))
    }
}
