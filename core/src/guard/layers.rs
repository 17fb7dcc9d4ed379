//! The layers of a policy, asked in their order. Asking changes nothing.

use super::request::{EnterRequest, Layer, LayerRefusal, RateView, RefusedFor, Subject, SubjectChange, SubjectLimit};
use super::settings::{LimitRule, Settings};
use super::state::Guard;
use crate::circuit_breaker::{Breaker, Phase, StateName, admit};
use crate::limits::HOLDERS_MAX;
use crate::policy::chaos::Strike;
use crate::rate_limit::{self, Ask, TooManyTiers, Verdict, Wait};
use crate::time::{Instant, Span};
use crate::window;

/// A call that asks for admission.
pub(super) struct Asking<'a> {
    pub guard: &'a Guard,
    pub settings: &'a Settings,
    pub request: &'a EnterRequest,
    pub subject: Option<Subject<'a>>,
    /// Whether a place is free for this caller.
    pub place: PlaceNow,
    pub now: Instant,
}

/// Whether a place is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceNow {
    Free,
    None(RefusedFor),
}

/// What the limit says to a call, and what it would become.
pub(super) struct Limited {
    pub verdict: Verdict,
    pub change: Option<SubjectChange>,
}

impl Asking<'_> {
    /// The first layer that refuses, of those that are asked again when a place becomes free.
    pub fn refusal(&self, limited: Option<&Limited>) -> Option<LayerRefusal> {
        let refused = self.denied().or_else(|| limited.and_then(over_limit));
        let (layer, retry_after, reason) = refused.or_else(|| self.full()).or_else(|| self.chaos())?;
        Some(self.refused(layer, retry_after, reason))
    }

    pub fn refused(&self, layer: Layer, retry_after: Wait, reason: RefusedFor) -> LayerRefusal {
        LayerRefusal { layer, retry_after, reason, version: self.guard.version(), rate: self.rate_untouched() }
    }

    fn denied(&self) -> Option<(Layer, Wait, RefusedFor)> {
        let (state, retry_after) = would_deny(self.guard.breaker()?, chance(self.request.random), self.now)?;
        Some((Layer::Breaker, retry_after, RefusedFor::State(state)))
    }

    fn full(&self) -> Option<(Layer, Wait, RefusedFor)> {
        let (PlaceNow::None(reason), tickets) = (self.place, self.guard.tickets()) else { return None };
        let reason = if tickets.len() >= HOLDERS_MAX { RefusedFor::Tickets } else { reason };
        let first = tickets.first_to_end().map_or(Span::ZERO, |ticket| self.now.until(ticket.ends));
        Some((Layer::Bulkhead, Wait::For(first), reason))
    }

    /// An experiment can only refuse here: delays are made by those who make the call.
    fn chaos(&self) -> Option<(Layer, Wait, RefusedFor)> {
        let key = self.subject.map_or(b"".as_slice(), |subject| subject.name);
        let key = core::str::from_utf8(key).unwrap_or_default();
        // `alice` of `resil:limit:{payments}:alice`: documents name a subject as callers of an SDK do.
        let name = key.split_once("}:").map_or(key, |(_, name)| name);
        let (chaos, call) = (self.settings.chaos.as_ref()?, self.guard.learned.calls());
        let strike = chaos.strike(key, call, self.now).or_else(|| chaos.strike(name, call, self.now))?;
        let reason = match strike {
            Strike::Latency(_) => return None,
            Strike::Error => RefusedFor::Error,
            Strike::Drop => RefusedFor::Drop,
        };
        Some((Layer::Chaos, Wait::NONE, reason))
    }

    /// What the limit would say, and become, if the call were admitted.
    pub fn limit(&self) -> Result<Option<Limited>, TooManyTiers> {
        ask_limit(self.guard, self.settings, self.subject, Ask::Take(self.request.cost), self.now)
    }

    /// The binding tier as it is: a refusal has taken nothing.
    fn rate_untouched(&self) -> Option<RateView> {
        let limited = ask_limit(self.guard, self.settings, self.subject, Ask::Peek, self.now).ok()??;
        Some(limited.verdict.binding().into())
    }
}

/// The limit is the policy's own, or that of the subject.
pub(super) fn ask_limit(
    guard: &Guard,
    settings: &Settings,
    subject: Option<Subject<'_>>,
    ask: Ask,
    now: Instant,
) -> Result<Option<Limited>, TooManyTiers> {
    let empty = window::Window::default();
    Ok(match (&settings.limit, subject) {
        (None, _) => None,
        (Some(LimitRule::Gcra(quotas)), subject) => {
            let tiers =
                if let Some(Subject { limit: SubjectLimit::Gcra(tiers), .. }) = subject { tiers } else { &guard.tiers };
            let step = rate_limit::step(tiers, quotas, ask, now)?;
            Some(Limited { verdict: step.verdict, change: step.change.map(SubjectChange::Gcra) })
        }
        (Some(LimitRule::Window(rule)), subject) => {
            let own = guard.log.as_deref().unwrap_or(&empty);
            let log = if let Some(Subject { limit: SubjectLimit::Window(log), .. }) = subject { log } else { own };
            let step = window::step(log, *rule, ask, now);
            Some(Limited { verdict: step.verdict, change: step.change.map(SubjectChange::Window) })
        }
    })
}

/// What a limit becomes because the clock was set back, if it was. More than any limit holds is asked for, so nothing is taken.
pub fn mended_limit(guard: &Guard, subject: Option<Subject<'_>>, now: Instant) -> Option<SubjectChange> {
    ask_limit(guard, guard.settings()?, subject, Ask::Take(u32::MAX), now).ok()??.change
}

fn over_limit(limited: &Limited) -> Option<(Layer, Wait, RefusedFor)> {
    let retry_after = limited.verdict.binding().retry_after;
    let reason = if retry_after == Wait::Never { RefusedFor::Cost } else { RefusedFor::Rate };
    (limited.verdict.granted == 0).then_some((Layer::Limit, retry_after, reason))
}

/// From 0 to 99.
pub(super) fn chance(random: u64) -> u32 {
    (random % 100) as u32
}

/// Whether the breaker would deny a call, and why. A closed one never does, whatever time has done to it: no copy is needed.
pub(super) fn would_deny(breaker: &Breaker, chance: u32, now: Instant) -> Option<(StateName, Wait)> {
    if matches!(breaker.phase(), Phase::Closed) {
        return None;
    }
    let admission = admit(&mut breaker.clone(), Default::default(), None, chance, now).ok()?.verdict;
    admission.permit.is_none().then_some((admission.state, admission.retry_after))
}
