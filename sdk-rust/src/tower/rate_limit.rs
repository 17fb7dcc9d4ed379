//! [`Limiter`] around a service: a cell for each request, of the key that the request belongs to.

use std::borrow::Cow;
use std::marker::PhantomData;

use smallvec::SmallVec;
use tower_layer::Layer;

use super::guarded::{Around, Guard, Guarded, Innermost, Nesting, Wrapped, ask};
use crate::error::Failure;
use crate::limiter::Limiter;

/// No more requests of one key than the limit allows, over all processes.
#[derive(Debug, Clone)]
pub struct RateLimitLayer<K, N = Innermost> {
    limiter: Limiter,
    key: K,
    nesting: PhantomData<N>,
}

impl<K> RateLimitLayer<K> {
    /// Directly around a service with errors of its own. `key` says whom a request is counted for:
    /// `|request: &Request| request.tenant.as_str().into()`.
    pub fn new<Req>(limiter: Limiter, key: K) -> Self
    where
        K: for<'a> Fn(&'a Req) -> Cow<'a, str>,
    {
        Self { limiter, key, nesting: PhantomData }
    }
}

impl<K> RateLimitLayer<K, Around> {
    /// Around another layer of this module.
    pub fn around<Req>(limiter: Limiter, key: K) -> Self
    where
        K: for<'a> Fn(&'a Req) -> Cow<'a, str>,
    {
        Self { limiter, key, nesting: PhantomData }
    }
}

impl<S, K: Clone, N: Clone> Layer<S> for RateLimitLayer<K, N> {
    type Service = Guarded<S, Self>;

    fn layer(&self, service: S) -> Self::Service {
        Guarded::new(service, self.clone())
    }
}

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
