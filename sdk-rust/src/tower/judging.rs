//! Policies that judge how a call came out: retry, hedge, breaker, and a whole policy. Requests are cloned, one for each attempt.
//!
//! They judge errors. A response that is judged bad travels through them as one ([`Unfit`]), and comes out as the response it is.

use std::marker::PhantomData;

use parking_lot::Mutex;
use tower_service::Service;

use super::guarded::{Around, Guard, GuardLayer, Innermost, Nesting, Wrapped, ask};
use crate::breaker::Breaker;
use crate::error::Failure;
use crate::policy::{CallSettings, Class, Classify, Hedge, Policy, Retry, Unfit, classified, judged, settled};

/// The same request again, later, while that makes sense.
pub type RetryLayer<C, R = EveryResponseIsGood, N = Innermost> = GuardLayer<Judging<Retry, C, R>, N>;

/// If the response is late, the same request once more; the first response is taken, and the other call dropped.
pub type HedgeLayer<C, R = EveryResponseIsGood, N = Innermost> = GuardLayer<Judging<Hedge, C, R>, N>;

/// No calls while the circuit is open. The breaker is asked before the service is: an open circuit responds also for a service
/// that is not ready.
pub type BreakerLayer<C, R = EveryResponseIsGood, N = Innermost> = GuardLayer<Judging<Breaker, C, R>, N>;

/// All stages of a policy as one layer. One of these costs less than a stack of single layers.
pub type PolicyLayer<C, R = EveryResponseIsGood, O = SameForAll, N = Innermost> =
    GuardLayer<Judging<Policy, C, R, O>, N>;

/// A policy `P`, and what judges for it: errors, responses, and what is particular to a request.
#[derive(Debug, Clone)]
pub struct Judging<P, C, R = EveryResponseIsGood, O = SameForAll> {
    policy: P,
    classify: C,
    responses: R,
    settings: O,
}

/// Says which responses are failures. Every `Fn(&Response) -> Option<Class>` does; `None` is a good response. Write the type
/// of a closure's argument.
pub trait ClassifyResponse<Res> {
    fn classify_response(&self, response: &Res) -> Option<Class>;
}

impl<Res, F: Fn(&Res) -> Option<Class>> ClassifyResponse<Res> for F {
    fn classify_response(&self, response: &Res) -> Option<Class> {
        self(response)
    }
}

/// What responses are unless the caller says otherwise.
#[derive(Debug, Clone, Copy, Default)]
pub struct EveryResponseIsGood;

impl<Res> ClassifyResponse<Res> for EveryResponseIsGood {
    fn classify_response(&self, _response: &Res) -> Option<Class> {
        None
    }
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

constructors!(
    [P, C] Judging<P, C>, "; `classify` says what the errors of the service itself mean.",
    (policy: P, classify: C) =>
        Judging { policy, classify, responses: EveryResponseIsGood, settings: SameForAll }
);

impl<P, C, R, O, N> GuardLayer<Judging<P, C, R, O>, N> {
    /// Which responses are failures, too: `|response: &Response| Option<Class>`.
    pub fn classify_response<Res, F>(self, responses: F) -> GuardLayer<Judging<P, C, F, O>, N>
    where
        F: Fn(&Res) -> Option<Class>,
    {
        self.map(|Judging { policy, classify, settings, .. }| Judging { policy, classify, responses, settings })
    }
}

impl<C, R, O, N> PolicyLayer<C, R, O, N> {
    /// What is particular to a request: `|request: &Request| CallSettings::new().key(...)`.
    pub fn settings_by<Req, F>(self, settings: F) -> PolicyLayer<C, R, F, N>
    where
        F: Fn(&Req) -> CallSettings<'static>,
    {
        self.map(|Judging { policy, classify, responses, .. }| Judging { policy, classify, responses, settings })
    }
}

impl<S, Req, C, R, N> Guard<S, Req, N> for Judging<Breaker, C, R>
where
    S: Wrapped<Req>,
    N: Nesting<S::Error>,
    C: Classify<N::Own> + Send + Sync + 'static,
    R: ClassifyResponse<S::Response> + Send + Sync + 'static,
    Req: Send + 'static,
{
    async fn guard(&self, service: S, request: Req) -> Result<S::Response, Failure<N::Own>> {
        let call = || ask_judged::<N, S, Req>(&self.responses, service, request);
        settled(self.policy.around(classified(|error: &N::Own| self.classify.classify(error)), call).await)
    }
}

/// `again!(Policy: |policy, settings, classify, call| how it is called)`: policies that may make the call again.
macro_rules! again {
    ($type:ty: |$policy:ident, $settings:ident, $classify:ident, $call:ident| $does:expr) => {
        impl<S, Req, C, R, O, N> Guard<S, Req, N> for Judging<$type, C, R, O>
        where
            S: Wrapped<Req>,
            N: Nesting<S::Error>,
            C: Classify<N::Own> + Send + Sync + 'static,
            R: ClassifyResponse<S::Response> + Send + Sync + 'static,
            O: SettingsOf<Req> + Send + Sync + 'static,
            Req: Clone + Send + 'static,
        {
            async fn guard(&self, service: S, request: Req) -> Result<S::Response, Failure<N::Own>> {
                let Self { policy: $policy, classify, responses, settings } = self;
                let ($settings, $classify) =
                    (settings.settings_of(&request), classified(|error: &N::Own| classify.classify(error)));
                // Not shared by anybody; the lock only spares services and requests from having to be `Sync`.
                let original = Mutex::new((service, request));
                let $call = move || {
                    let (service, request) = original.lock().clone();
                    ask_judged::<N, S, Req>(responses, service, request)
                };
                settled($does.await)
            }
        }
    };
}

again!(Retry: |retry, _settings, classify, call| retry.around(classify, call));
again!(Hedge: |hedge, _settings, classify, call| hedge.around(classify, call));
again!(Policy: |policy, settings, classify, call| policy.around_with(settings, classify, call));

/// Calls the service; a response that is judged bad is an error until it is settled.
async fn ask_judged<N, S, Req>(
    judge: &impl ClassifyResponse<S::Response>,
    service: S,
    request: Req,
) -> Result<S::Response, Failure<Unfit<S::Response, N::Own>>>
where
    S: Service<Req>,
    N: Nesting<S::Error>,
{
    judged(|response| judge.classify_response(response), ask::<N, S, Req>(service, request).await)
}
