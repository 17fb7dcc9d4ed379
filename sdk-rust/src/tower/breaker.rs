//! [`Breaker`] around a service. It is asked before the service is: an open circuit answers also for a service that is not ready.

use std::marker::PhantomData;

use super::guarded::{Guard, Innermost, Nesting, Wrapped};
use super::layer::{judges_answers, layer};
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

layer!(
    BreakerLayer<C; R = EveryResponseIsGood>,
    "; `classify` says what the errors of the service itself mean.",
    (breaker: Breaker, classify: C) { responses: EveryResponseIsGood }
);
judges_answers!(BreakerLayer, breaker);

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
