//! A whole [`Policy`] around a service. Requests are cloned, one for each attempt.

use std::marker::PhantomData;

use parking_lot::Mutex;

use super::guarded::{Guard, Innermost, Nesting, Wrapped};
use super::layer::layer;
use super::response::{ClassifyResponse, EveryResponseIsGood, ask_judged, judged, settle};
use crate::error::Failure;
use crate::policy::{CallSettings, Class, Classify, Policy};

/// All stages of a policy as one layer. One of these costs less than a stack of single layers.
#[derive(Debug, Clone)]
pub struct PolicyLayer<C, R = EveryResponseIsGood, O = SameForAll, N = Innermost> {
    policy: Policy,
    classify: C,
    responses: R,
    settings: O,
    nesting: PhantomData<N>,
}

/// Says what is particular to a request. Every `Fn(&Req) -> CallSettings<'static>` does.
pub trait SettingsOf<Req> {
    fn settings_of(&self, request: &Req) -> CallSettings<'static>;
}

impl<Req, F: Fn(&Req) -> CallSettings<'static>> SettingsOf<Req> for F {
    fn settings_of(&self, request: &Req) -> CallSettings<'static> {
        self(request)
    }
}

/// Nothing is particular to any request.
#[derive(Debug, Clone, Copy, Default)]
pub struct SameForAll;

impl<Req> SettingsOf<Req> for SameForAll {
    fn settings_of(&self, _request: &Req) -> CallSettings<'static> {
        CallSettings::default()
    }
}

layer!(
    PolicyLayer<C; R = EveryResponseIsGood, O = SameForAll>,
    "; `classify` says what the errors of the service itself mean.",
    (policy: Policy, classify: C) { responses: EveryResponseIsGood, settings: SameForAll }
);

impl<C, R, O, N> PolicyLayer<C, R, O, N> {
    /// Which answers are failures, too: `|response: &Response| Option<Class>`.
    pub fn classify_response<Res, F>(self, responses: F) -> PolicyLayer<C, F, O, N>
    where
        F: Fn(&Res) -> Option<Class>,
    {
        let Self { policy, classify, settings, .. } = self;
        PolicyLayer { policy, classify, responses, settings, nesting: PhantomData }
    }

    /// What is particular to a request: `|request: &Request| CallSettings::new().key(...)`.
    pub fn settings_by<Req, F>(self, settings: F) -> PolicyLayer<C, R, F, N>
    where
        F: Fn(&Req) -> CallSettings<'static>,
    {
        let Self { policy, classify, responses, .. } = self;
        PolicyLayer { policy, classify, responses, settings, nesting: PhantomData }
    }
}

impl<S, Req, C, R, O, N> Guard<S, Req> for PolicyLayer<C, R, O, N>
where
    S: Wrapped<Req>,
    N: Nesting<S::Error>,
    C: Classify<N::Own> + Send + Sync + 'static,
    R: ClassifyResponse<S::Response> + Send + Sync + 'static,
    O: SettingsOf<Req> + Send + Sync + 'static,
    Req: Clone + Send + 'static,
{
    type Own = N::Own;

    async fn guard(&self, service: S, request: Req) -> Result<S::Response, Failure<N::Own>> {
        let settings = self.settings.settings_of(&request);
        let responses = &self.responses;
        // Not shared by anybody; the lock only spares services and requests from having to be `Sync`.
        let original = Mutex::new((service, request));
        let call = move || {
            let (service, request) = original.lock().clone();
            ask_judged::<N, S, Req>(responses, service, request)
        };
        settle(self.policy.around_with(settings, judged(&self.classify), call).await)
    }
}
