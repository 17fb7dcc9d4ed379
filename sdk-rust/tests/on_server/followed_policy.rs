//! Stored policies that are followed: every promise on a server and in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use resil::health::Status;
use resil::policies::FollowedPolicy;
use resil::policy::{PolicySettings, retry_all};
use resil::{Client, ConnectSettings, Failure};
use resil_harness::{Relay, Server};

async fn client(url: &str) -> Client {
    ConnectSettings::new(url).connect().await.expect("a server that is there")
}

async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// How many attempts a call that always fails makes.
async fn attempts(policy: &FollowedPolicy) -> u32 {
    let made = AtomicU32::new(0);
    let failing = || async {
        made.fetch_add(1, Ordering::Relaxed);
        Err::<(), _>("down")
    };
    policy.call(retry_all, failing).await.expect_err("it always fails");
    made.load(Ordering::Relaxed)
}

fn of_attempts(attempts: u32) -> String {
    format!(r#"{{"retry":{{"maxAttempts":{attempts},"initialBackoff":"1us","maxBackoff":"1us","budget":null}}}}"#)
}

async fn a_change_applies_to_the_next_call(url: &str) {
    let (operator, service) = (client(url).await, client(url).await);
    assert!(service.policy("payments").await.is_err(), "nothing is stored");
    operator.policies().set("payments", of_attempts(2)).await.unwrap();
    let policy = service.policy("payments").await.unwrap();
    assert_eq!((attempts(&policy).await, policy.version()), (2, Some(1)));
    operator.policies().set("payments", of_attempts(5)).await.unwrap();
    eventually("the change is heard", || policy.version() == Some(2)).await;
    assert_eq!(attempts(&policy).await, 5);
}

async fn a_deleted_policy_stays_in_use_and_is_degraded(url: &str) {
    let client = client(url).await;
    client.policies().set("orders", of_attempts(3)).await.unwrap();
    let policy = client.policy("orders").await.unwrap();
    assert_eq!(client.health().policies["policy:orders"], Status::Healthy);
    client.policies().delete("orders").await.unwrap();
    eventually("the deletion is heard", || policy.problem().is_some()).await;
    assert_eq!((attempts(&policy).await, policy.version()), (3, Some(1)), "the last good one, by its version");
    assert_eq!(client.health().policies["policy:orders"], Status::Degraded);
    client.policies().set("orders", of_attempts(4)).await.unwrap();
    eventually("it is stored again", || policy.problem().is_none()).await;
    assert_eq!((attempts(&policy).await, client.health().policies["policy:orders"]), (4, Status::Healthy));
}

async fn an_open_breaker_stays_open_through_a_change(url: &str) {
    let client = client(url).await;
    let document =
        |total: u32| format!(r#"{{"breaker":{{"consecutiveFailures":1}},"timeout":{{"total":"{total}s"}}}}"#);
    client.policies().set("bank", document(5)).await.unwrap();
    let policy = client.policy("bank").await.unwrap();
    policy.call(retry_all, || async { Err::<(), _>("down") }).await.expect_err("it fails");
    client.policies().set("bank", document(9)).await.unwrap();
    eventually("the change is heard", || policy.version() == Some(2)).await;
    let refused = policy.call(retry_all, || async { Ok::<_, &str>(()) }).await.unwrap_err();
    assert_eq!(refused.code(), Some(resil::Code::CircuitOpen));
}

async fn a_changed_breaker_replaces_the_one_in_use(url: &str) {
    let client = client(url).await;
    client.policies().set("shop", r#"{"breaker":{"consecutiveFailures":100}}"#).await.unwrap();
    let policy = client.policy("shop").await.unwrap();
    let fail = || async { Err::<(), _>("down") };
    policy.call(retry_all, fail).await.expect_err("it fails");
    client.policies().set("shop", r#"{"breaker":{"consecutiveFailures":2}}"#).await.unwrap();
    eventually("the change is heard", || policy.version() == Some(2)).await;
    for _ in 0..3 {
        policy.call(retry_all, fail).await.expect_err("it fails");
    }
    let refused = policy.call(retry_all, || async { Ok::<_, &str>(()) }).await.unwrap_err();
    assert_eq!(refused.code(), Some(resil::Code::CircuitOpen));
}

/// A part of the old version beside parts of the new one would be a policy that nobody has stored.
async fn every_part_of_a_change_is_taken(url: &str) {
    let client = client(url).await;
    let document = |hedge: &str, shed: u32| format!(r#"{{"hedge":{{"hedgingDelay":"{hedge}"}},"shed":{shed}}}"#);
    client.policies().set("whole", document("20s", 50)).await.unwrap();
    let policy = client.policy("whole").await.unwrap();
    let seen = async || {
        let made = AtomicU32::new(0);
        let slow = || async {
            made.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(60)).await;
            Ok::<_, &str>(())
        };
        policy.call(retry_all, slow).await.expect("one call");
        let hedged = made.load(Ordering::SeqCst) > 1;
        let two = futures_util::future::join(policy.call(retry_all, slow), policy.call(retry_all, slow)).await;
        (hedged, two.0.is_ok() && two.1.is_ok())
    };
    assert_eq!(seen().await, (false, true));
    client.policies().set("whole", document("5ms", 1)).await.unwrap();
    eventually("the change is heard", || policy.version() == Some(2)).await;
    assert_eq!(seen().await, (true, false), "hedged, and one at once");
    client.policies().set("whole", document("20s", 50)).await.unwrap();
    eventually("the change is heard", || policy.version() == Some(3)).await;
    assert_eq!(seen().await, (false, true));
}

/// 64 tasks call while the policy changes between one stage and four: any other number would be of two versions.
async fn calls_succeed_through_changes(url: &str) {
    const CHANGES: u64 = 1_000;
    let (operator, service) = (client(url).await, client(url).await);
    operator.policies().set("busy", of_attempts(1)).await.unwrap();
    let policy = service.policy("busy").await.unwrap();
    let (is_over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (policy, is_over, calls) = (policy.clone(), Arc::clone(&is_over), Arc::clone(&calls));
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let now = policy.now();
                    let both = (now.order().len(), policy.call(retry_all, || async { Ok::<_, &str>(()) }).await);
                    assert!(both.1.is_ok(), "a call failed because of a change: {both:?}");
                    assert!(both.0 == 1 || both.0 == 4, "stages of two versions: {:?}", now.order());
                    calls.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let whole = r#"{"timeout":{"total":"30s","attempt":"20s"},"retry":{"maxAttempts":2},"bulkhead":{"maxConcurrentCalls":1000}}"#;
    let mut took = Vec::new();
    for change in 0..CHANGES {
        let document = if change % 2 == 0 { whole.to_owned() } else { of_attempts(1) };
        let begun = Instant::now();
        let stored = operator.policies().set("busy", document).await.unwrap();
        eventually("the change is heard", || policy.version() >= Some(stored.version)).await;
        took.push(begun.elapsed());
    }
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no call fails");
    }
    took.sort();
    let p99 = took[took.len() * 99 / 100];
    println!("{} calls, {CHANGES} changes, p50 {:?}, p99 {p99:?}", calls.load(Ordering::Relaxed), took[took.len() / 2]);
    assert!(p99 <= Duration::from_millis(100), "from SET to the SDK: {p99:?}");
}

/// Of each version a failing call makes another number of attempts, and fails in another way.
async fn no_call_is_made_under_parts_of_two_versions(url: &str) {
    let (operator, service) = (client(url).await, client(url).await);
    let document = |attempts: u32, reraise: bool| {
        format!(
            r#"{{"retry":{{"maxAttempts":{attempts},"reraise":{reraise},"initialBackoff":"1us","maxBackoff":"1us","budget":null}}}}"#
        )
    };
    operator.policies().set("mixed", document(2, true)).await.unwrap();
    let policy = service.policy("mixed").await.unwrap();
    let (is_over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (policy, is_over, calls) = (policy.clone(), Arc::clone(&is_over), Arc::clone(&calls));
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let made = AtomicU32::new(0);
                    let failing = || async {
                        made.fetch_add(1, Ordering::Relaxed);
                        tokio::task::yield_now().await;
                        Err::<(), _>("down")
                    };
                    let failed = policy.call(retry_all, failing).await.expect_err("it always fails");
                    let is_exhausted = matches!(failed, Failure::Exhausted { .. });
                    let seen = (made.load(Ordering::Relaxed), is_exhausted);
                    assert!(seen == (2, false) || seen == (5, true), "parts of two versions: {seen:?}");
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for change in 0..300 {
        let stored =
            operator.policies().set("mixed", if change % 2 == 0 { document(5, false) } else { document(2, true) });
        let stored = stored.await.unwrap();
        eventually("the change is heard", || policy.version() >= Some(stored.version)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no call is mixed");
    }
    assert!(calls.load(Ordering::Relaxed) > 300, "{calls:?}");
}

macro_rules! on_both {
    ($($promise:ident),*) => {
        mod on_a_server { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                let server = super::Server::fresh();
                super::$promise(&server.url()).await;
            }
        )* }
        mod in_memory { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::$promise(concat!("memory://followed-", stringify!($promise))).await;
            }
        )* }
    };
}

on_both! {
    a_change_applies_to_the_next_call, a_deleted_policy_stays_in_use_and_is_degraded,
    an_open_breaker_stays_open_through_a_change, a_changed_breaker_replaces_the_one_in_use, calls_succeed_through_changes,
    no_call_is_made_under_parts_of_two_versions, every_part_of_a_change_is_taken
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missed_change_is_found_after_a_reconnect() {
    let server = Server::fresh();
    let relay = Relay::to(server.port());
    let (operator, service) =
        (client(&server.url()).await, client(&format!("redis://127.0.0.1:{}", relay.port())).await);
    operator.policies().set("far", of_attempts(1)).await.unwrap();
    let policy = service.policy("far").await.unwrap();
    relay.close();
    operator.policies().set("far", of_attempts(6)).await.unwrap();
    assert_eq!((attempts(&policy).await, policy.version()), (1, Some(1)), "the last good one stays");
    relay.open();
    eventually("it is compared", || policy.version() == Some(2)).await;
    assert_eq!(attempts(&policy).await, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_starts_before_its_policy_is_stored() {
    let client = client("memory://").await;
    let settings = PolicySettings::from_json(&of_attempts(2)).unwrap();
    let policy = client.policy_or("later", &settings).await.unwrap();
    assert_eq!((attempts(&policy).await, policy.version()), (2, None));
    client.policies().set("later", of_attempts(3)).await.unwrap();
    eventually("it is stored", || policy.version() == Some(1)).await;
    assert_eq!(attempts(&policy).await, 3);
}
