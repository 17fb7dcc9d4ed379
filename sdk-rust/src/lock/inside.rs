//! Re-entrancy for blocks that are no futures: a `with` of another language, whose body runs between two calls.

use super::reentry;
use crate::holding::Held;

impl Held {
    /// As [`LockGuard::reentrant`](super::LockGuard::reentrant), for those who do not have the guard at hand. A place in a
    /// bulkhead is not re-entrant: it changes nothing.
    pub async fn reentrant<R: Future>(&self, work: R) -> R::Output {
        reentry::holding(&self.0, work).await
    }
}

#[cfg(test)]
#[path = "tests/inside.rs"]
mod tests;
