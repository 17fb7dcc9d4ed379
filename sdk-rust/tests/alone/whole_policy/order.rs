//! The order of the stages: what is warned of, what is refused, and what another order does.

use super::*;

#[test]
fn an_order_that_is_odd_is_warned_about() {
    use Stage::*;
    // Which stages there are, in which order; the beginning of each warning, in any order.
    let cases: &[(&[Stage], &[&str])] = &[
        (&[Total, Retry, Attempt], &[]),
        (&Stage::DEFAULT_ORDER, &[]),
        (&[Retry, Attempt], &["retry has no total"]),
        (&[Hedge], &["hedge has no timeout"]),
        (&[Total, Breaker, Retry], &["breaker is outside of retry"]),
        (&[Total, RateLimit, Retry], &["rate-limit is outside of retry"]),
        (&[Total, Bulkhead, Retry], &["bulkhead is outside of retry"]),
        (&[Total, SharedBulkhead, Retry], &["shared-bulkhead is outside of retry"]),
        (&[Total, Retry, Shed], &["retry is outside of shed"]),
        (&[Total, Breaker, Hedge], &["breaker is outside of hedge"]),
        (&[RateLimit, Breaker], &["rate-limit is outside of breaker"]),
        (&[Bulkhead, Breaker], &["bulkhead is outside of breaker"]),
        (&[SharedBulkhead, Bulkhead], &["shared-bulkhead is outside of bulkhead"]),
        (&[Total, Breaker, RateLimit, Retry], &["breaker is outside of retry", "rate-limit is outside of retry"]),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(resil::connect("memory://")).unwrap();
    for (order, expected) in cases {
        let mut builder = Policy::builder("odd").order(order.iter().copied());
        let mut timeout = TimeoutSettings::default();
        for stage in *order {
            builder = match stage {
                Total => {
                    timeout.total = Some(1_000 * MS);
                    builder
                }
                Attempt => {
                    timeout.attempt = Some(100 * MS);
                    builder
                }
                Shed => builder.shed(5),
                Retry => builder.retry(&three_attempts()),
                Hedge => builder.hedge(&HedgeSettings::default()),
                Breaker => builder.breaker(client.breaker("odd", BreakerSettings::new()).unwrap()),
                RateLimit => builder.limiter(client.limiter("odd", Limit::per_second(1_000)).unwrap()),
                Bulkhead => builder.bulkhead(LocalBulkhead::new("odd", 1, 0).unwrap()),
                SharedBulkhead => {
                    builder.shared_bulkhead(client.shared_bulkhead("odd", SharedBulkheadSettings::new(1)).unwrap())
                }
            };
        }
        let policy = builder.timeout(timeout).build().unwrap();
        assert_eq!(policy.order(), *order);
        let warnings = policy.warnings();
        assert_eq!(warnings.len(), expected.len(), "{order:?}: {warnings:?}");
        for begins in *expected {
            assert!(warnings.iter().any(|warning| warning.starts_with(begins)), "{order:?}: {warnings:?}");
        }
        // However odd, it runs.
        let reply = runtime.block_on(policy.call(retry_all, async || Ok::<_, ()>(7)));
        assert_eq!(reply, Ok(7), "{order:?}");
    }
    let twice = Policy::builder("odd").retry(&three_attempts()).order([Retry, Retry]).build();
    assert_eq!(twice.unwrap_err().to_string(), "order names retry twice");
    let missing = Policy::builder("odd").retry(&three_attempts()).order([Total]).build();
    assert_eq!(missing.unwrap_err().to_string(), "order must name retry, which the policy has");
    let timeout = TimeoutSettings { attempt: Some(100 * MS), total: Some(1_000 * MS) };
    for (order, begins) in [
        ([Retry, Total, Hedge, Attempt], "order must begin with total"),
        ([Total, Attempt, Retry, Hedge], "order must end with attempt"),
        ([Total, Hedge, Retry, Attempt], "order must have hedge inside of retry"),
    ] {
        let builder = Policy::builder("odd").timeout(timeout.clone()).retry(&three_attempts());
        let refused = builder.hedge(&HedgeSettings::default()).order(order).build().unwrap_err();
        assert!(refused.to_string().starts_with(begins), "{refused}");
    }
}

#[tokio::test]
async fn another_order_does_what_it_says() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let breaker = client.breaker("outside", BreakerSettings::new().consecutive_failures(2)).unwrap();
    let policy = Policy::builder("p")
        .retry(&RetrySettings { initial_backoff: Duration::from_micros(1), ..three_attempts() })
        .clock(Clock::system())
        .breaker(breaker.clone())
        .order([Stage::Breaker, Stage::Retry])
        .build()
        .unwrap();
    let failing = Failing::default();
    let first = policy.call(retry_all, || failing.run()).await;
    assert_eq!(first, Err(Failure::Exhausted { attempts: 3, last: Box::new(Failure::Inner(3)) }));
    assert_eq!(breaker.last_known_state(), Some(State::Closed), "three attempts are one failure to it");
    let _ = policy.call(retry_all, || failing.run()).await;
    assert_eq!(breaker.last_known_state(), Some(State::Open));
    let bulkhead = LocalBulkhead::new("outside", 1, 0).unwrap();
    let policy = Policy::builder("p")
        .clock(clock.clone())
        .retry(&three_attempts())
        .bulkhead(bulkhead.clone())
        .order([Stage::Bulkhead, Stage::Retry])
        .build()
        .unwrap();
    let mut waiting = std::pin::pin!(policy.call(retry_all, || failing.run()));
    assert!(crate::drive::poll_now(waiting.as_mut()).is_pending(), "it waits for its retry");
    assert_eq!(bulkhead.metrics().active, 1, "and holds its place");
}
