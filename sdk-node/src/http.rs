//! What an HTTP service says about limits, repeated requests and failures.

use std::time::{Duration, SystemTime};

use napi::bindgen_prelude::{Buffer, Env};
use napi_derive::napi;
use resil::Error;
use resil::http::{IdempotencyKey, Limited, Problem, RateLimit, Reset, Shown, fingerprint};

use crate::convert::now;
use crate::errors::{OwnError, own};
use crate::limiter::verdict_of;

#[napi(object, object_from_js = false)]
pub struct HttpAnswer {
    pub status: u32,
    /// Name and value, in turn.
    pub headers: Vec<String>,
    pub body: String,
}

/// An error as a whole answer. One that is none of ours is an internal one, without its words.
#[napi]
pub fn http_problem(error: OwnError) -> HttpAnswer {
    let error = own(&error).unwrap_or(Error::Internal(String::new()));
    let problem = Problem::of(&error);
    let headers = problem.headers.iter().flat_map(|(name, value)| [(*name).to_owned(), value.clone()]).collect();
    HttpAnswer { status: problem.status.into(), headers, body: problem.body() }
}

/// The headers of a verdict, name and value in turn. `reset_at`: `X-RateLimit-Reset` counts from 1970.
#[napi]
#[allow(clippy::too_many_arguments)]
pub fn http_rate_limit(
    policy: String,
    limit: f64,
    window_ms: Option<f64>,
    remaining: f64,
    retry_after_ms: Option<f64>,
    reset_after_ms: f64,
    reset_at: bool,
) -> Vec<String> {
    let span = |ms: f64| Duration::try_from_secs_f64(ms / 1_000.0).unwrap_or_default();
    let verdict = RateLimit {
        policy: &policy,
        limit: limit as u64,
        window: window_ms.map(span),
        remaining: remaining as u64,
        retry_after: retry_after_ms.map(span),
        reset_after: span(reset_after_ms),
    };
    let reset = if reset_at { Reset::At(SystemTime::now()) } else { Reset::After };
    verdict.headers(reset).into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// The headers of a verdict by its numbers, with every tier of its limit. Name and value in turn.
#[napi]
pub fn http_limited(env: Env, policy: String, numbers: Vec<f64>, reset_at: bool) -> napi::Result<Vec<String>> {
    let odd = || Error::InvalidArgument("verdict must be what a limiter said".to_owned());
    let verdict = now(&env, verdict_of(&numbers).ok_or_else(odd))?;
    let reset = if reset_at { Reset::At(SystemTime::now()) } else { Reset::After };
    let limited = Limited::of(&policy, &verdict, Shown::All, reset);
    Ok(limited.headers.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect())
}

/// The key of the header `Idempotency-Key`; `null` if it is not there and need not be.
#[napi]
pub fn http_idempotency_key(env: Env, header: Option<String>, required: bool) -> napi::Result<Option<String>> {
    let header = header.as_deref().map(str::as_bytes);
    let key = if required { IdempotencyKey::required(header).map(Some) } else { IdempotencyKey::optional(header) };
    now(&env, key).map(|key| key.map(|key| key.as_str().to_owned()))
}

#[napi]
pub fn http_fingerprint(method: String, path: String, body: Buffer) -> String {
    fingerprint(&method, &path, &body)
}
