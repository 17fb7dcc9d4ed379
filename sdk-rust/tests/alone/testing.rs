//! The scripted server, and through it what each primitive asks.

use std::time::Duration;

use resil::breaker::{BreakerSettings, CountingMode};
use resil::idempotency::IdempotencySettings;
use resil::limiter::Limit;
use resil::policy::{LocalBulkhead, Policy, RetrySettings, TimeoutSettings, retry_all};
use resil::shared_bulkhead::SharedBulkheadSettings;
use resil::testing::{Clock, Reply, Script};
use resil::{Error, Failure, Status};

fn names(script: &Script) -> Vec<String> {
    let asked = script.asked();
    asked.iter().map(|words| words[0].clone()).collect()
}

#[tokio::test]
async fn a_script_runs_in_order_and_then_is_away() {
    let script = Script::new().reply(1).away().fail(Error::PermissionDenied("to do that"));
    let client = script.connect();
    let idempotent = client.idempotent("orders", IdempotencySettings::new()).unwrap();
    assert_eq!(idempotent.once("a", Duration::from_secs(1), Some("me")).await, Ok(true));
    // Silence is asked about once more.
    assert_eq!(
        idempotent.once("b", Duration::from_secs(1), Some("me")).await,
        Err(Error::PermissionDenied("to do that"))
    );
    assert_eq!(script.left(), 0);
    let over = idempotent.once("c", Duration::from_secs(1), Some("me")).await;
    assert_eq!(over, Err(Error::BackendUnavailable("the script is over")));
    let keys: Vec<_> = script.asked().iter().map(|words| words[2].clone()).collect();
    assert_eq!(
        keys[..3],
        ["resil:once:orders:{a}", "resil:once:orders:{b}", "resil:once:orders:{b}"].map(str::to_owned)
    );
}

#[tokio::test]
async fn a_reply_of_another_shape_is_not_believed() {
    let script = Script::new().reply("surely");
    let limiter = script.connect().limiter("api", Limit::per_second(1)).unwrap();
    assert!(matches!(limiter.check("x").await, Err(Error::Internal(_))));
}

#[tokio::test]
async fn a_connection_that_is_lost_shows() {
    let script = Script::new();
    let client = script.connect();
    assert_eq!(client.health().overall, Status::Healthy);
    script.go_away();
    assert_eq!(client.health().overall, Status::Unhealthy);
    script.come_back();
    assert_eq!(client.health().overall, Status::Healthy);
}

#[tokio::test]
async fn the_stages_ask_in_order_once_per_attempt() {
    // A circuit that is closed: admitted, state, permit, retry after, generation. Then a limit, then a place that is had.
    let admitted = || Reply::array([1.into(), "closed".into(), "1.1.1".into(), 0.into(), 1.into()]);
    let script = Script::new().clock(&Clock::driven()).reply(admitted()).reply([1, 10, 9, 0, 100]);
    let client = script.connect();
    let total = TimeoutSettings { attempt: None, total: Some(Duration::from_secs(1)) };
    let policy = Policy::builder("chain")
        .timeout(total)
        .retry(&RetrySettings { max_attempts: 1, ..RetrySettings::default() })
        .breaker(client.breaker("chain", BreakerSettings::new().mode(CountingMode::Exact)).unwrap())
        .limiter(client.limiter("chain", Limit::per_second(10)).unwrap())
        .bulkhead(LocalBulkhead::new("chain", 1, 0).unwrap())
        .shared_bulkhead(client.shared_bulkhead("chain", SharedBulkheadSettings::new(1)).unwrap())
        .build()
        .unwrap();
    // The shared bulkhead finds nobody, and refuses: it is the last to be asked.
    let refused: Result<(), Failure<()>> = policy.call(retry_all, async || Ok(())).await;
    assert!(matches!(refused, Err(Failure::Resil(Error::BackendUnavailable(_)))), "{refused:?}");
    let names = names(&script);
    assert_eq!(names[..3], ["RES.BREAKER", "RES.GCRA", "RES.BULKHEAD"].map(str::to_owned), "{:?}", script.asked());
}
