//! Questions that change nothing. They work on replicas, by the replica's own clock.

use super::request::{EnterRequest, Layer};
use super::state::Guard;
use crate::circuit_breaker::{StateName, view};
use crate::policy::ChaosKind;
use crate::time::{Instant, Span};
use crate::waited::Queue;

/// The reply to STATE.
#[derive(Debug, Clone, PartialEq)]
pub struct GuardView {
    pub version: u64,
    /// `None`: the policy has none.
    pub breaker: Option<StateName>,
    pub active: usize,
    pub queued: usize,
    /// Places; `None` if the policy has none.
    pub max: Option<usize>,
    /// `None`: there is no budget.
    pub budget_left: Option<u64>,
    /// Calls that wait for their retry.
    pub retrying: usize,
    pub refused: [u64; Layer::ALL.len()],
    pub chaos: Option<ChaosView>,
}

/// An experiment that runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChaosView {
    pub kind: ChaosKind,
    /// How long it goes on.
    pub left: Span,
}

/// STATE; `None` if there is no live policy.
pub fn show(
    guard: &Guard,
    queue: Option<&Queue<EnterRequest>>,
    promoted_at: Option<Instant>,
    now: Instant,
) -> Option<GuardView> {
    let settings = guard.settings()?;
    let (active, retrying) = guard.tickets.live(promoted_at, now);
    let chaos = settings.chaos.as_ref().filter(|chaos| chaos.until() > now);
    Some(GuardView {
        version: guard.version(),
        breaker: guard.breaker().map(|breaker| view(breaker, now).breaker.name()),
        active,
        queued: queue.map_or(0, Queue::len),
        max: settings.places.as_ref().map(|_| guard.learned.max(settings)),
        budget_left: guard.budget_left(now),
        retrying,
        refused: Layer::ALL.map(|layer| guard.learned.refused(layer)),
        chaos: chaos.map(|chaos| ChaosView { kind: chaos.kind(), left: now.until(chaos.until()) }),
    })
}
