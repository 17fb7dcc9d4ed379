//! Whole policies: all stages as one call.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use resil::Client;
use resil::clock::Clock;
use resil::policy::{Policy, PolicyBuilder, PolicySettings, Stage};
use resil::settings::CallSettings;

use crate::around::{Around, Call, Needs, Runs};
use crate::convert::{said_by, text};
use crate::drive::Running;
use crate::errors::wrong_type;
use crate::idempotent::{PyIdempotent, Request, running};
use crate::judge::Judge;
use crate::runtime::Generation;
use crate::settings::{PYTHON, read, spelled};
use crate::testing::{Mode, PyClock};
use crate::trace::traced;
use crate::work::Work;

struct Whole {
    policy: Mode<Policy>,
    judge: Arc<Judge>,
    options: Arc<CallSettings<'static>>,
    /// Of the client, if it has one.
    generation: Option<Generation>,
}

impl Runs for Arc<Whole> {
    fn run(&self, py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        self.generation.map_or(Ok(()), Generation::check)?;
        let (policy, judge, options) = (self.policy.get(), Arc::clone(&self.judge), Arc::clone(&self.options));
        let running = Arc::clone(&work).running(async move {
            let classify = |error: &PyErr| judge.classify(&work, error);
            policy.around_with(options.by_ref(), classify, || work.attempt()).await
        });
        Ok(traced(py, running))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.judge.traverse(visit)
    }

    fn needs(&self) -> Needs {
        let policy = self.policy.usual();
        if policy.order().contains(&Stage::Hedge) {
            Needs::Several
        } else if policy.interrupts() || self.options.attempt_timeout.is_some() || self.options.total_timeout.is_some()
        {
            Needs::ToLeave
        } else {
            Needs::Nothing
        }
    }
}

/// A whole policy: retry, timeouts, hedge, breaker, limits and bulkheads as one call, in an order that makes sense.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> payments = client.policy("payments", timeout={"total": 2.0}, retry={"max_attempts": 3},
/// ...                          breaker={"consecutive_failures": 5}, on=ConnectionError)
/// >>> payments.call(lambda: "paid")
/// 'paid'
/// >>> payments.order
/// ['total', 'retry', 'breaker']
#[pyclass(module = "resil", name = "Policy", extends = Around, frozen)]
pub struct PyPolicy(Arc<Whole>);

fn around(whole: Whole) -> PyClassInitializer<PyPolicy> {
    let whole = Arc::new(whole);
    let around = Around::new("a call through a policy", Arc::clone(&whole));
    PyClassInitializer::from(around).add_subclass(PyPolicy(whole))
}

/// What was said, with its name: a dict, and keywords beside it.
fn settings_of(
    name: &Bound<'_, PyAny>,
    settings: Option<&Bound<'_, PyAny>>,
    more: Option<&Bound<'_, PyDict>>,
) -> PyResult<PolicySettings> {
    let said = PyDict::new(name.py());
    if let Some(settings) = settings {
        let settings = settings.cast::<PyDict>().map_err(|_| wrong_type("settings", "dict", settings))?;
        said.update(settings.as_mapping())?;
    }
    if let Some(more) = more {
        said.update(more.as_mapping())?;
    }
    said.set_item("name", text("name", name)?)?;
    spelled(PYTHON.read(said_by(Some(&said))?))
}

fn build(
    settings: PolicySettings,
    judge: Arc<Judge>,
    generation: Option<Generation>,
    build: impl Fn(&PolicySettings) -> Result<Policy, resil::Error> + Send + Sync + 'static,
) -> PyResult<PyClassInitializer<PyPolicy>> {
    let usual = spelled(build(&settings))?;
    let policy = Mode::of(usual, move |attempts| {
        let retry = settings.retry.as_ref().map(|retry| retry.at_once(attempts));
        build(&PolicySettings { retry, ..settings.clone() }).ok()
    });
    Ok(around(Whole { policy, judge, options: Arc::default(), generation }))
}

/// What is said about exceptions.
#[derive(Clone, Copy)]
pub struct Said<'a, 'py> {
    pub on: Option<&'a Bound<'py, PyAny>>,
    pub ignore: Option<&'a Bound<'py, PyAny>>,
}

impl Said<'_, '_> {
    fn judge(self, settings: &PolicySettings) -> PyResult<Arc<Judge>> {
        if self.on.is_none() && settings.retry.is_some() {
            return Err(PyTypeError::new_err("on must say which exceptions retry is for"));
        }
        Judge::read(self.on, self.ignore)
    }
}

/// One of a client.
pub fn make(
    py: Python<'_>,
    client: &Client,
    generation: Generation,
    name: &Bound<'_, PyAny>,
    settings: Option<&Bound<'_, PyAny>>,
    said: Said<'_, '_>,
    more: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyPolicy>> {
    make_of(py, client, generation, settings_of(name, settings, more)?, said)
}

pub fn make_of(
    py: Python<'_>,
    client: &Client,
    generation: Generation,
    settings: PolicySettings,
    said: Said<'_, '_>,
) -> PyResult<Py<PyPolicy>> {
    let (judge, client) = (said.judge(&settings)?, client.clone());
    let made = build(settings, judge, Some(generation), move |settings| Policy::from_settings(&client, settings))?;
    Py::new(py, made)
}

#[pymethods]
impl PyPolicy {
    /// One of this process: what a fleet shares is refused; `client.policy(...)` makes those.
    #[new]
    #[pyo3(signature = (name, settings=None, *, on=None, ignore=None, clock=None, **more))]
    fn new(
        name: &Bound<'_, PyAny>,
        settings: Option<&Bound<'_, PyAny>>,
        on: Option<&Bound<'_, PyAny>>,
        ignore: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, PyAny>>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let settings = settings_of(name, settings, more)?;
        let judge = Said { on, ignore }.judge(&settings)?;
        let clock = PyClock::read(clock)?.unwrap_or_else(Clock::system);
        build(settings, judge, None, move |settings| PolicyBuilder::local(settings, clock.clone())?.build())
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.policy.usual().name()
    }

    /// The stages it has, outermost first.
    #[getter]
    fn order(&self) -> Vec<&'static str> {
        self.0.policy.usual().order().iter().map(|stage| stage.text()).collect()
    }

    /// What is odd about it, in sentences.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.0.policy.usual().warnings().to_vec()
    }

    /// The same policy with what is particular to some calls: whose rate limit, which partition, other timeouts.
    #[pyo3(signature = (**options))]
    fn with_options(&self, py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Py<Self>> {
        let options: CallSettings = read(options)?;
        let (policy, judge, generation) = (self.0.policy.clone(), self.0.judge.again(py), self.0.generation);
        Py::new(py, around(Whole { policy, judge, options: Arc::new(options), generation }))
    }

    /// Runs `fn(*args, **kwargs)` through this policy unless it was done before under `key`; then its result is given back. All
    /// attempts are one run, with one fence; if they fail in the end, the key is free again.
    ///
    /// `idempotent`, which keeps JSON, says what kind of work it is; `fingerprint` and `with_run` are those of `idempotent.run`.
    ///
    /// >>> import resil
    /// >>> client = resil.connect("memory://").wait()
    /// >>> bank = client.policy("bank", retry={"max_attempts": 3}, on=ConnectionError)
    /// >>> payments = client.idempotent("payments")
    /// >>> [bank.call_once(payments, "order-42", lambda: {"paid": 7}).replayed for _ in range(2)]
    /// [False, True]
    #[pyo3(signature = (idempotent, key, r#fn, /, *args, fingerprint=None, with_run=None, **kwargs))]
    #[allow(clippy::too_many_arguments)]
    fn call_once<'py>(
        &self,
        py: Python<'py>,
        idempotent: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
        r#fn: Bound<'py, PyAny>,
        args: Bound<'py, PyTuple>,
        fingerprint: Option<&Bound<'py, PyAny>>,
        with_run: Option<&Bound<'py, PyAny>>,
        kwargs: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        self.0.generation.map_or(Ok(()), Generation::check)?;
        let kept = idempotent.cast::<PyIdempotent>();
        let kept =
            kept.map_err(|_| wrong_type("idempotent", "a resil.Idempotent", idempotent))?.get().kept_as_json(&r#fn)?;
        let request = Request::read(key, fingerprint, with_run)?;
        let (policy, judge, options) = (self.0.policy.get(), Arc::clone(&self.0.judge), Arc::clone(&self.0.options));
        Call::of(r#fn, args, kwargs)?.through(py, "policy.call_once()", self.0.needs(), |work| {
            let running = running(Arc::clone(&work), async move {
                kept.run_through(policy, options.by_ref(), request, judge, work).await
            });
            Ok(traced(py, running))
        })
    }

    fn __repr__(&self) -> String {
        format!("<resil.Policy {:?}>", self.0.policy.usual().name())
    }
}
