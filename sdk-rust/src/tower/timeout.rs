//! [`Timeout`] around a service. Waiting until it is ready counts.

use std::marker::PhantomData;

use super::guarded::{Guard, Innermost, Nesting, Wrapped, ask};
use super::layer::layer;
use crate::error::Failure;
use crate::policy::Timeout;

/// No call takes longer than agreed.
#[derive(Debug, Clone)]
pub struct TimeoutLayer<N = Innermost> {
    timeout: Timeout,
    nesting: PhantomData<N>,
}

layer!(
    TimeoutLayer<;>,
    ".",
    (timeout: Timeout) {}
);

impl<S, Req, N> Guard<S, Req> for TimeoutLayer<N>
where
    S: Wrapped<Req>,
    N: Nesting<S::Error>,
    Req: Send + 'static,
{
    type Own = N::Own;

    async fn guard(&self, service: S, request: Req) -> Result<S::Response, Failure<N::Own>> {
        self.timeout.around(|| ask::<N, S, Req>(service, request)).await
    }
}
