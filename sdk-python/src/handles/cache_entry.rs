//! What is special about one call of a cache, or about one value that a loader brings: its ttl, its tags, and whether it is kept.

use pyo3::types::PyString;
use resil::cache::{CacheEntry, CallOptions, Versioned};

use crate::prelude::*;

/// The options of one call.
pub fn options(ttl: OptArg<'_>, tags: OptArg<'_>, soft_timeout: OptArg<'_>) -> PyResult<CallOptions> {
    let tags = tags.map_or_else(|| Ok(Vec::new()), |tags| texts("tags", tags))?;
    let (ttl, soft_timeout) = (optional_seconds("ttl", ttl)?, optional_seconds("soft_timeout", soft_timeout)?);
    let options = CallOptions { ttl, tags, soft_timeout };
    spelled(options.validate())?;
    Ok(options)
}

/// Several texts. One text is a mistake, not its letters.
pub fn texts(name: &str, given: Arg<'_>) -> PyResult<Vec<String>> {
    let expected = "a list of str";
    if given.is_instance_of::<PyString>() || given.is_instance_of::<PyBytes>() {
        return Err(wrong_type(name, expected, given));
    }
    let items = given.try_iter().map_err(|_| wrong_type(name, expected, given))?;
    items.enumerate().map(|(index, item)| text(&format!("{name}[{index}]"), &item?)).collect()
}

/// What a loader brings, with what is special about it.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> users = client.cached("user", ttl=60)
/// >>> users.get("42", lambda key: resil.CacheEntry("Ada", ttl=5, tags=["team:7"])).wait()
/// 'Ada'
/// >>> users.get("43", lambda key: resil.CacheEntry("perhaps", keep=False)).wait()
/// 'perhaps'
#[pyclass(module = "resil", name = "CacheEntry", frozen, generic)]
pub struct PyCacheEntry {
    #[pyo3(get)]
    value: Object,
    options: CallOptions,
    /// False: those who wait get it, and nothing is kept.
    #[pyo3(get)]
    keep: bool,
}

impl PyCacheEntry {
    pub fn written(&self, py: Python<'_>, codec: &Codec) -> PyResult<LoadedValue> {
        let CallOptions { ttl, tags, .. } = self.options.clone();
        let entry = CacheEntry { bytes: codec.write(self.value.bind(py))?, ttl, tags, keep: self.keep };
        Ok(LoadedValue { version: 0, entry })
    }
}

#[pymethods]
impl PyCacheEntry {
    #[new]
    #[pyo3(signature = (value, *, ttl=None, tags=None, keep=None))]
    fn new(value: Arg<'_>, ttl: OptArg<'_>, tags: OptArg<'_>, keep: OptArg<'_>) -> PyResult<Self> {
        refuse_none(value, "a loader returns None if there is no such thing")?;
        let keep = keep.map_or(Ok(true), |keep| truth("keep", Some(keep)))?;
        Ok(Self { value: value.clone().unbind(), options: options(ttl, tags, None)?, keep })
    }

    /// How long it is fresh, in seconds; None: as the call, or else the settings, say.
    #[getter]
    fn ttl(&self) -> Option<f64> {
        self.options.ttl.map(|ttl| ttl.as_secs_f64())
    }

    /// What it depends on.
    #[getter]
    fn tags(&self) -> Vec<String> {
        self.options.tags.clone()
    }

    fn __repr__(&self) -> String {
        format!("<resil.CacheEntry tags={:?} keep={}>", self.options.tags, python_bool(self.keep))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.value)
    }
}

/// None is what a cache returns where there is nothing.
pub fn refuse_none(value: Arg<'_>, why: &str) -> PyResult<()> {
    if value.is_none() { Err(wrong_value("value", format!("must not be None: {why}"))) } else { Ok(()) }
}

/// What a loader brought. Without versions it has none to speak of.
pub struct LoadedValue {
    pub version: u64,
    pub entry: CacheEntry,
}

impl LoadedValue {
    pub fn versioned(self) -> Versioned {
        Versioned { version: self.version, bytes: self.entry.bytes }
    }
}
