//! What the middleware is made of: a limit that is checked and told over HTTP, and answers that are kept for duplicates.
//! The words are the SDK's.

use std::time::SystemTime;

use napi::bindgen_prelude::{Buffer, Env};
use napi_derive::napi;
use resil::http::{
    IdempotencyKey, Limited, Problem, REPLAYED_HEADER, RecordedAnswer, Reset, Shown, fingerprint, is_final,
};

use crate::convert::{now, ours};
use crate::executor::Word;
use crate::limiter::Limiter;

/// A whole answer. Of headers name and value, in turn: each character is a byte, as Node has it.
#[napi(object, object_from_js = false)]
pub struct WholeAnswer {
    pub status: u32,
    pub headers: Vec<String>,
    pub body: Buffer,
}

impl From<Problem> for WholeAnswer {
    fn from(problem: Problem) -> Self {
        let headers = problem.headers.iter().flat_map(|(name, value)| [(*name).to_owned(), value.clone()]).collect();
        Self { status: problem.status.into(), headers, body: problem.body().into_bytes().into() }
    }
}

#[napi(object, object_from_js = false)]
pub struct LimitedAnswer {
    /// For whoever answers: name and value, in turn.
    pub headers: Vec<String>,
    /// The answer of who is refused.
    pub refusal: Option<WholeAnswer>,
}

/// Takes `cost` cells, and says what that means for the answer. `reset_at`: `X-RateLimit-Reset` counts from 1970.
#[napi]
pub fn http_check(
    env: Env,
    limiter: &Limiter,
    key: String,
    cost: u32,
    policy: String,
    shown: String,
    reset_at: bool,
) -> napi::Result<Word> {
    let shown = now(&env, Shown::named(&shown))?;
    let limiter = limiter.0.clone();
    ours(async move {
        let verdict = limiter.check_n(&key, cost).await?;
        let reset = if reset_at { Reset::At(SystemTime::now()) } else { Reset::After };
        let limited = Limited::of(&policy, &verdict, shown, reset);
        let headers = limited.headers.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
        Ok(LimitedAnswer { headers, refusal: limited.refusal.map(WholeAnswer::from) })
    })
}

/// The key of the header as one of `tenant`; `null` if it is not there and need not be.
#[napi]
pub fn http_key_of_tenant(
    env: Env,
    header: Option<String>,
    required: bool,
    tenant: String,
) -> napi::Result<Option<String>> {
    let header = header.as_deref().map(str::as_bytes);
    let key = if required { IdempotencyKey::required(header).map(Some) } else { IdempotencyKey::optional(header) };
    now(&env, key).map(|key| key.map(|key| key.of_tenant(&tenant)))
}

#[napi]
pub fn http_fingerprint_of(method: String, target: String, body: &[u8]) -> String {
    fingerprint(&method, &target, body)
}

/// Whether an answer with this status is kept.
#[napi]
pub fn http_is_final(status: u32) -> bool {
    u16::try_from(status).is_ok_and(is_final)
}

/// An answer as bytes to keep. Headers: name and value, in turn.
#[napi]
pub fn http_record(status: u32, headers: Vec<String>, body: &[u8]) -> Buffer {
    let bytes = |text: &String| text.chars().filter_map(|character| u8::try_from(character).ok()).collect::<Vec<u8>>();
    let headers: Vec<Vec<u8>> = headers.iter().map(bytes).collect();
    let pairs = headers.chunks_exact(2).map(|pair| (&*pair[0], &*pair[1]));
    let status = u16::try_from(status).unwrap_or(500);
    Buffer::from(RecordedAnswer::new(status, pairs, body.to_vec()).to_bytes().to_vec())
}

/// The answer of a duplicate: what was kept, and a header that says so. If nothing was, a problem.
#[napi]
pub fn http_replay(kept: Option<&[u8]>) -> WholeAnswer {
    let Some(answer) = kept.and_then(RecordedAnswer::read) else { return Problem::answer_not_kept().into() };
    let text = |bytes: Vec<u8>| bytes.into_iter().map(char::from).collect::<String>();
    let mut headers: Vec<String> =
        answer.headers().into_iter().flat_map(|(name, value)| [text(name), text(value)]).collect();
    headers.extend([REPLAYED_HEADER.0, REPLAYED_HEADER.1].map(str::to_owned));
    WholeAnswer { status: answer.status().into(), headers, body: Buffer::from(answer.body().to_vec()) }
}

/// The answer to a request whose body is longer than what is read.
#[napi]
pub fn http_body_too_large(bytes_max: f64) -> WholeAnswer {
    Problem::body_too_large(bytes_max.max(0.0) as usize).into()
}
