//! Whole policies: all stages as one call. One by one, by name from a file that the other languages read as well, or as they are stored.

use std::path::PathBuf;

use resil::Client;
use resil::clock::Clock;
use resil::policies::FollowedPolicy;
use resil::policy::{
    Budget, CallSettings, Policy, PolicyBuilder, PolicyFile, PolicySettings, Stage, WatchedPolicies, classified,
    settled,
};

use crate::client::PyClient;
use crate::idempotent::{PyIdempotent, Request, running};
use crate::prelude::*;
use crate::retry::PyBudget;

/// Where the policy of a call comes from.
#[derive(Clone)]
enum PolicySource {
    Made(Mode<Policy>),
    Followed(FollowedPolicy),
    /// Of a file that is watched: its name there, and the last one that was there.
    Watched(WatchedPolicies, Arc<Mutex<Policy>>),
}

impl PolicySource {
    fn get(&self) -> Policy {
        match self {
            Self::Made(policy) => policy.get(),
            Self::Followed(policy) => policy.now(),
            Self::Watched(watched, last) => {
                let mut last = last.lock();
                if let Ok(policy) = watched.policy(last.name()) {
                    *last = policy;
                }
                last.clone()
            }
        }
    }

    fn usual(&self) -> Policy {
        if let Self::Made(policy) = self { policy.usual().clone() } else { self.get() }
    }
}

struct Whole {
    policy: PolicySource,
    judge: Arc<Judge>,
    options: Arc<CallSettings<'static>>,
    is_shared: bool,
}

impl Runs for Arc<Whole> {
    fn run(&self, py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let (policy, judge, options) = (self.policy.get(), Arc::clone(&self.judge), Arc::clone(&self.options));
        let running = work.running(|work| async move {
            let attempt = || judge.attempt(&work, work.attempt());
            settled(policy.around_with(options.by_ref(), classified(judge.of(&work)), attempt).await)
        });
        Ok(traced(py, running))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.judge.traverse(visit)
    }

    fn now(&self) -> Option<Box<dyn Runs>> {
        self.may_change().then(|| Box::new(self.at_once()) as Box<dyn Runs>)
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
        let policy = PolicySource::Made(Mode::of(usual, move |attempts| {
            let retry = settings.retry.as_ref().map(|retry| retry.at_once(attempts));
            build(&PolicySettings { retry, ..settings.clone() }).ok()
        }));
        Ok(Self { policy, judge, options: Arc::default(), is_shared }.around())
    }

    fn may_change(&self) -> bool {
        !matches!(self.policy, PolicySource::Made(_))
    }

    /// With the policy as it is now.
    fn at_once(self: &Arc<Self>) -> Arc<Self> {
        if !self.may_change() {
            return Arc::clone(self);
        }
        let policy = self.policy.get();
        let (judge, options, is_shared) = (Arc::clone(&self.judge), Arc::clone(&self.options), self.is_shared);
        Arc::new(Self { policy: PolicySource::Made(Mode::of(policy, |_| None)), judge, options, is_shared })
    }

    fn around(self) -> PyClassInitializer<PyPolicy> {
        let make = if self.is_shared { Around::shared } else { Around::local };
        let whole = Arc::new(self);
        make("a call through a policy", format!("{:?}", whole.policy.usual().name()), Arc::clone(&whole))
            .alone(PyPolicy(whole))
    }
}

/// A dict, and keywords beside it; and the budget of `retry`, if it is one that several policies share.
fn settings_of(
    name: Arg<'_>,
    settings: OptArg<'_>,
    more: Option<Kwargs<'_>>,
) -> PyResult<(PolicySettings, Option<Budget>)> {
    let settings = settings.map(|given| given.cast::<PyDict>().map_err(|_| wrong_type("settings", "dict", given)));
    let given = PyDict::new(name.py());
    for part in settings.transpose()?.into_iter().chain(more) {
        given.update(part.as_mapping())?;
    }
    given.set_item("name", text("name", name)?)?;
    let mut budget = None;
    if let Some(retry) = given.get_item("retry")?
        && let Ok(retry) = retry.cast::<PyDict>()
    {
        // A copy: the dict is the caller's.
        let retry = retry.copy()?;
        budget = PyBudget::take(Some(&retry))?;
        given.set_item("retry", retry)?;
    }
    Ok((read_beside(&["on", "ignore", "on_result"], Some(&given))?, budget))
}

/// What a caller says of exceptions and results.
#[derive(Clone, Copy)]
pub struct Says<'a> {
    pub on: OptArg<'a>,
    pub ignore: OptArg<'a>,
    pub on_result: OptArg<'a>,
}

impl Says<'_> {
    fn judge(self) -> PyResult<Arc<Judge>> {
        Judge::read(self.on, self.ignore, self.on_result)
    }

    fn says_what_to_retry(self) -> bool {
        self.on.is_some() || self.on_result.is_some()
    }
}

fn judge(settings: &PolicySettings, says: Says<'_>) -> PyResult<Arc<Judge>> {
    if !says.says_what_to_retry() && settings.retry.is_some() {
        return Err(nothing_to_retry());
    }
    says.judge()
}

fn nothing_to_retry() -> PyErr {
    PyTypeError::new_err("on must say which exceptions retry is for, or on_result which results")
}

impl PyPolicy {
    /// One of a client.
    pub fn make(
        py: Python<'_>,
        client: Client,
        (settings, budget): (PolicySettings, Option<Budget>),
        says: Says<'_>,
    ) -> PyResult<Py<Self>> {
        let judge = judge(&settings, says)?;
        let build = move |settings: &PolicySettings| {
            let builder = PolicyBuilder::from_settings(&client, settings)?;
            budget.iter().cloned().fold(builder, PolicyBuilder::budget).build()
        };
        Py::new(py, Whole::build(settings, judge, true, build)?)
    }
}

/// One that may change. Without `on` and `on_result` nothing is retried, so a policy that retries now has to have one.
struct Changing {
    judge: Arc<Judge>,
    says_what_to_retry: bool,
}

impl Changing {
    fn read(says: Says<'_>) -> PyResult<Self> {
        Ok(Self { judge: says.judge()?, says_what_to_retry: says.says_what_to_retry() })
    }

    fn make(self, py: Python<'_>, policy: PolicySource) -> PyResult<Py<PyPolicy>> {
        if !self.says_what_to_retry && policy.get().order().contains(&Stage::Retry) {
            return Err(nothing_to_retry());
        }
        Py::new(py, Whole { policy, judge: self.judge, options: Arc::default(), is_shared: true }.around())
    }
}

impl PyPolicy {
    /// A policy of a file that is watched.
    pub fn watched(py: Python<'_>, watched: WatchedPolicies, name: &str, says: Says<'_>) -> PyResult<Py<Self>> {
        let now = spelled(watched.policy(name))?;
        Changing::read(says)?.make(py, PolicySource::Watched(watched, Arc::new(Mutex::new(now))))
    }

    fn followed(client: Client, name: String, otherwise: Option<PolicySettings>, says: Says<'_>) -> PyResult<Pending> {
        let changing = Changing::read(says)?;
        Ok(Pending::new("client.policy()", async move {
            let followed = match &otherwise {
                None => client.policy(&name).await,
                Some(settings) => client.policy_or(&name, settings).await,
            };
            let policy = PolicySource::Followed(raised_later(followed)?);
            Python::attach(|py| changing.make(py, policy).map(Py::into_any))
        }))
    }
}

#[pymethods]
impl PyPolicy {
    /// One of this process: what a fleet shares is refused; `client.policy(...)` makes those.
    #[new]
    #[pyo3(signature = (name, settings=None, *, on=None, ignore=None, on_result=None, clock=None, **more))]
    fn new(
        name: Arg<'_>,
        settings: OptArg<'_>,
        on: OptArg<'_>,
        ignore: OptArg<'_>,
        on_result: OptArg<'_>,
        clock: OptArg<'_>,
        more: Option<Kwargs<'_>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let (settings, budget) = settings_of(name, settings, more)?;
        let judge = judge(&settings, Says { on, ignore, on_result })?;
        let clock = PyClock::read(clock)?.unwrap_or_else(Clock::system);
        Whole::build(settings, judge, false, move |settings| {
            let builder = PolicyBuilder::local(settings, clock.clone())?;
            budget.iter().cloned().fold(builder, PolicyBuilder::budget).build()
        })
    }

    #[getter]
    fn name(&self) -> String {
        self.0.policy.usual().name().to_owned()
    }

    /// The version in use of a stored policy that is followed.
    #[getter]
    fn version(&self) -> Option<u64> {
        if let PolicySource::Followed(policy) = &self.0.policy { policy.version() } else { None }
    }

    /// Why what is in use is not what is stored, or in the file, if it is not.
    #[getter]
    fn problem(&self) -> Option<String> {
        let problem = match &self.0.policy {
            PolicySource::Made(_) => None,
            PolicySource::Followed(policy) => policy.problem(),
            PolicySource::Watched(watched, last) => {
                watched.problem().or_else(|| watched.policy(last.lock().name()).err())
            }
        };
        problem.map(|problem| problem.to_string())
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
    /// `idempotent`, which keeps JSON, says what kind of work it is; `fingerprint` and `with_run` are those of `idempotent.run`. A result
    /// is recorded, so a policy with `on_result` is refused: let `fn` raise.
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
        if self.0.judge.on_result.is_some() {
            return Err(PyTypeError::new_err("call_once() records every result: let fn raise in place of on_result"));
        }
        let kept = idempotent.cast::<PyIdempotent>();
        let kept = kept.map_err(|_| wrong_type("idempotent", "a resil.Idempotent", idempotent))?;
        let (once, request) = (kept.get().kept_as_json(r#fn)?, Request::read(key, fingerprint, with_run)?);
        let now = self.0.at_once();
        let (policy, judge, options) = (now.policy.get(), Arc::clone(&now.judge), Arc::clone(&now.options));
        Call::of(r#fn, args, kwargs)?.through("policy.call_once()", now.needs(), |work| {
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
                std::fs::read_to_string(&path).map_err(|error| {
                    let text = format!("path: {:?} cannot be read: {error}", path.display().to_string());
                    std::io::Error::new(error.kind(), text)
                })?
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
    #[pyo3(signature = (name, *, on=None, ignore=None, on_result=None))]
    fn policy(
        &self,
        py: Python<'_>,
        name: Arg<'_>,
        on: OptArg<'_>,
        ignore: OptArg<'_>,
        on_result: OptArg<'_>,
    ) -> PyResult<Py<PyPolicy>> {
        let (client, settings) = (self.client.get()?, spelled(self.file.settings(&text("name", name)?))?);
        PyPolicy::make(py, client, (settings, None), Says { on, ignore, on_result })
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
    /// A whole policy, of a dict or of keywords. `on` says which exceptions are retried, `on_result` which results are failures; the
    /// `budget` of `retry` may be a resil.Budget that several policies share.
    ///
    /// Without settings it follows the stored policy of this name: await it, or `.wait()`. It fails if there is none.
    ///
    /// >>> import resil
    /// >>> client = resil.connect("memory://").wait()
    /// >>> _ = client.policies.set("payments", {"retry": {"max_attempts": 4}}).wait()
    /// >>> payments = client.policy("payments", on=ConnectionError).wait()
    /// >>> payments.call(lambda: "paid"), payments.version
    /// ('paid', 1)
    #[pyo3(signature = (name, settings=None, *, on=None, ignore=None, on_result=None, **more))]
    #[allow(clippy::too_many_arguments)]
    fn policy(
        &self,
        py: Python<'_>,
        name: Arg<'_>,
        settings: OptArg<'_>,
        on: OptArg<'_>,
        ignore: OptArg<'_>,
        on_result: OptArg<'_>,
        more: Option<Kwargs<'_>>,
    ) -> PyResult<Object> {
        let says = Says { on, ignore, on_result };
        if settings.is_none() && more.is_none_or(|more| more.is_empty()) {
            return PyPolicy::followed(self.get()?, text("name", name)?, None, says)?.into_py_any(py);
        }
        PyPolicy::make(py, self.get()?, settings_of(name, settings, more)?, says).map(Py::into_any)
    }

    /// Follows the stored policy of this name; until one is stored and can be read, calls run under these settings.
    #[pyo3(signature = (name, settings=None, *, on=None, ignore=None, on_result=None, **more))]
    fn policy_or(
        &self,
        name: Arg<'_>,
        settings: OptArg<'_>,
        on: OptArg<'_>,
        ignore: OptArg<'_>,
        on_result: OptArg<'_>,
        more: Option<Kwargs<'_>>,
    ) -> PyResult<Pending> {
        let (otherwise, None) = settings_of(name, settings, more)? else {
            return Err(wrong_value("retry.budget", "of a stored policy is the fleet's: give its settings"));
        };
        PyPolicy::followed(self.get()?, text("name", name)?, Some(otherwise), Says { on, ignore, on_result })
    }
}
