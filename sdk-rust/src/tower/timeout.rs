//! [`Timeout`] around a service. Waiting until it is ready counts.

use std::marker::PhantomData;

use tower_layer::Layer;

use super::guarded::{Around, Guard, Guarded, Innermost, Nesting, Wrapped, ask};
use crate::error::Failure;
use crate::policy::Timeout;

/// No call takes longer than agreed.
#[derive(Debug, Clone)]
pub struct TimeoutLayer<N = Innermost> {
    timeout: Timeout,
    nesting: PhantomData<N>,
}

impl TimeoutLayer {
    /// Directly around a service with errors of its own.
    pub fn new(timeout: Timeout) -> Self {
        Self { timeout, nesting: PhantomData }
    }
}

impl TimeoutLayer<Around> {
    /// Around another layer of this module.
    pub fn around(timeout: Timeout) -> Self {
        Self { timeout, nesting: PhantomData }
    }
}

impl<S, N: Clone> Layer<S> for TimeoutLayer<N> {
    type Service = Guarded<S, Self>;

    fn layer(&self, service: S) -> Self::Service {
        Guarded::new(service, self.clone())
    }
}

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
