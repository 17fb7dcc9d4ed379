//! Whole policies on `memory://`, with a clock that is driven.

mod order;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use proptest::prelude::*;
use resil::breaker::{BreakerSettings, CountingMode, State};
use resil::clock::Clock;
use resil::idempotency::IdempotencySettings;
use resil::idempotency::Remember;
use resil::limiter::Limit;
use resil::lock::LockSettings;
use resil::policy::{
    CallSettings, Class, Fallback, HedgeSettings, Jitter, LocalBulkhead, Policy, PolicySettings, RetrySettings, Stage,
    TimeoutSettings, retry_all, retry_none,
};
use resil::shared_bulkhead::SharedBulkheadSettings;
use resil::{Client, Code, ConnectSettings, Error, Failure};

use crate::drive::seed;

const MS: Duration = Duration::from_millis(1);

async fn client(clock: &Clock) -> Client {
    ConnectSettings::new("memory://").clock(clock.clone()).connect().await.unwrap()
}

fn three_attempts() -> RetrySettings {
    RetrySettings { max_attempts: 3, initial_backoff: 100 * MS, jitter: Jitter::None, ..RetrySettings::default() }
}

fn is_send<T: Send>(value: T) -> T {
    value
}

#[tokio::test]
async fn a_call_through_every_stage_replies_and_is_send() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let policy = Policy::builder("all")
        .timeout(TimeoutSettings { attempt: Some(50 * MS), total: Some(1_000 * MS) })
        .shed(10)
        .retry(&three_attempts())
        .hedge(&HedgeSettings::default())
        .breaker(client.breaker("all", BreakerSettings::new()).unwrap())
        .limiter(client.limiter("all", Limit::per_second(10)).unwrap())
        .bulkhead(LocalBulkhead::new("all", 1, 0).unwrap())
        .shared_bulkhead(client.shared_bulkhead("all", SharedBulkheadSettings::new(1)).unwrap())
        .build()
        .unwrap();
    assert_eq!(policy.order(), Stage::DEFAULT_ORDER);
    assert!(policy.warnings().is_empty(), "{:?}", policy.warnings());
    for _ in 0..3 {
        let policy = policy.clone();
        let reply = tokio::spawn(is_send(async move { policy.call(retry_all, async || Ok::<_, ()>(7)).await }));
        assert_eq!(reply.await.unwrap(), Ok(7));
    }
}

/// Counts how often it ran, and fails every time.
#[derive(Default)]
struct Failing(AtomicU32);

impl Failing {
    async fn run(&self) -> Result<(), u32> {
        Err(self.0.fetch_add(1, SeqCst) + 1)
    }

    fn count(&self) -> u32 {
        self.0.load(SeqCst)
    }
}

#[tokio::test]
async fn an_open_circuit_takes_neither_attempt_cell_nor_permit() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let breaker = client.breaker("b", BreakerSettings::new().consecutive_failures(1)).unwrap();
    let limiter = client.limiter("b", Limit::per_second(10)).unwrap();
    let bulkhead = LocalBulkhead::new("b", 5, 0).unwrap();
    let policy = Policy::builder("b")
        .timeout(TimeoutSettings { attempt: None, total: Some(10_000 * MS) })
        .retry(&three_attempts())
        .breaker(breaker.clone())
        .limiter(limiter.clone())
        .bulkhead(bulkhead.clone())
        .build()
        .unwrap();
    let failing = Failing::default();
    let first = crate::drive::drive(&clock, policy.call(retry_all, || failing.run()));
    // The first attempt trips it, and the retry finds it open.
    assert_eq!(first.unwrap_err().code(), Some(Code::CircuitOpen));
    assert_eq!((failing.count(), bulkhead.metrics().completed), (1, 1));
    let before = limiter.peek("b").await.unwrap().remaining;
    let refused = crate::drive::drive(&clock, policy.call(retry_all, || failing.run()));
    assert_eq!(refused.unwrap_err().code(), Some(Code::CircuitOpen));
    assert_eq!((failing.count(), bulkhead.metrics().completed), (1, 1), "nothing was attempted");
    assert_eq!(limiter.peek("b").await.unwrap().remaining, before);
    assert_eq!(breaker.last_known_state(), Some(State::Open));
}

#[tokio::test]
async fn refusals_inside_the_breaker_count_neither_way() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    // Exact, and one failure trips it: if a refusal counted as one, the circuit would open.
    let options = BreakerSettings::new().mode(CountingMode::Exact).consecutive_failures(1);
    let breaker = client.breaker("inner", options).unwrap();
    let limiter = client.limiter("inner", Limit::per_hour(1)).unwrap();
    let limited = Policy::builder("inner").breaker(breaker.clone()).limiter(limiter).build().unwrap();
    limited.call(retry_none, async || Ok::<_, ()>(())).await.unwrap();
    for _ in 0..5 {
        let refused = limited.call(retry_none, async || Ok::<_, ()>(())).await;
        assert_eq!(refused.unwrap_err().code(), Some(Code::RateLimitExceeded));
    }
    let bulkhead = LocalBulkhead::new("inner", 1, 0).unwrap();
    let full = Policy::builder("full").breaker(breaker.clone()).bulkhead(bulkhead.clone()).build().unwrap();
    let _place = bulkhead.try_acquire().unwrap();
    let refused = full.call(retry_none, async || Ok::<_, ()>(())).await;
    assert_eq!(refused.unwrap_err().code(), Some(Code::BulkheadFull));
    let snapshot = breaker.state().await.unwrap();
    assert_eq!(snapshot.state, State::Closed);
    assert_eq!((snapshot.calls, snapshot.failures), (1, 0), "only the call that was made counts");
}

#[tokio::test]
async fn attempts_that_time_out_trip_the_breaker() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let breaker = client.breaker("slow", BreakerSettings::new().consecutive_failures(2)).unwrap();
    let policy = Policy::builder("slow")
        .timeout(TimeoutSettings { attempt: Some(50 * MS), total: None })
        .breaker(breaker.clone())
        .build()
        .unwrap();
    for _ in 0..2 {
        let late = crate::drive::drive(&clock, policy.call(retry_none, std::future::pending::<Result<(), ()>>));
        assert_eq!(late, Err(Error::Timeout { after: 50 * MS }.into()));
    }
    assert_eq!(breaker.last_known_state(), Some(State::Open));
}

#[test]
fn the_total_deadline_cuts_off_retries_and_waits_for_nothing() {
    let clock = Clock::driven();
    let policy = Policy::builder("p")
        .clock(clock.clone())
        .timeout(TimeoutSettings { attempt: None, total: Some(250 * MS) })
        .retry(&RetrySettings { max_attempts: 100, ..three_attempts() })
        .build()
        .unwrap();
    let (failing, began) = (Failing::default(), clock.now());
    // Delays of 100, 200: the second would end at 300.
    let ended = crate::drive::drive(&clock, policy.call(retry_all, || failing.run()));
    assert_eq!(ended, Err(Failure::Exhausted { attempts: 2, last: Box::new(Failure::Inner(2)) }));
    assert_eq!(clock.now() - began, 100 * MS, "nobody waits for a retry that cannot be");
    let began = clock.now();
    let hanging = crate::drive::drive(&clock, policy.call(retry_all, std::future::pending::<Result<(), ()>>));
    assert_eq!(hanging, Err(Error::Timeout { after: 250 * MS }.into()));
    assert_eq!(clock.now() - began, 250 * MS);
}

#[test]
fn a_calls_time_limit_beats_the_policys_both_ways() {
    let clock = Clock::driven();
    let settings = TimeoutSettings { attempt: Some(50 * MS), total: Some(100 * MS) };
    let with = Policy::builder("with").clock(clock.clone()).timeout(settings).build().unwrap();
    let without = Policy::builder("without").clock(clock.clone()).build().unwrap();
    for (policy, options, expected) in [
        (&with, CallSettings::new(), 50 * MS),
        (&with, CallSettings::new().attempt_timeout(10 * MS), 10 * MS),
        (&with, CallSettings::new().total_timeout(20 * MS), 20 * MS),
        (&with, CallSettings::new().attempt_timeout(300 * MS).total_timeout(200 * MS), 200 * MS),
        (&with, CallSettings::new().attempt_timeout(300 * MS), 100 * MS),
        (&without, CallSettings::new().attempt_timeout(300 * MS), 300 * MS),
    ] {
        let began = clock.now();
        let call = policy.call_with(options.clone(), retry_all, std::future::pending::<Result<(), ()>>);
        let ended = crate::drive::drive(&clock, call);
        assert_eq!(ended, Err(Error::Timeout { after: expected }.into()), "{options:?}");
        assert_eq!(clock.now() - began, expected, "{options:?}");
    }
    for options in
        [CallSettings::new().attempt_timeout(Duration::ZERO), CallSettings::new().total_timeout(301_000 * MS)]
    {
        let refused = crate::drive::drive(&clock, with.call_with(options.clone(), retry_all, async || Ok::<_, ()>(())));
        assert_eq!(refused.unwrap_err().code(), Some(Code::InvalidPolicy), "{options:?}");
    }
}

#[tokio::test]
async fn a_fallback_replies_for_whatever_the_stages_came_to() {
    let policy = Policy::builder("p").retry(&RetrySettings { max_attempts: 1, ..three_attempts() }).build().unwrap();
    let fallback = Fallback::value(7);
    let reply = policy.call_or(&fallback, CallSettings::new(), retry_all, async || Err::<i32, _>("down")).await;
    assert_eq!(reply, Ok(7));
    let reply = policy.call_or(&fallback, CallSettings::new(), retry_all, async || Ok::<_, &str>(1)).await;
    assert_eq!(reply, Ok(1));
}

#[tokio::test]
async fn shed_refuses_excess_at_once_and_admits_again() {
    let policy = Policy::builder("p").shed(1).build().unwrap();
    let mut first = std::pin::pin!(policy.call(retry_all, std::future::pending::<Result<(), ()>>));
    assert!(crate::drive::poll_now(first.as_mut()).is_pending());
    let second = policy.call(retry_all, async || Ok::<_, ()>(())).await;
    assert_eq!(second.unwrap_err().code(), Some(Code::BulkheadFull));
    first.set(policy.call(retry_all, std::future::pending::<Result<(), ()>>));
    let third = policy.call(retry_all, async || Ok::<_, ()>(())).await;
    assert_eq!(third, Ok(()), "the first was dropped");
}

#[tokio::test]
async fn limit_keys_and_bulkhead_partitions_are_the_calls_choice() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let partition = resil::policy::PartitionSettings { max_concurrent_calls: 1, max_queue: 0 };
    let settings = resil::policy::BulkheadSettings {
        partitions: [("gold".to_owned(), partition)].into(),
        ..resil::policy::BulkheadSettings::default()
    };
    let bulkhead = LocalBulkhead::from_settings("p", &settings, clock.clone()).unwrap();
    let limiter = client.limiter("p", Limit::per_hour(3)).unwrap();
    let policy = Policy::builder("p").limiter(limiter).bulkhead(bulkhead.clone()).build().unwrap();
    let call = async |options| policy.call_with(options, retry_none, async || Ok::<_, ()>(())).await;
    assert_eq!(call(CallSettings::new().key("alice").cost(3)).await, Ok(()));
    assert_eq!(call(CallSettings::new().key("alice")).await.unwrap_err().code(), Some(Code::RateLimitExceeded));
    assert_eq!(call(CallSettings::new().key("bob").partition("gold")).await, Ok(()));
    assert_eq!(bulkhead.partition("gold").unwrap().metrics().completed, 1);
    let nowhere = call(CallSettings::new().key("bob").partition("lead")).await;
    assert_eq!(nowhere.unwrap_err().code(), Some(Code::InvalidArgument));
}

#[tokio::test]
async fn all_attempts_of_an_idempotent_call_are_one_run() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let idempotent = client.idempotent("payments", IdempotencySettings::new()).unwrap();
    let retry = RetrySettings { initial_backoff: Duration::from_micros(1), ..three_attempts() };
    let total = TimeoutSettings { attempt: None, total: Some(1_000 * MS) };
    for (name, order) in [("usual", None), ("odd", Some([Stage::Total, Stage::Retry, Stage::Shed]))] {
        let mut builder = Policy::builder(name).clock(Clock::system()).retry(&retry).timeout(total.clone()).shed(1);
        if let Some(order) = order {
            builder = builder.order(order);
        }
        let policy = builder.build().unwrap();
        let (runs, fences) = (AtomicU32::new(0), std::sync::Mutex::new(Vec::new()));
        let pay = async || {
            let work = async |run: resil::idempotency::Run| {
                fences.lock().unwrap().push(run.fence());
                if runs.fetch_add(1, SeqCst) < 2 { Err("down") } else { Ok(17) }
            };
            policy.call_once(&idempotent, name, b"7", CallSettings::new(), retry_all, work).await
        };
        let first = pay().await.unwrap();
        assert_eq!((first.value, first.replayed, runs.load(SeqCst)), (Some(17), false, 3));
        assert!(fences.lock().unwrap().windows(2).all(|pair| pair[0].is_some() && pair[0] == pair[1]));
        let again = pay().await.unwrap();
        assert_eq!((again.value, again.replayed, runs.load(SeqCst)), (Some(17), true, 3));
    }
}

#[tokio::test]
async fn an_idempotent_call_remembers_the_errors_that_are_final() {
    let clock = Clock::driven();
    let idempotent = client(&clock).await.idempotent("payments", IdempotencySettings::new()).unwrap();
    let retry = RetrySettings { initial_backoff: Duration::from_micros(1), ..three_attempts() };
    let policy = Policy::builder("pay").clock(Clock::system()).retry(&retry).build().unwrap();
    let remember = Remember::json(|error: &String| error == "declined");
    let classify = |error: &String| if error == "declined" { Class::Permanent } else { Class::Retry };
    let runs = AtomicU32::new(0);
    for (key, error, wanted) in [("final", "declined", [1, 1]), ("passing", "down", [3, 6])] {
        runs.store(0, SeqCst);
        for runs_after in wanted {
            let work = async |_| {
                runs.fetch_add(1, SeqCst);
                Err::<u32, _>(error.to_owned())
            };
            let options = CallSettings::new();
            let failed = policy
                .call_once_remembering(&idempotent, key, b"7", &remember, options, classify, work)
                .await
                .unwrap_err();
            assert_eq!(failed.into_inner().as_deref(), Some(error));
            assert_eq!(runs.load(SeqCst), runs_after, "{key}");
        }
    }
}

#[tokio::test]
async fn a_shutdown_waits_for_calls_in_flight_and_theirs() {
    const CALLS: u32 = 20;
    let client = resil::connect("memory://").await.unwrap();
    let breaker = client.breaker("d", BreakerSettings::new().consecutive_failures(0).min_calls(1_000)).unwrap();
    let limiter = client.limiter("d", Limit::per_second(1_000)).unwrap();
    let retry = RetrySettings { initial_backoff: Duration::from_micros(1), ..three_attempts() };
    let policy = Policy::builder("d").retry(&retry).breaker(breaker).limiter(limiter.clone()).build().unwrap();
    let (go, begun) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(AtomicU32::new(0)));
    let calls: Vec<_> = (0..CALLS)
        .map(|_| {
            let (policy, go, begun, client) = (policy.clone(), Arc::clone(&go), Arc::clone(&begun), client.clone());
            tokio::spawn(async move {
                let tries = AtomicU32::new(0);
                let (tries, go, begun, client) = (&tries, &go, &begun, &client);
                let work = || async move {
                    begun.fetch_add(1, SeqCst);
                    go.acquire().await.unwrap().forget();
                    // The first attempt fails, so that a whole second one begins while the client shuts down.
                    if tries.fetch_add(1, SeqCst) == 0 {
                        return Err(());
                    }
                    client
                        .lock("d", LockSettings::new().wait(Duration::from_secs(5)))
                        .unwrap()
                        .with_lock(async |_| Ok::<_, ()>(()))
                        .await
                        .map_err(drop)
                };
                policy.call(retry_all, work).await
            })
        })
        .collect();
    while begun.load(SeqCst) < CALLS {
        tokio::task::yield_now().await;
    }
    let ending = tokio::spawn({
        let client = client.clone();
        async move { client.shutdown(Duration::from_secs(30)).await }
    });
    while !client.is_shutting_down() {
        tokio::task::yield_now().await;
    }
    let refused = policy.call(retry_all, async || Ok::<_, ()>(())).await;
    assert_eq!(refused, Err(Error::ShuttingDown.into()));
    assert_eq!(limiter.check("x").await, Err(Error::ShuttingDown));
    go.add_permits(2 * CALLS as usize);
    for call in calls {
        assert_eq!(call.await.unwrap(), Ok(()));
    }
    let report = tokio::time::timeout(Duration::from_secs(30), ending).await.unwrap().unwrap();
    assert_eq!((report.drained, report.cut_off), (CALLS as usize, 0));
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test]
async fn a_shutdown_cuts_calls_and_releases_locks_at_its_deadline() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let policy = Policy::builder("d").client(&client).build().unwrap();
    let hanging = tokio::spawn({
        let policy = policy.clone();
        async move { policy.call(retry_all, std::future::pending::<Result<(), ()>>).await }
    });
    let guard = client.lock("orders", LockSettings::new()).unwrap().try_acquire().await.unwrap();
    tokio::task::yield_now().await;
    let ending = tokio::spawn({
        let client = client.clone();
        async move { client.shutdown(Duration::from_secs(3)).await }
    });
    while !ending.is_finished() {
        tokio::task::yield_now().await;
        clock.advance(10 * MS);
    }
    let report = ending.await.unwrap();
    assert_eq!((report.cut_off, report.stragglers), (1, 0));
    assert_eq!(report.released, ["lock:orders"]);
    assert!(!guard.is_held());
    assert_eq!(hanging.await.unwrap(), Err(Error::ShuttingDown.into()));
}

proptest::proptest! {
    #![proptest_config(crate::drive::seed::config())]
    // Property 5: retries that are used up report the attempts that were made and how the last one failed.
    #[test]
    fn exhausted_retries_report_the_count_and_the_last_failure(
        max_attempts in 2u32..8, codes in proptest::collection::vec(400u32..600, 8),
    ) {
        let clock = Clock::driven();
        let client = crate::drive::drive(&clock, client(&clock));
        let policy = Policy::builder("all")
            .clock(clock.clone())
            .timeout(TimeoutSettings { attempt: Some(50 * MS), total: Some(300_000 * MS) })
            .shed(10)
            .retry(&RetrySettings { max_attempts, budget: None, ..RetrySettings::default() })
            .hedge(&HedgeSettings::default())
            .breaker(client.breaker("all", BreakerSettings::new().consecutive_failures(0).min_calls(1_000)).unwrap())
            .limiter(client.limiter("all", Limit::per_second(1_000)).unwrap())
            .bulkhead(LocalBulkhead::new("all", 1, 0).unwrap())
            .shared_bulkhead(client.shared_bulkhead("all", SharedBulkheadSettings::new(1)).unwrap())
            .build()
            .unwrap();
        let made = AtomicU32::new(0);
        let classify = |code: &u32| if *code >= 450 { Class::Retry } else { Class::Permanent };
        let call = policy.call(classify, async || Err::<(), _>(codes[made.fetch_add(1, SeqCst) as usize]));
        let ended = crate::drive::drive(&clock, call);
        let failing = codes.iter().take(max_attempts as usize).position(|code| *code < 450);
        let (attempts, expected) = match failing {
            Some(index) => (index as u32 + 1, Failure::Inner(codes[index])),
            None => {
                let last = Box::new(Failure::Inner(codes[max_attempts as usize - 1]));
                (max_attempts, Failure::Exhausted { attempts: max_attempts, last })
            }
        };
        proptest::prop_assert_eq!(ended, Err(expected));
        proptest::prop_assert_eq!(made.load(SeqCst), attempts);
    }
}

proptest! {
    #![proptest_config(seed::config())]

    // Property 6: behind an open circuit the retry makes no attempt at all: zero retries, no delay, and the error says that the circuit is open;
    // whatever the policy allows and however the circuit was opened.
    #[test]
    fn an_open_circuit_makes_no_attempt_and_no_retry(
        max_attempts in 2u32..20, backoff_ms in 1u64..5_000, exact in any::<bool>(), forced in any::<bool>(),
        failures in 1u32..5, calls in 1usize..6,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let clock = Clock::driven();
            let client = resil::ConnectSettings::new("memory://").clock(clock.clone()).connect().await.unwrap();
            let mode = if exact { "exact" } else { "batched" };
            let json = format!(
                r#"{{"name": "bank", "retry": {{"maxAttempts": {max_attempts}, "initialBackoff": "{backoff_ms}ms", "budget": null}},
                    "breaker": {{"consecutiveFailures": {failures}, "openFor": "1h", "mode": "{mode}"}}}}"#
            );
            let settings = PolicySettings::from_json(&json).unwrap();
            let policy = Policy::from_settings(&client, &settings).unwrap();
            let breaker = client.breaker("bank", settings.breaker.unwrap()).unwrap();
            if forced {
                breaker.force(resil::breaker::Force::Open, None, "maintenance").await.unwrap();
            } else {
                for _ in 0..failures {
                    breaker.call(async || Err::<(), _>("down")).await.unwrap_err();
                }
            }
            let made = AtomicU32::new(0);
            let begun = clock.now();
            for _ in 0..calls {
                let call = policy.call(retry_all, async || {
                    made.fetch_add(1, SeqCst);
                    Err::<(), _>("down")
                });
                // It is over at once: nothing drives the clock.
                let refused = tokio::time::timeout(Duration::from_secs(20), call).await.expect("no delay").unwrap_err();
                assert!(matches!(refused, Failure::Resil(Error::CircuitOpen { .. })), "{refused:?}");
            }
            assert_eq!((made.load(SeqCst), clock.now()), (0, begun));
        });
    }
}
