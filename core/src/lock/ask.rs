//! What is asked of the machine, and what it answers.

use alloc::boxed::Box;

use super::edit::Edit;
use super::holder::{End, Mode};
use crate::fence::Floor;
use crate::queue::WaiterId;
use crate::session::Binding;
use crate::time::{Instant, Span};

/// What a step is told of the world: the time, and what this server knows of fences and of its own past.
#[derive(Debug)]
pub struct Setting<'a> {
    pub now: Instant,
    /// When this server became a primary, if leases that lived then start anew.
    pub promoted_at: Option<Instant>,
    pub floor: &'a mut Floor,
}

/// What must be true for a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Nobody else.
    Exclusive,
    /// Nobody exclusive.
    Shared,
    /// Fewer than `max`, and before those of a higher priority number.
    Permit { max: u32, priority: u8 },
}

impl Claim {
    pub fn mode(self) -> Mode {
        match self {
            Self::Exclusive => Mode::Exclusive,
            Self::Shared | Self::Permit { .. } => Mode::Shared,
        }
    }

    pub(super) fn priority(self) -> u8 {
        match self {
            Self::Permit { priority, .. } => priority,
            Self::Exclusive | Self::Shared => 0,
        }
    }
}

/// What an owner asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub claim: Claim,
    pub lease: Span,
    pub meta: Box<[u8]>,
    /// What to bind the grant to. The machine only passes it on.
    pub bind_to: Option<Binding>,
}

/// A grant as its owner is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    pub fence: u64,
    /// What is left of the lease.
    pub lease: Span,
    pub waited: Span,
    /// Holders after it, and those who wait.
    pub active: usize,
    pub queued: usize,
}

/// Why it cannot be had: who holds, for how long still, and who else waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// The holder whose lease ends last; nobody, if only the line is in the way.
    pub holder: Box<[u8]>,
    pub remaining: Span,
    /// To the first end of a lease.
    pub retry_after: Span,
    pub active: usize,
    pub queued: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquired {
    Granted(Grant),
    Refused(Busy),
    /// It waits, under the id it gave.
    Queued,
    /// A reader asked to become the writer while others read or wait: it would wait for itself.
    Deadlock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    Granted(Grant),
    Lost(Reason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    Released { held: Span },
    Lost(Reason),
}

/// Why somebody does not hold (any more).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Expired,
    Taken,
    Broken,
    /// The key was evicted. Only a server that saw it can say so.
    Evicted,
    Absent,
    /// It let go itself.
    Released,
    /// The connection it was bound to closed.
    Closed,
    /// It has committed its result.
    Committed,
    /// It gave up.
    Aborted,
    /// It has published what it loaded.
    Published,
    /// Somebody said that what it loads is out of date.
    Invalidated,
}

impl Reason {
    pub const ALL: [Self; 11] = [
        Self::Expired,
        Self::Taken,
        Self::Broken,
        Self::Evicted,
        Self::Absent,
        Self::Released,
        Self::Closed,
        Self::Committed,
        Self::Aborted,
        Self::Published,
        Self::Invalidated,
    ];

    /// The inverse of [`Self::text`].
    pub fn from_text(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.text().as_bytes() == text)
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Taken => "taken",
            Self::Broken => "broken",
            Self::Evicted => "evicted",
            Self::Absent => "absent",
            Self::Released => "released",
            Self::Closed => "closed",
            Self::Committed => "committed",
            Self::Aborted => "aborted",
            Self::Published => "published",
            Self::Invalidated => "invalidated",
        }
    }
}

impl From<End> for Reason {
    fn from(end: End) -> Self {
        match end {
            End::Released => Self::Released,
            End::Expired => Self::Expired,
            End::Broken => Self::Broken,
            End::Closed => Self::Closed,
        }
    }
}

/// An answer for a call that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Granted {
        id: WaiterId,
        owner: Box<[u8]>,
        grant: Grant,
        bind_to: Option<Binding>,
    },
    TimedOut {
        id: WaiterId,
        busy: Busy,
    },
    /// The same owner asked again on another connection, and has its place.
    Superseded {
        id: WaiterId,
    },
}

/// A holding that ended in this step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub owner: Box<[u8]>,
    pub fence: u64,
    pub held: Span,
    pub how: End,
}

/// What one step did.
pub type Outcome<V> = crate::step::Outcome<V, Edit, Answer>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_read_back_and_nothing_else_is() {
        assert_eq!(Reason::ALL.len(), Reason::Invalidated as usize + 1);
        for one in Reason::ALL {
            assert_eq!(Reason::from_text(one.text().as_bytes()), Some(one));
        }
        for text in ["", "Open", "EXPIRED", "counted ", "other"] {
            assert_eq!(Reason::from_text(text.as_bytes()), None, "{text}");
        }
    }
}
