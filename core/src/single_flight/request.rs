//! What is asked of a single-flight key, and what it says.

use alloc::sync::Arc;

use crate::generations::Generations;
use crate::time::Span;
use crate::waited::{Binding, Reason};

/// How a caller would lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeadRequest {
    pub lease: Span,
    /// What to bind the lead to. The machine only passes it on.
    pub bind_to: Option<Binding>,
    /// Of the name it asks under; 0 without one.
    pub generation: u64,
    /// It leads in the last so many percent of a value's ttl, too.
    pub early: Option<u32>,
}

/// The caller is to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lead {
    pub fence: u64,
    pub stale: Option<Arc<[u8]>>,
    /// How long that value is still fresh: it is to be loaded anew before its ttl is over.
    pub fresh: Option<Span>,
    pub lease: Span,
    pub waited: Span,
}

/// A reply that does not make the caller load.
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

/// What a value is published under: what is known of the name, and the value's tags.
#[derive(Debug, Clone, Copy)]
pub struct UnderName<'a> {
    pub known: &'a Generations,
    pub tags: &'a [&'a [u8]],
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
