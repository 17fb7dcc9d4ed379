//! Work that is done once: one caller of the fleet runs it, every duplicate gets its result.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};
use resil::Failure;
use resil::idempotency::{Idempotent, Known, Outcome, Remember, Run};

use crate::answer::{Answer, Running, drive};
use crate::around::{Around, Runs};
use crate::cached::KeyOf;
use crate::codec::Codec;
use crate::convert::{key, optional_text, seconds, text, truth};
use crate::errors::{raised_later, wrong_type};
use crate::kind::Kind;
use crate::outcome::{PyOutcome, PyRun};
use crate::runtime::Generation;
use crate::settings::{read, spelled};
use crate::stage::Stage;
use crate::work::{Ended, How, Work, flat};

struct Kept {
    idempotent: Idempotent,
    codec: Codec,
    generation: Generation,
    /// Exceptions that are final.
    remember: Option<Remember<Failure<PyErr>>>,
}

/// What one call is about.
struct Request {
    key: String,
    fingerprint: Vec<u8>,
    with_run: bool,
}

impl Kept {
    async fn run(
        self: Arc<Self>,
        request: Request,
        work: Arc<Work>,
    ) -> Result<(Py<PyAny>, Outcome<()>), Failure<PyErr>> {
        // The one who runs gets its own result, as it was returned.
        let own: Arc<Mutex<Option<Py<PyAny>>>> = Arc::default();
        let Request { key, fingerprint, with_run } = request;
        let doing = |run: Run| {
            let (own, codec, work) = (Arc::clone(&own), self.codec, Arc::clone(&work));
            async move {
                let run = with_run.then(|| Python::attach(|py| Py::new(py, PyRun(run)))).transpose();
                let attempt = match run.map_err(Failure::Inner)? {
                    Some(run) => work.attempt_with(run.into_any()),
                    None => work.attempt(),
                };
                let value = attempt.await?;
                // What cannot be written is done all the same: duplicates learn that, and no more.
                let written = Python::attach(|py| codec.write(value.bind(py))).unwrap_or_default();
                *own.lock() = Some(value);
                Ok::<Bytes, Failure<PyErr>>(written)
            }
        };
        let outcome = match &self.remember {
            Some(remember) => self.idempotent.run_remembering(&key, &fingerprint, remember, doing).await,
            None => self.idempotent.run(&key, &fingerprint, doing).await,
        };
        let Outcome { value, replayed, attempt, age, recorded } = outcome.map_err(flat)?;
        let told = Outcome { value: None, replayed, attempt, age, recorded };
        if let Some(own) = own.lock().take() {
            return Ok((own, told));
        }
        let read = Python::attach(|py| match value {
            Some(bytes) if !(bytes.is_empty() && self.codec == Codec::Json) => self.codec.read_back(py, &bytes),
            _ => Ok(py.None()),
        });
        Ok((read.map_err(Failure::Inner)?, told))
    }
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
    name: &str,
    codec: Option<&Bound<'_, PyAny>>,
    remember: Option<&Bound<'_, PyAny>>,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<PyIdempotent> {
    let codec = Codec::read(codec)?;
    let remember = remember.map(final_exceptions).transpose()?;
    let settings: resil::settings::IdempotencySettings = read(settings)?;
    let idempotent = spelled(settings.idempotent(client, name))?;
    Ok(PyIdempotent(Arc::new(Kept { idempotent, codec, generation, remember })))
}

/// Exceptions of these classes are written down by their names and words, and raised again for duplicates.
fn final_exceptions(given: &Bound<'_, PyAny>) -> PyResult<Remember<Failure<PyErr>>> {
    let is_class = |given: &Bound<'_, PyAny>| {
        given.cast::<PyType>().is_ok_and(|class| class.is_subclass_of::<PyException>().unwrap_or(false))
    };
    let classes = match given.cast::<PyTuple>() {
        Ok(classes) => classes.clone(),
        Err(_) => PyTuple::new(given.py(), [given])?,
    };
    if classes.is_empty() || !classes.iter().all(|class| is_class(&class)) {
        return Err(wrong_type("remember", "an exception class or a tuple of them", given));
    }
    let (writing, reading) = (classes.clone().unbind(), classes.unbind());
    let write = move |failure: &Failure<PyErr>| {
        let Failure::Inner(error) = failure else { return None };
        Python::attach(|py| {
            let value = error.value(py);
            if !value.is_instance(writing.bind(py)).unwrap_or(false) {
                return None;
            }
            let (kind, words) = (value.get_type().name().ok()?.to_string(), value.str().ok()?.to_string());
            serde_json::to_vec(&serde_json::json!({ "error": kind, "message": words })).ok().map(Bytes::from)
        })
    };
    let read = move |bytes: &[u8]| {
        let kept: serde_json::Value = serde_json::from_slice(bytes).ok()?;
        let (kind, words) = (kept.get("error")?.as_str()?, kept.get("message")?.as_str()?);
        Python::attach(|py| {
            let classes = reading.bind(py);
            let named = |class: &Bound<'_, PyAny>| {
                class.cast::<PyType>().is_ok_and(|class| class.name().is_ok_and(|name| name == kind))
            };
            // A subclass that is not named here comes back as the first that is.
            let class = classes.iter().find(named).or_else(|| classes.iter().next())?;
            Some(Failure::Inner(class.call1((words,)).map_or_else(|error| error, PyErr::from_value)))
        })
    };
    Ok(Remember::with(write, read))
}

impl PyIdempotent {
    fn done(kept: Arc<Kept>, request: Request, work: Arc<Work>) -> Running {
        Box::pin(async move {
            let ended = kept.run(request, Arc::clone(&work)).await;
            Python::attach(|py| match ended {
                Ok((value, told)) => Ok(Py::new(py, PyOutcome { value, told })?.into_any()),
                Err(failure) => Err(work.error(py, failure)),
            })
        })
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
        let fingerprint = fingerprint.map(|given| self::key("fingerprint", given)).transpose()?.unwrap_or_default();
        let request = Request { key: text("key", key)?, fingerprint, with_run: truth("with_run", with_run)? };
        match Kind::of(&r#fn)? {
            Kind::Plain => {
                drive(py, Self::done(Arc::clone(&self.0), request, Work::new(r#fn, args, kwargs, How::Here)))
            }
            Kind::Coroutine => {
                let stage = Arc::new(Stage::default());
                let work = Work::new(r#fn, args, kwargs, How::Inside(Arc::clone(&stage)));
                let running = Self::done(Arc::clone(&self.0), request, work);
                Ok(Py::new(py, Answer::on_stage("idempotent.run()", Some(stage), running))?.into_any())
            }
        }
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
            let is_first = raised_later(kept.idempotent.once(&key, ttl, token.as_deref()).await)?;
            Python::attach(|py| Ok(is_first.into_pyobject(py)?.to_owned().into_any().unbind()))
        }))
    }

    /// What is known of `key`, changing nothing.
    fn get(&self, key: &Bound<'_, PyAny>) -> PyResult<Answer> {
        self.0.generation.check()?;
        let (key, kept) = (text("key", key)?, Arc::clone(&self.0));
        Ok(Answer::new("idempotent.get()", async move {
            let known = raised_later(kept.idempotent.get(&key).await)?;
            Python::attach(|py| told(py, known))
        }))
    }
}

fn told(py: Python<'_>, known: Known) -> PyResult<Py<PyAny>> {
    let dict = PyDict::new(py);
    match known {
        Known::Nothing => dict.set_item("state", "nothing")?,
        Known::Running { attempt, remaining } => {
            dict.set_item("state", "running")?;
            dict.set_item("attempt", attempt)?;
            dict.set_item("remaining", remaining.as_secs_f64())?;
        }
        Known::Done { result, is_error, age } => {
            dict.set_item("state", "done")?;
            dict.set_item("result", result.map(|result| PyBytes::new(py, &result)))?;
            dict.set_item("is_error", is_error)?;
            dict.set_item("age", age.as_secs_f64())?;
        }
        Known::Held { attempt } => {
            dict.set_item("state", "held")?;
            dict.set_item("attempt", attempt)?;
        }
    }
    Ok(dict.into_any().unbind())
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
    fn run(&self, py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        self.kept.generation.check()?;
        let fingerprint = match &self.fingerprint {
            None => Vec::new(),
            Some(Print::Is(bytes)) => bytes.clone(),
            Some(Print::Of(function)) => {
                let (args, kwargs) = work.arguments(py);
                key("what fingerprint= returned", &function.bind(py).call(args, kwargs)?)?
            }
        };
        let request = Request { key: self.key.of(py, &work)?, fingerprint, with_run: false };
        let kept = Arc::clone(&self.kept);
        Ok(Arc::clone(&work).running(async move {
            let ended: Ended = kept.run(request, work).await.map(|(value, _)| value);
            ended
        }))
    }
}

/// Work under one key; `idempotent.by(key)` makes it.
#[pyclass(module = "resil", name = "KeyedIdempotent", extends = Around, frozen)]
pub struct PyKeyedIdempotent;
