//! What routes take: a caller with a role, a key of the path, a body, and who did it and why.

use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::audit::{Deed, Outcome};
use crate::errors::Problem;
use crate::patience::TooSlow;
use crate::roles::{Caller, Role};
use crate::run::Gateway;

const ACTOR_MAX: usize = 128;
const REASON_MAX: usize = 256;

/// Somebody who may look.
pub struct Looker(#[allow(dead_code, reason = "it is there")] pub Caller);

/// Somebody who may do something: the routes say what.
pub struct Actor {
    pub caller: Caller,
    pub correlation_id: Option<String>,
}

fn caller(parts: &Parts) -> Result<Caller, Problem> {
    parts.extensions.get::<Caller>().cloned().ok_or_else(Problem::unauthenticated)
}

impl FromRequestParts<Arc<Gateway>> for Looker {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Gateway>) -> Result<Self, Problem> {
        // Every role may look.
        caller(parts).map(Self)
    }
}

impl FromRequestParts<Arc<Gateway>> for Actor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Gateway>) -> Result<Self, Problem> {
        let correlation_id = correlation(&parts.headers);
        Ok(Self { caller: caller(parts)?, correlation_id })
    }
}

fn correlation(headers: &HeaderMap) -> Option<String> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let trace = header("traceparent").and_then(resil::correlation::trace_id);
    trace.or_else(|| header("x-request-id")).map(str::to_owned)
}

impl Actor {
    /// Refuses, and writes down, what the role does not allow.
    pub fn must(&self, gateway: &Gateway, needed: Role, kind: &'static str, target: &str) -> Result<(), Problem> {
        if self.caller.may(needed) {
            return Ok(());
        }
        let action = format!("needs the role {}", needed.text());
        self.write(gateway, kind, target, &action, None, Outcome::Refused);
        Err(Problem::needs(needed))
    }

    pub fn done(&self, gateway: &Gateway, kind: &'static str, target: &str, action: &str, actor: &str) {
        self.write(gateway, kind, target, action, Some(actor), Outcome::Done);
    }

    fn write(
        &self,
        gateway: &Gateway,
        kind: &'static str,
        target: &str,
        action: &str,
        actor: Option<&str>,
        outcome: Outcome,
    ) {
        let correlation_id = self.correlation_id.as_deref();
        gateway.audit.write(Deed { kind, target, action, actor, correlation_id, outcome }, Some(&self.caller));
    }
}

/// Who did it, and why.
#[derive(Debug, Clone, Deserialize)]
pub struct Because {
    #[serde(default)]
    pub actor: String,
    #[serde(default)]
    pub reason: String,
}

impl Because {
    pub fn check(&self) -> Result<(), Problem> {
        check_actor(&self.actor)?;
        check_text("reason", &self.reason, REASON_MAX)
    }
}

pub fn check_actor(actor: &str) -> Result<(), Problem> {
    check_text("actor", actor, ACTOR_MAX)
}

fn check_text(field: &str, text: &str, most: usize) -> Result<(), Problem> {
    if text.trim().is_empty() || text.len() > most || text.chars().any(char::is_control) {
        return Err(Problem::wrong_field(field, &format!("must have 1 to {most} bytes, without control characters")));
    }
    Ok(())
}

/// A body of JSON; what is wrong with it is said.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match axum::Json::<T>::from_request(request, state).await {
            Ok(axum::Json(body)) => Ok(Self(body)),
            Err(JsonRejection::BytesRejection(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                let detail = format!("a body has at most {} bytes", super::BODY_MAX);
                Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_BIG", "Too large", detail))
            }
            Err(rejection) if TooSlow::caused(Some(&rejection)) => {
                let detail = "the body of the request took too long";
                Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "REQUEST_TIMEOUT", "Too slow", detail))
            }
            Err(rejection) => Err(Problem::wrong(rejection.body_text().chars().take(300).collect::<String>())),
        }
    }
}

/// Parts of the path; one that cannot be read is said.
pub struct Segments<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Segments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|path| Self(path.0))
            .map_err(|rejection| Problem::wrong(rejection.body_text().chars().take(300).collect::<String>()))
    }
}

/// What follows the question mark.
pub struct Asked<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        query
            .map(|query| Self(query.0))
            .map_err(|rejection| Problem::wrong(rejection.body_text().chars().take(300).collect::<String>()))
    }
}
