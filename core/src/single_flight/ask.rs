//! What is asked of a single-flight key, and what it answers.

use alloc::sync::Arc;

use super::edit::Edit;
use crate::lock::Reason;
use crate::queue::WaiterId;
use crate::session::Binding;
use crate::time::Span;

/// How somebody would lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    pub lease: Span,
    /// What to bind the lead to. The machine only passes it on.
    pub bind_to: Option<Binding>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joined {
    Lead(Lead),
    Seen(Seen),
    /// It waits, under the id it gave.
    Queued,
}

/// The caller is to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lead {
    pub fence: u64,
    pub stale: Option<Arc<[u8]>>,
    pub lease: Span,
    pub waited: Span,
}

/// An answer that does not make the caller load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Value { bytes: Arc<[u8]>, age: Span, fresh: Span },
    Stale { bytes: Arc<[u8]>, age: Span },
    Empty { age: Span },
    Error { text: Arc<[u8]> },
    Busy { remaining: Span },
    Miss,
}

/// What a leader brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Publication {
    Value { bytes: Arc<[u8]>, stale: Span },
    Empty,
    Error { text: Arc<[u8]> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    Published { followers: usize },
    Lost(Reason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abandoned {
    Abandoned,
    Lost(Reason),
}

/// An answer for a call that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Lead { id: WaiterId, lead: Lead, bind_to: Option<Binding> },
    Seen { id: WaiterId, seen: Seen },
    Superseded { id: WaiterId },
}

/// What one step did.
pub type Outcome<V> = crate::step::Outcome<V, Edit, Answer>;
