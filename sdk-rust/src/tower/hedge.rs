//! [`Hedge`] around a service. Requests are cloned, one for each attempt.

use std::marker::PhantomData;

use parking_lot::Mutex;
use tower_layer::Layer;

use super::guarded::{Around, Guard, Guarded, Innermost, Nesting, Wrapped};
use super::response::{ClassifyResponse, EveryResponseIsGood, ask_judged, judged, settle};
use crate::error::Failure;
use crate::policy::Classify;
use crate::policy::Hedge;

/// If the answer is late, the same request once more; whichever answer comes first is taken, and the other call dropped.
#[derive(Debug, Clone)]
pub struct HedgeLayer<C, R = EveryResponseIsGood, N = Innermost> {
    hedge: Hedge,
    classify: C,
    responses: R,
    nesting: PhantomData<N>,
}

impl<C> HedgeLayer<C> {
    /// Directly around a service with errors of its own; `classify` says what they mean.
    pub fn new(hedge: Hedge, classify: C) -> Self {
        Self { hedge, classify, responses: EveryResponseIsGood, nesting: PhantomData }
    }
}

impl<C> HedgeLayer<C, EveryResponseIsGood, Around> {
    /// Around another layer of this module; `classify` says what the errors of the service itself mean.
    pub fn around(hedge: Hedge, classify: C) -> Self {
        Self { hedge, classify, responses: EveryResponseIsGood, nesting: PhantomData }
    }
}

impl<C, R, N> HedgeLayer<C, R, N> {
    /// Which answers are failures, too: `|response: &Response| Option<Class>`.
    pub fn classify_response<Res, F>(self, responses: F) -> HedgeLayer<C, F, N>
    where
        F: Fn(&Res) -> Option<crate::policy::Class>,
    {
        HedgeLayer { hedge: self.hedge, classify: self.classify, responses, nesting: PhantomData }
    }
}

impl<S, C: Clone, R: Clone, N: Clone> Layer<S> for HedgeLayer<C, R, N> {
    type Service = Guarded<S, Self>;

    fn layer(&self, service: S) -> Self::Service {
        Guarded::new(service, self.clone())
    }
}

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
