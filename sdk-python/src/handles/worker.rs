//! Messages of a queue, handled by a function.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use pyo3::exceptions::{PyConnectionError, PyKeyboardInterrupt, PyOSError, PyTimeoutError, PyUnicodeDecodeError};
use pyo3::types::PyString;
use resil::settings::{VerdictSettings, WorkerSettings};
use resil::worker::{self, ForeignError, SourceSettings, Upcasters, WorkError, WorkVerdict, WorkerMessage};

use crate::client::PyClient;
use crate::convert::{PYTHON, json_value};
use crate::dead_letters::{error_words, is_interruption, members};
use crate::prelude::*;

/// How many causes of an exception are looked at.
const CAUSES_MAX: usize = 8;

/// A message, as its handler sees it.
#[pyclass(module = "resil", name = "WorkerMessage", frozen)]
pub struct PyWorkerMessage {
    pub(super) message: OfProcess<Arc<WorkerMessage>>,
    /// Of an older message, as the upcasters made it.
    upcasted: Option<Py<PyBytes>>,
}

#[pymethods]
impl PyWorkerMessage {
    /// `source/id`: the key for whatever is to be done once.
    #[getter]
    fn id(&self) -> &str {
        self.message.id()
    }

    /// In the newest form that the upcasters know.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        match &self.upcasted {
            Some(upcasted) => upcasted.bind(py).clone(),
            None => PyBytes::new(py, self.message.payload()),
        }
    }

    #[getter]
    fn headers(&self) -> BTreeMap<String, String> {
        self.message.headers().iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
    }

    #[getter]
    fn kind(&self) -> Option<&str> {
        self.message.kind()
    }

    /// Where it came from.
    #[getter]
    fn source(&self) -> Option<&str> {
        self.message.source()
    }

    #[getter]
    fn aggregate(&self) -> Option<&str> {
        self.message.aggregate()
    }

    /// The version that it was sent in.
    #[getter]
    fn schema(&self) -> Option<u32> {
        self.message.schema()
    }

    /// Failures that counted so far.
    #[getter]
    fn attempt(&self) -> u32 {
        self.message.attempt()
    }

    /// Whether it may have been delivered before.
    #[getter]
    fn is_redelivered(&self) -> bool {
        self.message.is_redelivered()
    }

    /// The W3C trace context that it came with.
    #[getter]
    fn traceparent(&self) -> Option<&str> {
        self.message.traceparent()
    }

    #[getter]
    fn trace_id(&self) -> Option<&str> {
        self.message.trace_id()
    }

    /// The id of the request that it began with; a new one if it came without.
    #[getter]
    fn header_id(&self) -> &str {
        self.message.header_id()
    }

    /// The handler should stop: its deadline has passed, the drain is over, or the message is not ours any more. A coroutine is cancelled too.
    #[getter]
    fn is_cancelled(&self) -> bool {
        self.message.cancelled().is_cancelled()
    }

    /// How long the handler may still take, in seconds.
    #[getter]
    fn time_left(&self) -> f64 {
        self.message.time_left().as_secs_f64()
    }

    fn __repr__(&self) -> String {
        format!("<resil.WorkerMessage {:?}>", self.message.id())
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
fn of_causes(py: Python<'_>, error: &PyErr) -> ForeignError {
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

/// Of the exception, or of the first in a group that says something.
fn foreign(py: Python<'_>, error: &PyErr) -> ForeignError {
    let in_group = members(error.value(py).as_any()).into_iter().map(PyErr::from_value);
    let all = std::iter::once(error.clone_ref(py)).chain(in_group);
    let known = all.map(|error| of_causes(py, &error)).find(|known| *known != ForeignError::default());
    known.unwrap_or_default()
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
        let judged = judge.bind(py).call1((value,))?;
        if !judged.is_none() {
            return said(&judged);
        }
    }
    // Raised as it is, or in a TaskGroup.
    let class = imported!(py, "resil.workers", "WorkError")?;
    for error in std::iter::once(value.as_any().clone()).chain(members(value.as_any())) {
        if error.is_instance(class)? {
            let dict = PyDict::new(py);
            for name in ["verdict", "after", "failure_class"] {
                dict.set_item(name, error.getattr(name)?)?;
            }
            return said(&dict);
        }
    }
    // Somebody ends the process. A handler that exits by itself does not, in a thread, and would be called for ever.
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        return Ok(WorkVerdict::GiveBack(Duration::from_secs(1)));
    }
    Ok(foreign(py, error).verdict())
}

/// The `SystemExit` that was carried past the event loop, or the error itself.
fn exit_of(py: Python<'_>, error: PyErr) -> PyErr {
    let is_carrier =
        imported!(py, "resil._functions", "Exited").is_ok_and(|class| error.is_instance(py, class.as_any()));
    match error.cause(py) {
        Some(exit) if is_carrier => exit,
        _ => error,
    }
}

/// What a handler came to.
fn ended(py: Python<'_>, result: PyResult<Object>, judge: Option<&Object>) -> Result<(), WorkError> {
    let error = match result {
        Ok(value) if is_coroutine(py, &value).unwrap_or(false) => {
            let _ = value.call_method0(py, "close");
            PyTypeError::new_err("the handler returned a coroutine: pass the coroutine function itself")
        }
        Ok(_) => return Ok(()),
        Err(error) => exit_of(py, error),
    };
    let words = error_words(error.value(py).as_any());
    Err(match judged(py, &error, judge) {
        Ok(verdict) => WorkError::new(verdict, words),
        // A judge that fails says nothing of the message but that it failed.
        Err(broken) => WorkError::retry(format!("{words}; and its judge: {}", error_words(broken.value(py).as_any()))),
    })
}

/// Functions from one form of a message to the next: by the kind of message, and the version they lead from.
type Steps = HashMap<(String, u32), Object>;

/// The steps of `resil.Upcasters`, and what the SDK checks of them.
fn steps_of(given: OptArg<'_>) -> PyResult<(Steps, Upcasters)> {
    let (mut steps, mut declared) = (Steps::new(), Upcasters::new());
    let Some(given) = given else { return Ok((steps, declared)) };
    if !given.is_instance(imported!(given.py(), "resil.workers", "Upcasters")?)? {
        return Err(wrong_type("upcasters", "resil.Upcasters", given));
    }
    for (kind, from, upcast) in given.getattr("_steps")?.extract::<Vec<(String, u32, Object)>>()? {
        declared = declared.step_elsewhere(&kind, from);
        steps.insert((kind, from), upcast);
    }
    Ok((steps, declared))
}

/// The payload of an older message in the newest form.
fn upcasted(py: Python<'_>, message: &WorkerMessage, steps: &Steps) -> PyResult<Option<Py<PyBytes>>> {
    let range = message.steps();
    let Some(kind) = message.kind().filter(|_| !range.is_empty()) else { return Ok(None) };
    let mut current = PyBytes::new(py, message.payload());
    for from in range {
        let Some(step) = steps.get(&(kind.to_owned(), from)) else { continue };
        let next = step.bind(py).call1((current,))?;
        current = match next.cast_into::<PyBytes>() {
            Ok(bytes) => bytes,
            Err(other) => match other.into_inner().extract::<String>() {
                Ok(text) => PyBytes::new(py, text.as_bytes()),
                Err(_) => {
                    let text = format!("the upcaster of {kind} from version {from} returned neither bytes nor str");
                    let error = imported!(py, "resil.workers", "WorkError")?.call1((text, "permanent"))?;
                    return Err(PyErr::from_value(error));
                }
            },
        };
    }
    Ok(Some(current.unbind()))
}

/// A message that a handler dropped is a line in the log, without the handler's words: those are for the hook `on_drop`.
fn log_drop(py: Python<'_>, queue: &str, id: &str) -> PyResult<()> {
    let log = imported!(py, "logging", "getLogger")?.call1(("resil",))?;
    let said = ("%s: the message %s was dropped", queue, id);
    log.call_method1(intern!(py, "warning"), said).map(drop)
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
    steps: Arc<Steps>,
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
        let func = match kind {
            Kind::Plain => handler.clone(),
            Kind::Coroutine => {
                let partial = imported!(py, "functools", "partial")?;
                partial.call1((imported!(py, "resil._functions", "handled")?, handler))?
            }
        };
        let (func, judge) = (func.unbind(), Arc::new(judge.map(|judge| judge.clone().unbind())));
        let (steps, queue) = (Arc::clone(&self.steps), worker.name().to_owned());
        let running: Running = Box::pin(async move {
            let home = Python::attach(|py| EventLoop::of(py, kind))?;
            let source = spelled(source.open(&client))?;
            let handle = |message: Arc<WorkerMessage>| {
                let id = message.id().to_owned();
                let prepared = Python::attach(|py| {
                    let upcasted = upcasted(py, &message, &steps)?;
                    let message = PyWorkerMessage { message: OfProcess::new(message), upcasted }.into_py_any(py)?;
                    Prepared::with(func.bind(py), message.bind(py))
                });
                let (home, judge, queue) = (home.clone(), Arc::clone(&judge), &queue);
                async move {
                    let result = match prepared {
                        Ok(prepared) => task::run(home, prepared).await,
                        Err(error) => Err(error),
                    };
                    Python::attach(|py| {
                        let ended = ended(py, result, (*judge).as_ref());
                        if let Err(error) = &ended
                            && error.verdict() == Some(WorkVerdict::Drop)
                        {
                            // A logger that fails is no reason to keep the message.
                            let _ = log_drop(py, queue, &id);
                        }
                        ended
                    })
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

#[pymethods]
impl PyClient {
    /// A worker on the queue of this name. Failures go to the ledger of the same name, which is also its source if there is no other.
    /// `upcasters` bring older messages up to date before the handler sees them.
    #[pyo3(signature = (name, *, source=None, upcasters=None, **settings))]
    fn worker(
        &self,
        name: Arg<'_>,
        source: OptArg<'_>,
        upcasters: OptArg<'_>,
        settings: Option<Kwargs<'_>>,
    ) -> PyResult<PyWorker> {
        // Of brokers and of dead messages there is something to be logged, on memory:// too.
        crate::listeners::begin(name.py())?;
        let (client, name) = (self.get()?, text("name", name)?);
        let settings: WorkerSettings = read_beside(&["source", "upcasters"], settings)?;
        let (steps, declared) = steps_of(upcasters)?;
        let source = match source {
            None => SourceSettings::Ledger(name.clone()),
            Some(source) => spelled(SourceSettings::read(&PYTHON, json_value("source", source)?))?,
        };
        let worker = spelled(client.worker(&name, settings))?.upcasters(declared);
        Ok(PyWorker { client: Owned::new(client), worker: Owned::new(worker), source, steps: Arc::new(steps) })
    }
}
