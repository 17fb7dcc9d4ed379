//! The one shape of every machine: `step(state, event, now) -> Step`.

/// What one step decided.
///
/// `change` is `None` when durable state stays as it is: nothing is stored, replicated, or signalled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step<V, C> {
    pub verdict: V,
    pub change: Option<C>,
}

impl<V, C> Step<V, C> {
    /// The state stays; the caller only learns something.
    pub fn unchanged(verdict: V) -> Self {
        Self { verdict, change: None }
    }

    /// The state becomes what `change` says.
    pub fn changed(verdict: V, change: C) -> Self {
        Self { verdict, change: Some(change) }
    }
}
