//! Rate limits that a fleet shares.

use std::time::Duration;

use resil::Client;
use resil::limiter::{Limit, Limiter};

use crate::client::PyClient;
use crate::prelude::*;
use crate::verdict::{PyVerdict, PyVerdicts};

pub fn check_all(client: Client, limits: Arg<'_>, cost: OptArg<'_>) -> PyResult<Pending> {
    let expected = "pairs of a resil.Limiter and a key";
    let mut asked = Vec::new();
    for pair in limits.try_iter().map_err(|_| wrong_type("limits", expected, limits))? {
        let pair = pair?;
        let (limiter, key): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
            pair.extract().map_err(|_| wrong_type("limits", expected, &pair))?;
        let limiter = limiter.cast::<PyLimiter>().map_err(|_| wrong_type("limits", expected, &limiter))?;
        asked.push((limiter.get().0.get()?, self::key("limits", &key)?));
    }
    let cost = cells("cost", cost)?;
    Ok(Pending::ask("client.check_all()", async move {
        let asked: Vec<(&Limiter, &[u8])> = asked.iter().map(|(limiter, key)| (limiter, &key[..])).collect();
        client.check_all(&asked, cost).await.map(PyVerdicts::from)
    }))
}

fn cells(name: &str, given: OptArg<'_>) -> PyResult<u32> {
    let Some(given) = given else { return Ok(1) };
    let number: i64 = whole(name, given)?;
    spelled(Limiter::cells(name, number))
}

/// A limit under a name; `client.limiter(...)` makes it.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> logins = client.limiter("logins", limit=2, period=60)
/// >>> verdict = logins.check("ann").wait()
/// >>> bool(verdict), verdict.remaining
/// (True, 1)
/// >>> with logins.by("ann"):
/// ...     pass
/// >>> bool(logins.check("ann").wait())
/// False
#[pyclass(module = "resil", name = "Limiter", frozen)]
pub struct PyLimiter(pub Owned<Limiter>, Owned<Client>);

impl PyLimiter {
    pub fn make(client: &Client, name: &str, limit: Limit) -> PyResult<Self> {
        spelled(client.limiter(name, limit)).map(|limiter| Self(Owned::new(limiter), Owned::new(client.clone())))
    }

    fn with(&self, key: Arg<'_>) -> PyResult<(Limiter, Vec<u8>)> {
        Ok((self.0.get()?, self::key("key", key)?))
    }
}

#[pymethods]
impl PyLimiter {
    #[getter]
    fn name(&self) -> &str {
        self.0.peek().name()
    }

    /// Takes `cost` cells if they are there. A refusal is a verdict, not an error.
    #[pyo3(signature = (key, cost=None))]
    fn check(&self, key: Arg<'_>, cost: OptArg<'_>) -> PyResult<Pending> {
        let ((limiter, key), cost) = (self.with(key)?, cells("cost", cost)?);
        Ok(Pending::ask("limiter.check()", async move { limiter.check_n(key, cost).await.map(PyVerdict) }))
    }

    /// Takes `cost` cells, or raises RateLimitExceededError.
    #[pyo3(signature = (key, cost=None))]
    fn acquire(&self, key: Arg<'_>, cost: OptArg<'_>) -> PyResult<Pending> {
        let ((limiter, key), cost) = (self.with(key)?, cells("cost", cost)?);
        Ok(Pending::done("limiter.acquire()", async move { limiter.acquire_n(key, cost).await }))
    }

    /// Takes as many cells as there are, up to `most`; `granted` says how many.
    fn up_to(&self, key: Arg<'_>, most: Arg<'_>) -> PyResult<Pending> {
        let ((limiter, key), most) = (self.with(key)?, cells("most", Some(most))?);
        Ok(Pending::ask("limiter.up_to()", async move { limiter.up_to(key, most).await.map(PyVerdict) }))
    }

    /// What is there, taking nothing.
    fn peek(&self, key: Arg<'_>) -> PyResult<Pending> {
        let (limiter, key) = self.with(key)?;
        Ok(Pending::ask("limiter.peek()", async move { limiter.peek(key).await.map(PyVerdict) }))
    }

    /// Gives cells back, for work that was not done after all.
    #[pyo3(signature = (key, cells=None))]
    fn refund(&self, key: Arg<'_>, cells: OptArg<'_>) -> PyResult<Pending> {
        let ((limiter, key), cells) = (self.with(key)?, self::cells("cells", cells)?);
        Ok(Pending::ask("limiter.refund()", async move { limiter.refund(key, cells).await.map(PyVerdict) }))
    }

    /// Waits until `cost` cells are ready for the caller, for at most `max_wait` seconds; else raises
    /// RateLimitExceededError at once.
    #[pyo3(signature = (key, max_wait, cost=None))]
    fn until_ready(&self, key: Arg<'_>, max_wait: Arg<'_>, cost: OptArg<'_>) -> PyResult<Pending> {
        let ((limiter, key), max_wait) = (self.with(key)?, seconds("max_wait", max_wait)?);
        let cost = cells("cost", cost)?;
        Ok(Pending::done("limiter.until_ready()", async move { limiter.until_ready_n(key, cost, max_wait).await }))
    }

    /// The limit for one key, to put around functions and blocks. For a decorator `key` may also be a function of the
    /// decorated function's arguments. With `max_wait` it waits until it is ready.
    #[pyo3(signature = (key, *, cost=None, max_wait=None))]
    fn by(&self, py: Python<'_>, key: Arg<'_>, cost: OptArg<'_>, max_wait: OptArg<'_>) -> PyResult<Py<PyKeyedLimiter>> {
        let (cost, max_wait) = (cells("cost", cost)?, optional_seconds("max_wait", max_wait)?);
        let key = OfCall::read("key", key, self::key)?;
        let (client, limiter) = (self.1.get()?, self.0.get()?);
        let keyed = Arc::new(KeyedLimit { client: client.clone(), limiter, key, cost, max_wait });
        let around =
            Around::shared("a call under a limit", format!("of {:?}", keyed.limiter.name()), Arc::clone(&keyed));
        Py::new(py, Block::around("async with limiter", Some(&client), keyed, around).add_subclass(PyKeyedLimiter))
    }

    fn __repr__(&self) -> String {
        format!("<resil.Limiter {:?}>", self.name())
    }
}

struct KeyedLimit {
    client: Client,
    limiter: Limiter,
    key: OfCall<Vec<u8>>,
    cost: u32,
    max_wait: Option<Duration>,
}

impl KeyedLimit {
    async fn acquire(&self, key: &[u8]) -> Result<(), Error> {
        match self.max_wait {
            Some(max_wait) => self.limiter.until_ready_n(key, self.cost, max_wait).await,
            None => self.limiter.acquire_n(key, self.cost).await,
        }
    }
}

impl Runs for Arc<KeyedLimit> {
    fn run(&self, py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let (keyed, key) = (Arc::clone(self), self.key.of(py, "key", &work, key)?);
        Ok(work.running(|work| async move {
            let limited = async {
                keyed.acquire(&key).await?;
                work.attempt().await
            };
            keyed.client.in_flight(limited).await?
        }))
    }

    // Calls in flight have asked the function already.
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.key.traverse(visit)
    }
}

impl Enters for Arc<KeyedLimit> {
    fn enter(&self, _py: Python<'_>, _entrant: Entrant) -> PyResult<Running> {
        let OfCall::Is(key) = &self.key else {
            return Err(PyTypeError::new_err("key is a function of arguments, and a block has none"));
        };
        let (keyed, key) = (Arc::clone(self), key.clone());
        Ok(Box::pin(async move {
            raised_later(keyed.acquire(&key).await)?;
            none()
        }))
    }

    fn leave(&self, _py: Python<'_>, _error: Arg<'_>) -> PyResult<Option<Running>> {
        Ok(None)
    }
}

/// A limit for one key; `limiter.by(key)` makes it.
#[pyclass(module = "resil", name = "KeyedLimiter", extends = Block, frozen)]
pub struct PyKeyedLimiter;

#[pymethods]
impl PyClient {
    /// A rate limit under a name: so many cells per period, for each key.
    #[pyo3(signature = (name, **settings))]
    fn limiter(&self, name: Arg<'_>, settings: Option<Kwargs<'_>>) -> PyResult<PyLimiter> {
        PyLimiter::make(&self.get()?, &text("name", name)?, read(settings)?)
    }

    /// Takes `cost` cells from every limit, or from none.
    #[pyo3(signature = (limits, cost=None))]
    fn check_all(&self, limits: Arg<'_>, cost: OptArg<'_>) -> PyResult<Pending> {
        check_all(self.get()?, limits, cost)
    }
}
