//! What other languages say of messages and errors, and what it means.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::outgoing::OutgoingMessage;
use super::verdict::WorkVerdict;
use crate::dead_letters::FailureClass;
use crate::error::{Code, Error};
use crate::settings::{setters, span_text};

/// What is known of an error that a handler in another language ended with.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ForeignError {
    /// Of an error of Resil's.
    pub code: Option<Code>,
    pub retry_after: Option<Duration>,
    /// The SQLSTATE of a database.
    pub sql_state: Option<String>,
    /// The status of an HTTP response.
    pub status: Option<u16>,
    /// The name of a system's error, such as `ECONNREFUSED`.
    pub errno: Option<String>,
    /// The payload could not be decoded.
    pub is_unreadable: bool,
    /// It says that something was cancelled. The worker does not ask what errors mean once it cancelled the handler itself, so it was somebody else: it
    /// counts, or the message would be given back for ever.
    pub is_cancelled: bool,
}

impl ForeignError {
    /// What becomes of the message, as [`WorkVerdict::of`] has it.
    pub fn verdict(&self) -> WorkVerdict {
        let known = self.code.map(|code| WorkVerdict::of_code(code, self.retry_after));
        let known = known.or_else(|| self.is_cancelled.then(|| WorkVerdict::of_code(Code::Cancelled, None)));
        let known = known.or_else(|| self.is_unreadable.then_some(WorkVerdict::Permanent));
        let known = known.or_else(|| self.sql_state.as_deref().and_then(of_sql_state));
        let known = known.or_else(|| self.status.map(|status| WorkVerdict::of_status(status, self.retry_after)));
        let known = known.or_else(|| self.errno.as_deref().and_then(of_errno));
        known.unwrap_or(WorkVerdict::Retry(FailureClass::Transient))
    }
}

#[cfg(feature = "postgres")]
fn of_sql_state(state: &str) -> Option<WorkVerdict> {
    super::postgres::of_state(state)
}

#[cfg(not(feature = "postgres"))]
fn of_sql_state(_state: &str) -> Option<WorkVerdict> {
    None
}

/// As [`WorkVerdict::of`] distinguishes kinds of I/O errors.
fn of_errno(name: &str) -> Option<WorkVerdict> {
    Some(match name {
        "ECONNREFUSED" | "ECONNRESET" | "ECONNABORTED" | "ENOTCONN" | "EPIPE" | "ETIMEDOUT" | "EHOSTUNREACH"
        | "ENETUNREACH" | "ENETDOWN" | "EAI_AGAIN" => WorkVerdict::Retry(FailureClass::External),
        "EINVAL" | "EEXIST" | "EPERM" | "EACCES" => WorkVerdict::Permanent,
        _ => return None,
    })
}

/// The name of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum VerdictName {
    #[default]
    Retry,
    NotCounted,
    Permanent,
    Drop,
    GiveBack,
}

/// A verdict as another language says it: its name, and with what.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct VerdictSettings {
    verdict: VerdictName,
    #[serde(with = "span_text::optional")]
    after: Option<Duration>,
    failure_class: Option<FailureClass>,
}

impl VerdictSettings {
    pub fn validate(&self) -> Result<(), Error> {
        let is_final = matches!(self.verdict, VerdictName::Permanent | VerdictName::Drop);
        if is_final && self.after.is_some() {
            return Err(Error::invalid("after", "must not be given for a message that is not tried again"));
        }
        Ok(())
    }

    pub fn verdict(&self) -> WorkVerdict {
        let class = self.failure_class.unwrap_or(FailureClass::Transient);
        match (self.verdict, self.after) {
            (VerdictName::Retry, None) => WorkVerdict::Retry(class),
            (VerdictName::Retry, Some(after)) => WorkVerdict::RetryAfter(class, after),
            (VerdictName::NotCounted, after) => WorkVerdict::NotCounted(after),
            (VerdictName::Permanent, _) => WorkVerdict::Permanent,
            (VerdictName::Drop, _) => WorkVerdict::Drop,
            (VerdictName::GiveBack, after) => WorkVerdict::GiveBack(after.unwrap_or(super::verdict::GIVEN_BACK_FOR)),
        }
    }
}

/// What is said of a message to be sent, beside its payload and its headers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct OutgoingSettings {
    /// Names it: 1 to 200 bytes. A new one by default.
    pub id: Option<String>,
    pub kind: Option<String>,
    pub aggregate: Option<String>,
    pub schema: Option<u32>,
    /// Of RabbitMQ: by default the one without a name, which every queue is bound to.
    pub exchange: Option<String>,
    /// Of RabbitMQ: by default the queue of the publisher.
    pub routing_key: Option<String>,
}

setters! { OutgoingSettings {} { id: String, kind: String, aggregate: String, schema: u32, exchange: String, routing_key: String } }

impl OutgoingSettings {
    pub fn validate(&self) -> Result<(), Error> {
        match &self.id {
            Some(id) if !(1..=200).contains(&id.len()) => Err(Error::invalid("id", "must have from 1 to 200 bytes")),
            _ => Ok(()),
        }
    }

    /// The message, of its payload.
    pub fn message(&self, payload: impl Into<bytes::Bytes>) -> OutgoingMessage {
        let message = OutgoingMessage::new(payload);
        OutgoingMessage {
            id: self.id.clone().unwrap_or(message.id),
            kind: self.kind.clone(),
            aggregate: self.aggregate.clone(),
            schema: self.schema,
            ..message
        }
    }
}

#[cfg(test)]
#[path = "tests/foreign.rs"]
mod tests;
