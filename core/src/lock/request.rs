//! What is asked of locks and bulkheads, and what they say.

use alloc::boxed::Box;

use super::holder::Mode;
use crate::time::{Instant, Span};
use crate::waited::{Binding, Grant, Reason};

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
pub struct LockRequest {
    pub claim: Claim,
    pub lease: Span,
    pub meta: Box<[u8]>,
    /// What to bind the grant to. The machine only passes it on.
    pub bind_to: Option<Binding>,
}

/// Why it cannot be had: who holds, for how long still, and who else waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// The holder whose lease ends last; nobody, if only the queue is in the way.
    pub holder: Box<[u8]>,
    pub remaining: Span,
    /// To the first end of a lease.
    pub retry_after: Span,
    pub active: usize,
    pub queued: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    Released { held: Span },
    Lost(Reason),
}

/// What a holder asks for that holds at several servers: that its fence is the same at all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raise {
    /// At least this.
    pub fence: u64,
    /// How far ahead of this server's clock it may be.
    pub most_ahead: Span,
}

impl Raise {
    /// Two jumps: a server that was started issues fences one jump ahead of its clock, and clocks differ by less than another.
    pub fn new(fence: u64, jump: Span) -> Self {
        Self { fence, most_ahead: Span::from_us(jump.as_us().saturating_mul(2)) }
    }

    /// By how much the fence is too far ahead, if it is.
    pub(super) fn excess(self, now: Instant) -> Option<Span> {
        let most = now.plus(self.most_ahead).as_us().max(0).cast_unsigned();
        let excess = self.fence.checked_sub(most).filter(|excess| *excess > 0)?;
        Some(Span::from_us(i64::try_from(excess).unwrap_or(i64::MAX)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raised {
    Granted(Grant),
    Lost(Reason),
    /// The fence is ahead of the clock by so much more than it may be. Nothing was changed.
    TooFarAhead(Span),
    /// A reader's fence cannot be raised. Nothing was changed.
    NotExclusive,
}
