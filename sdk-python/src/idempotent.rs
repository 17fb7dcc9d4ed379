//! Work that is done once: one caller of the fleet runs it, every duplicate gets its result.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use resil::idempotency::{Idempotent, Outcome, Run};
use resil::policy::classify::classify_failure;
use resil::policy::{CallSettings, Class, Policy};
use resil::{Error, Failure};
use serde_json::value::RawValue;

use crate::answer::Answer;
use crate::around::{Around, Call, Needs, Runs};
use crate::codec::{Codec, unrecorded};
use crate::convert::{flag, key, optional_text, seconds, text, truth};
use crate::drive::Running;
use crate::errors::{raised_later, wrong_value};
use crate::judge::Judge;
use crate::key_of::KeyOf;
use crate::outcome::{PyOutcome, PyRun, known};
use crate::remembered::{Final, remember};
use crate::runtime::Generation;
use crate::settings::{read, spelled};
use crate::work::{Ended, Work, flat};

pub struct Kept {
    idempotent: Idempotent,
    codec: Codec,
    generation: Generation,
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
    pub fn read(
        key: &Bound<'_, PyAny>,
        fingerprint: Option<&Bound<'_, PyAny>>,
        with_run: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let print = fingerprint.map(|given| self::key("fingerprint", given)).transpose()?.unwrap_or_default();
        Ok(Self { key: text("key", key)?, fingerprint: print, with_run: truth("with_run", with_run)? })
    }
}

/// The value and how the work came out.
type Done = Result<(Py<PyAny>, Outcome<()>), Failure<PyErr>>;

/// The work, as the one who runs it does it: it gets its own result, as it was returned.
struct Doing {
    work: Arc<Work>,
    codec: Codec,
    with_run: bool,
    own: Mutex<Option<Py<PyAny>>>,
    /// Why the result cannot be written: the work is done all the same, and every duplicate has to be told.
    unwritten: Arc<OnceLock<String>>,
}

impl Doing {
    fn new(work: Arc<Work>, codec: Codec, with_run: bool) -> Self {
        Self { work, codec, with_run, own: Mutex::new(None), unwritten: Arc::default() }
    }

    /// What is kept for duplicates.
    async fn run(&self, run: Run) -> Result<Bytes, Failure<PyErr>> {
        let run = self
            .with_run
            .then(|| Python::attach(|py| Py::new(py, PyRun { run, generation: Generation::now() })))
            .transpose();
        let attempt = match run.map_err(Failure::Inner)? {
            Some(run) => self.work.attempt_with(run.into_any()),
            None => self.work.attempt(),
        };
        let value = attempt.await?;
        let written = Python::attach(|py| {
            self.codec.write(value.bind(py)).map_err(|error| {
                let error = if self.codec.is_refusal(py, &error) {
                    let reason = error.value(py).str().map_or_else(|_| String::new(), |words| words.to_string());
                    // The work is done once, and so is this.
                    let _ = self.unwritten.set(reason);
                    unrecorded(py, error, &value)
                } else {
                    // Ctrl-C, and what other handlers of signals raise, ends the run as it would have inside of the function.
                    error
                };
                let ended: Ended = self.work.judged(py, Err(error));
                ended.err().unwrap_or(Failure::Resil(Error::Internal("a result could not be written".to_owned())))
            })
        })?;
        *self.own.lock() = Some(value);
        Ok(written)
    }

    fn done(self, name: &str, outcome: Outcome<Bytes>) -> Done {
        let Outcome { value, replayed, attempt, age, recorded } = outcome;
        let told = Outcome { value: None, replayed, attempt, age, recorded };
        if let Some(own) = self.own.into_inner() {
            return Ok((own, told));
        }
        let Some(bytes) = value else {
            let reason = "it was too large for the server to keep".to_owned();
            return Err(Failure::Resil(Error::ResultUnrecorded { name: name.into(), reason }));
        };
        let read = Python::attach(|py| self.codec.read_back(py, &bytes));
        Ok((read.map_err(Failure::Inner)?, told))
    }
}

impl Kept {
    async fn run(self: Arc<Self>, request: Request, work: Arc<Work>) -> Done {
        let Request { key, fingerprint, with_run } = request;
        let doing = Doing::new(work, self.codec.clone(), with_run);
        let remember = remember(self.remember.clone(), Arc::clone(&doing.unwritten));
        let outcome = self.idempotent.run_remembering(&key, &fingerprint, &remember, |run| doing.run(run)).await;
        doing.done(&key, outcome.map_err(flat)?)
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
        options: CallSettings<'_>,
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
        let calling =
            policy.call_once_remembering(&self.idempotent, &key, &fingerprint, &remember, options, classify, once);
        let outcome = calling.await;
        let Outcome { value, replayed, attempt, age, recorded } = outcome.map_err(flat)?;
        let value = value.map(|value: Box<RawValue>| Bytes::from(String::from(Box::<str>::from(value))));
        doing.done(&key, Outcome { value, replayed, attempt, age, recorded })
    }
}

/// The end of it as the user is to see it: with how it came out.
pub fn running(work: Arc<Work>, doing: impl Future<Output = Done> + Send + 'static) -> Running {
    Arc::clone(&work).running(async move {
        let (value, told) = doing.await?;
        let outcome = Python::attach(|py| Py::new(py, PyOutcome { value, told })).map_err(Failure::Inner)?;
        Ok(outcome.into_any())
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
pub struct PyIdempotent(Arc<Kept>);

pub fn make(
    client: &resil::Client,
    generation: Generation,
    name: &Bound<'_, PyAny>,
    serializer: Option<&Bound<'_, PyAny>>,
    remember: Option<&Bound<'_, PyAny>>,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<PyIdempotent> {
    let (codec, name) = (Codec::read(name.py(), serializer)?, text("name", name)?);
    let remember = remember.map(Final::read).transpose()?;
    let settings: resil::settings::IdempotencySettings = read(settings)?;
    let idempotent = spelled(client.idempotent(&name, settings))?;
    Ok(PyIdempotent(Arc::new(Kept { idempotent, codec, generation, remember })))
}

impl PyIdempotent {
    /// For results of `func` that are JSON.
    pub fn kept_as_json(&self, func: &Bound<'_, PyAny>) -> PyResult<Arc<Kept>> {
        self.0.generation.check()?;
        self.0.codec.check(func)?;
        if !self.0.codec.is_json() {
            return Err(wrong_value("idempotent", "must keep JSON: results of a policy are no bytes"));
        }
        Ok(Arc::clone(&self.0))
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
    fn run<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        r#fn: Bound<'py, PyAny>,
        args: Bound<'py, PyTuple>,
        fingerprint: Option<&Bound<'py, PyAny>>,
        with_run: Option<&Bound<'py, PyAny>>,
        kwargs: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        self.0.generation.check()?;
        let (kept, request) = (Arc::clone(&self.0), Request::read(key, fingerprint, with_run)?);
        kept.codec.check(&r#fn)?;
        Call::of(r#fn, args, kwargs)?.through(py, "idempotent.run()", Needs::Nothing, |work| {
            Ok(running(Arc::clone(&work), kept.run(request, work)))
        })
    }

    /// As a decorator: the function is done once for each `key`, which is text or a function of its arguments; and so is
    /// `fingerprint`. The decorated function gives the value itself.
    #[pyo3(signature = (key, *, fingerprint=None))]
    fn by(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        fingerprint: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyKeyedIdempotent>> {
        let fingerprint = match fingerprint {
            None => None,
            Some(given) if given.is_callable() => Some(Print::Of(given.clone().unbind())),
            Some(given) => Some(Print::Is(self::key("fingerprint", given)?)),
        };
        let keyed = Keyed { kept: Arc::clone(&self.0), key: KeyOf::read("key", key)?, fingerprint };
        let around = Around::new("a call that is made once", keyed);
        Py::new(py, PyClassInitializer::from(around).add_subclass(PyKeyedIdempotent))
    }

    /// Whether this is the first time that `key` is seen within `ttl` seconds: for events that are delivered more than once.
    #[pyo3(signature = (key, ttl, token=None))]
    fn once(
        &self,
        key: &Bound<'_, PyAny>,
        ttl: &Bound<'_, PyAny>,
        token: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Answer> {
        self.0.generation.check()?;
        let (key, ttl, token) = (text("key", key)?, seconds("ttl", ttl)?, optional_text("token", token)?);
        let kept = Arc::clone(&self.0);
        Ok(Answer::new("idempotent.once()", async move {
            flag(raised_later(kept.idempotent.once(&key, ttl, token.as_deref()).await)?)
        }))
    }

    /// What is known of `key`, changing nothing.
    fn get(&self, key: &Bound<'_, PyAny>) -> PyResult<Answer> {
        self.0.generation.check()?;
        let (key, kept) = (text("key", key)?, Arc::clone(&self.0));
        Ok(Answer::new("idempotent.get()", async move {
            let found = raised_later(kept.idempotent.get(&key).await)?;
            Python::attach(|py| known(py, found))
        }))
    }
}

enum Print {
    Is(Vec<u8>),
    Of(Py<PyAny>),
}

struct Keyed {
    kept: Arc<Kept>,
    key: KeyOf,
    fingerprint: Option<Print>,
}

impl Runs for Keyed {
    fn check(&self, func: &Bound<'_, PyAny>) -> PyResult<()> {
        self.kept.codec.check(func)
    }

    fn run(&self, py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        self.kept.generation.check()?;
        let fingerprint = match &self.fingerprint {
            None => Vec::new(),
            Some(Print::Is(bytes)) => bytes.clone(),
            Some(Print::Of(function)) => key("what fingerprint= returned", &work.asked(py, function)?)?,
        };
        let request = Request { key: self.key.of(py, &work)?, fingerprint, with_run: false };
        let kept = Arc::clone(&self.kept);
        Ok(Arc::clone(&work).running(async move {
            let ended: Ended = kept.run(request, work).await.map(|(value, _)| value);
            ended
        }))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.key.traverse(visit)?;
        match &self.fingerprint {
            Some(Print::Of(function)) => visit.call(function),
            Some(Print::Is(_)) | None => Ok(()),
        }
    }
}

/// Work under one key; `idempotent.by(key)` makes it.
#[pyclass(module = "resil", name = "KeyedIdempotent", extends = Around, frozen)]
pub struct PyKeyedIdempotent;
