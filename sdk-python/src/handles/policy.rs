//! Whole policies: all stages as one call. One by one, or by name from a file that the other languages read as well.

use std::path::PathBuf;

use resil::Client;
use resil::clock::Clock;
use resil::policy::{CallSettings, Policy, PolicyBuilder, PolicyFile, PolicySettings, Stage};

use crate::client::PyClient;
use crate::idempotent::{PyIdempotent, Request, running};
use crate::prelude::*;

struct Whole {
    policy: Mode<Policy>,
    judge: Arc<Judge>,
    options: Arc<CallSettings<'static>>,
    is_shared: bool,
}

impl Runs for Arc<Whole> {
    fn run(&self, py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let (policy, judge, options) = (self.policy.get(), Arc::clone(&self.judge), Arc::clone(&self.options));
        let running = work.running(|work| async move {
            policy.around_with(options.by_ref(), judge.of(&work), || work.attempt()).await
        });
        Ok(traced(py, running))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.judge.traverse(visit)
    }

    fn needs(&self) -> Needs {
        let (policy, options) = (self.policy.usual(), &self.options);
        if policy.order().contains(&Stage::Hedge) {
            Needs::Several
        } else if policy.interrupts() || options.attempt_timeout.is_some() || options.total_timeout.is_some() {
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

impl Whole {
    fn build(
        settings: PolicySettings,
        judge: Arc<Judge>,
        is_shared: bool,
        build: impl Fn(&PolicySettings) -> Result<Policy, Error> + Send + Sync + 'static,
    ) -> PyResult<PyClassInitializer<PyPolicy>> {
        let usual = spelled(build(&settings))?;
        let policy = Mode::of(usual, move |attempts| {
            let retry = settings.retry.as_ref().map(|retry| retry.at_once(attempts));
            build(&PolicySettings { retry, ..settings.clone() }).ok()
        });
        Ok(Self { policy, judge, options: Arc::default(), is_shared }.around())
    }

    fn around(self) -> PyClassInitializer<PyPolicy> {
        let make = if self.is_shared { Around::shared } else { Around::local };
        let whole = Arc::new(self);
        make("a call through a policy", format!("{:?}", whole.policy.usual().name()), Arc::clone(&whole))
            .alone(PyPolicy(whole))
    }
}

/// A dict, and keywords beside it.
pub fn settings_of(name: Arg<'_>, settings: OptArg<'_>, more: Option<Kwargs<'_>>) -> PyResult<PolicySettings> {
    let settings = settings.map(|given| given.cast::<PyDict>().map_err(|_| wrong_type("settings", "dict", given)));
    let given = PyDict::new(name.py());
    for part in settings.transpose()?.into_iter().chain(more) {
        given.update(part.as_mapping())?;
    }
    given.set_item("name", text("name", name)?)?;
    read_beside(&["on", "ignore"], Some(&given))
}

fn judge(settings: &PolicySettings, on: OptArg<'_>, ignore: OptArg<'_>) -> PyResult<Arc<Judge>> {
    if on.is_none() && settings.retry.is_some() {
        return Err(PyTypeError::new_err("on must say which exceptions retry is for"));
    }
    Judge::read(on, ignore)
}

impl PyPolicy {
    /// One of a client.
    pub fn make(
        py: Python<'_>,
        client: Client,
        settings: PolicySettings,
        on: OptArg<'_>,
        ignore: OptArg<'_>,
    ) -> PyResult<Py<Self>> {
        let judge = judge(&settings, on, ignore)?;
        Py::new(py, Whole::build(settings, judge, true, move |settings| Policy::from_settings(&client, settings))?)
    }
}

#[pymethods]
impl PyPolicy {
    /// One of this process: what a fleet shares is refused; `client.policy(...)` makes those.
    #[new]
    #[pyo3(signature = (name, settings=None, *, on=None, ignore=None, clock=None, **more))]
    fn new(
        name: Arg<'_>,
        settings: OptArg<'_>,
        on: OptArg<'_>,
        ignore: OptArg<'_>,
        clock: OptArg<'_>,
        more: Option<Kwargs<'_>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let settings = settings_of(name, settings, more)?;
        let judge = judge(&settings, on, ignore)?;
        let clock = PyClock::read(clock)?.unwrap_or_else(Clock::system);
        Whole::build(settings, judge, false, move |settings| PolicyBuilder::local(settings, clock.clone())?.build())
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
    fn with_options(&self, py: Python<'_>, options: Option<Kwargs<'_>>) -> PyResult<Py<Self>> {
        let (policy, judge, options) = (self.0.policy.clone(), self.0.judge.again(py), Arc::new(read(options)?));
        Py::new(py, Whole { policy, judge, options, is_shared: self.0.is_shared }.around())
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
    fn call_once(
        &self,
        py: Python<'_>,
        idempotent: Arg<'_>,
        key: Arg<'_>,
        r#fn: Arg<'_>,
        args: Args<'_>,
        fingerprint: OptArg<'_>,
        with_run: OptArg<'_>,
        kwargs: Option<Kwargs<'_>>,
    ) -> PyResult<Object> {
        let kept = idempotent.cast::<PyIdempotent>();
        let kept = kept.map_err(|_| wrong_type("idempotent", "a resil.Idempotent", idempotent))?;
        let (once, request) = (kept.get().kept_as_json(r#fn)?, Request::read(key, fingerprint, with_run)?);
        let (policy, judge, options) = (self.0.policy.get(), Arc::clone(&self.0.judge), Arc::clone(&self.0.options));
        Call::of(r#fn, args, kwargs)?.through("policy.call_once()", self.0.needs(), |work| {
            Ok(traced(py, running(work, |work| once.run_through(policy, options, request, judge, work))))
        })
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
    file: PolicyFile,
    client: Owned<Client>,
}

impl PyPolicies {
    pub fn read(client: Client, path: OptArg<'_>, given: OptArg<'_>) -> PyResult<Self> {
        let source = match (path, given) {
            (Some(path), None) => {
                let path: PathBuf = path.extract().map_err(|_| wrong_type("path", "a path", path))?;
                std::fs::read_to_string(&path)?
            }
            (None, Some(given)) => text("text", given)?,
            _ => return Err(wrong_value("path", "or text must be there, and not both")),
        };
        Ok(Self { file: raised_later(PolicyFile::from_text(&source))?, client: Owned::new(client) })
    }
}

#[pymethods]
impl PyPolicies {
    #[getter]
    fn names(&self) -> Vec<&str> {
        self.file.policies.keys().map(String::as_str).collect()
    }

    /// Makes one of them.
    #[pyo3(signature = (name, *, on=None, ignore=None))]
    fn policy(&self, py: Python<'_>, name: Arg<'_>, on: OptArg<'_>, ignore: OptArg<'_>) -> PyResult<Py<PyPolicy>> {
        let (client, settings) = (self.client.get()?, spelled(self.file.settings(&text("name", name)?))?);
        PyPolicy::make(py, client, settings, on, ignore)
    }

    fn __contains__(&self, name: Arg<'_>) -> bool {
        text("name", name).is_ok_and(|name| self.file.policies.contains_key(&name))
    }

    fn __len__(&self) -> usize {
        self.file.policies.len()
    }
}

#[pymethods]
impl PyClient {
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
        PyPolicy::make(py, self.get()?, settings_of(name, settings, more)?, on, ignore)
    }

    /// Policies from a file of JSON or YAML, or from its text.
    #[pyo3(signature = (path=None, *, text=None))]
    fn policies(&self, path: OptArg<'_>, text: OptArg<'_>) -> PyResult<PyPolicies> {
        PyPolicies::read(self.get()?, path, text)
    }
}
