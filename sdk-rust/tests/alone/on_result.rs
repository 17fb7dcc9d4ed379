//! Results that are failures: a 503 that came as a result, not as an error.

use std::cell::Cell;
use std::time::Duration;

use resil::breaker::State;
use resil::policy::{Class, Policy, Retry, RetrySettings, retry_none};
use resil::settings::BreakerSettings;
use resil::{Error, Failure};

fn unwell(status: &u16) -> Option<Class> {
    (*status == 503).then_some(Class::Retry)
}

fn retries() -> RetrySettings {
    RetrySettings { initial_backoff: Duration::from_millis(1), ..RetrySettings::default() }
}

#[tokio::test]
async fn a_result_that_is_a_failure_is_tried_again() {
    let retry = Retry::new(&retries()).unwrap();
    let calls = Cell::new(0);
    let call = || {
        calls.set(calls.get() + 1);
        let status = if calls.get() < 3 { 503 } else { 200 };
        async move { Ok::<_, &str>(status) }
    };
    assert_eq!(retry.call_on_result(unwell, retry_none, call).await, Ok(200));
    assert_eq!(calls.get(), 3);
}

#[tokio::test]
async fn after_all_attempts_the_last_result_is_returned() {
    let retry = Retry::new(&retries()).unwrap();
    let calls = Cell::new(0);
    let call = || {
        calls.set(calls.get() + 1);
        async { Ok::<u16, &str>(503) }
    };
    assert_eq!(retry.call_on_result(unwell, retry_none, call).await, Ok(503));
    assert_eq!(calls.get(), 3);
    let failed = retry.call_on_result(unwell, retry_none, || async { Err::<u16, _>("gone") }).await;
    assert_eq!(failed, Err(Failure::Inner("gone")));
}

#[tokio::test]
async fn results_trip_a_breaker() {
    let client = resil::connect("memory://").await.unwrap();
    let settings = BreakerSettings::new().consecutive_failures(2);
    let breaker = client.breaker("bank", settings).unwrap();
    for _ in 0..2 {
        let reply = breaker.call_on_result(unwell, retry_none, || async { Ok::<u16, &str>(503) }).await;
        assert_eq!(reply, Ok(503), "it is a result all the same");
    }
    assert_eq!(breaker.state().await.unwrap().state, State::Open);
    let refused = breaker.call_on_result(unwell, retry_none, || async { Ok::<u16, &str>(200) }).await;
    assert!(matches!(refused, Err(Failure::Resil(Error::CircuitOpen { .. }))), "{refused:?}");
}

#[tokio::test]
async fn a_whole_policy_judges_results() {
    let policy = Policy::builder("bank").retry(&retries()).build().unwrap();
    let calls = std::sync::atomic::AtomicU32::new(0);
    let call = || async {
        let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok::<u16, &str>(if call == 0 { 503 } else { 200 })
    };
    assert_eq!(policy.call_on_result(unwell, retry_none, call).await, Ok(200));
}
