//! What goes into a step besides the breaker, and what comes out of it.

use smallvec::SmallVec;

use super::edit::Edits;
use super::outcomes::Batch;
use super::permit::{Caller, Permit};
use super::state::StateName;
use crate::rate_limit::Wait;

/// What a step came to. No edits: nothing changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome<V> {
    pub verdict: V,
    pub edits: Edits,
    pub transitions: SmallVec<[Transition; 1]>,
}

/// A change of state, to be published once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    pub previous: StateName,
    pub new: StateName,
    pub generation: u64,
    pub reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
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

impl Reason {
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

/// The answer to ADMIT.
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

/// The answer to REPORT and TALLY.
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
