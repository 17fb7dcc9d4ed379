//! A whole [`Policy`] around a service. Requests are cloned, one for each attempt.

use std::marker::PhantomData;
use std::time::Duration;

use parking_lot::Mutex;

use super::guarded::{Guard, Innermost, Nesting, Wrapped};
use super::layer::layer;
use super::response::{ClassifyResponse, EveryResponseIsGood, ask_judged, judged, settle};
use crate::error::Failure;
use crate::policy::{CallOptions, Class, Classify, Policy};

/// All stages of a policy as one layer. One of these costs less than a stack of single layers.
#[derive(Debug, Clone)]
pub struct PolicyLayer<C, R = EveryResponseIsGood, O = SameForAll, N = Innermost> {
    policy: Policy,
    classify: C,
    responses: R,
    options: O,
    nesting: PhantomData<N>,
}

/// What is particular to one request, as [`CallOptions`] are to one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestOptions {
    /// Whose rate limit: a user, a tenant. The policy's name unless said.
    pub key: Option<String>,
    /// How many cells of the rate limit each attempt takes. One unless said.
    pub cost: Option<u32>,
    /// Which partition of the local bulkhead.
    pub partition: Option<String>,
    /// For each attempt, in place of the policy's.
    pub attempt_timeout: Option<Duration>,
    /// For all of it, in place of the policy's.
    pub total_timeout: Option<Duration>,
}

impl RequestOptions {
    fn as_call_options(&self) -> CallOptions<'_> {
        let mut options = CallOptions::new();
        if let Some(key) = &self.key {
            options = options.key(key);
        }
        if let Some(cost) = self.cost {
            options = options.cost(cost);
        }
        if let Some(partition) = &self.partition {
            options = options.partition(partition);
        }
        if let Some(after) = self.attempt_timeout {
            options = options.attempt_timeout(after);
        }
        if let Some(after) = self.total_timeout {
            options = options.total_timeout(after);
        }
        options
    }
}

/// Says what is particular to a request. Every `Fn(&Req) -> RequestOptions` does.
pub trait OptionsOf<Req> {
    fn options_of(&self, request: &Req) -> RequestOptions;
}

impl<Req, F: Fn(&Req) -> RequestOptions> OptionsOf<Req> for F {
    fn options_of(&self, request: &Req) -> RequestOptions {
        self(request)
    }
}

/// Nothing is particular to any request.
#[derive(Debug, Clone, Copy, Default)]
pub struct SameForAll;

impl<Req> OptionsOf<Req> for SameForAll {
    fn options_of(&self, _request: &Req) -> RequestOptions {
        RequestOptions::default()
    }
}

layer!(
    PolicyLayer<C; R = EveryResponseIsGood, O = SameForAll>,
    "; `classify` says what the errors of the service itself mean.",
    (policy: Policy, classify: C) { responses: EveryResponseIsGood, options: SameForAll }
);

impl<C, R, O, N> PolicyLayer<C, R, O, N> {
    /// Which answers are failures, too: `|response: &Response| Option<Class>`.
    pub fn classify_response<Res, F>(self, responses: F) -> PolicyLayer<C, F, O, N>
    where
        F: Fn(&Res) -> Option<Class>,
    {
        let Self { policy, classify, options, .. } = self;
        PolicyLayer { policy, classify, responses, options, nesting: PhantomData }
    }

    /// What is particular to a request: `|request: &Request| RequestOptions { key: ..., ..Default::default() }`.
    pub fn options_by<Req, F>(self, options: F) -> PolicyLayer<C, R, F, N>
    where
        F: Fn(&Req) -> RequestOptions,
    {
        let Self { policy, classify, responses, .. } = self;
        PolicyLayer { policy, classify, responses, options, nesting: PhantomData }
    }
}

impl<S, Req, C, R, O, N> Guard<S, Req> for PolicyLayer<C, R, O, N>
where
    S: Wrapped<Req>,
    N: Nesting<S::Error>,
    C: Classify<N::Own> + Send + Sync + 'static,
    R: ClassifyResponse<S::Response> + Send + Sync + 'static,
    O: OptionsOf<Req> + Send + Sync + 'static,
    Req: Clone + Send + 'static,
{
    type Own = N::Own;

    async fn guard(&self, service: S, request: Req) -> Result<S::Response, Failure<N::Own>> {
        let options = self.options.options_of(&request);
        let responses = &self.responses;
        // Not shared by anybody; the lock only spares services and requests from having to be `Sync`.
        let original = Mutex::new((service, request));
        let call = move || {
            let (service, request) = original.lock().clone();
            ask_judged::<N, S, Req>(responses, service, request)
        };
        settle(self.policy.around_with(options.as_call_options(), judged(&self.classify), call).await)
    }
}
