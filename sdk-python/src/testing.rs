//! For tests of those who use the package: a clock to drive, raw commands, and retries that do not wait.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pyo3::types::PyList;
use resil::clock::Clock;
use resil::testing::Value;

use crate::client::PyClient;
use crate::prelude::*;

// The switch is the package's own, as other languages have theirs; what a retry is while it is on, the SDK says
// (`RetrySettings::at_once`).
static IS_ON: AtomicBool = AtomicBool::new(false);
/// 0: as many as the settings say.
static ATTEMPTS: AtomicU32 = AtomicU32::new(0);

/// While it is on, every `connect` goes to `memory://`, and retries do not wait between attempts, of which there are at most
/// `attempts` if that is given.
#[pyfunction]
#[pyo3(signature = (on=None, *, attempts=None))]
pub fn set_testing(on: OptArg<'_>, attempts: OptArg<'_>) -> PyResult<()> {
    let on = on.is_none() || truth("on", on)?;
    let attempts = attempts.map(|given| whole("attempts", given)).transpose()?;
    if attempts == Some(0) {
        return Err(wrong_value("attempts", "must be at least 1"));
    }
    ATTEMPTS.store(attempts.unwrap_or(0), Ordering::Relaxed);
    IS_ON.store(on, Ordering::Relaxed);
    Ok(())
}

/// Whether it is on.
#[pyfunction]
pub fn is_testing() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Something as it is, and as it is while testing is on.
#[derive(Clone)]
pub struct Mode<T>(Arc<Both<T>>);

struct Both<T> {
    usual: T,
    make: Box<dyn Fn(Option<u32>) -> Option<T> + Send + Sync>,
    /// As it was made last, for so many attempts.
    testing: Mutex<Option<(Option<u32>, T)>>,
}

impl<T: Clone> Mode<T> {
    /// `make` makes the other, for so many attempts at most.
    pub fn of(usual: T, make: impl Fn(Option<u32>) -> Option<T> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Both { usual, make: Box::new(make), testing: Mutex::default() }))
    }

    pub fn usual(&self) -> &T {
        &self.0.usual
    }

    pub fn get(&self) -> T {
        if !is_testing() {
            return self.0.usual.clone();
        }
        let attempts = Some(ATTEMPTS.load(Ordering::Relaxed)).filter(|attempts| *attempts > 0);
        let mut testing = self.0.testing.lock();
        if testing.as_ref().is_none_or(|(of, _)| *of != attempts) {
            *testing = (self.0.make)(attempts).map(|made| (attempts, made));
        }
        testing.as_ref().map_or_else(|| self.0.usual.clone(), |(_, made)| made.clone())
    }
}

/// Time, as the machine has it or as a test drives it.
#[pyclass(module = "resil.testing", name = "Clock", frozen)]
pub struct PyClock(pub Clock);

impl PyClock {
    pub fn read(given: OptArg<'_>) -> PyResult<Option<Clock>> {
        let Some(given) = given else { return Ok(None) };
        let clock = given.cast::<Self>().map_err(|_| wrong_type("clock", "a resil.testing.Clock", given))?;
        Ok(Some(clock.get().0.clone()))
    }
}

#[pymethods]
impl PyClock {
    /// One that a test drives.
    #[staticmethod]
    fn driven() -> Self {
        Self(Clock::driven())
    }

    /// The machine's: what is used where no clock is given.
    #[staticmethod]
    fn system() -> Self {
        Self(Clock::system())
    }

    /// Drives the clock on; what slept until then wakes.
    fn advance(&self, span: Arg<'_>) -> PyResult<()> {
        self.0.advance(seconds("span", span)?);
        Ok(())
    }

    /// Seconds since an arbitrary beginning.
    #[getter]
    fn now(&self) -> f64 {
        self.0.now().as_secs_f64()
    }

    /// When the first sleeper wakes, in seconds from now; None if nothing sleeps.
    #[getter]
    fn next_wake(&self) -> Option<f64> {
        self.0.next_wake().map(|at| at.saturating_sub(self.0.now()).as_secs_f64())
    }
}

fn words(given: Arg<'_>) -> PyResult<Vec<Vec<u8>>> {
    if !given.is_instance_of::<PyList>() && !given.is_instance_of::<PyTuple>() {
        return Err(wrong_type("words", "a list of str or bytes", given));
    }
    given.try_iter()?.map(|word| key("words", &word?)).collect()
}

fn value(py: Python<'_>, value: &Value) -> PyResult<Object> {
    match value {
        Value::Integer(number) => number.into_py_any(py),
        Value::Text(bytes) => Ok(PyBytes::new(py, bytes).into_any().unbind()),
        Value::Null => Ok(py.None()),
        Value::Array(elements) => {
            elements.iter().map(|element| self::value(py, element)).collect::<PyResult<Vec<_>>>()?.into_py_any(py)
        }
        Value::Map(pairs) => {
            let each = |(name, element): &(Value, Value)| Ok((self::value(py, name)?, self::value(py, element)?));
            pairs.iter().map(each).collect::<PyResult<Vec<_>>>()?.into_py_any(py)
        }
    }
}

/// A command as words, its name first, and what comes back, on whatever the client is connected to.
#[pyfunction]
pub fn raw(client: Arg<'_>, words: Arg<'_>) -> PyResult<Pending> {
    let (client, words) = (PyClient::read(client)?, self::words(words)?);
    Ok(Pending::new("raw()", async move {
        let reply = raised_later(resil::testing::raw(&client, &words).await)?;
        Python::attach(|py| value(py, &reply))
    }))
}

/// The same on `memory://`, `at_us` microseconds after the epoch, and without waiting.
#[pyfunction]
pub fn raw_at(client: Arg<'_>, words: Arg<'_>, at_us: Arg<'_>) -> PyResult<Object> {
    let (py, client) = (client.py(), PyClient::read(client)?);
    value(py, &raised(py, resil::testing::raw_at(&client, &self::words(words)?, whole("at_us", at_us)?))?)
}
