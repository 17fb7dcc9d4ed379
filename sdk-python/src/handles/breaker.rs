//! One circuit breaker for the whole fleet.

use resil::Client;
use resil::breaker::{Breaker, Force, Permit};
use resil::policy::{Class, classified, settled};
use resil::settings::BreakerSettings;

use crate::client::PyClient;
use crate::prelude::*;

struct Circuit {
    client: Owned<Client>,
    breaker: Owned<Breaker>,
    judge: Arc<Judge>,
    entered: Arc<Entered<Permit>>,
}

impl Runs for Arc<Circuit> {
    fn run(&self, py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let (client, breaker, judge) = (self.client.get()?, self.breaker.get()?, Arc::clone(&self.judge));
        let running = work.running(|work| async move {
            let attempt = || judge.attempt(&work, work.attempt());
            // On the heap: on its way through what counts it, it would be moved several times.
            let calling = Box::pin(breaker.around(classified(judge.of(&work)), attempt));
            settled(client.in_flight(calling).await?)
        });
        Ok(traced(py, running))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.judge.traverse(visit)
    }
}

impl Enters for Arc<Circuit> {
    fn enter(&self, py: Python<'_>, _entrant: Entrant) -> PyResult<Running> {
        let (who, breaker, entered) = (Who::is_here(py)?, self.breaker.get()?, Arc::clone(&self.entered));
        Ok(Box::pin(async move {
            entered.push(who, raised_later(breaker.admit().await)?);
            none()
        }))
    }

    fn leave(&self, py: Python<'_>, error: Arg<'_>) -> PyResult<Option<Running>> {
        let permit = self.entered.pop_any(Who::is_here(py)?)?;
        let ended = if error.is_none() { Ok(()) } else { Err(failure(py, PyErr::from_value(error.clone())).0) };
        // Asked here, where there is somebody to tell if the function that judges fails.
        let class = match &ended {
            Err(Failure::Inner(error)) => self.judge.class(py, error)?,
            _ => Class::Permanent,
        };
        let leaving = Box::pin(async move {
            permit.finish(|_: &PyErr| class, &ended).await;
            none()
        });
        Ok(Some(traced(py, leaving)))
    }
}

/// A breaker under a name; `client.breaker(...)` makes it.
///
/// A decorator, a block, a call, or two steps by hand (`admit`). Every exception is a failure but those to `ignore`, and so is a result of
/// which `on_result` says true.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> bank = client.breaker("bank", consecutive_failures=1, ignore=KeyError)
/// >>> @bank
/// ... def pay():
/// ...     raise ConnectionError("down")
/// >>> for _ in range(2):
/// ...     try:
/// ...         pay()
/// ...     except (ConnectionError, resil.CircuitOpenError) as error:
/// ...         print(error)
/// down
/// the circuit bank is open
#[pyclass(module = "resil", name = "Breaker", extends = Block, frozen)]
pub struct PyBreaker(Arc<Circuit>);

impl PyBreaker {
    pub fn make(
        py: Python<'_>,
        client: &Client,
        name: &str,
        (ignore, on_result): (OptArg<'_>, OptArg<'_>),
        settings: BreakerSettings,
    ) -> PyResult<Py<Self>> {
        let judge = Judge::read(None, ignore, on_result)?;
        let breaker = spelled(client.breaker(name, settings))?;
        let circuit = Arc::new(Circuit {
            client: Owned::new(client.clone()),
            breaker: Owned::new(breaker),
            judge,
            entered: Arc::default(),
        });
        let around = Around::shared("a call through a breaker", format!("{name:?}"), Arc::clone(&circuit));
        let block = Block::around("async with breaker", Some(client), Arc::clone(&circuit), around);
        Py::new(py, block.add_subclass(Self(circuit)))
    }
}

#[pymethods]
impl PyBreaker {
    #[getter]
    fn name(&self) -> &str {
        self.0.breaker.peek().name()
    }

    /// The two steps by hand: may a call be made? Raises CircuitOpenError if not. Report what came of it to the permit.
    fn admit(&self) -> PyResult<Pending> {
        let breaker = self.0.breaker.get()?;
        Ok(Pending::ask("breaker.admit()", async move { breaker.admit().await.map(GuardCell::new).map(PyPermit) }))
    }

    /// The state of the circuit when this process last heard of it; None before the first call.
    #[getter]
    fn last_known_state(&self) -> Option<&'static str> {
        self.0.breaker.peek().last_known_state().map(|state| state.text())
    }

    /// Everything the server knows.
    fn state(&self) -> PyResult<Pending> {
        let breaker = self.0.breaker.get()?;
        Ok(Pending::shown("breaker.state()", async move { breaker.state().await }))
    }

    /// Puts the breaker into a state by hand ("open", "closed", "disabled", "metrics", or "auto" again), for all who share
    /// it: for a time, or until it is lifted. "open-then-probe" is a trip by hand: open for a time, and then half-open.
    #[pyo3(signature = (state, *, duration=None, reason=None))]
    fn force(&self, state: Arg<'_>, duration: OptArg<'_>, reason: OptArg<'_>) -> PyResult<Pending> {
        let force: Result<Force, _> = serde_json::from_value(text("state", state)?.into());
        let force = force
            .map_err(|_| wrong_value("state", "must be open, open-then-probe, closed, disabled, metrics or auto"))?;
        let (breaker, duration) = (self.0.breaker.get()?, optional_seconds("duration", duration)?);
        let reason = optional_text("reason", reason)?.unwrap_or_default();
        Ok(Pending::ask("breaker.force()", async move {
            breaker.force(force, duration, &reason).await.map(|state| state.text())
        }))
    }

    /// Closes the circuit, with nothing counted. Whether there was anything to reset.
    fn reset(&self) -> PyResult<Pending> {
        let breaker = self.0.breaker.get()?;
        Ok(Pending::ask("breaker.reset()", async move { breaker.reset().await }))
    }

    /// Changes the options that are named, for all who share the breaker. Whether anything changed.
    #[pyo3(signature = (**settings))]
    fn configure(&self, settings: Option<Kwargs<'_>>) -> PyResult<Pending> {
        let (breaker, settings) = (self.0.breaker.get()?, read::<BreakerSettings>(settings)?);
        Ok(Pending::ask("breaker.configure()", async move { breaker.configure(&settings).await }))
    }

    /// Calls `listener(previous, new, generation)` for each transition this process sees, in a thread that all listeners share.
    /// It lives as long as the breaker.
    fn on_transition(&self, listener: Arg<'_>) -> PyResult<()> {
        let breaker = self.0.breaker.get()?;
        if !listener.is_callable() {
            return Err(wrong_type("listener", "callable", listener));
        }
        listeners::begin(listener.py())?;
        let listener = Arc::new(listener.clone().unbind());
        breaker.on_transition(move |seen| listeners::tell(&listener, seen));
        Ok(())
    }
}

/// Permission to make one call. Forgotten without a report, the call counts as cancelled.
#[pyclass(module = "resil", name = "Permit", frozen)]
pub struct PyPermit(Arc<GuardCell<Permit>>);

impl PyPermit {
    fn report<F>(&self, py: Python<'_>, what: &'static str, report: impl FnOnce(Permit) -> F) -> PyResult<Pending>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let reporting = report(self.0.take("what came of this permit was reported before")?);
        let running = Box::pin(async move {
            reporting.await;
            none()
        });
        Ok(Pending::on_stage(what, None, traced(py, running)))
    }
}

#[pymethods]
impl PyPermit {
    /// The call succeeded.
    fn success(&self, py: Python<'_>) -> PyResult<Pending> {
        self.report(py, "permit.success()", Permit::success)
    }

    /// The call failed.
    fn failure(&self, py: Python<'_>) -> PyResult<Pending> {
        self.report(py, "permit.failure()", Permit::failure)
    }

    /// The call says nothing about the health of what was called.
    fn ignore(&self, py: Python<'_>) -> PyResult<Pending> {
        self.report(py, "permit.ignore()", Permit::ignore)
    }

    /// The call was not made after all.
    fn cancel(&self, py: Python<'_>) -> PyResult<Pending> {
        self.report(py, "permit.cancel()", Permit::cancel)
    }
}

#[pymethods]
impl PyClient {
    /// A circuit breaker under a name, for all who name it the same.
    #[pyo3(signature = (name, *, ignore=None, on_result=None, **settings))]
    fn breaker(
        &self,
        py: Python<'_>,
        name: Arg<'_>,
        ignore: OptArg<'_>,
        on_result: OptArg<'_>,
        settings: Option<Kwargs<'_>>,
    ) -> PyResult<Py<PyBreaker>> {
        let settings = read_beside(&["ignore", "on_result"], settings)?;
        PyBreaker::make(py, &self.get()?, &text("name", name)?, (ignore, on_result), settings)
    }
}
