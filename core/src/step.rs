//! The one shape of every machine: `step(state, event, now) -> Step`.

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
