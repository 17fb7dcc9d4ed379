//! Whole policies: all stages as one call.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use resil::Client;
use resil::clock::Clock;
use resil::policy::{Policy, PolicyBuilder, PolicyFile, PolicySettings, Stage};
use resil::settings::CallSettings;

use crate::answer::Running;
use crate::around::{Around, Needs, Runs};
use crate::convert::{said_by, text};
use crate::errors::{wrong_type, wrong_value};
use crate::judge::Judge;
use crate::runtime::Generation;
use crate::settings::{PYTHON, read, spelled};
use crate::testing::{Mode, PyClock, without_waits};
use crate::work::Work;

struct Whole {
    policy: Mode<Policy>,
    judge: Arc<Judge>,
    options: Arc<CallSettings>,
    /// Of the client, if it has one.
    generation: Option<Generation>,
}

impl Runs for Arc<Whole> {
    fn run(&self, _py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        self.generation.map_or(Ok(()), Generation::check)?;
        let (policy, judge, options) = (self.policy.get(), Arc::clone(&self.judge), Arc::clone(&self.options));
        Ok(Arc::clone(&work).running(async move {
            let classify = |error: &PyErr| judge.classify(&work, error);
            policy.around_with(options.options(), classify, || work.attempt()).await
        }))
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

fn judge_of(
    settings: &PolicySettings,
    on: Option<&Bound<'_, PyAny>>,
    ignore: Option<&Bound<'_, PyAny>>,
) -> PyResult<Arc<Judge>> {
    if on.is_none() && settings.retry.is_some() {
        return Err(PyTypeError::new_err("on must say which exceptions retry is for"));
    }
    Judge::read(on, ignore)
}

fn build(
    settings: PolicySettings,
    judge: Arc<Judge>,
    generation: Option<Generation>,
    build: impl Fn(&PolicySettings) -> Result<Policy, resil::Error> + Send + Sync + 'static,
) -> PyResult<PyClassInitializer<PyPolicy>> {
    let usual = spelled(build(&settings))?;
    let policy = Mode::of(usual, move |attempts| {
        let retry = settings.retry.as_ref().map(|retry| without_waits(retry, attempts));
        build(&PolicySettings { retry, ..settings.clone() }).ok()
    });
    Ok(around(Whole { policy, judge, options: Arc::default(), generation }))
}

/// One of a client.
pub fn make(
    py: Python<'_>,
    client: &Client,
    generation: Generation,
    name: &Bound<'_, PyAny>,
    settings: Option<&Bound<'_, PyAny>>,
    (on, ignore): (Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>),
    more: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyPolicy>> {
    let settings = settings_of(name, settings, more)?;
    let (judge, client) = (judge_of(&settings, on, ignore)?, client.clone());
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
        let judge = judge_of(&settings, on, ignore)?;
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
        let (policy, judge, generation) = (self.0.policy.clone(), Arc::clone(&self.0.judge), self.0.generation);
        Py::new(py, around(Whole { policy, judge, options: Arc::new(options), generation }))
    }

    fn __repr__(&self) -> String {
        format!("<resil.Policy {:?}>", self.0.policy.usual().name())
    }
}

/// Policies by name, as they stand in a file; `client.policies(...)` reads it.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> policies = client.policies(text="{version: 1, policies: {payments: {timeout: {total: 2s}}}}")
/// >>> policies.names, policies.policy("payments").order
/// (['payments'], ['total'])
#[pyclass(module = "resil", name = "Policies", frozen)]
pub struct PyPolicies {
    file: Arc<PolicyFile>,
    client: Client,
    generation: Generation,
}

pub fn read_file(
    client: &Client,
    generation: Generation,
    path: Option<&Bound<'_, PyAny>>,
    given: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyPolicies> {
    let source = match (path, given) {
        (Some(path), None) => {
            let path: PathBuf = path.extract().map_err(|_| wrong_type("path", "a path", path))?;
            std::fs::read_to_string(&path)?
        }
        (None, Some(given)) => text("text", given)?,
        _ => return Err(wrong_value("path", "or text must be there, and not both")),
    };
    // Every JSON is YAML, but what is wrong with its fields is better said by its own reader.
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&source).is_ok();
    let file = if is_json { PolicyFile::from_json(&source) } else { PolicyFile::from_yaml(&source) };
    let file = Arc::new(file.map_err(|error| Python::attach(|py| crate::errors::exception(py, &error)))?);
    Ok(PyPolicies { file, client: client.clone(), generation })
}

#[pymethods]
impl PyPolicies {
    #[getter]
    fn names(&self) -> Vec<&str> {
        self.file.policies.keys().map(String::as_str).collect()
    }

    /// Makes one of them.
    #[pyo3(signature = (name, *, on=None, ignore=None))]
    fn policy(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        on: Option<&Bound<'_, PyAny>>,
        ignore: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyPolicy>> {
        self.generation.check()?;
        let settings = spelled(self.file.settings(&text("name", name)?))?;
        let (judge, client) = (judge_of(&settings, on, ignore)?, self.client.clone());
        let made =
            build(settings, judge, Some(self.generation), move |settings| Policy::from_settings(&client, settings))?;
        Py::new(py, made)
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        text("name", name).is_ok_and(|name| self.file.policies.contains_key(&name))
    }

    fn __len__(&self) -> usize {
        self.file.policies.len()
    }
}
