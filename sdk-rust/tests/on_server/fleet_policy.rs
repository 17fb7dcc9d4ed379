//! Callers of a stored policy with an SDK and without share one state: the breaker, the limit, the places, the budget.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use resil::policies::FollowedPolicy;
use resil::policy::{CallSettings, Class, Priority, retry_all};
use resil::{Client, Code, ConnectSettings, Error, Failure};
use resil_harness::{Cluster, Options, Relay, Server, ok};

use crate::followed_policy_abuse::counted;

const KEY: &str = "resil:policy:{pay}";

async fn following(server: &Server, document: &str) -> (Client, FollowedPolicy) {
    let client = resil::connect(&server.url()).await.unwrap();
    client.policies().set("pay", document).await.unwrap();
    let policy = client.policy("pay").await.unwrap();
    (client, policy)
}

/// A command as somebody without an SDK sends it: its reply as text.
fn raw(server: &Server, words: &[&str]) -> String {
    format!("{:?}", ok(&mut server.connect(), words))
}

async fn fail(policy: &FollowedPolicy) -> Failure<&'static str> {
    policy.call(retry_all, || async { Err::<(), _>("down") }).await.expect_err("it fails")
}

async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_of_the_sdk_open_the_circuit_for_raw_callers() {
    let server = Server::fresh();
    let (_client, policy) = following(&server, r#"{"breaker":{"consecutiveFailures":3}}"#).await;
    for _ in 0..3 {
        assert_eq!(fail(&policy).await, Failure::Inner("down"));
    }
    let entered = raw(&server, &["RES.GUARD", "ENTER", KEY, "raw-1"]);
    assert!(entered.contains("REFUSED") && entered.contains("breaker"), "{entered}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_of_raw_callers_open_the_circuit_for_the_sdk() {
    let server = Server::fresh();
    let (_client, policy) = following(&server, r#"{"breaker":{"consecutiveFailures":1}}"#).await;
    raw(&server, &["RES.BREAKER", "FORCE", KEY, "OPEN"]);
    let refused = policy.call(retry_all, || async { Ok::<_, &str>(()) }).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::CircuitOpen));
    raw(&server, &["RES.BREAKER", "FORCE", KEY, "CLOSED"]);
    policy.call(retry_all, || async { Ok::<_, &str>(()) }).await.expect("it is closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_limit_counts_both_kinds_of_callers() {
    let server = Server::fresh();
    let (_client, policy) = following(&server, r#"{"rateLimit":{"limit":2,"period":"1h"}}"#).await;
    policy.call(retry_all, || async { Ok::<_, &str>(()) }).await.expect("the first");
    assert!(raw(&server, &["RES.GUARD", "ENTER", KEY, "raw-1"]).contains("ADMITTED"), "the second");
    let refused = policy.call(retry_all, || async { Ok::<_, &str>(()) }).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::RateLimitExceeded));
    // A subject has a limit of its own.
    let alice = CallSettings::new().key("alice");
    policy.call_with(alice, retry_all, || async { Ok::<_, &str>(()) }).await.expect("the first of alice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_returns_when_a_call_ends_or_drops() {
    let server = Server::fresh();
    let (_client, policy) = following(&server, r#"{"sharedBulkhead":{"maxConcurrentCalls":1}}"#).await;
    let inside = policy.call(retry_all, || async {
        let entered = raw(&server, &["RES.GUARD", "ENTER", KEY, "raw-1"]);
        assert!(entered.contains("REFUSED") && entered.contains("bulkhead"), "{entered}");
        Ok::<_, &str>(())
    });
    inside.await.expect("it has the place");
    let dropped = policy.call(retry_all, std::future::pending::<Result<(), &str>>);
    tokio::time::timeout(Duration::from_millis(300), dropped).await.expect_err("it never ends");
    eventually("the place is free", || raw(&server, &["RES.GUARD", "ENTER", KEY, "raw-2"]).contains("ADMITTED")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_a_shutdown_cuts_off_give_their_places_back() {
    let server = Server::fresh();
    let document =
        r#"{"timeout":{"attempt":"5m"},"sharedBulkhead":{"maxConcurrentCalls":40,"maxQueue":9,"maxWait":"1m"}}"#;
    for round in 0..5 {
        let (client, policy) = following(&server, document).await;
        let calls: Vec<_> = (0..45)
            .map(|_| {
                let policy = policy.clone();
                tokio::spawn(async move { policy.call(retry_all, std::future::pending::<Result<(), &str>>).await })
            })
            .collect();
        eventually("all have come", || counted(&server, "active") == 40 && counted(&server, "queued") == 5).await;
        let report = client.shutdown(Duration::from_millis(20)).await;
        assert_eq!(report.cut_off, 45);
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap_err().code(), Some(Code::ShuttingDown));
        }
        let left = (counted(&server, "active"), counted(&server, "queued"));
        assert_eq!(left, (0, 0), "those who are inside and those who wait, in round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_for_a_permit_its_policys_time() {
    let server = Server::fresh();
    let document = r#"{"sharedBulkhead":{"maxConcurrentCalls":1,"maxQueue":4,"maxWait":"20s"}}"#;
    let (_client, policy) = following(&server, document).await;
    let running = AtomicU32::new(0);
    let one = || async {
        assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
        tokio::time::sleep(Duration::from_millis(20)).await;
        running.fetch_sub(1, Ordering::SeqCst);
        Ok::<_, &str>(())
    };
    let all = (0..5).map(|_| policy.call(retry_all, one));
    let begun = Instant::now();
    for ended in futures_util::future::join_all(all).await {
        ended.expect("each gets the place in its turn");
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "five calls of 20 ms took {:?}", begun.elapsed());
    let stats = raw(&server, &["INFO", "commandstats"]).to_lowercase();
    assert!(stats.contains("res.guard|enter") && !stats.contains("res.bulkhead"), "the guard is waited for: {stats}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_dropped_while_waiting_leaves_the_queue() {
    let server = Server::fresh();
    let document = r#"{"timeout":{"attempt":"60s"},"sharedBulkhead":{"maxConcurrentCalls":1,"maxWait":"50s"}}"#;
    let (_client, policy) = following(&server, document).await;
    let ticket = raw(&server, &["RES.GUARD", "ENTER", KEY, "raw-1"]);
    assert!(ticket.contains("ADMITTED"), "{ticket}");
    for _ in 0..20 {
        let waits = policy.call(retry_all, || async { Ok::<_, &str>(()) });
        tokio::time::timeout(Duration::from_millis(20), waits).await.expect_err("the place is taken");
    }
    eventually("nobody waits", || counted(&server, "queued") == 0).await;
    raw(&server, &["RES.POLICY", "SET", KEY, &document.replace(":1,", ":9,")]);
    let inside = policy.call(retry_all, || async { Ok::<_, &str>(()) });
    inside.await.expect("there are places");
    eventually("only the first is inside", || counted(&server, "active") == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_budget_of_retries_is_the_fleets() {
    let server = Server::fresh();
    let document = r#"{"retry":{"maxAttempts":50,"initialBackoff":"1ms","maxBackoff":"1ms","budget":{"ttl":"10s","minPerSecond":1,"percent":0}}}"#;
    let (_first, one) = following(&server, document).await;
    let (_second, other) = following(&server, document).await;
    // Ten retries in ten seconds, for all.
    let made = AtomicU32::new(0);
    let failing = || async {
        made.fetch_add(1, Ordering::Relaxed);
        Err::<(), _>("down")
    };
    for policy in [&one, &other, &one] {
        policy.call(retry_all, failing).await.expect_err("it fails");
    }
    assert_eq!(made.load(Ordering::Relaxed), 3 + 10, "three calls, and ten retries of them all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_end_as_a_policy_of_the_sdk_ends_them() {
    let server = Server::fresh();
    let document = r#"{"timeout":{"attempt":"50ms"},"retry":{"maxAttempts":3,"initialBackoff":"1ms","maxBackoff":"1ms"},"breaker":{"consecutiveFailures":100}}"#;
    let (_client, policy) = following(&server, document).await;
    let exhausted = fail(&policy).await;
    assert!(matches!(exhausted, Failure::Exhausted { attempts: 3, .. }), "{exhausted:?}");
    let permanent = policy.call(|_: &&str| Class::Permanent, || async { Err::<(), _>("wrong") }).await.unwrap_err();
    assert_eq!(permanent, Failure::Inner("wrong"));
    let late = policy.call(retry_all, std::future::pending::<Result<(), &str>>).await.unwrap_err();
    let Failure::Exhausted { attempts: 3, last } = late else { panic!("{late:?}") };
    assert!(matches!(*last, Failure::Resil(Error::Timeout { .. })), "{last:?}");
    let first = AtomicU32::new(0);
    let second_time = || async { if first.fetch_add(1, Ordering::Relaxed) == 0 { Err("down") } else { Ok("up") } };
    assert_eq!(policy.call(retry_all, second_time).await, Ok("up"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_sheds_by_priority() {
    let server = Server::fresh();
    let (_client, policy) = following(
        &server,
        r#"{"sharedBulkhead":{"maxConcurrentCalls":2},"shedding":{"background":40,"low":50,"normal":60,"high":95}}"#,
    )
    .await;
    raw(&server, &["RES.GUARD", "ENTER", KEY, "raw-1"]);
    let low = CallSettings::new().priority(Priority::Background);
    let shed = policy.call_with(low, retry_all, || async { Ok::<_, &str>(()) }).await.unwrap_err();
    assert!(matches!(shed, Failure::Resil(Error::Refused { layer: "shed", .. })), "{shed:?}");
    let high = CallSettings::new().priority(Priority::Critical);
    policy.call_with(high, retry_all, || async { Ok::<_, &str>(()) }).await.expect("never shed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_made_despite_absence_and_deletion() {
    let server = Server::fresh();
    let relay = Relay::to(server.port());
    let operator = resil::connect(&server.url()).await.unwrap();
    operator.policies().set("pay", r#"{"breaker":{"consecutiveFailures":2}}"#).await.unwrap();
    let service = resil::connect(&format!("redis://127.0.0.1:{}", relay.port())).await.unwrap();
    let policy = service.policy("pay").await.unwrap();
    policy.call(retry_all, || async { Ok::<_, &str>(()) }).await.expect("the server is there");
    relay.close();
    policy.call(retry_all, || async { Ok::<_, &str>(()) }).await.expect("a breaker is local by default");
    fail(&policy).await;
    fail(&policy).await;
    let refused = policy.call(retry_all, || async { Ok::<_, &str>(()) }).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::CircuitOpen), "it counts here");
    relay.open();
    service.wait_ready(Duration::from_secs(20)).await.unwrap();
    policy.call(retry_all, || async { Ok::<_, &str>(()) }).await.expect("the fleet saw no failure");
    operator.policies().delete("pay").await.unwrap();
    policy.call(retry_all, || async { Ok::<_, &str>(()) }).await.expect("the last good one stays");
}

const ONE_PLACE: &str = r#"{"timeout":{"attempt":"5m"},"sharedBulkhead":{"maxConcurrentCalls":1}}"#;

/// A client whose connection passes through a relay, and the policy it follows.
async fn following_through(relay: &Relay, server: &Server, document: &str) -> (Client, FollowedPolicy) {
    let operator = resil::connect(&server.url()).await.unwrap();
    operator.policies().set("pay", document).await.unwrap();
    let client = resil::connect(&format!("redis://127.0.0.1:{}", relay.port())).await.unwrap();
    let policy = client.policy("pay").await.unwrap();
    (client, policy)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_success_does_not_wait_for_its_report() {
    let server = Server::fresh();
    let relay = Relay::to(server.port());
    let (_client, policy) = following_through(&relay, &server, ONE_PLACE).await;
    let inside = policy.call(retry_all, || async {
        relay.delay(Duration::from_millis(400));
        Ok::<_, &str>(Instant::now())
    });
    let ended_at = inside.await.expect("it has the place");
    let (took, left) = (ended_at.elapsed(), counted(&server, "active"));
    assert!(took < Duration::from_millis(300), "it returned after {took:?}, and a report takes 400 ms");
    assert_eq!(left, 1, "the report is on its way");
    eventually("the place is free", || counted(&server, "active") == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_calls_permit_is_free_for_the_next_call() {
    let server = Server::fresh();
    let relay = Relay::to(server.port());
    let (_client, policy) = following_through(&relay, &server, ONE_PLACE).await;
    for slow in [0, 3] {
        relay.delay(Duration::from_millis(slow));
        for number in 0..100 {
            let ended = policy.call(retry_all, || async { Ok::<_, &str>(()) }).await;
            ended.unwrap_or_else(|failure| panic!("call {number}, {slow} ms away: {failure:?}"));
            let ignored = policy.call(|_: &&str| Class::Ignore, || async { Err::<(), _>("nothing new") }).await;
            assert_eq!(ignored, Err(Failure::Inner("nothing new")), "call {number}, {slow} ms away");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_final_failure_is_counted_before_the_callers_next_call() {
    let server = Server::fresh();
    let relay = Relay::to(server.port());
    let (_client, policy) = following_through(&relay, &server, r#"{"breaker":{"consecutiveFailures":1}}"#).await;
    relay.delay(Duration::from_millis(20));
    let failed = policy.call(|_: &&str| Class::Permanent, || async { Err::<(), _>("wrong") }).await;
    assert_eq!(failed, Err(Failure::Inner("wrong")));
    let refused = policy.call(retry_all, || async { Ok::<_, &str>(()) }).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::CircuitOpen));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_right_after_a_call_has_sent_its_report() {
    let server = Server::fresh();
    let relay = Relay::to(server.port());
    for round in 0..10 {
        let (client, policy) = following_through(&relay, &server, ONE_PLACE).await;
        relay.delay(Duration::from_millis(round * 5));
        policy.call(retry_all, || async { Ok::<_, &str>(()) }).await.expect("the place is free");
        let report = client.shutdown(Duration::from_secs(5)).await;
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(counted(&server, "active"), 0, "in round {round}");
        relay.delay(Duration::ZERO);
    }
}

#[test]
fn a_report_is_sent_though_the_callers_runtime_ends() {
    let server = Server::fresh();
    for round in 0..20 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_client, policy) = following(&server, ONE_PLACE).await;
            let ended = policy.call(retry_all, || async { Ok::<_, &str>(()) }).await;
            ended.unwrap_or_else(|failure| panic!("round {round}: {failure:?}"));
        });
        drop(runtime);
        let begun = Instant::now();
        while counted(&server, "active") > 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "it was not sent in round {round}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Commands to a node may overtake each other there. The connection is kept on the only thread there is, so what was handed in and not
/// waited for is not sent while this test asks.
#[tokio::test]
async fn in_a_cluster_a_call_ends_after_its_report() {
    let cluster = Cluster::start(3, Options::default());
    let node = cluster.node_for_key(KEY);
    // Another node: the way to the key is found by the client.
    let seed = cluster.nodes().iter().find(|seed| seed.port() != node.port()).expect("three nodes");
    let client = ConnectSettings::new(format!("redis+cluster://127.0.0.1:{}", seed.port()))
        .runtime(tokio::runtime::Handle::current())
        .connect()
        .await
        .unwrap();
    client.policies().set("pay", ONE_PLACE).await.unwrap();
    let policy = client.policy("pay").await.unwrap();
    for number in 0..20 {
        let ended = policy.call(retry_all, || async { Ok::<_, &str>(counted(node, "active")) }).await;
        assert_eq!(ended, Ok(1), "call {number} has the place");
        assert_eq!(counted(node, "active"), 0, "its place is free after call {number}");
        let ignored = policy.call(|_: &&str| Class::Ignore, || async { Err::<(), _>("nothing new") }).await;
        assert_eq!(ignored, Err(Failure::Inner("nothing new")), "call {number}");
        assert_eq!(counted(node, "active"), 0, "also after a failure that is none, {number}");
    }
    client.policies().set("shop", r#"{"breaker":{"consecutiveFailures":1}}"#).await.unwrap();
    let policy = client.policy("shop").await.unwrap();
    let failed = policy.call(|_: &&str| Class::Permanent, || async { Err::<(), _>("wrong") }).await;
    assert_eq!(failed, Err(Failure::Inner("wrong")));
    let key = "resil:policy:{shop}";
    let entered = raw(cluster.node_for_key(key), &["RES.GUARD", "ENTER", key, "raw-1"]);
    assert!(entered.contains("REFUSED") && entered.contains("breaker"), "{entered}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_lost_with_the_connection_costs_the_lease() {
    let server = Server::fresh();
    let relay = Relay::to(server.port());
    let document = r#"{"timeout":{"attempt":"200ms"},"sharedBulkhead":{"maxConcurrentCalls":1}}"#;
    let (_client, policy) = following_through(&relay, &server, document).await;
    let inside = policy.call(retry_all, || async {
        relay.close();
        Ok::<_, &str>(())
    });
    inside.await.expect("a call that was made is made, whatever becomes of its report");
    let entered = raw(&server, &["RES.GUARD", "ENTER", KEY, "raw-1"]);
    assert!(entered.contains("REFUSED") && entered.contains("bulkhead"), "{entered}");
    eventually("its lease ends", || raw(&server, &["RES.GUARD", "ENTER", KEY, "raw-2"]).contains("ADMITTED")).await;
}
