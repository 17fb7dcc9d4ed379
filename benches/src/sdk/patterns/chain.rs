//! A whole policy in one process: retry with its budget, breaker on `memory://`, bulkhead, timeout for each attempt. Beside it the same by
//! hand from tower's layers, and from tower-resilience's.

use std::time::Duration;

use resil::breaker::BreakerSettings;
use resil::limiter::Limit;
use resil::policy::{LocalBulkhead, Policy, RetrySettings, Timeout, TimeoutSettings, retry_all};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_resilience_bulkhead::BulkheadLayer;
use tower_resilience_circuitbreaker::CircuitBreakerLayer;
use tower_resilience_retry::RetryLayer;
use tower_resilience_timelimiter::TimeLimiterLayer;

use super::retry::ByTower;
use super::{Never, call, memory, service};
use crate::contest::{Bar, Contest};
use crate::row;

const PLACES: u32 = 10;
const AFTER: Duration = Duration::from_secs(1);
const BAR_NS: f64 = 500.0;

pub fn contest() -> Contest {
    let bulkhead = || LocalBulkhead::new("bench", PLACES, 100).expect("valid");
    let client = memory();
    let breaker = client.breaker("bench", BreakerSettings::new()).expect("valid");
    let attempt = TimeoutSettings { attempt: Some(AFTER), total: None };
    let both = TimeoutSettings { attempt: Some(AFTER), total: Some(10 * AFTER) };
    let builder = |timeout| {
        Policy::builder("bench")
            .timeout(timeout)
            .retry(&RetrySettings::default())
            .bulkhead(bulkhead())
            .breaker(breaker.clone())
    };
    let policy = builder(attempt).build().expect("valid");
    let limiter = client.limiter("bench", Limit::per_second(1_000_000_000)).expect("valid");
    let full = builder(both).limiter(limiter).build().expect("valid");
    let retry = resil::policy::Retry::new(&RetrySettings::default()).expect("valid");
    let (place, timeout) = (bulkhead(), Timeout::attempt(AFTER).expect("valid"));
    let circuit = breaker.clone();
    let mut tower =
        ServiceBuilder::new().retry(ByTower::new(None)).concurrency_limit(PLACES as usize).service(service());
    let mut resilience = ServiceBuilder::new()
        .layer(
            CircuitBreakerLayer::builder().failure_rate_threshold(0.5).sliding_window_size(100).build().expect("valid"),
        )
        .layer(BulkheadLayer::builder().max_concurrent_calls(PLACES as usize).build().expect("valid"))
        .layer(TimeLimiterLayer::builder().timeout_duration(AFTER).build())
        .layer(RetryLayer::<u64, u64, Never>::builder().max_attempts(3).exponential_backoff(AFTER).build())
        .service(service());
    Contest {
        name: "a whole policy",
        bar: Bar::AtMostNs(BAR_NS),
        rows: vec![
            row!(Measure, "the call alone", call()),
            row!(Ours, "Policy: retry, breaker, bulkhead, timeout", policy.call(retry_all, call)),
            row!(Ours, "Policy: the same, a rate limit and a total timeout", full.call(retry_all, call)),
            row!(
                Measure,
                "the four nested by hand",
                retry.around(retry_all, || circuit.around(retry_all, || place.around(|| timeout.call(call))))
            ),
            row!(Measure, "tower: retry, concurrency limit (no breaker, no timeout)", async {
                tower.ready().await?.call(1).await
            }),
            row!(Peer, "tower-resilience: breaker, bulkhead, timeout, retry", async {
                resilience.ready().await?.call(1).await
            }),
        ],
    }
}
