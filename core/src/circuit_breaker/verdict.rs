//! What goes into a step besides the breaker, and what comes out of it.

use smallvec::SmallVec;

use super::edit::Edits;
use super::outcomes::Batch;
use super::permit::{Caller, Permit};
use super::state::StateName;
use crate::rate_limit::Wait;

/// What a step came to. No edits: nothing changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerOutcome<V> {
    pub verdict: V,
    pub edits: Edits,
    pub transitions: SmallVec<[Transition; 1]>,
}

/// A change of state, to be published once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    pub previous: StateName,
    pub new: StateName,
    /// What is published in order is a chain: each begins where the one before ended.
    pub previous_generation: u64,
    pub generation: u64,
    pub reason: TransitionReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransitionReason {
    Consecutive,
    FailureRate,
    SlowRate,
    OpenTimeOver,
    ProbesSucceeded,
    ProbeFailed,
    RampOver,
    RampFailed,
    Forced,
    ForceLifted,
    ForceEnded,
    Reset,
}

impl TransitionReason {
    pub fn text(self) -> &'static str {
        match self {
            Self::Consecutive => "consecutive-failures",
            Self::FailureRate => "failure-rate",
            Self::SlowRate => "slow-rate",
            Self::OpenTimeOver => "open-time-over",
            Self::ProbesSucceeded => "probes-succeeded",
            Self::ProbeFailed => "probe-failed",
            Self::RampOver => "ramp-over",
            Self::RampFailed => "ramp-failed",
            Self::Forced => "forced",
            Self::ForceLifted => "force-lifted",
            Self::ForceEnded => "force-ended",
            Self::Reset => "reset",
        }
    }
}

impl Transition {
    /// The table of moves: what leads from where to where.
    pub fn is_in_table(&self) -> bool {
        use StateName::{Closed, HalfOpen, Open, Ramping};
        let is_forced = |state| !matches!(state, Closed | Open | HalfOpen | Ramping);
        match (self.reason, self.previous, self.new) {
            (TransitionReason::Consecutive, Closed, Open) => true,
            (TransitionReason::FailureRate, Closed, Open) => true,
            (TransitionReason::SlowRate, Closed, Open) => true,
            (TransitionReason::OpenTimeOver, Open, HalfOpen) => true,
            (TransitionReason::ProbeFailed, HalfOpen, Open) => true,
            (TransitionReason::ProbesSucceeded, HalfOpen, Closed | Ramping) => true,
            (TransitionReason::RampFailed, Ramping, Open) => true,
            (TransitionReason::RampOver, Ramping, Closed) => true,
            (TransitionReason::Forced, from, to) => from != to && is_forced(to),
            (TransitionReason::ForceLifted | TransitionReason::ForceEnded, from, Closed) => is_forced(from),
            (TransitionReason::ForceEnded, StateName::ForcedOpen, HalfOpen) => true,
            (TransitionReason::Reset, from, Closed) => from != Closed,
            _ => false,
        }
    }
}

/// The reply to ADMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// `None`: denied.
    pub permit: Option<Permit>,
    pub state: StateName,
    pub retry_after: Wait,
    pub generation: u64,
}

/// What a call came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    Ok,
    Fail,
    Ignore,
    Cancel,
}

/// Why a report counted or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Counted,
    Stale,
    Unknown,
    Duplicate,
    Ignored,
}

impl Why {
    pub const ALL: [Self; 5] = [Self::Counted, Self::Stale, Self::Unknown, Self::Duplicate, Self::Ignored];

    /// The inverse of [`Self::text`].
    pub fn from_text(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.text().as_bytes() == text)
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::Stale => "stale",
            Self::Unknown => "unknown",
            Self::Duplicate => "duplicate",
            Self::Ignored => "ignored",
        }
    }
}

/// The reply to REPORT and TALLY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reported {
    pub why: Why,
    pub state: StateName,
    pub generation: u64,
    pub retry_after: Wait,
}

/// A batch of a caller that admits by itself while the breaker is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub generation: u64,
    pub caller: Caller,
    pub seq: u64,
    pub batch: Batch,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_read_back_and_nothing_else_is() {
        assert_eq!(Why::ALL.len(), Why::Ignored as usize + 1);
        for one in Why::ALL {
            assert_eq!(Why::from_text(one.text().as_bytes()), Some(one));
        }
        for text in ["", "Open", "EXPIRED", "counted ", "other"] {
            assert_eq!(Why::from_text(text.as_bytes()), None, "{text}");
        }
    }
}
