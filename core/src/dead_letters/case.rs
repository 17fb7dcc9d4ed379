//! Cases: a root cause that somebody wrote down, the groups it explains, and the redrive it permits.
//!
//! A redrive moves nothing. It is a cursor over the dead entries of the case's groups, in the order of their deaths, from which
//! TAKE draws. It gives out a few first, and the rest only when at least half of those were resolved; it stops when more than half
//! of its last outcomes were deaths.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::config::Rate;
use super::entry::Entry;
use super::request::{Category, RedriveFilter};
use super::view::{RedrivePhase, RedriveView};
use crate::limits::REDRIVE_OUTCOMES;
use crate::time::Instant;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    pub category: Category,
    pub cause: Box<[u8]>,
    pub fix: Box<[u8]>,
    pub decision: Box<[u8]>,
    /// Numbers of groups, ascending.
    pub groups: Vec<u32>,
    pub user: Box<[u8]>,
    pub actor: Box<[u8]>,
    pub opened_at: Instant,
    pub closed_at: Option<Instant>,
    /// Its entries are archived, a few at a time.
    pub discard: Discard,
    pub auto_until: Option<Instant>,
    /// Entries it redrove that are neither resolved nor archived.
    pub unresolved: u32,
    pub redrive: Option<Redrive>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Discard {
    #[default]
    No,
    UnderWay,
    Over,
}

impl Discard {
    pub const ALL: [Self; 3] = [Self::No, Self::UnderWay, Self::Over];
}

/// Where a redrive's search has come to: a death, and the arrival of what died.
pub type Cursor = (Instant, u64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redrive {
    pub phase: RedriveState,
    pub filter: RedriveFilter,
    /// How many more can be given out.
    pub left: u32,
    pub rate: Rate,
    pub first: u32,
    pub oneshot: bool,
    pub is_auto: bool,
    /// Covers what died before.
    pub started_at: Instant,
    pub given: u32,
    pub resolved: u32,
    pub died: u32,
    pub active: u32,
    /// The last outcomes, the latest in the lowest bit: 1 is a death.
    pub outcomes: u32,
    pub cursor: Cursor,
    /// The search has come to its end.
    pub is_exhausted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedriveState {
    Running,
    Stopped,
    Failed,
    Finished,
}

impl RedriveState {
    pub const ALL: [Self; 4] = [Self::Running, Self::Stopped, Self::Failed, Self::Finished];
}

impl Case {
    pub fn is_open(&self) -> bool {
        self.closed_at.is_none()
    }

    /// True if AUTO can begin another redrive: nothing of the last one is left, and it went well.
    pub fn may_begin_by_itself(&self) -> bool {
        let is_free = self.redrive.as_ref().is_none_or(|last| last.phase == RedriveState::Finished && last.active == 0);
        self.is_open() && self.auto_until.is_some() && is_free
    }

    pub fn running(&self) -> Option<&Redrive> {
        self.redrive.as_ref().filter(|redrive| redrive.phase == RedriveState::Running)
    }
}

impl Redrive {
    /// The first ones are out, and too few of them are resolved yet.
    pub fn is_verifying(&self) -> bool {
        self.given >= self.first && u64::from(self.resolved) * 2 < u64::from(self.first)
    }

    /// True if TAKE may draw from it.
    pub fn draws(&self) -> bool {
        self.phase == RedriveState::Running
            && !self.is_exhausted
            && self.left > 0
            && !self.is_verifying()
            && !self.has_failed()
    }

    pub fn note_outcome(&mut self, died: bool) {
        self.active = self.active.saturating_sub(1);
        let count = if died { &mut self.died } else { &mut self.resolved };
        *count += 1;
        self.outcomes = (self.outcomes << 1 | u32::from(died)) & ((1 << REDRIVE_OUTCOMES) - 1);
    }

    /// True if it must stop by itself: too many of those it gave out have died again.
    pub fn has_failed(&self) -> bool {
        let is_over = self.active == 0 && (self.is_verifying() || self.is_exhausted || self.left == 0);
        let first = self.given.min(self.first);
        let first_failed = is_over && self.given <= self.first && u64::from(self.resolved) * 2 < u64::from(first);
        self.phase == RedriveState::Running && (first_failed || self.outcomes.count_ones() > REDRIVE_OUTCOMES / 2)
    }

    /// True if everything was given out and has ended.
    pub fn is_over(&self) -> bool {
        self.active == 0 && (self.is_exhausted || self.left == 0)
    }

    /// True if it covers the entry, held or not, redriven before or not.
    pub fn matches(filter: &RedriveFilter, entry: &Entry, died: Instant) -> bool {
        let is = |wanted: &Option<Box<[u8]>>, text: &[u8]| wanted.as_ref().is_none_or(|wanted| **wanted == *text);
        is(&filter.id, entry.message.id())
            && is(&filter.kind, entry.message.kind())
            && is(&filter.aggregate, entry.message.aggregate())
            && filter.since.is_none_or(|since| died >= since)
            && filter.until.is_none_or(|until| died < until)
    }

    pub fn view(&self) -> RedriveView {
        let phase = match self.phase {
            RedriveState::Running if self.is_exhausted || self.left == 0 => RedrivePhase::Draining,
            RedriveState::Running if self.is_verifying() => RedrivePhase::Verifying,
            RedriveState::Running => RedrivePhase::Running,
            RedriveState::Stopped => RedrivePhase::Stopped,
            RedriveState::Failed => RedrivePhase::Failed,
            RedriveState::Finished => RedrivePhase::Finished,
        };
        let Self { started_at, rate, first, oneshot, is_auto, given, resolved, died, active, .. } = *self;
        RedriveView { phase, started_at, rate, first, oneshot, is_auto, given, resolved, died, active }
    }
}
