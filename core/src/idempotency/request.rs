//! What is asked of an idempotency key, and what it says.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::record::OnLapse;
use crate::time::Span;
use crate::waited::{Binding, Reason};

/// How a caller wants to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRequest {
    /// Empty if none is given.
    pub fingerprint: Box<[u8]>,
    pub lease: Span,
    pub keep: Span,
    pub on_lapse: OnLapse,
    /// What to bind the run to. The machine only passes it on.
    pub bind_to: Option<Binding>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub fence: u64,
    pub attempt: u32,
    pub lease: Span,
    pub waited: Span,
}

/// A reply that does not let the caller run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    Replay(Replay),
    Busy { remaining: Span, attempt: u32 },
    Mismatch,
    Held { attempt: u32 },
    Miss,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    pub failed: bool,
    /// `None` if it was dropped.
    pub result: Option<Arc<[u8]>>,
    pub age: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    Committed { stored: bool },
    Lost(Reason),
}
