//! [`Fallback`] around a service.

use std::marker::PhantomData;

use tower_layer::Layer;

use super::guarded::{Around, Guard, Guarded, Innermost, Nesting, Wrapped, ask};
use crate::error::Failure;
use crate::policy::Fallback;

/// Another answer in place of a failure. `Res` is the service's response, `E` its own error.
#[derive(Debug)]
pub struct FallbackLayer<Res, E, N = Innermost> {
    fallback: Fallback<Res, E>,
    nesting: PhantomData<N>,
}

impl<Res, E> FallbackLayer<Res, E> {
    /// Directly around a service with errors of its own.
    pub fn new(fallback: Fallback<Res, E>) -> Self {
        Self { fallback, nesting: PhantomData }
    }
}

impl<Res, E> FallbackLayer<Res, E, Around> {
    /// Around another layer of this module.
    pub fn around(fallback: Fallback<Res, E>) -> Self {
        Self { fallback, nesting: PhantomData }
    }
}

impl<Res, E, N> Clone for FallbackLayer<Res, E, N> {
    fn clone(&self) -> Self {
        Self { fallback: self.fallback.clone(), nesting: PhantomData }
    }
}

impl<S, Res, E, N> Layer<S> for FallbackLayer<Res, E, N> {
    type Service = Guarded<S, Self>;

    fn layer(&self, service: S) -> Self::Service {
        Guarded::new(service, self.clone())
    }
}

impl<S, Req, N> Guard<S, Req> for FallbackLayer<S::Response, N::Own, N>
where
    S: Wrapped<Req>,
    N: Nesting<S::Error>,
    Req: Send + 'static,
{
    type Own = N::Own;

    async fn guard(&self, service: S, request: Req) -> Result<S::Response, Failure<N::Own>> {
        self.fallback.around(|| ask::<N, S, Req>(service, request)).await
    }
}
