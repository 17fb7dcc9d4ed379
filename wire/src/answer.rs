//! Replies as a caller sees them: the same from a server and from memory, durations in whole milliseconds.
//!
//! Each is made from what core decided (`From`), written to a [`Sink`] and read from a [`Value`]; reading what was
//! written is the identity.

mod decided;
mod reading;
mod writing;

use std::sync::Arc;

use resil_core::circuit_breaker::{StateName, Why};
use resil_core::lock::Reason;

use crate::gcra;
use crate::mgcra;
use crate::reply::Value;

/// What a [`Command`](crate::command::Command) is answered, if it is not refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// GCRA, WINDOW and their PEEKs.
    Limit(gcra::Reply),
    /// MGCRA.
    Limits(mgcra::Reply),
    /// CL.THROTTLE.
    Throttle([i64; 5]),
    Admitted(Admitted),
    /// REPORT and TALLY.
    Counted(Counted),
    Forced {
        state: StateName,
        generation: u64,
    },
    /// RESET, CONFIG, CHECK, BREAK, ONCE and INVALIDATE.
    Number(i64),
    Acquired(Acquired),
    Entered(Entered),
    /// RENEW, of whatever it is.
    Renewed(Renewed),
    /// RELEASE and LEAVE.
    Released(Released),
    /// BEGIN, and GET of an idempotency key.
    Begun(Begun),
    Committed(Committed),
    /// ABORT: `Some` is why it was lost.
    Aborted(Option<Reason>),
    /// ABANDON: `Some` is why it was lost.
    Abandoned(Option<Reason>),
    /// JOIN, and GET of a single-flight key.
    Joined(Joined),
    Published(Published),
    Heartbeat(Heartbeat),
    /// STATE and INFO.
    Map(Value),
}

/// ADMIT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// `None`: denied.
    pub permit: Option<resil_core::circuit_breaker::Permit>,
    pub state: StateName,
    /// -1: not by itself.
    pub retry_after_ms: i64,
    pub generation: u64,
}

/// REPORT and TALLY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    pub why: Why,
    pub state: StateName,
    pub generation: u64,
    /// -1: not by itself.
    pub retry_after_ms: i64,
}

/// LOCK ACQUIRE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquired {
    Granted { fence: u64, lease_ms: i64, waited_ms: i64 },
    Taken(Taken),
    Timeout(Taken),
}

/// Who is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// `None` if only the line is in the way.
    pub holder: Option<Vec<u8>>,
    pub remaining_ms: i64,
    pub waiters: i64,
}

/// BULKHEAD ENTER.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entered {
    Granted { active: i64, queued: i64, lease_ms: i64, waited_ms: i64 },
    Full { active: i64, queued: i64, retry_after_ms: i64 },
    Timeout { active: i64, queued: i64, retry_after_ms: i64 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewed {
    Granted { fence: u64, lease_ms: i64 },
    Lost(Reason),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    Released { held_ms: i64 },
    Lost(Reason),
}

/// IDEMP BEGIN and GET.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    Run {
        fence: u64,
        attempt: u32,
        waited_ms: i64,
    },
    /// `result` is `None` if it was too large to be kept.
    Replay {
        failed: bool,
        result: Option<Arc<[u8]>>,
        age_ms: i64,
    },
    Busy {
        remaining_ms: i64,
        attempt: u32,
    },
    Mismatch,
    Held {
        attempt: u32,
    },
    /// Only GET.
    Miss,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    Committed { stored: bool },
    Lost(Reason),
}

/// SFLIGHT JOIN and GET.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joined {
    Lead {
        fence: u64,
        stale: Option<Arc<[u8]>>,
        waited_ms: i64,
    },
    Value {
        bytes: Arc<[u8]>,
        age_ms: i64,
        fresh_ms: i64,
    },
    Stale {
        bytes: Arc<[u8]>,
        age_ms: i64,
    },
    Empty {
        age_ms: i64,
    },
    Error {
        text: Arc<[u8]>,
    },
    Busy {
        remaining_ms: i64,
    },
    /// Only GET.
    Miss,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    Published { followers: i64 },
    Lost(Reason),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    pub bound: i64,
    pub losses: Vec<Lost>,
}

/// A bound holding that was lost since the last heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    pub key: Vec<u8>,
    pub fence: u64,
    pub reason: Reason,
}
