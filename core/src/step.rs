//! The one shape of every machine: `step(state, event, now) -> Step`.

use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::lock::Ending;
use crate::time::Instant;

/// What one step decided.
///
/// `change` is `None` when durable state stays as it is: nothing is stored, replicated, or signalled. `wake_at` is
/// when the machine wants to be looked at again without being asked (a lease that ends); rate limits never do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step<V, C> {
    pub verdict: V,
    pub change: Option<C>,
    pub wake_at: Option<Instant>,
}

impl<V, C> Step<V, C> {
    /// The state stays; the caller only learns something.
    pub fn unchanged(verdict: V) -> Self {
        Self { verdict, change: None, wake_at: None }
    }

    /// The state becomes what `change` says.
    pub fn changed(verdict: V, change: C) -> Self {
        Self { verdict, change: Some(change), wake_at: None }
    }
}

/// What one step of a machine did that edits in place and that others wait for.
///
/// The edits have already been made here; a replica makes the same ones (where an edit is the whole state: the last). `answers` are for calls that wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome<V, E, A> {
    pub verdict: V,
    pub edits: SmallVec<[E; 1]>,
    pub answers: Vec<A>,
    pub endings: Vec<Ending>,
    /// When the machine wants to be looked at again without being asked.
    pub wake_at: Option<Instant>,
}
