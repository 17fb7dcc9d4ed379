//! What an HTTP service says about limits, repeated requests and failures; and the parts of the middleware. The words are the
//! SDK's. Headers are name and value, in turn; each character is a byte, as Node has it.

use std::time::{Duration, SystemTime};

use napi::bindgen_prelude::{Buffer, Env};
use napi_derive::napi;
use resil::Error;
use resil::http::{
    IdempotencyKey, Limited, Problem, REPLAYED_HEADER, RateLimit, RecordedResponse, Reset, Shown, fingerprint, is_final,
};

use crate::convert::{now, run};
use crate::errors::{OwnError, own};
use crate::executor::Word;
use crate::limiter::{Limiter, cells, verdict_of};

#[napi(object, object_from_js = false)]
pub struct HttpResponse {
    pub status: u32,
    pub headers: Vec<String>,
    pub body: Buffer,
}

impl From<Problem> for HttpResponse {
    fn from(problem: Problem) -> Self {
        let body = problem.body().into_bytes().into();
        Self { status: problem.status.into(), headers: in_turn(problem.headers), body }
    }
}

#[napi(object, object_from_js = false)]
pub struct LimitedResponse {
    pub headers: Vec<String>,
    /// The response to a caller who is refused.
    pub refusal: Option<HttpResponse>,
}

fn in_turn(headers: impl IntoIterator<Item = (&'static str, String)>) -> Vec<String> {
    headers.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// `is_at`: `X-RateLimit-Reset` counts from 1970.
fn reset(is_at: bool) -> Reset {
    if is_at { Reset::At(SystemTime::now()) } else { Reset::After }
}

/// An error as a whole response. One that is none of ours is an internal one, without its message.
#[napi]
pub fn http_problem(error: OwnError) -> HttpResponse {
    Problem::of(&own(&error).unwrap_or(Error::Internal(String::new()))).into()
}

/// The headers of a verdict.
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
    let duration = |ms: f64| Duration::try_from_secs_f64(ms / 1_000.0).unwrap_or_default();
    let verdict = RateLimit {
        policy: &policy,
        limit: limit as u64,
        window: window_ms.map(duration),
        remaining: remaining as u64,
        retry_after: retry_after_ms.map(duration),
        reset_after: duration(reset_after_ms),
    };
    in_turn(verdict.headers(reset(reset_at)))
}

/// The headers of a verdict by its numbers, with every tier of its limit.
#[napi]
pub fn http_limited(env: Env, policy: String, numbers: Vec<f64>, reset_at: bool) -> napi::Result<Vec<String>> {
    let odd = || Error::InvalidArgument("verdict must be the verdict of a limiter".to_owned());
    let verdict = now(&env, verdict_of(&numbers).ok_or_else(odd))?;
    Ok(in_turn(Limited::of(&policy, &verdict, Shown::All, reset(reset_at)).headers))
}

/// Takes `cost` cells, and says what that means for the response.
#[napi]
pub fn http_check(
    limiter: &Limiter,
    key: String,
    cost: i64,
    policy: String,
    shown: String,
    reset_at: bool,
) -> napi::Result<Word> {
    let limiter = limiter.0.clone();
    run(async move {
        let shown = Shown::named(&shown)?;
        let verdict = limiter.check_n(&key, cells("tier.cost", cost)?).await?;
        let limited = Limited::of(&policy, &verdict, shown, reset(reset_at));
        Ok(LimitedResponse { headers: in_turn(limited.headers), refusal: limited.refusal.map(HttpResponse::from) })
    })
}

/// The key of the header `Idempotency-Key`, as one of `tenant` if there is one; `null` if it is absent and may be.
#[napi]
pub fn http_idempotency_key(
    env: Env,
    header: Option<String>,
    required: bool,
    tenant: Option<String>,
) -> napi::Result<Option<String>> {
    let header = header.as_deref().map(str::as_bytes);
    let key = if required { IdempotencyKey::required(header).map(Some) } else { IdempotencyKey::optional(header) };
    let spelled = |key: IdempotencyKey| match &tenant {
        Some(tenant) => key.of_tenant(tenant),
        None => key.as_str().to_owned(),
    };
    now(&env, key).map(|key| key.map(spelled))
}

#[napi]
pub fn http_fingerprint(method: String, target: String, body: &[u8]) -> String {
    fingerprint(&method, &target, body)
}

/// Whether a response with this status is recorded.
#[napi]
pub fn http_is_final(status: u32) -> bool {
    u16::try_from(status).is_ok_and(is_final)
}

/// A response as bytes to record.
#[napi]
pub fn http_record(status: u32, headers: Vec<String>, body: &[u8]) -> Buffer {
    let bytes = |text: &String| text.chars().filter_map(|character| u8::try_from(character).ok()).collect::<Vec<u8>>();
    let headers: Vec<Vec<u8>> = headers.iter().map(bytes).collect();
    let pairs = headers.chunks_exact(2).map(|pair| (&*pair[0], &*pair[1]));
    let status = u16::try_from(status).unwrap_or(500);
    Buffer::from(RecordedResponse::new(status, pairs, body.to_vec()).to_bytes().to_vec())
}

/// The response to a duplicate: the recorded one, and a header that says so. If nothing was recorded, a problem.
#[napi]
pub fn http_replay(recorded: Option<&[u8]>) -> HttpResponse {
    let Some(response) = recorded.and_then(RecordedResponse::read) else { return Problem::response_not_kept().into() };
    let text = |bytes: Vec<u8>| bytes.into_iter().map(char::from).collect::<String>();
    let mut headers: Vec<String> =
        response.headers().into_iter().flat_map(|(name, value)| [text(name), text(value)]).collect();
    headers.extend([REPLAYED_HEADER.0, REPLAYED_HEADER.1].map(str::to_owned));
    HttpResponse { status: response.status().into(), headers, body: Buffer::from(response.body().to_vec()) }
}

/// The response to a request whose body is too long.
#[napi]
pub fn http_body_too_large(bytes_max: f64) -> HttpResponse {
    Problem::body_too_large(bytes_max.max(0.0) as usize).into()
}
