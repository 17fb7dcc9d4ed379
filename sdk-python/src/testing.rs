//! For tests of those who use the package: a clock to drive, raw commands, and retries that do not wait.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use resil::clock::Clock;
use resil::testing::Value;

use crate::answer::Answer;
use crate::client::PyClient;
use crate::convert::{key, seconds, truth, whole};
use crate::errors::{raised, raised_later, wrong_type};

// The switch is the package's own, as other languages have theirs; what a retry is while it is on, the SDK says
// (`RetrySettings::at_once`).
static IS_ON: AtomicBool = AtomicBool::new(false);
/// 0: as many as the settings say.
static ATTEMPTS: AtomicU32 = AtomicU32::new(0);

/// While it is on, every `connect` goes to `memory://`, and retries do not wait between attempts, of which there are at most
/// `attempts` if that is said.
#[pyfunction]
#[pyo3(signature = (on=None, *, attempts=None))]
pub fn set_testing(on: Option<&Bound<'_, PyAny>>, attempts: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let on = on.is_none() || truth("on", on)?;
    let attempts = match attempts {
        Some(given) => match whole("attempts", given)? {
            0 => return Err(crate::errors::wrong_value("attempts", "must be at least 1")),
            attempts => attempts,
        },
        None => 0,
    };
    ATTEMPTS.store(attempts, Ordering::Relaxed);
    IS_ON.store(on, Ordering::Relaxed);
    Ok(())
}

/// Whether it is on.
#[pyfunction]
pub fn is_testing() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Something as it is, and as it is while testing is on.
pub struct Mode<T>(std::sync::Arc<Both<T>>);

struct Both<T> {
    usual: T,
    testing: Box<dyn Fn(Option<u32>) -> Option<T> + Send + Sync>,
    made: parking_lot::Mutex<Option<(Option<u32>, T)>>,
}

impl<T> Clone for Mode<T> {
    fn clone(&self) -> Self {
        Self(std::sync::Arc::clone(&self.0))
    }
}

impl<T: Clone> Mode<T> {
    /// `testing` makes the other, for so many attempts at most.
    pub fn of(usual: T, testing: impl Fn(Option<u32>) -> Option<T> + Send + Sync + 'static) -> Self {
        Self(std::sync::Arc::new(Both { usual, testing: Box::new(testing), made: Default::default() }))
    }

    pub fn usual(&self) -> &T {
        &self.0.usual
    }

    #[inline]
    pub fn get(&self) -> T {
        if IS_ON.load(Ordering::Relaxed) { self.get_testing() } else { self.0.usual.clone() }
    }

    #[cold]
    fn get_testing(&self) -> T {
        let attempts = Some(ATTEMPTS.load(Ordering::Relaxed)).filter(|attempts| *attempts > 0);
        let mut made = self.0.made.lock();
        match &*made {
            Some((of, testing)) if *of == attempts => testing.clone(),
            _ => match (self.0.testing)(attempts) {
                Some(testing) => {
                    *made = Some((attempts, testing.clone()));
                    testing
                }
                None => self.0.usual.clone(),
            },
        }
    }
}

/// Time that stands still until a test lets it go on.
#[pyclass(module = "resil.testing", name = "Clock", frozen)]
pub struct PyClock(pub Clock);

impl PyClock {
    pub fn read(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Clock>> {
        let Some(given) = given else { return Ok(None) };
        let clock = given.cast::<Self>().map_err(|_| wrong_type("clock", "a resil.testing.Clock", given))?;
        Ok(Some(clock.get().0.clone()))
    }
}

#[pymethods]
impl PyClock {
    #[new]
    fn new() -> Self {
        Self(Clock::driven())
    }

    /// Drives the clock on; whoever slept until then wakes.
    fn advance(&self, span: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.advance(seconds("span", span)?);
        Ok(())
    }

    /// Seconds since an arbitrary beginning.
    #[getter]
    fn now(&self) -> f64 {
        self.0.now().as_secs_f64()
    }

    /// When the first sleeper wakes, in seconds from now; None if nobody sleeps.
    #[getter]
    fn next_wake(&self) -> Option<f64> {
        self.0.next_wake().map(|at| at.saturating_sub(self.0.now()).as_secs_f64())
    }
}

fn words(given: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<u8>>> {
    if !given.is_instance_of::<PyList>() && !given.is_instance_of::<pyo3::types::PyTuple>() {
        return Err(wrong_type("words", "a list of str or bytes", given));
    }
    given.try_iter()?.map(|word| key("words", &word?)).collect()
}

fn value(py: Python<'_>, value: &Value) -> PyResult<Py<PyAny>> {
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
pub fn raw(client: &Bound<'_, PyAny>, words: &Bound<'_, PyAny>) -> PyResult<Answer> {
    let client = PyClient::read(client)?;
    let words = self::words(words)?;
    Ok(Answer::new("raw()", async move {
        let told = raised_later(resil::testing::raw(&client, &words).await)?;
        Python::attach(|py| value(py, &told))
    }))
}

/// The same on `memory://`, `at_us` microseconds after the epoch, and without waiting.
#[pyfunction]
pub fn raw_at(client: &Bound<'_, PyAny>, words: &Bound<'_, PyAny>, at_us: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let py = client.py();
    let client = PyClient::read(client)?;
    let told = raised(py, resil::testing::raw_at(&client, &self::words(words)?, whole("at_us", at_us)?))?;
    value(py, &told)
}
