//! What a breaker remembers.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::config::Config;
use super::outcomes::{Outcomes, Totals};
use super::permit::{self, Caller};
use crate::time::{Instant, Span};

/// Callers kept as evidence for QUORUM, callers of TALLY, and reported probes that are known apart from unknown ones.
pub(super) const EVIDENCE_MAX: usize = 64;
pub(super) const TALLIES_MAX: usize = 128;
pub(super) const REPORTED_MAX: usize = 32;

/// Probes that can be out, whatever PROBES says.
pub(super) const PROBES_MAX: usize = 100;

/// Far beyond what can be recorded; here it stays, so that what forged bytes began can be stored again.
pub(super) const RECORDED_MAX: u64 = i64::MAX as u64 / 2;

/// The name of a state, as replies and events have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateName {
    Closed,
    Open,
    HalfOpen,
    Ramping,
    ForcedOpen,
    ForcedClosed,
    Disabled,
    Metrics,
}

impl StateName {
    pub const ALL: [Self; 8] = [
        Self::Closed,
        Self::Open,
        Self::HalfOpen,
        Self::Ramping,
        Self::ForcedOpen,
        Self::ForcedClosed,
        Self::Disabled,
        Self::Metrics,
    ];

    /// The inverse of [`Self::text`].
    pub fn from_text(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.text().as_bytes() == text)
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
            Self::Ramping => "ramping",
            Self::ForcedOpen => "forced-open",
            Self::ForcedClosed => "forced-closed",
            Self::Disabled => "disabled",
            Self::Metrics => "metrics",
        }
    }
}

/// What FORCE can put a breaker into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    Open,
    Closed,
    Disabled,
    Metrics,
    /// Open for a time, and then half-open: a trip by hand.
    OpenThenProbe,
}

impl Force {
    /// In the order of their numbers in stored bytes: new ones come last.
    pub const ALL: [Self; 5] = [Self::Open, Self::Closed, Self::Disabled, Self::Metrics, Self::OpenThenProbe];

    pub fn state(self) -> StateName {
        match self {
            Self::Open | Self::OpenThenProbe => StateName::ForcedOpen,
            Self::Closed => StateName::ForcedClosed,
            Self::Disabled => StateName::Disabled,
            Self::Metrics => StateName::Metrics,
        }
    }

    /// What follows when its time is over.
    pub fn ends_in(self) -> StateName {
        match self {
            Self::OpenThenProbe => StateName::HalfOpen,
            Self::Open | Self::Closed | Self::Disabled | Self::Metrics => StateName::Closed,
        }
    }
}

/// A forced state: by whom, why, since when, until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forced {
    pub force: Force,
    pub since_us: i64,
    pub until_us: Option<i64>,
    pub actor: Vec<u8>,
    pub reason: Vec<u8>,
}

impl Forced {
    /// What ends in half-open has an end.
    pub(super) fn is_sound(&self) -> bool {
        self.force.ends_in() == StateName::Closed || self.until_us.is_some()
    }
}

/// A probe that is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    pub number: u32,
    pub until_us: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    Closed,
    Open { opened_us: i64, length_us: i64 },
    HalfOpen { successes: u32, issued: u32, probes: Vec<Probe>, reported: Vec<u32> },
    Ramping { since_us: i64 },
    Forced(Box<Forced>),
}

impl Phase {
    /// Half-open, with no probe sent yet.
    pub(super) fn half_open() -> Self {
        Self::HalfOpen { successes: 0, issued: 0, probes: Vec::new(), reported: Vec::new() }
    }
}

/// Until when a key must be kept: what its expiry is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    end: Instant,
    step: Span,
}

impl Keep {
    /// When the key may be collected: on a grid, so that it seldom moves.
    pub fn due(self, salt: u64) -> Instant {
        self.end.next_on_grid(self.step, salt)
    }
}

/// One breaker. The default is what a missing key means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breaker {
    pub(super) config: Config,
    /// Somebody configured it; `lasting` if by CONFIG, which does not expire.
    pub(super) configured: bool,
    pub(super) lasting: bool,
    pub(super) version: u64,
    pub(super) generation: u64,
    pub(super) phase: Phase,
    /// Trips in a row, for the growth of the open time, and since when it has been closed.
    pub(super) trips: u32,
    pub(super) closed_us: i64,
    pub(super) failures_in_a_row: u32,
    pub(super) outcomes: Outcomes,
    /// Calls recorded in this generation: places evidence in a count window.
    pub(super) recorded: u64,
    /// Callers that failed, each with its newest failure: the call's number in a count window, else its instant.
    pub(super) evidence: Vec<(Caller, i64)>,
    /// The newest sequence number of each caller of TALLY, most recently heard last.
    pub(super) tallies: Vec<(Caller, u64)>,
    pub(super) last_seen_us: i64,
    /// While a step lasts: the rule of failed calls needs at least so many, in millionths. Otherwise 0.
    pub(super) least_ppm: u32,
}

impl Default for Breaker {
    fn default() -> Self {
        let config = Config::default();
        Self {
            outcomes: Outcomes::new(config.window),
            config,
            configured: false,
            lasting: false,
            version: 0,
            generation: 0,
            phase: Phase::Closed,
            trips: 0,
            closed_us: 0,
            failures_in_a_row: 0,
            recorded: 0,
            evidence: Vec::new(),
            tallies: Vec::new(),
            last_seen_us: 0,
            least_ppm: 0,
        }
    }
}

impl Breaker {
    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    pub fn is_configured(&self) -> bool {
        self.configured
    }

    pub fn trips(&self) -> u32 {
        self.trips
    }

    /// Since when it has been closed after a trip; `None` if it never tripped.
    pub fn closed_at(&self) -> Option<Instant> {
        (self.closed_us > 0).then(|| Instant::from_us(self.closed_us))
    }

    /// Takes a step in which a rate trips it only if at least `least_ppm` millionths of the calls failed.
    pub fn judged_by<V>(&mut self, least_ppm: u32, step: impl FnOnce(&mut Self) -> V) -> V {
        self.least_ppm = least_ppm;
        let outcome = step(self);
        self.least_ppm = 0;
        outcome
    }

    /// The state as stored; [`super::step`] knows what it has become by now.
    pub fn name(&self) -> StateName {
        match &self.phase {
            Phase::Closed => StateName::Closed,
            Phase::Open { .. } => StateName::Open,
            Phase::HalfOpen { .. } => StateName::HalfOpen,
            Phase::Ramping { .. } => StateName::Ramping,
            Phase::Forced(forced) => forced.force.state(),
        }
    }

    /// Counts in the window at `now`; nothing after IDLE.
    pub fn totals(&self, now: Instant) -> Totals {
        if self.is_idle(now) { Totals::default() } else { self.outcomes.totals(now) }
    }

    pub fn failures_in_a_row(&self, now: Instant) -> u32 {
        if self.is_idle(now) { 0 } else { self.failures_in_a_row }
    }

    /// Probes whose lease has not ended.
    pub fn probes_out(&self, now: Instant) -> usize {
        match &self.phase {
            Phase::HalfOpen { probes, .. } => probes.iter().filter(|probe| probe.until_us > now.as_us()).count(),
            _ => 0,
        }
    }

    /// Nothing was reported for so long that counts and growth are forgotten.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        now.as_us() > self.busy_until_us().saturating_add(self.config.idle.as_us())
    }

    /// Until when something is known to go on: idleness is counted from there.
    fn busy_until_us(&self) -> i64 {
        let end_us = match &self.phase {
            Phase::Closed | Phase::Forced(_) => 0,
            Phase::Open { opened_us, length_us } => opened_us.saturating_add(*length_us),
            Phase::HalfOpen { probes, .. } => probes.iter().map(|probe| probe.until_us).max().unwrap_or(0),
            Phase::Ramping { since_us } => since_us.saturating_add(self.config.ramp.as_us()),
        };
        end_us.max(self.last_seen_us)
    }

    /// The configuration came with ADMIT: it goes with the counts. A forced state keeps it.
    pub(super) fn forgets_config(&self) -> bool {
        self.configured && !self.lasting && !matches!(self.phase, Phase::Forced(_))
    }

    /// Whether idleness takes anything away.
    pub(super) fn remembers(&self) -> bool {
        let counts = self.recorded > 0 || self.failures_in_a_row > 0 || !self.tallies.is_empty();
        counts || self.trips > 0 || self.forgets_config()
    }

    /// When the key may be collected, or `None` while it holds what does not expire.
    pub fn gc_at(&self, salt: u64) -> Option<Instant> {
        self.keep().map(|keep| keep.due(salt))
    }

    /// Until when the key must be kept, or `None` while it holds what does not expire.
    pub fn keep(&self) -> Option<Keep> {
        if self.lasting {
            return None;
        }
        let forced_until_us = match &self.phase {
            Phase::Forced(forced) => forced.until_us?,
            _ => 0,
        };
        // The generation must be remembered until no permit of generation 0 is good any more.
        let kept = if self.generation > 0 { self.config.idle.max(permit::LIFE) } else { self.config.idle };
        let end = Instant::from_us(self.busy_until_us().max(forced_until_us)).plus(kept);
        Some(Keep { end, step: Span::from_us(self.config.idle.as_us() / 16) })
    }

    /// Panics in debug builds if it is one that must not be: the invariants of the top of this folder. After every step.
    pub fn check_invariants(&self, now: Instant) {
        debug_assert!(self.outcomes.is(self.config.window), "the window is the configured one");
        let totals = self.outcomes.totals(now);
        debug_assert!(totals.failures <= totals.calls && totals.slow <= totals.calls, "{totals:?}");
        debug_assert!(self.evidence.len() <= EVIDENCE_MAX && self.tallies.len() <= TALLIES_MAX, "memory is bounded");
        debug_assert!(self.recorded <= RECORDED_MAX && (self.configured || !self.lasting));
        if let Phase::Forced(forced) = &self.phase {
            debug_assert!(forced.is_sound(), "what ends in half-open has an end");
        }
        if let Phase::HalfOpen { probes, reported, .. } = &self.phase {
            debug_assert!(probes.len() <= PROBES_MAX && reported.len() <= REPORTED_MAX, "memory is bounded");
            let lease_ends_us = now.plus(self.config.lease).as_us();
            debug_assert!(probes.iter().all(|probe| probe.until_us <= lease_ends_us), "each ends with its lease");
        }
    }

    /// Whether it is as good as no key: nothing counted, nothing configured, no generation to remember.
    pub fn is_blank(&self) -> bool {
        *self == Self { last_seen_us: self.last_seen_us, ..Self::default() }
    }

    /// Bytes on the heap besides the breaker itself.
    pub fn heap_bytes(&self) -> usize {
        let phase = match &self.phase {
            Phase::HalfOpen { probes, reported, .. } => {
                probes.capacity() * size_of::<Probe>() + reported.capacity() * size_of::<u32>()
            }
            Phase::Forced(forced) => size_of::<Forced>() + forced.actor.capacity() + forced.reason.capacity(),
            Phase::Closed | Phase::Open { .. } | Phase::Ramping { .. } => 0,
        };
        let evidence = self.evidence.capacity() * size_of::<(Caller, i64)>();
        let tallies = self.tallies.capacity() * size_of::<(Caller, u64)>();
        phase + evidence + tallies + self.outcomes.heap_bytes()
    }

    /// How long an open state that began at `opened_us` still lasts; a clock set back does not prolong it.
    pub(super) fn open_for(&self, opened_us: i64, length_us: i64, now: Instant) -> Span {
        let opened_us = opened_us.min(now.as_us());
        now.until(Instant::from_us(opened_us.saturating_add(length_us)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_read_back_and_nothing_else_is() {
        assert_eq!(StateName::ALL.len(), StateName::Metrics as usize + 1);
        for one in StateName::ALL {
            assert_eq!(StateName::from_text(one.text().as_bytes()), Some(one));
        }
        for text in ["", "Open", "EXPIRED", "counted ", "other"] {
            assert_eq!(StateName::from_text(text.as_bytes()), None, "{text}");
        }
    }
}
