//! [`Hedge`] around a service. Requests are cloned, one for each attempt.

use std::marker::PhantomData;

use parking_lot::Mutex;

use super::guarded::{Guard, Innermost, Nesting, Wrapped};
use super::layer::{judges_answers, layer};
use super::response::{ClassifyResponse, EveryResponseIsGood, ask_judged, judged, settle};
use crate::error::Failure;
use crate::policy::Classify;
use crate::policy::Hedge;

/// If the answer is late, the same request once more; the first answer is taken, and the other call dropped.
#[derive(Debug, Clone)]
pub struct HedgeLayer<C, R = EveryResponseIsGood, N = Innermost> {
    hedge: Hedge,
    classify: C,
    responses: R,
    nesting: PhantomData<N>,
}

layer!(
    HedgeLayer<C; R = EveryResponseIsGood>,
    "; `classify` says what the errors of the service itself mean.",
    (hedge: Hedge, classify: C) { responses: EveryResponseIsGood }
);
judges_answers!(HedgeLayer, hedge);

impl<S, Req, C, R, N> Guard<S, Req> for HedgeLayer<C, R, N>
where
    S: Wrapped<Req>,
    N: Nesting<S::Error>,
    C: Classify<N::Own> + Send + Sync + 'static,
    R: ClassifyResponse<S::Response> + Send + Sync + 'static,
    Req: Clone + Send + 'static,
{
    type Own = N::Own;

    async fn guard(&self, service: S, request: Req) -> Result<S::Response, Failure<N::Own>> {
        let responses = &self.responses;
        // Not shared by anybody; the lock only spares services and requests from having to be `Sync`.
        let original = Mutex::new((service, request));
        let call = move || {
            let (service, request) = original.lock().clone();
            ask_judged::<N, S, Req>(responses, service, request)
        };
        settle(self.hedge.around(judged(&self.classify), call).await)
    }
}
