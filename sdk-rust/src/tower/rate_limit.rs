//! [`Limiter`] around a service: a cell for each request, of the key that the request belongs to.

use std::borrow::Cow;
use std::marker::PhantomData;

use smallvec::SmallVec;

use super::guarded::{Guard, Innermost, Nesting, Wrapped, ask};
use super::layer::layer;
use crate::error::Failure;
use crate::limiter::Limiter;

/// No more requests of one key than the limit allows, over all processes.
#[derive(Debug, Clone)]
pub struct RateLimitLayer<K, N = Innermost> {
    limiter: Limiter,
    key: K,
    nesting: PhantomData<N>,
}

layer!(
    RateLimitLayer<K;>,
    ". `key` says whom a request is counted for: `|request: &Request| request.tenant.as_str().into()`.",
    (limiter: Limiter, key: K) {} <Req> where K: for<'a> Fn(&'a Req) -> Cow<'a, str>
);

impl<S, Req, K, N> Guard<S, Req> for RateLimitLayer<K, N>
where
    S: Wrapped<Req>,
    N: Nesting<S::Error>,
    K: for<'a> Fn(&'a Req) -> Cow<'a, str> + Send + Sync + 'static,
    Req: Send + 'static,
{
    type Own = N::Own;

    async fn guard(&self, service: S, request: Req) -> Result<S::Response, Failure<N::Own>> {
        // A copy, so that requests need not be `Sync`; off the heap unless it is long.
        let key = SmallVec::<[u8; 64]>::from_slice((self.key)(&request).as_bytes());
        self.limiter.acquire(key).await?;
        ask::<N, S, Req>(service, request).await
    }
}
