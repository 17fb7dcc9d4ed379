//! While the server is killed: what each primitive does in each mode, how fast, and what `health` says of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use resil::breaker::BreakerSettings;
use resil::cache::CacheSettings;
use resil::idempotency::IdempotencySettings;
use resil::limiter::{DecidedBy, Limit};
use resil::lock::LockSettings;
use resil::shared_bulkhead::SharedBulkheadSettings;
use resil::{Away, Client, Code, Error, Failure, Status};
use resil_harness::Server;

use crate::scene::{SLACK, becomes, client, eventually, ms, options, timed};

/// Refused without being asked: no connection is tried for it.
const AT_ONCE: Duration = SLACK;

/// A client whose server has just been killed, as the client knows.
async fn orphan(make: impl FnOnce(&Client)) -> (Server, Client) {
    let mut server = Server::fresh();
    let client = options(&server.url()).instances(4).connect().await.expect("a server that is there");
    make(&client);
    server.kill9();
    eventually("the loss is noticed", async || client.health().overall != Status::Healthy).await;
    (server, client)
}

#[track_caller]
fn is_unavailable<T>(got: Result<T, Error>, took: Duration) {
    assert_eq!(got.map(drop).expect_err("refused").code(), Code::BackendUnavailable);
    assert!(took < AT_ONCE, "{took:?}");
}

#[tokio::test]
async fn a_limit_grants_by_its_mode_during_the_kill() {
    let (_server, client) = orphan(|_| {}).await;
    let limiter = |name, away| client.limiter(name, Limit::window(40, ms(3_600_000)).when_away(away)).expect("valid");
    let (open, closed, local) =
        (limiter("open", Away::Open), limiter("closed", Away::Closed), limiter("local", Away::Local));
    let mut granted = 0;
    for _ in 0..60 {
        let verdict = open.check("alice").await.expect("let through");
        assert!(verdict.is_granted() && verdict.decided_by == DecidedBy::AwayOpen, "{verdict:?}");
        let (refused, took) = timed("a closed limit", closed.check("alice")).await;
        is_unavailable(refused, took);
        let verdict = local.check("alice").await.expect("decided here");
        assert_eq!(verdict.decided_by, DecidedBy::Local);
        granted += u32::from(verdict.is_granted());
    }
    assert_eq!(granted, 10, "one of four processes grants a quarter of forty");
    let bucket = client.limiter("bucket", Limit::per_hour(100).burst(40)).expect("valid");
    assert_eq!(bucket.up_to("alice", 100).await.expect("decided here").granted, 10, "and so does a bucket");
}

#[tokio::test]
async fn a_breaker_decides_by_its_mode_during_the_kill() {
    let (_server, client) = orphan(|_| {}).await;
    let breaker = |name, away| {
        client.breaker(name, BreakerSettings::new().consecutive_failures(3).when_away(away)).expect("valid")
    };
    let (open, closed, local) =
        (breaker("open", Away::Open), breaker("closed", Away::Closed), breaker("local", Away::Local));
    let (made, mut refused) = (AtomicU32::new(0), 0);
    let fails = async || {
        made.fetch_add(1, SeqCst);
        Err::<(), _>("down")
    };
    for _ in 0..20 {
        assert_eq!(open.call(fails).await, Err(Failure::Inner("down")), "let through, and nothing is counted");
        let (got, took) = timed("a closed breaker", closed.call(async || Ok::<_, &str>(()))).await;
        assert_eq!(
            got.expect_err("refused").code(),
            Some(Code::BackendUnavailable),
            "it is not the circuit that is open"
        );
        assert!(took < AT_ONCE, "{took:?}");
    }
    assert_eq!(made.swap(0, SeqCst), 20);
    for _ in 0..20 {
        refused += u32::from(local.call(fails).await.expect_err("fails").code() == Some(Code::CircuitOpen));
    }
    assert_eq!((made.load(SeqCst), refused), (3, 17), "the same rule, by the machine in this process");
}

#[tokio::test]
async fn locks_and_bulkheads_follow_their_mode_during_the_kill() {
    let (_server, client) = orphan(|_| {}).await;
    let (got, took) = timed("a closed lock", client.lock("a", LockSettings::new()).unwrap().try_acquire()).await;
    is_unavailable(got, took);
    let (got, took) =
        timed("a closed lock that waits", client.lock("a", LockSettings::new()).unwrap().acquire_within(ms(700))).await;
    is_unavailable(got, took.saturating_sub(ms(700)));
    let guard =
        client.lock("a", LockSettings::new().when_away(Away::Open)).unwrap().acquire().await.expect("let through");
    assert!(guard.held().is_unprotected() && guard.fence().is_none());
    guard.release().await.expect("there is nothing to release");
    let (got, took) =
        timed("a closed bulkhead", client.shared_bulkhead("b", SharedBulkheadSettings::new(1)).unwrap().try_enter())
            .await;
    is_unavailable(got, took);
    let let_in = client.shared_bulkhead("b", SharedBulkheadSettings::new(1).when_away(Away::Open)).unwrap();
    let (first, second) = (let_in.enter().await.expect("let in"), let_in.enter().await.expect("let in"));
    assert!(first.held().is_unprotected() && second.held().is_unprotected());
}

#[tokio::test]
async fn idempotent_work_follows_its_mode_during_the_kill() {
    let (_server, client) = orphan(|_| {}).await;
    let ran = AtomicU32::new(0);
    let work = async |_| {
        ran.fetch_add(1, SeqCst);
        Ok::<_, String>("done")
    };
    let closed = client.idempotent("closed", IdempotencySettings::new()).expect("valid");
    let (got, took) = timed("closed work", closed.run("k", b"", work)).await;
    assert_eq!(got.expect_err("refused").code(), Some(Code::BackendUnavailable));
    assert!(took < AT_ONCE && ran.load(SeqCst) == 0, "{took:?}");
    let open = client.idempotent("open", IdempotencySettings::new().when_away(Away::Open)).expect("valid");
    let outcome = open.run("k", b"", work).await.expect("run");
    assert!(!outcome.recorded && !outcome.replayed && ran.load(SeqCst) == 1);
}

#[tokio::test]
async fn a_cached_load_follows_its_mode_during_the_kill() {
    let (_server, client) = orphan(|_| {}).await;
    for (away, wanted) in [(Away::Closed, 0), (Away::Open, 50), (Away::Local, 1)] {
        let cached = client.cached(&format!("{away:?}"), CacheSettings::new().when_away(away)).expect("valid");
        let loads = Arc::new(AtomicU32::new(0));
        let gets = (0..50).map(|_| {
            let loads = Arc::clone(&loads);
            cached.get("k", move |_| async move {
                loads.fetch_add(1, SeqCst);
                tokio::time::sleep(ms(20)).await;
                Ok::<_, String>(Some(Bytes::from("v")))
            })
        });
        let (got, took) = timed("a load", futures_util::future::join_all(gets)).await;
        assert!(took < AT_ONCE, "{took:?}");
        for got in got {
            match away {
                Away::Closed => assert_eq!(got.expect_err("refused").code(), Some(Code::BackendUnavailable)),
                _ => assert_eq!(got.expect("loaded").into_value().expect("found"), "v"),
            }
        }
        assert_eq!(loads.load(SeqCst), wanted, "{away:?}");
    }
}

#[tokio::test]
async fn local_is_refused_for_what_must_be_decided_once() {
    let server = Server::fresh();
    let client = client(&server).await;
    let lock = client.lock("a", LockSettings::new().when_away(Away::Local)).map(drop);
    let bulkhead = client.shared_bulkhead("a", SharedBulkheadSettings::new(1).when_away(Away::Local)).map(drop);
    let work = client.idempotent("a", IdempotencySettings::new().when_away(Away::Local)).map(drop);
    for refused in [lock, bulkhead, work] {
        let Err(Error::InvalidPolicy { field, reason }) = &refused else { panic!("{refused:?}") };
        assert!(field == "whenAway" && reason.contains("local"), "{refused:?}");
    }
    assert_eq!(client.health().overall, Status::Healthy);
    assert!(client.health().policies.is_empty(), "what was refused was not made: {:?}", client.health());
}

#[tokio::test]
async fn health_is_per_policy_and_recovers_without_traffic() {
    let (mut server, client) = orphan(|client| {
        for (name, away) in [("open", Away::Open), ("closed", Away::Closed), ("local", Away::Local)] {
            drop(client.limiter(name, Limit::per_second(1).when_away(away)).expect("valid"));
            drop(client.breaker(name, BreakerSettings::new().when_away(away)).expect("valid"));
            drop(client.cached(name, CacheSettings::new().when_away(away)).expect("valid"));
            if away != Away::Local {
                drop(client.idempotent(name, IdempotencySettings::new().when_away(away)).expect("valid"));
            }
        }
    })
    .await;
    let health = client.health();
    assert_eq!((health.overall, health.policies.len()), (Status::Unhealthy, 11), "{health:?}");
    for (name, status) in &health.policies {
        let wanted = if name.ends_with("closed") { Status::Unhealthy } else { Status::Degraded };
        assert_eq!(*status, wanted, "{name}");
    }
    server.start_again();
    let took = becomes(&client, Status::Healthy).await;
    assert!(client.health().policies.values().all(|status| *status == Status::Healthy));
    println!("healthy {took:?} after the restart");
}

#[tokio::test]
async fn a_client_with_working_parts_is_degraded_otherwise_unhealthy() {
    let (_server, nothing) = orphan(|_| {}).await;
    assert_eq!(nothing.health().overall, Status::Unhealthy);
    for away in [Away::Open, Away::Local] {
        let (_server, client) = orphan(|client| {
            drop(client.limiter("api", Limit::per_second(1).when_away(away)).expect("valid"));
        })
        .await;
        assert_eq!(client.health().overall, Status::Degraded, "{away:?}");
    }
    let (_server, client) = orphan(|_| {}).await;
    drop(client.lock("a", LockSettings::new().when_away(Away::Open)).unwrap().acquire().await.expect("let through"));
    assert_eq!(client.health().overall, Status::Degraded, "{:?}", client.health());
    drop(client.lock("b", LockSettings::new()).unwrap().try_acquire().await.expect_err("refused"));
    drop(client.shared_bulkhead("b", SharedBulkheadSettings::new(1)).unwrap().try_enter().await.expect_err("refused"));
    assert_eq!(client.health().overall, Status::Unhealthy, "{:?}", client.health());
    let seen: Vec<_> = client.health().policies.into_iter().collect();
    let wanted = [("lock", Status::Unhealthy), ("lock:open", Status::Degraded), ("shared_bulkhead", Status::Unhealthy)];
    assert_eq!(seen, wanted.map(|(name, status)| (name.to_owned(), status)));
}
