//! What can be seen of a ledger. Nothing here changes anything, and every question looks at a bounded number of entries.

use alloc::vec::Vec;

use super::config::{Class, Rate};
use super::message::Message;
use super::request::{Category, Death, Place};
use crate::time::{Instant, Span};

/// One of the last failures of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    pub at: Instant,
    pub class: Class,
    /// What it waited afterwards; zero if it died.
    pub delay: Span,
}

/// An entry, in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryView<'a> {
    pub message: &'a Message,
    pub place: Place,
    pub attempt: u32,
    pub lapses: u32,
    pub deaths: u32,
    pub reason: Option<Death>,
    pub class: Class,
    /// Empty if it has never failed.
    pub group: &'a [u8],
    pub first_error: &'a [u8],
    pub last_error: &'a [u8],
    /// True if an error text was longer than its limit.
    pub error_is_cut: bool,
    pub first_at: Instant,
    pub last_at: Instant,
    pub died_at: Option<Instant>,
    /// When it can be taken, if it waits.
    pub due_at: Option<Instant>,
    pub held: bool,
    /// The latest last.
    pub attempts: Vec<Attempt>,
    /// The cases that redrove it.
    pub cases: &'a [u32],
}

/// How much is in a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerView {
    /// As [`Place::ALL`].
    pub counts: [usize; 6],
    pub held: usize,
    pub entries: usize,
    pub bytes: usize,
    pub groups: usize,
    pub cases_open: usize,
    pub alerts_unseen: usize,
    pub paused_until: Option<Instant>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupView<'a> {
    pub name: &'a [u8],
    pub kind: &'a [u8],
    /// How many are dead now.
    pub dead: usize,
    /// How many are in the ledger, whatever their place.
    pub entries: usize,
    /// How often something died here.
    pub deaths: u64,
    pub first_at: Instant,
    pub last_at: Instant,
    pub sample: &'a [u8],
    /// The open cases that cover it.
    pub cases: &'a [u32],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseView<'a> {
    pub number: u32,
    pub category: Category,
    pub cause: &'a [u8],
    pub fix: &'a [u8],
    pub decision: &'a [u8],
    pub groups: Vec<&'a [u8]>,
    pub user: &'a [u8],
    pub actor: &'a [u8],
    pub opened_at: Instant,
    pub closed_at: Option<Instant>,
    pub is_discarded: bool,
    pub auto_until: Option<Instant>,
    /// The present redrive, or the last one.
    pub redrive: Option<RedriveView>,
}

/// How a redrive is getting on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedriveView {
    pub phase: RedrivePhase,
    pub started_at: Instant,
    pub rate: Rate,
    pub first: u32,
    pub oneshot: bool,
    pub is_auto: bool,
    pub given: u32,
    pub resolved: u32,
    pub died: u32,
    /// Given out, and not ended yet.
    pub active: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedrivePhase {
    /// TAKE draws from it.
    Running,
    /// The first ones are out; the rest follows when enough of them are resolved.
    Verifying,
    /// Everything was given out; some have not ended yet.
    Draining,
    /// By an operator.
    Stopped,
    /// By itself: too many died again.
    Failed,
    Finished,
}

impl RedrivePhase {
    pub const ALL: [Self; 6] =
        [Self::Running, Self::Verifying, Self::Draining, Self::Stopped, Self::Failed, Self::Finished];

    /// The inverse of [`Self::text`].
    pub fn from_text(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.text().as_bytes() == text)
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Verifying => "verifying",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Finished => "finished",
        }
    }
}
