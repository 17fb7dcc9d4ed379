//! [`Retry`] around a service. Requests are cloned, one for each attempt.

use std::marker::PhantomData;

use super::guarded::{Guard, Innermost, Nesting, Wrapped};
use super::layer::{judges_answers, layer};
use super::response::{ClassifyResponse, EveryResponseIsGood, ask_judged, judged, settle};
use crate::error::Failure;
use crate::policy::Classify;
use crate::policy::Retry;

/// The same request again, later, while that makes sense.
#[derive(Debug, Clone)]
pub struct RetryLayer<C, R = EveryResponseIsGood, N = Innermost> {
    retry: Retry,
    classify: C,
    responses: R,
    nesting: PhantomData<N>,
}

layer!(
    RetryLayer<C; R = EveryResponseIsGood>,
    "; `classify` says what the errors of the service itself mean.",
    (retry: Retry, classify: C) { responses: EveryResponseIsGood }
);
judges_answers!(RetryLayer, retry);

impl<S, Req, C, R, N> Guard<S, Req> for RetryLayer<C, R, N>
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
        let call = move || ask_judged::<N, S, Req>(responses, service.clone(), request.clone());
        settle(self.retry.around(judged(&self.classify), call).await)
    }
}
