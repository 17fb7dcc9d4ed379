//! Reports by what a call came to, for those who took the two steps by hand.

use super::{Permit, report_of};
use crate::error::Failure;
use crate::policy::classify::Classify;

impl Permit {
    /// Reports what `result` says about the health of what was called, judged as [`Breaker::around`](super::Breaker::around)
    /// judges it.
    pub async fn finish<T, E>(self, classify: impl Classify<E>, result: &Result<T, Failure<E>>) {
        let report = report_of(&classify, result);
        self.report(report).await;
    }
}
#[cfg(test)]
#[path = "tests/judged.rs"]
mod tests;
