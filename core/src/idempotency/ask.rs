//! What is asked of an idempotency key, and what it answers.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::record::{OnLapse, Record};
use crate::lock::Reason;
use crate::queue::WaiterId;
use crate::session::Binding;
use crate::time::Span;

/// How somebody wants to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Empty if none is given.
    pub fingerprint: Box<[u8]>,
    pub lease: Span,
    pub keep: Span,
    pub on_lapse: OnLapse,
    /// What to bind the run to. The machine only passes it on.
    pub bind_to: Option<Binding>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    Run(Run),
    Settled(Settled),
    /// It waits, under the id it gave.
    Queued,
    /// The key counts events: ONCE and BEGIN do not mix.
    WrongPhase,
}

/// An answer that does not let the caller run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    Replay(Replay),
    Busy { remaining: Span, attempt: u32 },
    Mismatch,
    Held { attempt: u32 },
    Miss,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub fence: u64,
    pub attempt: u32,
    pub lease: Span,
    pub waited: Span,
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

/// An answer for a call that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Run { id: WaiterId, run: Run, bind_to: Option<Binding> },
    Settled { id: WaiterId, settled: Settled },
    Superseded { id: WaiterId },
}

impl Answer {
    pub fn id(&self) -> WaiterId {
        match self {
            Self::Run { id, .. } | Self::Settled { id, .. } | Self::Superseded { id } => *id,
        }
    }
}

/// What the record became in a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Became {
    /// Something on the way.
    Passing(Record),
    /// What it is now: whoever has the record need not be told a copy of it.
    Present,
}

impl Became {
    pub fn record<'a>(&'a self, present: &'a Record) -> &'a Record {
        match self {
            Self::Passing(record) => record,
            Self::Present => present,
        }
    }
}

/// What one step did.
pub type Outcome<V> = crate::step::Outcome<V, Became, Answer>;
