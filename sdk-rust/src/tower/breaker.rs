//! [`Breaker`] around a service. It is asked before the service is: an open circuit answers also for a service that is not ready.

use std::marker::PhantomData;

use tower_layer::Layer;

use super::guarded::{Around, Guard, Guarded, Innermost, Nesting, Wrapped};
use super::response::{ClassifyResponse, EveryResponseIsGood, ask_judged, judged, settle};
use crate::breaker::Breaker;
use crate::error::Failure;
use crate::policy::Classify;

/// No calls while the circuit is open.
#[derive(Debug, Clone)]
pub struct BreakerLayer<C, R = EveryResponseIsGood, N = Innermost> {
    breaker: Breaker,
    classify: C,
    responses: R,
    nesting: PhantomData<N>,
}

impl<C> BreakerLayer<C> {
    /// Directly around a service with errors of its own; `classify` says what they mean.
    pub fn new(breaker: Breaker, classify: C) -> Self {
        Self { breaker, classify, responses: EveryResponseIsGood, nesting: PhantomData }
    }
}

impl<C> BreakerLayer<C, EveryResponseIsGood, Around> {
    /// Around another layer of this module; `classify` says what the errors of the service itself mean.
    pub fn around(breaker: Breaker, classify: C) -> Self {
        Self { breaker, classify, responses: EveryResponseIsGood, nesting: PhantomData }
    }
}

impl<C, R, N> BreakerLayer<C, R, N> {
    /// Which answers are failures, too: `|response: &Response| Option<Class>`.
    pub fn classify_response<Res, F>(self, responses: F) -> BreakerLayer<C, F, N>
    where
        F: Fn(&Res) -> Option<crate::policy::Class>,
    {
        BreakerLayer { breaker: self.breaker, classify: self.classify, responses, nesting: PhantomData }
    }
}

impl<S, C: Clone, R: Clone, N: Clone> Layer<S> for BreakerLayer<C, R, N> {
    type Service = Guarded<S, Self>;

    fn layer(&self, service: S) -> Self::Service {
        Guarded::new(service, self.clone())
    }
}

impl<S, Req, C, R, N> Guard<S, Req> for BreakerLayer<C, R, N>
where
    S: Wrapped<Req>,
    N: Nesting<S::Error>,
    C: Classify<N::Own> + Send + Sync + 'static,
    R: ClassifyResponse<S::Response> + Send + Sync + 'static,
    Req: Send + 'static,
{
    type Own = N::Own;

    async fn guard(&self, service: S, request: Req) -> Result<S::Response, Failure<N::Own>> {
        let call = || ask_judged::<N, S, Req>(&self.responses, service, request);
        settle(self.breaker.around(judged(&self.classify), call).await)
    }
}
