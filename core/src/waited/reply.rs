//! What a step says: to the caller, to the calls that waited, and to the driver.

use alloc::sync::Arc;
use alloc::vec::Vec;

use smallvec::SmallVec;

use super::ending::{Crowd, Ending, Reason};
use super::queue::WaiterId;
use super::session::Binding;
use crate::time::{Instant, Span};

/// The verdict for a caller who asks for a lease. `G` is a grant and `R` any other reply, as the machine has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision<G, R> {
    Granted(G),
    Refused(R),
    /// The caller waits, under the id it gave.
    Queued,
    /// The request contradicts what the key is used for: an error. A lock: a reader that wants to write would wait for
    /// itself. An idempotency key: it counts events.
    Conflict,
}

/// The reply to a call that waited. Every call that waits gets exactly one, or leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<G, R> {
    Granted {
        id: WaiterId,
        owner: Arc<[u8]>,
        grant: G,
        bind_to: Option<Binding>,
    },
    Refused {
        id: WaiterId,
        refusal: R,
    },
    TimedOut {
        id: WaiterId,
        refusal: R,
    },
    /// The same owner asked again with another call, which has the position in the queue now, or let go.
    Superseded {
        id: WaiterId,
    },
}

impl<G, R> Reply<G, R> {
    pub fn id(&self) -> WaiterId {
        match self {
            Self::Granted { id, .. }
            | Self::Refused { id, .. }
            | Self::TimedOut { id, .. }
            | Self::Superseded { id } => *id,
        }
    }
}

/// What every grant says, of whatever machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    pub fence: u64,
    /// What is left of the lease.
    pub lease: Span,
    pub waited: Span,
}

/// A lease as its owner gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    pub fence: u64,
    /// What is left of the lease.
    pub lease: Span,
    pub waited: Span,
    /// Holders after it, and waiters.
    pub active: usize,
    pub queued: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    Granted(Grant),
    Lost(Reason),
}

/// What one step did. The edits have been applied here; a replica applies the same ones.
pub struct Outcome<V, E, R> {
    pub verdict: V,
    pub edits: SmallVec<[E; 1]>,
    pub replies: Vec<R>,
    pub endings: Vec<Ending>,
    /// Those that ended as one, if they were very many: behind `endings`.
    pub crowd: Option<Crowd>,
    /// When the key wants to be stepped again without being asked.
    pub timer_at: Option<Instant>,
    /// The fence in the reply to the caller itself: that grant is delivered, even if an earlier reply was not.
    pub granted: Option<u64>,
}
