//! An error as a response: status, headers, and a body with what the client may know.
//!
//! The body (RFC 9457) has `status`, `title`, `detail`, our stable `code`, whether to retry, and when. It never names a key,
//! a lock or a server: details are the fixed sentences of [`Code::meaning`]. Only what is wrong with the caller's own
//! arguments is said in full.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::{Map, Value, json};

use super::{Header, retry_after_seconds};
use crate::error::{Code, Error, Failure};

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// Work in progress whose end is not known is asked about again after this long.
const BUSY_SECONDS: u64 = 1;

/// A whole response, for any HTTP library.
///
/// ```
/// use std::time::Duration;
/// use resil::{Error, http::Problem};
///
/// let error = Error::IdempotencyBusy { name: "pay:42".into(), retry_after: Some(Duration::from_millis(200)) };
/// let problem = Problem::of(&error);
/// assert_eq!(problem.status, 409);
/// assert!(problem.headers.contains(&("retry-after", "1".to_string())));
/// assert!(!problem.body().contains("pay:42"));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Problem {
    pub status: u16,
    /// `Content-Type`, and `Retry-After` if that is known.
    pub headers: Vec<Header>,
    members: Map<String, Value>,
}

impl Problem {
    pub fn of(error: &Error) -> Self {
        Self::with_wait(error, error.retry_after())
    }

    /// Of what became of a call; `None` if it is the call's own error, of which only its author knows what may be said.
    pub fn of_failure<E>(failure: &Failure<E>) -> Option<Self> {
        failure.error().map(|error| Self::with_wait(&error, failure.retry_after()))
    }

    fn with_wait(error: &Error, retry_after: Option<Duration>) -> Self {
        let code = error.code();
        let detail = match error {
            Error::InvalidArgument(_) | Error::InvalidPolicy { .. } => error.to_string(),
            _ => code.meaning().to_owned(),
        };
        let mut members = Map::new();
        let (kind, title) = match code {
            Code::RateLimitExceeded => {
                (QUOTA_EXCEEDED, "Request cannot be satisfied as assigned quota has been exceeded")
            }
            _ => ("about:blank", reason_phrase(code.http())),
        };
        members.insert("type".to_owned(), json!(kind));
        members.insert("title".to_owned(), json!(title));
        members.insert("status".to_owned(), json!(code.http()));
        members.insert("detail".to_owned(), json!(detail));
        members.insert("code".to_owned(), json!(code.text()));
        members.insert("retryable".to_owned(), json!(code.is_retryable()));

        let mut headers = vec![("content-type", "application/problem+json".to_owned())];
        let seconds = match retry_after {
            Some(wait) => Some(retry_after_seconds(wait)),
            None => (code == Code::IdempotencyBusy).then_some(BUSY_SECONDS),
        };
        if let Some(wait) = retry_after {
            members.insert("retry_after_ms".to_owned(), json!(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)));
        }
        if let Some(seconds) = seconds {
            headers.push(("retry-after", seconds.to_string()));
        }
        Self { status: code.http(), headers, members }
    }

    /// Of a request whose body is longer than what is read of one with an `Idempotency-Key`.
    pub fn body_too_large(bytes_max: usize) -> Self {
        let reason = format!("the body of a request with an Idempotency-Key may have at most {bytes_max} bytes");
        Self::of(&Error::InvalidArgument(reason)).status(413)
    }

    /// Of a duplicate whose work is done, while the response was too large, or came as a stream, and was not kept. It has no
    /// `code`: nothing failed.
    pub fn response_not_kept() -> Self {
        let detail = "This request was made before and is done. Its response was not kept.";
        let mut problem = Self::of(&Error::Cancelled).status(409).with("detail", json!(detail));
        problem.members.remove("code");
        problem
    }

    /// Of a request that costs more than its limit grants at any time: coming back does not help.
    pub(super) fn never_granted(self) -> Self {
        self.with("detail", json!("The request costs more than the rate limit ever grants."))
            .with("retryable", json!(false))
    }

    fn status(mut self, status: u16) -> Self {
        self.status = status;
        self.with("title", json!(reason_phrase(status))).with("status", json!(status))
    }

    /// Names the limits that were exceeded, as clients know them.
    pub fn violated_policies(self, names: &[&str]) -> Self {
        self.with("violated-policies", json!(names))
    }

    /// What this request was, as a URI; for support.
    pub fn instance(self, uri: &str) -> Self {
        self.with("instance", json!(uri))
    }

    fn with(mut self, member: &str, value: Value) -> Self {
        self.members.insert(member.to_owned(), value);
        self
    }

    /// JSON.
    pub fn body(&self) -> String {
        Value::Object(self.members.clone()).to_string()
    }
}

impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        Self::of(error)
    }
}

/// With its headers as one object, and its body as another.
impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { status, headers, members } = self;
        let headers: BTreeMap<&str, &str> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut problem = serializer.serialize_struct("Problem", 3)?;
        problem.serialize_field("status", status)?;
        problem.serialize_field("headers", &headers)?;
        problem.serialize_field("body", members)?;
        problem.end()
    }
}

/// The title of a problem without a type of its own is the phrase of its status.
fn reason_phrase(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        403 => "Forbidden",
        409 => "Conflict",
        413 => "Content Too Large",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        499 => "Client Closed Request",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
#[path = "tests/problem.rs"]
mod tests;
