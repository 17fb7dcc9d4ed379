//! Limits by tier: 429 when the limit of the caller's tier is exhausted, and headers on every response.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use futures_util::FutureExt;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Either;
use tower_layer::Layer;
use tower_service::Service;

use super::{AnsweredBody, add, problem};
use crate::error::Error;
use crate::http::{Limited, Problem, Reset, Shown};
use crate::limiter::Limiter;
use crate::tower::call_ready;

/// Which limit a request falls under, and whose.
#[derive(Debug, Clone)]
pub struct HttpTier {
    limiter: Limiter,
    key: String,
    cost: u32,
    name: Option<String>,
}

impl HttpTier {
    /// One cell of `limiter`, counted for `key`.
    pub fn new(limiter: &Limiter, key: impl Into<String>) -> Self {
        Self { limiter: limiter.clone(), key: key.into(), cost: 1, name: None }
    }

    /// How many cells. 1 by default.
    #[must_use]
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
    }

    /// What clients know the limit as. The limiter's own name by default.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }
}

type TierOf = dyn Fn(&Parts) -> Option<HttpTier> + Send + Sync;
type Refunds = dyn Fn(u16) -> bool + Send + Sync;

/// Returns 429 when the limit of the caller's tier is exhausted; every response says what is left: `RateLimit`, `RateLimit-Policy`,
/// `X-RateLimit-*`, and `Retry-After` for a refusal. See the [module](crate::http).
///
/// If the limiter cannot decide (the server is away, and the limit says `closed`), that is the response. A cost or a key that no limit
/// takes is a fault of the service: 500.
#[derive(Clone)]
pub struct HttpRateLimitLayer {
    tier: Arc<TierOf>,
    shown: Shown,
    is_reset_at: bool,
    refund: Option<Arc<Refunds>>,
}

impl HttpRateLimitLayer {
    /// `tier` says which limit a request falls under; `None` is not limited.
    pub fn new(tier: impl Fn(&Parts) -> Option<HttpTier> + Send + Sync + 'static) -> Self {
        Self { tier: Arc::new(tier), shown: Shown::All, is_reset_at: false, refund: None }
    }

    /// Which headers are sent. All of them by default.
    #[must_use]
    pub fn headers(mut self, shown: Shown) -> Self {
        self.shown = shown;
        self
    }

    /// `X-RateLimit-Reset` is in seconds since 1970, not in seconds from now.
    #[must_use]
    pub fn reset_at(mut self) -> Self {
        self.is_reset_at = true;
        self
    }

    /// Gives the cost back after responses with these statuses: `|status| status >= 500`. Headers say what was left before that. A
    /// service that fails or panics without a response counts as 500. A client that hangs up gets nothing back.
    #[must_use]
    pub fn refund(mut self, refund: impl Fn(u16) -> bool + Send + Sync + 'static) -> Self {
        self.refund = Some(Arc::new(refund));
        self
    }

    async fn reply<S, B, R>(self, service: S, request: Request<B>) -> Result<Response<AnsweredBody<R>>, S::Error>
    where
        S: Service<Request<B>, Response = Response<R>>,
    {
        let (parts, body) = request.into_parts();
        let tier = (self.tier)(&parts);
        let request = Request::from_parts(parts, body);
        let Some(tier) = tier else {
            return call_ready(service, request).await.map(|response| response.map(Either::Left));
        };
        let verdict = match tier.limiter.check_n(&tier.key, tier.cost).await {
            Ok(verdict) => verdict,
            Err(error @ (Error::InvalidArgument(_) | Error::InvalidPolicy { .. })) => {
                tracing::error!(%error, "the tier of a request cannot be used");
                return Ok(problem(&Problem::of(&Error::Internal(error.to_string()))));
            }
            Err(error) => return Ok(problem(&Problem::of(&error))),
        };
        let reset = if self.is_reset_at { Reset::At(SystemTime::now()) } else { Reset::After };
        let name = tier.name.as_deref().unwrap_or(tier.limiter.name());
        let limited = Limited::of(name, &verdict, self.shown, reset);
        let answered = match &limited.refusal {
            Some(refusal) => Ok(problem(refusal)),
            None => {
                let ended = AssertUnwindSafe(call_ready(service, request)).catch_unwind().await;
                let status = match &ended {
                    Ok(Ok(response)) => response.status().as_u16(),
                    Ok(Err(_)) | Err(_) => 500,
                };
                self.settle(&tier, status).await;
                let answered = ended.unwrap_or_else(|panic| resume_unwind(panic));
                answered.map(|response| response.map(Either::Left))
            }
        };
        answered.map(|mut response| {
            add(&mut response, &limited.headers);
            response
        })
    }

    async fn settle(&self, tier: &HttpTier, status: u16) {
        if self.refund.as_ref().is_some_and(|refund| refund(status)) {
            // Best effort: what is not given back fills up again by itself.
            let _ = tier.limiter.refund(&tier.key, tier.cost).await;
        }
    }
}

impl fmt::Debug for HttpRateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpRateLimitLayer").field("headers", &self.shown).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for HttpRateLimitLayer {
    type Service = LimitedService<S>;

    fn layer(&self, service: S) -> Self::Service {
        LimitedService { service, layer: self.clone() }
    }
}

/// A service behind limits by tier.
#[derive(Debug, Clone)]
pub struct LimitedService<S> {
    service: S,
    layer: HttpRateLimitLayer,
}

impl<S, B, R> Service<Request<B>> for LimitedService<S>
where
    S: Service<Request<B>, Response = Response<R>, Error: Send + 'static, Future: Send> + Clone + Send + 'static,
    B: Send + 'static,
    R: Send + 'static,
{
    type Response = Response<AnsweredBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        Box::pin(self.layer.clone().reply(self.service.clone(), request))
    }
}
