//! The edits a step makes, and the one function that makes them.
//!
//! They do not travel: a replica gets the whole record, which is small until the result is there, and that is written once.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::record::{Idle, Once, Record, Work, WorkPhase};
use crate::time::{Instant, Span};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordEdit {
    Seen(Once),
    Ran(Box<Work>),
    /// The run has another lease.
    Timed {
        lease: Span,
        ends: Instant,
    },
    Stopped {
        at: Instant,
        why: Idle,
    },
    Committed {
        at: Instant,
        until: Instant,
        failed: bool,
        result: Option<Arc<[u8]>>,
    },
    /// The clock was set back: what began later than `now` began now.
    Mended {
        now: Instant,
    },
}

/// What listeners learn of an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordEvent {
    Seen,
    Running,
    Aborted,
    Lost,
    Committed,
    Mended,
}

impl RecordEdit {
    pub(super) fn event(&self) -> RecordEvent {
        match self {
            Self::Seen(_) => RecordEvent::Seen,
            Self::Ran(_) | Self::Timed { .. } => RecordEvent::Running,
            Self::Stopped { why: Idle::Aborted, .. } => RecordEvent::Aborted,
            Self::Stopped { .. } => RecordEvent::Lost,
            Self::Committed { .. } => RecordEvent::Committed,
            Self::Mended { .. } => RecordEvent::Mended,
        }
    }
}

impl Record {
    /// The only writer. An edit that fits nothing here changes nothing.
    pub fn apply(&mut self, edit: RecordEdit) {
        match (edit, self) {
            (RecordEdit::Seen(once), record) => *record = Self::Once(once),
            (RecordEdit::Ran(work), record) => *record = Self::Work(work),
            (RecordEdit::Mended { now }, record) => record.mend(now),
            (RecordEdit::Timed { lease, ends }, Self::Work(work)) => {
                if let WorkPhase::Running { since, .. } = work.phase {
                    work.phase = WorkPhase::Running { since, lease, ends };
                }
            }
            (RecordEdit::Stopped { at, why }, Self::Work(work)) => work.phase = WorkPhase::Idle { at, why },
            (RecordEdit::Committed { at, until, failed, result }, Self::Work(work)) => {
                work.phase = WorkPhase::Done { at, until, failed, result };
            }
            (_, Self::Nothing | Self::Once(_)) => {}
        }
    }

    fn mend(&mut self, now: Instant) {
        let (at, until) = match self {
            Self::Once(once) => (&mut once.at, Some(&mut once.until)),
            Self::Work(work) => match &mut work.phase {
                // A lease has its own rule.
                WorkPhase::Running { .. } => return,
                WorkPhase::Idle { at, .. } => (at, None),
                WorkPhase::Done { at, until, .. } => (at, Some(until)),
            },
            Self::Nothing => return,
        };
        if let Some(until) = until {
            *until = until.minus(now.until(*at)).max(Instant::EPOCH);
        }
        *at = now.min(*at);
    }
}
