//! What is stored under an idempotency key.

use alloc::boxed::Box;
use alloc::sync::Arc;

use crate::limits::GRACE;
use crate::time::{Instant, Span};
use crate::waited::Lease;
use crate::waited::lease::ends_for;

/// What happens when a runner's lease ends without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLapse {
    /// The next caller runs.
    #[default]
    Run,
    /// Nobody runs until the last token commits or aborts: somebody has to look at what it did.
    Hold,
}

impl OnLapse {
    /// As a word of the grammar.
    pub fn text(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Hold => "hold",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Record {
    #[default]
    Nothing,
    Once(Once),
    Work(Box<Work>),
}

/// An event that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Once {
    /// Who saw it first; empty if that was not said.
    pub token: Box<[u8]>,
    pub at: Instant,
    pub until: Instant,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Empty if none was given.
    pub fingerprint: Box<[u8]>,
    /// Who runs, or ran last.
    pub token: Box<[u8]>,
    pub fence: u64,
    pub attempt: u32,
    pub keep: Span,
    pub on_lapse: OnLapse,
    pub phase: WorkPhase,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkPhase {
    Running { since: Instant, lease: Span, ends: Instant },
    Idle { at: Instant, why: Idle },
    Done { at: Instant, until: Instant, failed: bool, result: Option<Arc<[u8]>> },
}

/// Why nobody runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// The runner said that nothing happened.
    Aborted,
    /// Its lease ended.
    Lapsed,
    /// The connection it was bound to closed.
    Closed,
}

impl Idle {
    pub const ALL: [Self; 3] = [Self::Aborted, Self::Lapsed, Self::Closed];
}

/// How far the collection of a key may lag behind its last possible use: a sixteenth of its length.
fn step_of(length: Span) -> Span {
    Span::from_us(length.as_us() / 16)
}

impl Record {
    /// The work in here, if time has not forgotten it.
    pub fn work(&self, now: Instant) -> Option<&Work> {
        match self {
            Self::Work(work) if work.kept_until() > now => Some(work),
            _ => None,
        }
    }

    /// The same on a server that was promoted at `promoted_at`, if it was: what ran then runs on, and is remembered from
    /// its real end, even if nobody has written that down yet.
    pub fn work_for(&self, promoted_at: Option<Instant>, now: Instant) -> Option<&Work> {
        match self {
            Self::Work(work) if work.kept_until_for(promoted_at, now) > now => Some(work),
            _ => None,
        }
    }

    /// Somebody runs, or nobody may until somebody decides.
    pub fn is_in_flight(&self) -> bool {
        let Self::Work(work) = self else { return false };
        matches!(work.phase, WorkPhase::Running { .. }) || work.is_held()
    }

    /// The event seen, if time has not forgotten it.
    pub fn seen(&self, now: Instant) -> Option<&Once> {
        match self {
            Self::Once(once) if once.until > now => Some(once),
            _ => None,
        }
    }

    pub fn last_fence(&self) -> u64 {
        match self {
            Self::Work(work) => work.fence,
            Self::Nothing | Self::Once(_) => 0,
        }
    }

    /// The run, if there is one, as a lease.
    pub(super) fn lease(&self) -> Option<Lease<'_>> {
        let Self::Work(work) = self else { return None };
        let WorkPhase::Running { since, lease, ends } = work.phase else { return None };
        Some(Lease { owner: &work.token, fence: work.fence, since, length: lease, ends })
    }

    /// When an event, or the end of a run, was written down.
    pub(super) fn written_at(&self) -> Option<Instant> {
        match self {
            Self::Nothing => None,
            Self::Once(once) => Some(once.at),
            Self::Work(work) => match work.phase {
                WorkPhase::Running { .. } => None,
                WorkPhase::Idle { at, .. } | WorkPhase::Done { at, .. } => Some(at),
            },
        }
    }

    /// In debug builds, after every step.
    pub(super) fn check_invariants(&self) {
        if let Self::Work(work) = self {
            debug_assert!(work.attempt > 0 && work.fence > 0 && !work.token.is_empty(), "{work:?}");
            debug_assert!(!matches!(work.phase, WorkPhase::Running { lease, .. } if lease.is_zero()), "{work:?}");
        }
    }

    /// When nothing in here can matter any more.
    pub fn gc_at(&self, salt: u64) -> Option<Instant> {
        let (end, length) = match self {
            Self::Nothing => return None,
            // Written once and never moved: no grid is needed.
            Self::Once(once) => return Some(once.until),
            Self::Work(work) => match &work.phase {
                WorkPhase::Done { until, .. } => return Some(*until),
                WorkPhase::Running { .. } | WorkPhase::Idle { .. } => (work.kept_until(), work.keep()),
            },
        };
        Some(end.next_on_grid(step_of(length), salt))
    }

    /// Bytes on the heap beyond the value itself.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Once(once) => once.token.len(),
            Self::Work(work) => {
                let result = match &work.phase {
                    WorkPhase::Done { result: Some(result), .. } => result.len() + 2 * size_of::<usize>(),
                    _ => 0,
                };
                size_of::<Work>() + work.fingerprint.len() + work.token.len() + result
            }
        }
    }
}

impl Work {
    /// When it is forgotten.
    pub fn kept_until(&self) -> Instant {
        match &self.phase {
            WorkPhase::Running { ends, .. } => ends.plus(self.keep()),
            WorkPhase::Idle { at, .. } => at.plus(self.keep()),
            WorkPhase::Done { until, .. } => *until,
        }
    }

    /// How long it is kept without a runner. If all that ever was is a first attempt that says it did nothing, and there is
    /// no fingerprint to hold others to, only the reply to a second ABORT is left to be remembered.
    fn keep(&self) -> Span {
        let aborted = matches!(self.phase, WorkPhase::Idle { why: Idle::Aborted, .. });
        let is_blank = aborted && self.attempt == 1 && self.fingerprint.is_empty();
        if is_blank { self.keep.min(GRACE) } else { self.keep }
    }

    fn kept_until_for(&self, promoted_at: Option<Instant>, now: Instant) -> Instant {
        match self.phase {
            WorkPhase::Running { lease, ends, .. } => ends_for(ends, lease, promoted_at, now).plus(self.keep),
            _ => self.kept_until(),
        }
    }

    /// True if somebody has to decide before anybody runs.
    pub fn is_held(&self) -> bool {
        self.on_lapse == OnLapse::Hold && matches!(self.phase, WorkPhase::Idle { why: Idle::Lapsed | Idle::Closed, .. })
    }
}
