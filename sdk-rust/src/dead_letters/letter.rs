//! A message on its way into the ledger, and what is said of its failure.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use resil_core::dead_letters::{Class, Counting, Facts};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::settings::setters;
use crate::settings::span_text;

/// A message, as the ledger keeps it. Nothing of it changes once the ledger has it.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Letter {
    /// Names the message, from 1 to 512 bytes: the same one is the same message. See [`of`](Self::of).
    #[serde(skip)]
    pub id: String,
    /// The message itself, any bytes, at most 16 MB.
    #[serde(skip)]
    pub payload: Option<Bytes>,
    /// Any bytes; at most 64 KB are kept.
    #[serde(skip)]
    pub headers: Option<Bytes>,
    /// In place of the payload: where it is stored. At most 1 KB is kept of it, as of all texts here.
    pub reference: Option<String>,
    /// What kind of message it is. Failures are grouped and alerts are raised by it.
    pub kind: Option<String>,
    /// Where it came from.
    pub source: Option<String>,
    /// What it belongs to: an order, a customer.
    pub aggregate: Option<String>,
    /// The version of its form.
    pub schema: Option<u32>,
}

/// Without payload and headers: messages are written to logs.
impl std::fmt::Debug for Letter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Letter")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("source", &self.source)
            .field("schema", &self.schema)
            .field("payload_bytes", &self.payload.as_ref().map(Bytes::len))
            .finish_non_exhaustive()
    }
}

setters! { Letter {} { schema: u32 } }

/// Builder methods for texts.
macro_rules! texts {
    ($type:ident { $($field:ident),* }) => {
        impl $type {
            $(#[doc = concat!("Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
            #[must_use]
            pub fn $field(mut self, $field: impl Into<String>) -> Self {
                self.$field = Some($field.into());
                self
            })*
        }
    };
}
pub(super) use texts;

texts! { Letter { reference, kind, source, aggregate } }

impl Letter {
    /// A message of this id.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), ..Self::default() }
    }

    /// A message that is `id` to its source: its id is `source/id`, so that two sources do not meet.
    pub fn of(source: &str, id: &str) -> Self {
        Self { id: format!("{source}/{id}"), source: Some(source.to_owned()), ..Self::default() }
    }

    #[must_use]
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload = Some(payload.into());
        self
    }

    #[must_use]
    pub fn headers(mut self, headers: impl Into<Bytes>) -> Self {
        self.headers = Some(headers.into());
        self
    }

    /// The server checks all of it, and says what is wrong.
    pub fn validate(&self) -> Result<(), Error> {
        Ok(())
    }

    pub(super) fn facts(&self) -> Facts<'_> {
        fn bytes(text: &Option<String>) -> &[u8] {
            text.as_deref().unwrap_or_default().as_bytes()
        }
        Facts {
            id: self.id.as_bytes(),
            payload: self.payload.as_deref(),
            reference: self.reference.as_deref().map(str::as_bytes),
            kind: bytes(&self.kind),
            source: bytes(&self.source),
            aggregate: bytes(&self.aggregate),
            schema: self.schema,
            headers: self.headers.as_deref().unwrap_or_default(),
        }
    }
}

/// What kind of failure it was. Each has retries of its own, which [`configure`](super::DeadLetters::configure) sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureClass {
    /// Networks, timeouts.
    Transient,
    /// Rules, validation.
    Business,
    /// Other people's services: their limits, their outages.
    External,
}

impl From<FailureClass> for Class {
    fn from(class: FailureClass) -> Self {
        match class {
            FailureClass::Transient => Self::Transient,
            FailureClass::Business => Self::Business,
            FailureClass::External => Self::External,
        }
    }
}

impl From<Class> for FailureClass {
    fn from(class: Class) -> Self {
        match class {
            Class::Transient => Self::Transient,
            Class::Business => Self::Business,
            Class::External => Self::External,
        }
    }
}

/// How a failure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureCount {
    #[default]
    Counted,
    /// It was not the message's fault: rate limited, circuit open. It is retried, and dies only after a day of that.
    NotCounted,
    /// No use in another attempt: it dies at once.
    Final,
}

impl From<FailureCount> for Counting {
    fn from(count: FailureCount) -> Self {
        match count {
            FailureCount::Counted => Self::Counted,
            FailureCount::NotCounted => Self::NotCounted,
            FailureCount::Final => Self::Final,
        }
    }
}

/// What is said of a failure. A text is one, counted and of the class that the message has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FailureNote {
    /// What went wrong; at most 1 KB is kept.
    #[serde(skip)]
    pub error: String,
    /// By default the class it had; at first `Transient`.
    pub failure_class: Option<FailureClass>,
    /// Failures that belong together. By default the kind, and the error without its numbers and names.
    pub group: Option<String>,
    /// Not to be retried before this has passed; an hour at most, unless configured otherwise.
    #[serde(with = "span_text::optional")]
    pub after: Option<Duration>,
    /// Attempts made before the ledger knew the message; counts for a message that is new to it.
    pub prior: u32,
    pub count: FailureCount,
}

setters! {
    FailureNote { prior: u32, count: FailureCount }
    { failure_class: FailureClass, after: Duration }
}

texts! { FailureNote { group } }

impl FailureNote {
    pub fn new(error: impl Into<String>) -> Self {
        Self { error: error.into(), ..Self::default() }
    }

    /// See [`FailureCount::NotCounted`].
    #[must_use]
    pub fn not_counted(self) -> Self {
        self.count(FailureCount::NotCounted)
    }

    /// No use in another attempt: see [`FailureCount::Final`].
    #[must_use]
    pub fn dead_at_once(self) -> Self {
        self.count(FailureCount::Final)
    }

    /// The server checks all of it, and says what is wrong.
    pub fn validate(&self) -> Result<(), Error> {
        Ok(())
    }
}

impl From<&str> for FailureNote {
    fn from(error: &str) -> Self {
        Self::new(error)
    }
}

impl From<String> for FailureNote {
    fn from(error: String) -> Self {
        Self::new(error)
    }
}

/// A text of the server's. The ledger keeps bytes; what is no text is shown with `�` in its place.
pub(super) fn shown(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The same, if there is any.
pub(super) fn shown_unless_empty(bytes: &[u8]) -> Option<Cow<'_, str>> {
    (!bytes.is_empty()).then(|| shown(bytes))
}
