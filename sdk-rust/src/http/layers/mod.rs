//! Middleware for tower, and so for axum: limits by tier, and `Idempotency-Key`, a line each.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use axum::{Router, routing::post};
//! use resil::http::{HttpRateLimitLayer, HttpTier, IdempotencyLayer, header_text};
//! use resil::idempotency::IdempotencySettings;
//! use resil::limiter::Limit;
//!
//! let client = resil::connect("memory://").await?;
//! let free = client.limiter("free", Limit::per_minute(5))?;
//! let orders = client.idempotent("orders", IdempotencySettings::new())?;
//! let app: Router = Router::new()
//!     .route("/orders", post(async || "made"))
//!     .layer(IdempotencyLayer::new(orders, |request| header_text(request, "x-user")))
//!     .layer(HttpRateLimitLayer::new(move |request| Some(HttpTier::new(&free, header_text(request, "x-user")?))));
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```
//!
//! What is added last is outermost: here a request is counted before its key is looked at. The options are those of the middleware for Python
//! and Node, and the responses are the same: services in three languages can share one limit and one set of keys.
//!
//! Functions of a request see its head ([`Parts`]): method, URI, headers, and the extensions that earlier layers left (who was
//! authenticated, say).
//!
//! # What is promised
//! - The layers are always ready, and pass the errors of the service on as they are: in axum there are none.
//! - What Resil refuses is a response, [`Problem`](super::Problem), not an error.

mod idempotency;
mod limit;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Either, Full};

pub use self::idempotency::{IdempotencyLayer, IdempotentService, KeyedBody};
pub use self::limit::{HttpRateLimitLayer, HttpTier, LimitedService};
use super::{Header, Problem};

/// Any error, boxed.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a response: the service's own, or one that was made here.
pub type AnsweredBody<B> = Either<B, UnsyncBoxBody<Bytes, BoxError>>;

/// The first header of that name, if it is text.
pub fn header_text(request: &Parts, name: &str) -> Option<String> {
    request.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

fn whole<B>(body: impl Into<Bytes>) -> AnsweredBody<B> {
    Either::Right(Full::new(body.into()).map_err(|never| match never {}).boxed_unsync())
}

fn problem<B>(problem: &Problem) -> Response<AnsweredBody<B>> {
    let mut response = Response::new(whole(problem.body()));
    *response.status_mut() = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    add(&mut response, &problem.headers);
    response
}

/// Each header once: what is said here takes the place of what was said before.
fn add<B>(response: &mut Response<B>, headers: &[Header]) {
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
}
