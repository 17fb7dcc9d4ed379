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
mod tests {
    use crate::breaker::BreakerSettings;
    use crate::error::{Error, Failure};
    use crate::policy::Class;

    /// Whether one call that came to this opens a circuit that the first failure opens.
    async fn opens(class: Class, result: Result<(), Failure<()>>) -> bool {
        let client = crate::connect("memory://").await.unwrap();
        let breaker = client.breaker("bank", BreakerSettings::new().consecutive_failures(1)).unwrap();
        breaker.admit().await.unwrap().finish(|_: &()| class, &result).await;
        breaker.admit().await.is_err()
    }

    #[tokio::test]
    async fn what_a_call_came_to_is_judged_as_around_judges_it() {
        assert!(!opens(Class::Permanent, Ok(())).await);
        assert!(opens(Class::Permanent, Err(Failure::Inner(()))).await);
        assert!(!opens(Class::Ignore, Err(Failure::Inner(()))).await);
        assert!(!opens(Class::Permanent, Err(Failure::Resil(Error::Cancelled))).await);
    }

    #[tokio::test]
    async fn a_retry_that_gave_up_and_came_through_another_language_is_a_failure() {
        assert!(opens(Class::Permanent, Err(Failure::Resil(Error::RetryExhausted { attempts: 0 }))).await);
    }
}
