//! Work that is done once: one caller of the fleet runs it, every duplicate gets its result.

use std::sync::OnceLock;

use bytes::Bytes;
use pyo3::exceptions::{PyException, PyTimeoutError};
use resil::Code;
use resil::idempotency::{Idempotent, Outcome, Run};
use resil::policy::classify::classify_failure;
use resil::policy::{CallSettings, Class, Policy};
use serde_json::value::RawValue;

use crate::client::PyClient;
use crate::outcome::{PyOutcome, PyRun, known};
use crate::prelude::*;
use crate::remembered::{Final, remember};

/// A kind of work, and how its results are kept.
pub struct Once {
    idempotent: Idempotent,
    codec: Codec,
    /// Exceptions that are final.
    remember: Option<Arc<Final>>,
}

/// What one call is about.
pub struct Request {
    key: String,
    fingerprint: Vec<u8>,
    with_run: bool,
}

impl Request {
    pub fn read(key: Arg<'_>, fingerprint: OptArg<'_>, with_run: OptArg<'_>) -> PyResult<Self> {
        let print = fingerprint.map(|given| self::key("fingerprint", given)).transpose()?.unwrap_or_default();
        Ok(Self { key: text("key", key)?, fingerprint: print, with_run: truth("with_run", with_run)? })
    }
}

/// Whether an exception says that the function was cut short, so that nobody knows what it did: a cancellation, Ctrl-C, a timeout, the
/// loss of a lock it worked under; also if it was the last of several attempts.
fn is_cut_short(py: Python<'_>, error: &PyErr) -> bool {
    match ours(py, error).map(|error| error.code()) {
        None => !error.is_instance_of::<PyException>(py) || is_timeout(py, error),
        Some(Code::Cancelled | Code::Timeout | Code::LockLost | Code::ShuttingDown) => true,
        Some(Code::RetryExhausted) => error.cause(py).is_some_and(|last| is_cut_short(py, &last)),
        Some(_) => false,
    }
}

/// Python's own: of `asyncio.wait_for` inside of the function, of a socket. Before Python 3.11, asyncio has a class of its own.
fn is_timeout(py: Python<'_>, error: &PyErr) -> bool {
    let of_asyncio = imported!(py, "asyncio", "TimeoutError");
    error.is_instance_of::<PyTimeoutError>(py)
        || of_asyncio.is_ok_and(|class| error.matches(py, class).unwrap_or(false))
}

/// How the work came out.
type Done = Result<PyOutcome, Failure<PyErr>>;

/// The work, as its caller does it: it gets its own result, as it was returned.
struct Doing {
    work: Arc<Work>,
    codec: Codec,
    with_run: bool,
    own: Mutex<Option<Object>>,
    /// Why the result cannot be written: the work is done all the same, and every duplicate has to get that error.
    unwritten: Arc<OnceLock<String>>,
    /// What a handler of signals raised while the result was written: raised once it is recorded.
    interrupted: Mutex<Option<PyErr>>,
}

impl Doing {
    fn new(work: Arc<Work>, codec: Codec, with_run: bool) -> Self {
        Self { work, codec, with_run, own: Mutex::new(None), unwritten: Arc::default(), interrupted: Mutex::new(None) }
    }

    /// What is kept for duplicates.
    async fn run(&self, run: Run) -> Result<Bytes, Failure<PyErr>> {
        let shown =
            self.with_run.then(|| Python::attach(|py| PyRun::of(py, &run))).transpose().map_err(Failure::Inner)?;
        let value = self.work.attempt_with(shown).await.inspect_err(|failure| {
            if Python::attach(|py| is_cut_short(py, &self.work.error(py, failure))) {
                run.cut_short();
            }
        })?;
        let written = Python::attach(|py| {
            self.written(py, &value).map_err(|error| {
                let error = if self.codec.is_refusal(py, &error) {
                    let reason = error.value(py).str().map_or_else(|_| String::new(), |words| words.to_string());
                    // The work is done once, and so is this.
                    let _ = self.unwritten.set(reason);
                    unrecorded(py, error, &value)
                } else {
                    // Ctrl-C, and what other handlers of signals raise: the work is done, and nothing is recorded.
                    run.cut_short();
                    error
                };
                let ended: Ended = self.work.judged(py, Err(error));
                ended.err().unwrap_or(Failure::Resil(Error::Internal("a result could not be written".to_owned())))
            })
        })?;
        *self.own.lock() = Some(value);
        Ok(written)
    }

    /// Written again if a signal struck meanwhile: the work is done, and is to be recorded.
    fn written(&self, py: Python<'_>, value: &Object) -> PyResult<Bytes> {
        match self.codec.write(value.bind(py)) {
            Err(error) if !self.codec.is_refusal(py, &error) => {
                let written = self.codec.write(value.bind(py))?;
                *self.interrupted.lock() = Some(error);
                Ok(written)
            }
            written => written,
        }
    }

    fn done(self, name: &str, outcome: &Outcome<Bytes>) -> Done {
        if let Some(interrupted) = self.interrupted.into_inner() {
            return Err(Failure::Inner(interrupted));
        }
        let value = match (self.own.into_inner(), &outcome.value) {
            (Some(own), _) => own,
            (None, Some(bytes)) => Python::attach(|py| self.codec.read_back(py, bytes)).map_err(Failure::Inner)?,
            (None, None) => {
                let reason = "it was too large for the server to keep".to_owned();
                return Err(Failure::Resil(Error::ResultUnrecorded { name: name.into(), reason }));
            }
        };
        Ok(PyOutcome::of(value, outcome))
    }
}

impl Once {
    async fn run(self: Arc<Self>, request: Request, work: Arc<Work>) -> Done {
        let Request { key, fingerprint, with_run } = request;
        let doing = Doing::new(work, self.codec.clone(), with_run);
        let remember = remember(self.remember.clone(), Arc::clone(&doing.unwritten));
        let outcome = self.idempotent.run_remembering(&key, &fingerprint, &remember, |run| doing.run(run)).await;
        doing.done(&key, &outcome.map_err(flat)?)
    }

    /// What is final is not tried again.
    fn class(&self, class: Class, error: &PyErr) -> Class {
        let is_final = |finals: &Arc<Final>| Python::attach(|py| finals.is_final(py, error));
        match class.is_retryable() && self.remember.as_ref().is_some_and(is_final) {
            true => Class::Permanent,
            false => class,
        }
    }

    /// The same with a policy inside: all its attempts are one run.
    pub async fn run_through(
        self: Arc<Self>,
        policy: Policy,
        options: Arc<CallSettings<'static>>,
        request: Request,
        judge: Arc<Judge>,
        work: Arc<Work>,
    ) -> Done {
        let Request { key, fingerprint, with_run } = request;
        let doing = Doing::new(Arc::clone(&work), self.codec.clone(), with_run);
        let classify = |failure: &Failure<PyErr>| match doing.unwritten.get() {
            // What was called did its part.
            Some(_) => Class::Ignore,
            None => classify_failure(&|error: &PyErr| self.class(judge.classify(&work, error), error), failure),
        };
        let once = |run| async {
            let written = doing.run(run).await?;
            let text = String::from_utf8(written.into()).ok().filter(|text| !text.is_empty());
            let unwritten = |error| Failure::Resil(Error::Internal(format!("a value is not JSON: {error}")));
            RawValue::from_string(text.unwrap_or_else(|| "null".to_owned())).map_err(unwritten)
        };
        let remember = remember(self.remember.clone(), Arc::clone(&doing.unwritten));
        let (idempotent, options) = (&self.idempotent, options.by_ref());
        let calling = policy.call_once_remembering(idempotent, &key, &fingerprint, &remember, options, classify, once);
        let Outcome { value, replayed, attempt, age, recorded } = calling.await.map_err(flat)?;
        let value = value.map(|value: Box<RawValue>| Bytes::from(String::from(Box::<str>::from(value))));
        doing.done(&key, &Outcome { value, replayed, attempt, age, recorded })
    }
}

/// The end of it as the user is to see it: with how it came out.
pub fn running<F>(work: Arc<Work>, doing: impl FnOnce(Arc<Work>) -> F) -> Running
where
    F: Future<Output = Done> + Send + 'static,
{
    work.running(|work| {
        let doing = doing(work);
        async { doing.await.and_then(|done| Python::attach(|py| done.into_py_any(py)).map_err(Failure::Inner)) }
    })
}

/// Work that is done once; `client.idempotent(...)` makes it.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> payments = client.idempotent("payments")
/// >>> [payments.run("order-42", lambda: {"paid": 7}).replayed for _ in range(2)]
/// [False, True]
/// >>> @payments.by(lambda order: order)
/// ... def pay(order):
/// ...     return f"receipt of {order}"
/// >>> pay("order-43"), pay("order-43")
/// ('receipt of order-43', 'receipt of order-43')
#[pyclass(module = "resil", name = "Idempotent", frozen)]
pub struct PyIdempotent(Owned<Arc<Once>>);

impl PyIdempotent {
    pub fn make(
        client: &resil::Client,
        name: Arg<'_>,
        serializer: OptArg<'_>,
        remember: OptArg<'_>,
        settings: Option<Kwargs<'_>>,
    ) -> PyResult<Self> {
        let (codec, name) = (Codec::read(name.py(), serializer)?, text("name", name)?);
        let remember = remember.map(Final::read).transpose()?;
        let idempotent = spelled(client.idempotent(&name, read_beside(&["serializer", "remember"], settings)?))?;
        Ok(Self(Owned::new(Arc::new(Once { idempotent, codec, remember }))))
    }

    /// For results of `func` that are JSON.
    pub fn kept_as_json(&self, func: Arg<'_>) -> PyResult<Arc<Once>> {
        let once = self.0.get()?;
        once.codec.check(func)?;
        if !once.codec.is_json(func.py())? {
            return Err(wrong_value("idempotent", "must keep JSON: results of a policy are no bytes"));
        }
        Ok(once)
    }
}

#[pymethods]
impl PyIdempotent {
    /// Runs `fn(*args, **kwargs)` unless it was done before under `key`; then its result is given back.
    ///
    /// The same key with another `fingerprint` (the request's body, say) is IdempotencyMismatchError. With `with_run=True` the
    /// function gets a Run in front of its arguments. An exception frees the key, unless it is one to remember.
    #[pyo3(signature = (key, r#fn, /, *args, fingerprint=None, with_run=None, **kwargs))]
    #[allow(clippy::too_many_arguments)]
    fn run(
        &self,
        key: Arg<'_>,
        r#fn: Arg<'_>,
        args: Args<'_>,
        fingerprint: OptArg<'_>,
        with_run: OptArg<'_>,
        kwargs: Option<Kwargs<'_>>,
    ) -> PyResult<Object> {
        let (once, request) = (self.0.get()?, Request::read(key, fingerprint, with_run)?);
        once.codec.check(r#fn)?;
        Call::of(r#fn, args, kwargs)?
            .through("idempotent.run()", Needs::Nothing, |work| Ok(running(work, |work| once.run(request, work))))
    }

    /// As a decorator: the function is done once for each `key`, which is text or a function of its arguments; and so is
    /// `fingerprint`. The decorated function gives the value itself.
    #[pyo3(signature = (key, *, fingerprint=None))]
    fn by(&self, py: Python<'_>, key: Arg<'_>, fingerprint: OptArg<'_>) -> PyResult<Py<PyKeyedIdempotent>> {
        let (once, key) = (self.0.get()?, OfCall::read("key", key, text)?);
        let fingerprint = fingerprint.map(|given| OfCall::read("fingerprint", given, self::key)).transpose()?;
        let fingerprint = fingerprint.unwrap_or(OfCall::Is(Vec::new()));
        let around = Around::shared(
            "a call that is made once",
            "of a kind of work".to_owned(),
            KeyedOnce { once, key, fingerprint },
        );
        Py::new(py, around.alone(PyKeyedIdempotent))
    }

    /// Whether this is the first time that `key` is seen within `ttl` seconds: for events that are delivered more than once.
    #[pyo3(signature = (key, ttl, token=None))]
    fn once(&self, key: Arg<'_>, ttl: Arg<'_>, token: OptArg<'_>) -> PyResult<Pending> {
        let once = self.0.get()?;
        let (key, ttl, token) = (text("key", key)?, seconds("ttl", ttl)?, optional_text("token", token)?);
        let asking = async move { once.idempotent.once(&key, ttl, token.as_deref()).await };
        Ok(Pending::ask("idempotent.once()", asking))
    }

    /// What is known of `key`, changing nothing.
    fn get(&self, key: Arg<'_>) -> PyResult<Pending> {
        let (once, key) = (self.0.get()?, text("key", key)?);
        Ok(Pending::new("idempotent.get()", async move {
            let found = raised_later(once.idempotent.get(&key).await)?;
            Python::attach(|py| known(py, found))
        }))
    }
}

struct KeyedOnce {
    once: Arc<Once>,
    key: OfCall<String>,
    fingerprint: OfCall<Vec<u8>>,
}

impl Runs for KeyedOnce {
    fn check(&self, func: Arg<'_>) -> PyResult<()> {
        self.once.codec.check(func)
    }

    fn run(&self, py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let fingerprint = self.fingerprint.of(py, "fingerprint", &work, key)?;
        let request = Request { key: self.key.of(py, "key", &work, text)?, fingerprint, with_run: false };
        let once = Arc::clone(&self.once);
        Ok(work.running(|work| async { once.run(request, work).await.map(|done| done.value) }))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.key.traverse(visit)?;
        self.fingerprint.traverse(visit)
    }
}

/// Work under one key; `idempotent.by(key)` makes it.
#[pyclass(module = "resil", name = "KeyedIdempotent", extends = Around, frozen)]
pub struct PyKeyedIdempotent;

#[pymethods]
impl PyClient {
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
        PyIdempotent::make(&self.get()?, name, serializer, remember, settings)
    }
}
