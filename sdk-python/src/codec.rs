//! Values as bytes: JSON in the same bytes as every other language writes, or bytes as they are.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;

use crate::convert::text;
use crate::errors::{wrong_type, wrong_value};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    Json,
    Bytes,
}

impl Codec {
    pub fn read(given: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(given) = given else { return Ok(Self::Json) };
        match text("codec", given)?.as_str() {
            "json" => Ok(Self::Json),
            "bytes" => Ok(Self::Bytes),
            _ => Err(wrong_value("codec", "must be json or bytes")),
        }
    }

    pub fn write(self, value: &Bound<'_, PyAny>) -> PyResult<Bytes> {
        static WRITE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let written = match self {
            Self::Json => WRITE.import(value.py(), "resil._functions", "to_json")?.call1((value,))?,
            Self::Bytes => value.clone(),
        };
        let written = written.cast::<PyBytes>().map_err(|_| wrong_type("the value", "bytes", value))?;
        Ok(Bytes::copy_from_slice(written.as_bytes()))
    }

    pub fn read_back(self, py: Python<'_>, bytes: &[u8]) -> PyResult<Py<PyAny>> {
        static READ: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let bytes = PyBytes::new(py, bytes);
        match self {
            Self::Json => READ.import(py, "resil._functions", "from_json")?.call1((bytes,)).map(Bound::unbind),
            Self::Bytes => Ok(bytes.into_any().unbind()),
        }
    }
}
