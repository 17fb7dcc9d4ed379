//! The edits a step makes. They carry absolute values: a replica that applies them has the same ledger.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use smallvec::SmallVec;

use super::alert::{Alert, AuditRow};
use super::case::{Case, Cursor, Discard, Redrive, RedriveState};
use super::config::{Class, Config};
use super::ledger::{Pace, TakenBatch};
use super::message::Message;
use super::records::LedgerRecord;
use super::request::Death;
use crate::time::{Instant, Span};
use crate::waited::End;

pub type LedgerEdits = SmallVec<[LedgerEdit; 1]>;

/// Entries to which the same happens in one step; nearly always one.
pub type ArrivalList = SmallVec<[u64; 2]>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerEdit {
    /// The ledger exists from now on.
    Opened,
    Added(Added),
    Failed(Box<FailedEdit>),
    Taken(Box<TakenEdit>),
    /// A lease has another length and end.
    Timed {
        fence: u64,
        length: Span,
        ends: Instant,
    },
    /// A lease ended without a word of its taker, or was taken back.
    Ended {
        fence: u64,
        at: Instant,
        how: End,
        /// False if the server was away meanwhile: that is not the message's fault.
        counted: bool,
    },
    /// Takers are done with them.
    Done {
        arrivals: ArrivalList,
        at: Instant,
    },
    /// Takers gave them back.
    Returned {
        arrivals: ArrivalList,
        at: Instant,
        due: Instant,
    },
    /// A clock was set back: it waits since `at`, and as long as before.
    Due {
        arrival: u64,
        at: Instant,
    },
    /// A clock was set back: so does the next redriven entry.
    Paced(Pace),
    Held {
        arrival: u64,
        held: bool,
    },
    AggregateHeld {
        aggregate: Box<[u8]>,
        held: bool,
    },
    Diagnosed {
        number: u32,
        case: Box<Case>,
    },
    RedriveStarted {
        case: u32,
        redrive: Box<Redrive>,
    },
    RedriveMoved {
        case: u32,
        cursor: Cursor,
        is_exhausted: bool,
    },
    RedriveEnded {
        case: u32,
        phase: RedriveState,
    },
    CaseClosed {
        case: u32,
        at: Instant,
        discard: Discard,
    },
    Archived {
        arrivals: Vec<u64>,
        at: Instant,
    },
    /// Nothing of them is left.
    Purged {
        arrivals: Vec<u64>,
        at: Instant,
    },
    Alerted(Alert),
    AlertSeen {
        id: u64,
    },
    Audited(AuditRow),
    Configured(Config),
    /// Whether the ledger is nearly full.
    Filled(bool),
    /// A piece of a stored ledger.
    Loaded(Box<LedgerRecord>),
}

impl LedgerEdit {
    /// Adds what the edit does to this one, if it is the same for other entries. True if it was.
    pub(super) fn absorb(&mut self, edit: &Self) -> bool {
        match (self, edit) {
            (Self::Done { arrivals, at }, Self::Done { arrivals: more, at: then }) if *at == *then => {
                arrivals.extend_from_slice(more);
            }
            (Self::Returned { arrivals, at, due }, Self::Returned { arrivals: more, at: then, due: due_then })
                if (*at, *due) == (*then, *due_then) =>
            {
                arrivals.extend_from_slice(more)
            }
            _ => return false,
        }
        true
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    pub arrival: u64,
    pub message: Message,
    pub at: Instant,
    /// Its first failure; without one it is parked.
    pub failure: Option<Box<FailedEdit>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedEdit {
    pub arrival: u64,
    pub at: Instant,
    pub class: Class,
    /// After this failure.
    pub attempt: u16,
    pub error: Arc<[u8]>,
    pub error_is_cut: bool,
    pub group: Arc<[u8]>,
    pub fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Retry { delay: Span },
    Dead(Death),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenEdit {
    /// Of the first entry, and of the batch; the others follow.
    pub fence: u64,
    pub batch: TakenBatch,
    /// The one that is drawn from a redrive, and its case.
    pub drawn: Option<(u64, u32)>,
    /// No redriven entry is given out before this instant, if one was now.
    pub pace: Option<Instant>,
}
