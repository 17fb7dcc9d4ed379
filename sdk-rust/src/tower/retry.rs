//! [`Retry`] around a service. Requests are cloned, one for each attempt.

use std::marker::PhantomData;

use tower_layer::Layer;

use super::guarded::{Around, Guard, Guarded, Innermost, Nesting, Wrapped};
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

impl<C> RetryLayer<C> {
    /// Directly around a service with errors of its own; `classify` says what they mean.
    pub fn new(retry: Retry, classify: C) -> Self {
        Self { retry, classify, responses: EveryResponseIsGood, nesting: PhantomData }
    }
}

impl<C> RetryLayer<C, EveryResponseIsGood, Around> {
    /// Around another layer of this module; `classify` says what the errors of the service itself mean.
    pub fn around(retry: Retry, classify: C) -> Self {
        Self { retry, classify, responses: EveryResponseIsGood, nesting: PhantomData }
    }
}

impl<C, R, N> RetryLayer<C, R, N> {
    /// Which answers are failures, too: `|response: &Response| Option<Class>`.
    pub fn classify_response<Res, F>(self, responses: F) -> RetryLayer<C, F, N>
    where
        F: Fn(&Res) -> Option<crate::policy::Class>,
    {
        RetryLayer { retry: self.retry, classify: self.classify, responses, nesting: PhantomData }
    }
}

impl<S, C: Clone, R: Clone, N: Clone> Layer<S> for RetryLayer<C, R, N> {
    type Service = Guarded<S, Self>;

    fn layer(&self, service: S) -> Self::Service {
        Guarded::new(service, self.clone())
    }
}

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
