//! Values as bytes: JSON in the same bytes as every other language writes, bytes as they are, or as the user says
//! (`resil._serializers`).

use bytes::Bytes;

use crate::edge::call_method1;
use crate::prelude::*;

/// How values are written and read: a `resil._serializers.Serializer`.
#[derive(Clone)]
pub struct Codec(Arc<Object>);

impl Codec {
    pub fn read(py: Python<'_>, given: OptArg<'_>) -> PyResult<Self> {
        let choose = imported!(py, "resil._serializers", "chosen")?;
        let chosen = given.map_or_else(|| choose.call1(("json",)), |given| choose.call1((given,)))?;
        Ok(Self(Arc::new(chosen.unbind())))
    }

    /// Whether what is written is JSON, by whatever serializer.
    pub fn is_json(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.0.bind(py).getattr("form")?.extract::<String>()? != "bytes")
    }

    /// Refuses a function that says it returns what cannot be written.
    pub fn check(&self, func: Arg<'_>) -> PyResult<()> {
        imported!(func.py(), "resil._serializers", "refuse_declared")?.call1((&*self.0, func))?;
        Ok(())
    }

    /// Whether an error of `write` says that the value cannot be written. Any other came from elsewhere: a signal, say.
    pub fn is_refusal(&self, py: Python<'_>, error: &PyErr) -> bool {
        let refusals = self.0.bind(py).getattr("refusals");
        refusals.is_ok_and(|refusals| error.matches(py, refusals).unwrap_or(false))
    }

    pub fn write(&self, value: Arg<'_>) -> PyResult<Bytes> {
        let py = value.py();
        let written = call_method1(self.0.bind(py), intern!(py, "dumps"), value.clone().unbind())?;
        let written = written.cast::<PyBytes>().map_err(|_| wrong_type("what dumps gave", "bytes", &written))?;
        Ok(Bytes::copy_from_slice(written.as_bytes()))
    }

    pub fn read_back(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<Object> {
        let bytes = PyBytes::new(py, bytes).into_any().unbind();
        call_method1(self.0.bind(py), intern!(py, "loads"), bytes).map(Bound::unbind)
    }
}

/// The error of work that is done and whose result cannot be written: to the one who did it.
pub fn unrecorded(py: Python<'_>, error: PyErr, result: &Object) -> PyErr {
    let made = imported!(py, "resil._serializers", "unrecorded")
        .and_then(|unrecorded| unrecorded.call1((error.value(py), result)));
    made.map_or_else(|error| error, PyErr::from_value)
}
