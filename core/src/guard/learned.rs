//! What a guard learns while it runs. Volatile: never stored, never replicated; after a restart it begins anew.

use super::request::Layer;
use super::settings::Settings;
use super::ticket::Tickets;
use crate::circuit_breaker::Report;
use crate::limits::HOLDERS_MAX;
use crate::policy::Priority;
use crate::policy::breaker_baseline::Baseline;
use crate::policy::concurrency::{Concurrency, Sample};
use crate::policy::shedding::Shedder;
use crate::policy::throttle::Throttler;
use crate::time::{Instant, Span};

/// What was learned since the key is in memory.
#[derive(Debug, Clone, Default)]
pub struct Learned {
    refused: [u64; Layer::ALL.len()],
    /// Calls that asked.
    calls: u64,
    shedder: Shedder,
    throttler: Throttler,
    concurrency: Concurrency,
    pub(super) baseline: Baseline,
    /// The time of the last step, and the promotion that it knew of.
    seen: Option<Instant>,
    promoted_at: Option<Instant>,
    /// Tickets of a policy that was deleted.
    leftovers: Tickets,
}

/// How a call ended.
pub(super) struct CallEnd {
    pub report: Report,
    pub took: Span,
    /// Its own place included.
    pub in_flight: usize,
}

/// How many leftovers are freed in one step.
const DISCARDED_AT_ONCE: usize = 2_000;

impl Learned {
    /// True if the clock has run backwards since the last step, or if there was none: whose clock wrote the state is not known then.
    pub(super) fn may_be_set_back(&mut self, promoted_at: Option<Instant>, now: Instant) -> bool {
        let is_known = self.promoted_at == promoted_at && self.seen.is_some_and(|seen| seen <= now);
        (self.seen, self.promoted_at) = (Some(now), promoted_at);
        !is_known
    }

    /// What a deleted policy leaves behind. Where no steps are taken nobody would free it later: it goes at once.
    pub(super) fn keep_leftovers(tickets: Tickets, had_steps: bool) -> Self {
        if had_steps { Self { leftovers: tickets, ..Self::default() } } else { Self::default() }
    }

    pub(super) fn has_steps(&self) -> bool {
        self.seen.is_some()
    }

    pub(super) fn has_leftovers(&self) -> bool {
        !self.leftovers.is_empty()
    }

    pub(super) fn discard_some(&mut self) {
        self.leftovers.discard(DISCARDED_AT_ONCE);
    }

    /// How often a layer has refused a call.
    pub fn refused(&self, layer: Layer) -> u64 {
        self.refused[layer as usize]
    }

    pub(super) fn count_refusal(&mut self, layer: Layer) {
        self.refused[layer as usize] += 1;
    }

    /// The number of the call that asks now: what an experiment decides by.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    pub(super) fn count_call(&mut self) {
        self.calls += 1;
    }

    /// How many places there are now.
    pub fn max(&self, settings: &Settings) -> usize {
        let Some(places) = &settings.places else { return HOLDERS_MAX };
        let max = places.adaptive.as_ref().map_or(places.max, |rules| self.concurrency.limit(rules));
        (max as usize).min(HOLDERS_MAX)
    }

    /// Whether calls of this class are shed while so many places are taken.
    pub(super) fn sheds(&mut self, settings: &Settings, priority: Priority, active: usize) -> bool {
        let max = self.max(settings);
        shed_by(&mut self.shedder, max, settings, priority, active)
    }

    /// The same for a call that has waited; nothing is remembered of it.
    pub(super) fn would_shed(&self, settings: &Settings, priority: Priority, active: usize) -> bool {
        shed_by(&mut { self.shedder }, self.max(settings), settings, priority, active)
    }

    /// Whether the throttle lets no call through.
    pub(super) fn throttles(&mut self, settings: &Settings, random: u64, now: Instant) -> bool {
        settings.throttle.as_ref().is_some_and(|rules| !self.throttler.admit(rules, random, now))
    }

    pub(super) fn count_end(&mut self, settings: &Settings, end: &CallEnd, now: Instant) {
        let failed = match end.report {
            Report::Ok => false,
            Report::Fail => true,
            Report::Ignore | Report::Cancel => return,
        };
        if let Some(rules) = &settings.throttle {
            self.throttler.ended(rules, !failed, now);
        }
        if let Some(rules) = settings.places.as_ref().and_then(|places| places.adaptive.as_ref()) {
            let is_late = settings.attempt.is_some_and(|attempt| end.took > attempt);
            let in_flight = u32::try_from(end.in_flight).unwrap_or(u32::MAX);
            self.concurrency.ended(rules, Sample { took: end.took, is_overload: failed || is_late, in_flight });
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.leftovers.heap_bytes()
    }
}

fn shed_by(shedder: &mut Shedder, max: usize, settings: &Settings, priority: Priority, active: usize) -> bool {
    let Some(rules) = &settings.shedding else { return false };
    shedder.refuses(rules, priority, active.min(HOLDERS_MAX) as u32, max as u32)
}
