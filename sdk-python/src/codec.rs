//! Values as bytes: JSON in the same bytes as every other language writes, bytes as they are, or as the user says
//! (`resil._serializers`).

use bytes::Bytes;

use crate::edge::call;
use crate::prelude::*;

/// How values are written and read.
#[derive(Clone)]
pub struct Codec(Arc<Serializer>);

struct Serializer {
    /// The `resil._serializers.Serializer` itself.
    chosen: Object,
    dumps: Object,
    loads: Object,
    is_json: bool,
    /// What it raises for a value that it cannot write. Anything else came from elsewhere: a signal, say.
    refusals: Object,
}

impl Codec {
    pub fn read(py: Python<'_>, given: OptArg<'_>) -> PyResult<Self> {
        let choose = imported!(py, "resil._serializers", "chosen")?;
        let chosen = match given {
            Some(given) => choose.call1((given,))?,
            None => choose.call1(("json",))?,
        };
        let is_json = chosen.getattr("form")?.extract::<String>()? != "bytes";
        let refusals = chosen.getattr("refusals")?.unbind();
        let (dumps, loads) = (chosen.getattr("dumps")?.unbind(), chosen.getattr("loads")?.unbind());
        Ok(Self(Arc::new(Serializer { chosen: chosen.unbind(), dumps, loads, is_json, refusals })))
    }

    /// Whether what is written is JSON, whatever it says.
    pub fn is_json(&self) -> bool {
        self.0.is_json
    }

    /// Refuses a function that says it returns what cannot be written.
    pub fn check(&self, func: Arg<'_>) -> PyResult<()> {
        imported!(func.py(), "resil._serializers", "refuse_declared")?.call1((&self.0.chosen, func))?;
        Ok(())
    }

    /// Whether an error of `write` says that the value cannot be written.
    pub fn is_refusal(&self, py: Python<'_>, error: &PyErr) -> bool {
        error.matches(py, self.0.refusals.bind(py)).unwrap_or(false)
    }

    pub fn write(&self, value: Arg<'_>) -> PyResult<Bytes> {
        let py = value.py();
        let written = call(self.0.dumps.bind(py), &PyTuple::new(py, [value])?, None)?;
        let written = written.cast::<PyBytes>().map_err(|_| wrong_type("what dumps gave", "bytes", &written))?;
        Ok(Bytes::copy_from_slice(written.as_bytes()))
    }

    pub fn read_back(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<Object> {
        let bytes = PyBytes::new(py, bytes);
        call(self.0.loads.bind(py), &PyTuple::new(py, [bytes])?, None).map(Bound::unbind)
    }
}

/// The error of work that is done and whose result cannot be written: to the one who did it.
pub fn unrecorded(py: Python<'_>, error: PyErr, result: &Object) -> PyErr {
    let made = imported!(py, "resil._serializers", "unrecorded")
        .and_then(|unrecorded| unrecorded.call1((error.value(py), result)));
    made.map_or_else(|error| error, PyErr::from_value)
}
