//! Whole policies on `memory://`, with a clock that is driven.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use resil::breaker::{BreakerOptions, Mode, State};
use resil::clock::Clock;
use resil::limiter::Limit;
use resil::policy::{
    CallOptions, Class, Fallback, HedgeSettings, Jitter, LocalBulkhead, Policy, RetrySettings, Stage, TimeoutSettings,
    retry_all, retry_none,
};
use resil::{Client, Code, ConnectOptions, Error, Failure};

#[path = "policies_drive/mod.rs"]
mod policies_drive;

const MS: Duration = Duration::from_millis(1);

async fn client(clock: &Clock) -> Client {
    ConnectOptions::new("memory://").clock(clock.clone()).connect().await.unwrap()
}

fn three_attempts() -> RetrySettings {
    RetrySettings { max_attempts: 3, initial_backoff: 100 * MS, jitter: Jitter::None, ..RetrySettings::default() }
}

fn is_send<T: Send>(value: T) -> T {
    value
}

#[tokio::test]
async fn a_call_through_every_stage_gives_its_answer_and_can_be_sent_to_another_task() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let policy = Policy::builder("all")
        .timeout(TimeoutSettings { attempt: Some(50 * MS), total: Some(1_000 * MS) })
        .shed(10)
        .retry(&three_attempts())
        .hedge(&HedgeSettings::default())
        .breaker(client.breaker("all", BreakerOptions::new()).unwrap())
        .limiter(client.limiter("all", Limit::per_second(10)).unwrap())
        .bulkhead(LocalBulkhead::new("all", 1, 0).unwrap())
        .shared_bulkhead(client.shared_bulkhead("all", 1))
        .build()
        .unwrap();
    assert_eq!(policy.order(), Stage::DEFAULT_ORDER);
    assert!(policy.warnings().is_empty(), "{:?}", policy.warnings());
    for _ in 0..3 {
        let policy = policy.clone();
        let answer = tokio::spawn(is_send(async move { policy.call(retry_all, async || Ok::<_, ()>(7)).await }));
        assert_eq!(answer.await.unwrap(), Ok(7));
    }
}
