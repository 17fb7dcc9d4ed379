//! An error that is the result of work, in the form in which every language writes and reads it.
//!
//! ```json
//! {"name":"CardDeclined","message":"no funds","args":["no funds",7],"code":"51"}
//! ```
//!
//! `name` is the class in Python, `error.name` in Node and whatever a Rust program calls it; `bases`, `args`, `code` and `properties` are there if the error has
//! them. A language that knows no such class raises what it has for such cases, with the same words.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Code;

/// What is kept of an error that is final; see [`Remember::recorded`](super::Remember::recorded).
///
/// ```
/// use resil::idempotency::RecordedError;
///
/// let declined = RecordedError::new("CardDeclined", "no funds").args([7]).code("51");
/// assert_eq!(declined.to_bytes(), r#"{"name":"CardDeclined","message":"no funds","args":[7],"code":"51"}"#);
/// assert_eq!(RecordedError::read(&declined.to_bytes()), Some(declined));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecordedError {
    /// What kind of error it is.
    #[serde(alias = "error")]
    pub name: String,
    #[serde(default)]
    pub message: String,
    /// Other names it goes by, the nearest first: classes that it is derived from, where who reads it may know those alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bases: Option<Vec<String>>,
    /// What it was made with, as far as that is JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What it has besides, as far as that is JSON: attributes in Python, properties in Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub properties: Option<Map<String, Value>>,
}

impl RecordedError {
    pub fn new(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self { name: name.into(), message: message.into(), bases: None, args: None, code: None, properties: None }
    }

    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<Value>>) -> Self {
        self.args = Some(args.into_iter().map(Into::into).collect());
        self
    }

    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    pub fn to_bytes(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// `None` for what is not of this form.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The work is done, and its result cannot be recorded because of `reason`: what is recorded instead, as an error. Duplicates get
    /// [`Error::ResultUnrecorded`](crate::Error::ResultUnrecorded).
    pub fn unrecorded(reason: &str) -> Self {
        Self::new("ResultUnrecorded", reason).code(Code::ResultUnrecorded.text())
    }

    pub(super) fn why_unrecorded(self) -> Option<String> {
        (self.code.as_deref() == Some(Code::ResultUnrecorded.text())).then_some(self.message)
    }
}

#[cfg(test)]
#[path = "tests/recorded_error.rs"]
mod tests;
