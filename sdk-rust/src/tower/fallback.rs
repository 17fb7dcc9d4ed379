//! [`Fallback`] around a service.

use std::marker::PhantomData;

use super::guarded::{Guard, Innermost, Nesting, Wrapped, ask};
use super::layer::layer;
use crate::error::Failure;
use crate::policy::Fallback;

/// Another answer in place of a failure. `Res` is the service's response, `E` its own error.
#[derive(Debug)]
pub struct FallbackLayer<Res, E, N = Innermost> {
    fallback: Fallback<Res, E>,
    nesting: PhantomData<N>,
}

layer!(
    FallbackLayer<Res, E;>,
    ".",
    (fallback: Fallback<Res, E>) {}
);

impl<Res, E, N> Clone for FallbackLayer<Res, E, N> {
    fn clone(&self) -> Self {
        Self { fallback: self.fallback.clone(), nesting: PhantomData }
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
