//! What is asked of locks and bulkheads, and what they say.

use alloc::boxed::Box;

use super::holder::Mode;
use crate::time::Span;
use crate::waited::{Binding, Reason};

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
