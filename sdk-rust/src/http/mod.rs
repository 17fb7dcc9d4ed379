//! What an HTTP service says about limits, repeated requests and failures.
//!
//! Names and values as text, statuses as numbers: this needs no HTTP library and fits any. Header names are in lower case,
//! as HTTP/2 wants them and `HeaderName::from_static` demands.
//!
//! - [`RateLimit`]: `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11), `X-RateLimit-*`, and
//!   `Retry-After`.
//! - [`parse_retry_after`]: how long somebody else's server asks to wait.
//! - [`IdempotencyKey`], [`fingerprint`]: which request is the same as which (draft-ietf-httpapi-idempotency-key-header-07).
//! - [`Limited`]: what a verdict does to a response, for middleware.
//! - [`RecordedResponse`], [`is_final`]: what is kept of a response, for duplicates of its request.
//! - `HttpRateLimitLayer` and `IdempotencyLayer` (feature `http`): middleware for tower and axum, a line each.
//! - [`Problem`]: an [`Error`](crate::Error) as a whole response, `application/problem+json` (RFC 9457).

mod idempotency;
#[cfg(feature = "http")]
mod layers;
mod limited;
mod problem;
mod rate_limit;
mod recorded;
mod retry_after;

pub use idempotency::{IDEMPOTENCY_KEY_BYTES_MAX, IdempotencyKey, fingerprint};
#[cfg(feature = "http")]
pub use layers::{
    AnsweredBody, BoxError, HttpRateLimitLayer, HttpTier, IdempotencyLayer, IdempotentService, KeyedBody,
    LimitedService, header_text,
};
pub use limited::{Limited, Shown};
pub use problem::Problem;
pub use rate_limit::{RateLimit, Reset};
pub use recorded::{REPLAYED_HEADER, RecordedResponse, is_final};
pub use retry_after::{RETRY_AFTER_MAX, parse_retry_after, retry_after_seconds};

/// Name and value of a header.
pub type Header = (&'static str, String);
