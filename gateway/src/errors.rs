//! The errors that callers get. Nothing here names an address, a secret or another caller's key.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use resil::{Code, Error};
use serde_json::{Map, Value, json};
use tonic::Status;

use crate::drain::NoPass;
use crate::roles::Role;

/// The longest text of an error.
const TEXT_MAX: usize = 1_000;

/// A text of an error, cut where it is too long: it may repeat what somebody sent, and a status of gRPC is sent as a header.
pub fn bounded(mut text: String) -> String {
    if text.len() > TEXT_MAX {
        let end = (0..=TEXT_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}

/// The response to a caller of HTTP (RFC 9457).
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    pub status: StatusCode,
    pub code: &'static str,
    pub title: &'static str,
    pub detail: String,
    pub retry_after: Option<Duration>,
    pub is_retryable: bool,
    /// Further members: `field`, `reason`, `needs`.
    pub members: Map<String, Value>,
}

impl Problem {
    pub fn new(status: StatusCode, code: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        let (detail, is_retryable) = (bounded(detail.into()), status.is_server_error());
        Self { status, code, title, detail, retry_after: None, is_retryable, members: Map::new() }
    }

    pub fn wrong(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", "Invalid argument", detail)
    }

    pub fn wrong_field(field: &str, reason: &str) -> Self {
        Self::wrong(format!("{field} {reason}")).with("field", field)
    }

    pub fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", "Not found", format!("there is no such {what}"))
    }

    pub fn unauthenticated() -> Self {
        let detail = "a token is needed: Authorization: Bearer <token>, or a session";
        Self::new(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", "Not authenticated", detail)
    }

    pub fn forbidden(detail: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "FORBIDDEN", "Forbidden", detail)
    }

    pub fn needs(role: Role) -> Self {
        Self::forbidden(&format!("this needs the role {}", role.text())).with("needs", role.text())
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        let code = error.code();
        let status = StatusCode::from_u16(code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut problem = Self::new(status, code.text(), title(code), said(error));
        problem.is_retryable = code.is_retryable();
        problem.retry_after = error.retry_after();
        match error {
            Error::InvalidPolicy { field, .. } => problem.with("field", field.as_str()),
            Error::RedriveRefused { reason, .. } => problem.with("reason", *reason),
            Error::InvalidArgument(text) if text.starts_with("VERSION") => {
                Self::new(StatusCode::CONFLICT, "VERSION_CONFLICT", "Another version", text.clone())
            }
            Error::InvalidArgument(text) if text.starts_with("NOPOLICY") => Self::not_found("policy"),
            _ => problem,
        }
    }
}

/// What may be said of an error to somebody outside.
fn said(error: &Error) -> String {
    match error {
        Error::InvalidPolicy { .. }
        | Error::InvalidArgument(_)
        | Error::RedriveRefused { .. }
        | Error::Timeout { .. } => error.to_string(),
        other => other.code().meaning().to_owned(),
    }
}

fn title(code: Code) -> &'static str {
    match code {
        Code::InvalidPolicy => "Invalid policy",
        Code::InvalidArgument => "Invalid argument",
        Code::BackendUnavailable => "Redis cannot be reached",
        Code::RedriveRefused => "Redrive refused",
        Code::PermissionDenied => "Not allowed by the server",
        Code::ShuttingDown => "Shutting down",
        Code::Timeout => "Timeout",
        Code::ModuleMissing => "The module is missing",
        _ => "Refused",
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let wait_ms = self.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let mut body = json!({
            "type": "about:blank",
            "title": self.title,
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
            "retryable": self.is_retryable,
            "retryAfterMs": wait_ms,
        });
        for (name, value) in self.members {
            body[name] = value;
        }
        let mut response = (self.status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(wait) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// The status of one of our own errors, with what the SDK's clients understand: `resil-code` and a pushback.
pub fn status_of(error: &Error) -> Status {
    match error {
        Error::InvalidArgument(text) if text.starts_with("VERSION") => {
            with_code(Status::aborted(bounded(text.clone())), "VERSION_CONFLICT")
        }
        error => {
            let status = Status::from(error);
            let text = bounded(status.message().to_owned());
            Status::with_metadata(status.code(), text, status.metadata().clone())
        }
    }
}

/// A status of the gateway itself.
pub fn with_code(mut status: Status, code: &'static str) -> Status {
    status.metadata_mut().insert(resil::grpc::CODE_KEY, tonic::metadata::MetadataValue::from_static(code));
    status
}

impl From<NoPass> for Status {
    fn from(no_pass: NoPass) -> Self {
        match no_pass {
            NoPass::Draining => status_of(&Error::ShuttingDown),
            NoPass::Overloaded => {
                with_code(Self::resource_exhausted("the gateway has too many calls in flight"), "OVERLOADED")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_repeats_little_of_what_somebody_sent() {
        let long = "é".repeat(100_000);
        assert!(status_of(&Error::InvalidArgument(long.clone())).message().len() < 1_100);
        assert!(Problem::from(Error::InvalidArgument(long)).detail.len() < 1_100);
        assert_eq!(bounded("short".to_owned()), "short");
    }
}
