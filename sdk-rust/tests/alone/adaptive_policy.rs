//! What a policy refuses by itself, places that move, and files that are watched.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use resil::policy::{
    CallSettings, LocalBulkhead, Policy, PolicyFile, PolicySettings, Priority, WatchedPolicies, retry_all,
};
use resil::testing::Clock;
use resil::{Code, Error, Failure};

use crate::drive::{drive, poll_now};

/// The default policy of another layout, verbatim.
const OTHER_LAYOUT: &str = "\
policies:
  default:
    circuit_breaker:
      failure_threshold: 5
      success_threshold: 3
      timeout: 30s
    retry:
      max_attempts: 3
      base_delay: 100ms
      max_delay: 10s
      multiplier: 2.0
      jitter_percent: 0.1
    timeout:
      default: 5s
    rate_limit:
      algorithm: token_bucket
      limit: 1000
      window: 1m
      burst_size: 100
    bulkhead:
      max_concurrent: 100
      max_queue: 50
      queue_timeout: 5s
";

fn local(json: &str, clock: &Clock) -> Policy {
    let settings = PolicySettings::from_json(json).expect("valid");
    resil::policy::PolicyBuilder::local(&settings, clock.clone()).expect("valid").seed(7).build().expect("valid")
}

fn layer(outcome: Result<(), Failure<&str>>) -> Option<&'static str> {
    match outcome {
        Err(Failure::Resil(Error::Refused { layer, .. })) => Some(layer),
        _ => None,
    }
}

#[test]
fn a_file_of_the_other_layout_is_read_verbatim() {
    let file = PolicyFile::from_yaml(OTHER_LAYOUT).expect("valid");
    let settings = file.settings("default").expect("there");
    assert_eq!(settings.timeout.attempt, Some(Duration::from_secs(5)));
    assert_eq!(settings.breaker.expect("there").consecutive_failures, Some(5));
    assert_eq!(settings.bulkhead.expect("there").max_queue, 50);
    let again = PolicyFile::from_yaml(&file.to_yaml().unwrap()).expect("what was written is valid");
    assert_eq!(again, file);
}

#[test]
fn a_bare_number_in_a_file_is_refused() {
    let wrong = PolicyFile::from_yaml("policies: { payments: { timeout: { attempt: 2 } } }").unwrap_err();
    let expected = "policies.payments.timeout.attempt must have a unit: say \"2s\" or \"200ms\", got 2";
    assert_eq!(wrong.to_string(), expected);
}

#[test]
fn a_throttled_call_is_not_made() {
    let clock = Clock::driven();
    let policy = local(r#"{"name": "p", "throttle": {"k": 1.5, "window": "10s"}}"#, &clock);
    let made = AtomicU32::new(0);
    let mut refused = 0;
    for _ in 0..200 {
        let call = policy.call(retry_all, async || {
            made.fetch_add(1, SeqCst);
            Err::<(), _>("down")
        });
        refused += u32::from(layer(drive(&clock, call)) == Some("throttle"));
    }
    assert_eq!(made.load(SeqCst) + refused, 200);
    assert!(refused > 150, "{refused}");
    clock.advance(Duration::from_secs(1));
    assert_eq!(drive(&clock, policy.call(retry_all, async || Ok::<_, &str>(7))), Ok(7), "one a second passes");
}

#[test]
fn less_important_calls_are_shed_first() {
    let clock = Clock::driven();
    let policy = local(r#"{"name": "p", "bulkhead": {"maxConcurrentCalls": 10}, "shedding": {}}"#, &clock);
    let call = |priority| {
        let policy = policy.clone();
        async move {
            let options = CallSettings::new().priority(priority);
            policy.call_with(options, retry_all, async || std::future::pending::<Result<(), &str>>().await).await
        }
    };
    let mut inside: Vec<_> = (0..7).map(|_| Box::pin(call(Priority::Critical))).collect();
    inside.iter_mut().for_each(|call| assert!(poll_now(call.as_mut()).is_pending()));
    for (priority, is_shed) in [
        (Priority::Background, true),
        (Priority::Low, true),
        (Priority::Normal, false),
        (Priority::High, false),
        (Priority::Critical, false),
    ] {
        let mut one = Box::pin(call(priority));
        let seen = match poll_now(one.as_mut()) {
            std::task::Poll::Ready(outcome) => layer(outcome),
            std::task::Poll::Pending => None,
        };
        assert_eq!(seen == Some("shed"), is_shed, "{priority:?} at seven of ten");
    }
    drop(inside);
}

#[test]
fn shedding_without_a_bulkhead_is_refused() {
    let wrong = PolicySettings::from_json(r#"{"name": "p", "shedding": {}}"#).unwrap_err();
    assert!(wrong.to_string().starts_with("shedding needs a bulkhead"), "{wrong}");
}

#[test]
fn chaos_fails_delays_and_loses_replies_until_it_ends() {
    let clock = Clock::driven();
    let chaos = |kind: &str, until: &str| {
        let latency = if kind == "latency" { r#""latency": "300ms","# } else { "" };
        let json =
            format!(r#"{{"name": "p", "chaos": {{"kind": "{kind}", {latency} "percent": 100, "until": "{until}"}}}}"#);
        local(&json, &clock)
    };
    let (later, past) = ("2199-01-01T00:00:00Z", "2020-01-01T00:00:00Z");
    let made = AtomicU32::new(0);
    let call = |policy: Policy| {
        let began = clock.now();
        let outcome = drive(
            &clock,
            policy.call(retry_all, async || {
                made.fetch_add(1, SeqCst);
                Ok::<_, &str>(())
            }),
        );
        (layer(outcome), made.swap(0, SeqCst), clock.now() - began)
    };
    assert_eq!(call(chaos("error", later)), (Some("chaos"), 0, Duration::ZERO));
    assert_eq!(call(chaos("drop", later)), (Some("chaos"), 1, Duration::ZERO), "it was made");
    assert_eq!(call(chaos("latency", later)), (None, 1, Duration::from_millis(300)));
    assert_eq!(call(chaos("error", past)), (None, 1, Duration::ZERO), "it is over");
}

#[test]
fn chaos_is_retried_like_a_failure_of_the_callee() {
    let clock = Clock::driven();
    let json = r#"{"name": "p", "retry": {"maxAttempts": 3}, "chaos": {"kind": "error", "percent": 100, "until": "2199-01-01T00:00:00Z"}}"#;
    let outcome = drive(&clock, local(json, &clock).call(retry_all, async || Ok::<(), &str>(())));
    assert_eq!(outcome.unwrap_err().code(), Some(Code::RetryExhausted));
}

#[test]
fn an_adaptive_bulkhead_shrinks_with_failures_and_grows_back() {
    let clock = Clock::driven();
    let json = r#"{"name": "p", "bulkhead": {"maxConcurrentCalls": 20, "adaptive": {"kind": "aimd", "min": 2}}}"#;
    let settings = PolicySettings::from_json(json).expect("valid");
    let own = settings.bulkhead.expect("there");
    let bulkhead = LocalBulkhead::from_settings("p", &own, clock.clone()).expect("valid");
    for _ in 0..1_000 {
        let _ = drive(&clock, bulkhead.call(async || Err::<(), _>("down")));
    }
    assert_eq!(bulkhead.metrics().available, 2, "never below its least");
    let held: Vec<_> = (0..2).map(|_| bulkhead.try_acquire().expect("a place")).collect();
    assert_eq!(bulkhead.try_acquire().unwrap_err().code(), Code::BulkheadFull);
    drop(held);
    for _ in 0..5_000 {
        // One of two places is taken besides: it is busy.
        let other = bulkhead.try_acquire();
        let _ = drive(&clock, bulkhead.call(async || Ok::<_, &str>(())));
        drop(other);
    }
    assert!(bulkhead.metrics().available > 2, "{:?}", bulkhead.metrics());
}

#[test]
fn a_watched_file_keeps_the_last_good_policies() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policies.yaml");
        let client = resil::connect("memory://").await.unwrap();
        assert!(WatchedPolicies::open(&client, &path).is_err(), "the first time it has to be there");
        std::fs::write(&path, "policies: { a: { shed: 1 }, b: { shed: 1 } }").unwrap();
        let policies = WatchedPolicies::open(&client, &path).unwrap();
        let held = policies.policy("b").unwrap();
        let mut inside = Box::pin(held.call(retry_all, async || std::future::pending::<Result<(), &str>>().await));
        assert!(poll_now(inside.as_mut()).is_pending());

        std::fs::write(&path, "policies: { a: { shed: 0 }, b: { shed: 2 } }").unwrap();
        policies.look();
        assert_eq!(policies.problem().unwrap().to_string(), "policies.a.shed must be from 1 to 1000000, got 0");
        let full = policies.policy("b").unwrap().call(retry_all, async || Ok::<_, &str>(())).await;
        assert_eq!(full.unwrap_err().code(), Some(Code::BulkheadFull), "nothing of it is applied");

        std::fs::write(&path, "policies: { a: { shed: 5 }, b: { shed: 1 }, c: { shed: 1 } }").unwrap();
        policies.look();
        assert_eq!((policies.problem(), policies.names()), (None, vec!["a".into(), "b".into(), "c".into()]));
        let full = policies.policy("b").unwrap().call(retry_all, async || Ok::<_, &str>(())).await;
        assert_eq!(full.unwrap_err().code(), Some(Code::BulkheadFull), "what did not change keeps its counts");

        std::fs::remove_file(&path).unwrap();
        policies.look();
        assert!(policies.problem().is_some() && policies.policy("c").is_ok());
        std::fs::write(&path, "policies: { a: { shed: 5 }, b: { shed: 1 }, c: { shed: 1 } }").unwrap();
        policies.look();
        assert_eq!(policies.problem(), None);
    });
}

/// Random documents, as core's own tests make them.
#[path = "../../../core/tests/policy/random.rs"]
mod random;

proptest::proptest! {
    #![proptest_config(crate::drive::seed::config())]

    /// The bounds of the schema and of the settings are the same, and nothing is lost between the two.
    #[test]
    fn what_the_schema_accepts_is_valid_settings(seed: u64) {
        let (tree, document) = random::valid(&mut random::Random(seed), &resil_core::policy::document::POLICY);
        let settings = PolicySettings::from_json(&tree.to_string());
        let settings = settings.map_err(|wrong| proptest::test_runner::TestCaseError::fail(format!("{wrong}: {tree}")))?;
        let again = resil_core::policy::read(&settings.to_json().unwrap()).expect("what settings write is valid");
        proptest::prop_assert_eq!(again.breaker, document.breaker);
        proptest::prop_assert_eq!(again.timeout.unwrap_or_default(), document.timeout.unwrap_or_default());
        proptest::prop_assert_eq!(again.chaos, document.chaos);
        proptest::prop_assert_eq!(again.shedding, document.shedding);
        proptest::prop_assert_eq!(again.retry.map(|retry| retry.backoff()), document.retry.map(|retry| retry.backoff()));
    }
}

/// Calls of which every second one fails, until one is refused: how many were made of `most`.
async fn made_before_it_trips(policy: &Policy, clock: &Clock, most: u32) -> u32 {
    for number in 0..most {
        clock.advance(Duration::from_millis(200));
        let outcome = policy.call(retry_all, async || if number % 2 == 0 { Ok(()) } else { Err("down") }).await;
        if outcome.is_err_and(|failure| failure.code() == Some(Code::CircuitOpen)) {
            return number;
        }
    }
    most
}

async fn of_breaker(adaptive: bool, clock: &Clock, url: &str) -> (resil::Client, Policy) {
    let client = resil::ConnectSettings::new(url).clock(clock.clone()).connect().await.expect("memory");
    let breaker = r#""windowCalls": 50, "failureRate": 55, "consecutiveFailures": 0, "minCalls": 20, "mode": "exact""#;
    let json = format!(r#"{{"name": "bank", "breaker": {{{breaker}, "adaptive": {adaptive}}}}}"#);
    let policy = Policy::from_settings(&client, &PolicySettings::from_json(&json).expect("valid")).expect("valid");
    (client, policy)
}

/// Half of all calls fail, all day: that is what is usual. Then nearly all of them fail.
#[tokio::test]
async fn an_adaptive_breaker_knows_what_is_usual() {
    for (adaptive, trips_at_sixty_percent) in [(true, false), (false, true)] {
        let clock = Clock::driven();
        let (_client, policy) = of_breaker(adaptive, &clock, "memory://").await;
        assert_eq!(made_before_it_trips(&policy, &clock, 400).await, 400, "half is below the rate");
        // 60 percent: above the rate of 55, but within three deviations of the usual half.
        let mut refused = 0;
        for number in 0..50 {
            clock.advance(Duration::from_millis(200));
            let outcome = policy.call(retry_all, async || if number % 5 < 2 { Ok(()) } else { Err("down") }).await;
            refused += u32::from(outcome.is_err_and(|failure| failure.code() == Some(Code::CircuitOpen)));
        }
        assert_eq!(refused > 0, trips_at_sixty_percent, "adaptive: {adaptive}");
        let mut refused = 0;
        for _ in 0..60 {
            let outcome = policy.call(retry_all, async || Err::<(), _>("down")).await;
            refused += u32::from(outcome.is_err_and(|failure| failure.code() == Some(Code::CircuitOpen)));
        }
        assert!(refused > 0, "an outage trips it");
    }
}

#[tokio::test]
async fn two_clients_of_one_memory_learn_together() {
    let clock = Clock::driven();
    let (_one, first) = of_breaker(true, &clock, "memory://learn-together").await;
    let (_two, second) = of_breaker(true, &clock, "memory://learn-together").await;
    assert_eq!(made_before_it_trips(&first, &clock, 400).await, 400);
    for number in 0..50 {
        clock.advance(Duration::from_millis(200));
        let outcome = second.call(retry_all, async || if number % 5 < 2 { Ok(()) } else { Err("down") }).await;
        assert_ne!(outcome.err().and_then(|failure| failure.code()), Some(Code::CircuitOpen));
    }
}
