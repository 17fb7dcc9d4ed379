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
async fn an_outcome_is_judged_as_around_judges_it() {
    assert!(!opens(Class::Permanent, Ok(())).await);
    assert!(opens(Class::Permanent, Err(Failure::Inner(()))).await);
    assert!(!opens(Class::Ignore, Err(Failure::Inner(()))).await);
    assert!(!opens(Class::Permanent, Err(Failure::Resil(Error::Cancelled))).await);
}

#[tokio::test]
async fn a_retry_that_gave_up_in_another_language_fails() {
    assert!(opens(Class::Permanent, Err(Failure::Resil(Error::RetryExhausted { attempts: 0 }))).await);
}
