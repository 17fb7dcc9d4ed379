//! Messages of a queue, handled by a function: workers, publishers, and the texts of what belongs in a database.

use std::collections::BTreeMap;

use pyo3::exceptions::{PyConnectionError, PyOSError, PyTimeoutError, PyUnicodeDecodeError};
use pyo3::types::PyString;
use resil::settings::{OutgoingSettings, VerdictSettings, WorkerSettings};
use resil::worker::{
    self, AnyPublisher, ForeignError, OutgoingMessage, SourceSettings, WorkError, WorkVerdict, WorkerMessage, postgres,
};

use crate::client::PyClient;
use crate::convert::{PYTHON, json_value};
use crate::dead_letters::{error_words, is_interruption};
use crate::prelude::*;

/// How many causes of an exception are looked at.
const CAUSES_MAX: usize = 8;

/// A message, as its handler sees it.
#[pyclass(module = "resil", name = "WorkerMessage", frozen)]
pub struct PyWorkerMessage(OfProcess<Arc<WorkerMessage>>);

#[pymethods]
impl PyWorkerMessage {
    /// `source/id`: the key for whatever is to be done once.
    #[getter]
    fn id(&self) -> &str {
        self.0.id()
    }

    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.payload())
    }

    #[getter]
    fn headers(&self) -> BTreeMap<String, String> {
        self.0.headers().iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
    }

    #[getter]
    fn kind(&self) -> Option<&str> {
        self.0.kind()
    }

    /// Where it came from.
    #[getter]
    fn source(&self) -> Option<&str> {
        self.0.source()
    }

    #[getter]
    fn aggregate(&self) -> Option<&str> {
        self.0.aggregate()
    }

    /// The version that it was sent in.
    #[getter]
    fn schema(&self) -> Option<u32> {
        self.0.schema()
    }

    /// Failures that counted so far.
    #[getter]
    fn attempt(&self) -> u32 {
        self.0.attempt()
    }

    /// Whether it may have been delivered before.
    #[getter]
    fn is_redelivered(&self) -> bool {
        self.0.is_redelivered()
    }

    /// The W3C trace context that it came with.
    #[getter]
    fn traceparent(&self) -> Option<&str> {
        self.0.traceparent()
    }

    #[getter]
    fn trace_id(&self) -> Option<&str> {
        self.0.trace_id()
    }

    /// The id of the request that it began with; a new one if it came without.
    #[getter]
    fn header_id(&self) -> &str {
        self.0.header_id()
    }

    /// The handler should stop: its deadline has passed, the drain is over, or the message is not ours any more. A coroutine is cancelled too.
    #[getter]
    fn is_cancelled(&self) -> bool {
        self.0.cancelled().is_cancelled()
    }

    /// How long the handler may still take, in seconds.
    #[getter]
    fn time_left(&self) -> f64 {
        self.0.time_left().as_secs_f64()
    }

    fn __repr__(&self) -> String {
        format!("<resil.WorkerMessage {:?}>", self.0.id())
    }
}

/// What an exception says of itself, without its causes.
fn known_of(py: Python<'_>, error: &PyErr) -> ForeignError {
    let value = error.value(py);
    let text = |name: &str| value.getattr(name).ok().and_then(|it| it.extract::<String>().ok());
    let number = |of: Arg<'_>, name: &str| of.getattr(name).ok().and_then(|it| it.extract::<u16>().ok());
    let is_json = || {
        let class = imported!(py, "json", "JSONDecodeError").ok();
        class.is_some_and(|class| value.is_instance(class).unwrap_or(false))
    };
    let response = value.getattr("response").ok().and_then(|response| number(&response, "status_code"));
    let errno = || {
        if !error.is_instance_of::<PyOSError>(py) {
            return None;
        }
        let number = value.getattr("errno").ok()?;
        let name = imported!(py, "errno", "errorcode").ok()?.get_item(number).ok();
        let name = name.and_then(|name| name.extract::<String>().ok());
        let by_class = || match () {
            () if error.is_instance_of::<PyConnectionError>(py) => Some("ECONNRESET".to_owned()),
            () if error.is_instance_of::<PyTimeoutError>(py) => Some("ETIMEDOUT".to_owned()),
            () => None,
        };
        name.or_else(by_class)
    };
    let ours = ours(py, error);
    ForeignError {
        code: ours.as_ref().map(Error::code),
        retry_after: ours.as_ref().and_then(Error::retry_after),
        sql_state: text("sqlstate").or_else(|| text("pgcode")),
        status: response.or_else(|| number(value.as_any(), "status_code")).or_else(|| number(value.as_any(), "status")),
        errno: errno(),
        is_unreadable: error.is_instance_of::<PyUnicodeDecodeError>(py) || is_json(),
        is_cancelled: is_interruption(py, error),
    }
}

/// Of the exception, or of the first of its causes that says something.
fn foreign(py: Python<'_>, error: &PyErr) -> ForeignError {
    let mut current = error.clone_ref(py);
    for _ in 0..CAUSES_MAX {
        let known = known_of(py, &current);
        if known != ForeignError::default() {
            return known;
        }
        let Some(cause) = current.cause(py) else { break };
        current = cause;
    }
    ForeignError::default()
}

/// A verdict that was said: its name, or a dict with more.
fn said(given: Arg<'_>) -> PyResult<WorkVerdict> {
    let dict = match given.cast::<PyDict>() {
        Ok(dict) => dict.clone(),
        Err(_) if given.is_instance_of::<PyString>() => {
            let dict = PyDict::new(given.py());
            dict.set_item("verdict", given)?;
            dict
        }
        Err(_) => {
            let expected =
                "None, a verdict such as \"permanent\", or a dict such as {\"verdict\": \"retry\", \"after\": 5}";
            return Err(wrong_type("what judge returned", expected, given));
        }
    };
    read::<VerdictSettings>(Some(&dict)).map(|said| said.verdict())
}

/// That of the judge, that of a WorkError, or what the exception means by itself.
fn judged(py: Python<'_>, error: &PyErr, judge: Option<&Object>) -> PyResult<WorkVerdict> {
    let value = error.value(py);
    if let Some(judge) = judge {
        let told = judge.bind(py).call1((value,))?;
        if !told.is_none() {
            return said(&told);
        }
    }
    if value.is_instance(imported!(py, "resil.workers", "WorkError")?)? {
        let dict = PyDict::new(py);
        for name in ["verdict", "after", "failure_class"] {
            dict.set_item(name, value.getattr(name)?)?;
        }
        return said(&dict);
    }
    Ok(foreign(py, error).verdict())
}

/// What a handler came to.
fn ended(py: Python<'_>, result: PyResult<Object>, judge: Option<&Object>) -> Result<(), WorkError> {
    let error = match result {
        Ok(value) if is_coroutine(py, &value).unwrap_or(false) => {
            let _ = value.call_method0(py, "close");
            PyTypeError::new_err("the handler returned a coroutine: pass the coroutine function itself")
        }
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    let words = error_words(error.value(py).as_any());
    Err(match judged(py, &error, judge) {
        Ok(verdict) => WorkError::new(verdict, words),
        // A judge that fails says nothing of the message but that it failed.
        Err(broken) => WorkError::retry(format!("{words}; and its judge: {}", error_words(broken.value(py).as_any()))),
    })
}

/// Handles the messages of one queue; `client.worker(...)` makes it.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> orders = client.dead_letters("orders")
/// >>> orders.fail("shop/42", "timeout", payload=b"7 pieces").wait()["verdict"]
/// 'retry'
/// >>> worker = client.worker("orders")
/// >>> def handle(message):
/// ...     print(message.payload)
/// ...     worker.stop()
/// >>> worker.run(handle)["done"]
/// b'7 pieces'
/// 1
#[pyclass(module = "resil", name = "Worker", frozen)]
pub struct PyWorker {
    client: Owned<resil::Client>,
    worker: Owned<worker::Worker>,
    source: SourceSettings,
}

#[pymethods]
impl PyWorker {
    #[getter]
    fn name(&self) -> &str {
        self.worker.peek().name()
    }

    /// Calls `handler(message)` for each message until `stop()` or a shutdown of the client. What it returns means done; what it raises is
    /// judged by what it is, by `judge(exception)`, or by the verdict of a `WorkError`. For a coroutine function something to await; a plain
    /// one runs in threads. What became of the messages.
    #[pyo3(signature = (handler, *, judge=None))]
    fn run(&self, handler: Arg<'_>, judge: OptArg<'_>) -> PyResult<Object> {
        if !handler.is_callable() {
            return Err(wrong_type("handler", "callable", handler));
        }
        if let Some(judge) = judge.filter(|judge| !judge.is_callable()) {
            return Err(wrong_type("judge", "callable", judge));
        }
        let (py, kind) = (handler.py(), Kind::of(handler)?);
        let (client, worker, source) = (self.client.get()?, self.worker.get()?, self.source.clone());
        if kind == Kind::Plain {
            let how = "make handler a coroutine function, or run it in a thread: await asyncio.to_thread(...)";
            refuse_to_block(py, how)?;
        }
        let (func, judge) = (handler.clone().unbind(), Arc::new(judge.map(|judge| judge.clone().unbind())));
        let running: Running = Box::pin(async move {
            let home = Python::attach(|py| EventLoop::of(py, kind))?;
            let source = spelled(source.open(&client))?;
            let handle = |message: Arc<WorkerMessage>| {
                let prepared = Python::attach(|py| {
                    let message = PyWorkerMessage(OfProcess::new(message)).into_py_any(py)?;
                    Prepared::with(func.bind(py), message.bind(py))
                });
                let (home, judge) = (home.clone(), Arc::clone(&judge));
                async move {
                    let result = match prepared {
                        Ok(prepared) => task::run(home, prepared).await,
                        Err(error) => Err(error),
                    };
                    Python::attach(|py| ended(py, result, (*judge).as_ref()))
                }
            };
            let report = spelled(worker.run_local(source, handle).await)?;
            Python::attach(|py| shown(py, &report))
        });
        match kind {
            Kind::Plain => drive(py, running),
            Kind::Coroutine => Pending::on_stage("worker.run()", None, running).into_py_any(py),
        }
    }

    /// Takes no more messages, gives back what was not begun, and waits for what runs: see `drain`. A worker runs once.
    fn stop(&self) -> PyResult<()> {
        let _inside = runtime::enter()?;
        self.worker.get()?.stopper().cancel();
        Ok(())
    }

    /// How it is: `is_live`, `is_ready`, `is_paused`, its source, and what became of messages.
    fn health(&self, py: Python<'_>) -> PyResult<Object> {
        shown(py, &self.worker.get()?.health())
    }

    fn __repr__(&self) -> String {
        format!("<resil.Worker {:?}>", self.name())
    }
}

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
        message = message.caused_by(&cause.get().0);
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
    /// A worker on the queue of this name. Failures go to the ledger of the same name, which is also its source if there is no other.
    #[pyo3(signature = (name, *, source=None, **settings))]
    fn worker(&self, name: Arg<'_>, source: OptArg<'_>, settings: Option<Kwargs<'_>>) -> PyResult<PyWorker> {
        let (client, name) = (self.get()?, text("name", name)?);
        let settings: WorkerSettings = read_beside(&["source"], settings)?;
        let source = match source {
            None => SourceSettings::Ledger(name.clone()),
            Some(source) => spelled(SourceSettings::read(&PYTHON, json_value("source", source)?))?,
        };
        let worker = spelled(client.worker(&name, settings))?;
        Ok(PyWorker { client: Owned::new(client), worker: Owned::new(worker), source })
    }

    /// Sends messages to where a source of these settings reads: a queue of RabbitMQ, or a stream.
    fn publisher(&self, to: Arg<'_>) -> PyResult<PyPublisher> {
        let (client, to) = (self.get()?, json_value("to", to)?);
        let _inside = runtime::enter()?;
        spelled(AnyPublisher::new(&client, &PYTHON, to)).map(|publisher| PyPublisher(Owned::new(publisher)))
    }
}
