//! Cached loads and idempotent work on a real server, also one that dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use resil::cache::CacheSettings;
use resil::cache::{Cached, Loaded};
use resil::idempotency::IdempotencySettings;
use resil::{ConnectSettings, Error, Failure};
use resil_harness::{Options, Server, wait_for_sync};
use tokio::task::JoinHandle;

/// Longer than anything here takes, on a machine that has much else to do.
const BOUND: Duration = Duration::from_secs(60);

type Got = Result<Loaded, Failure<Arc<String>>>;

async fn users(server: &Server) -> Cached {
    let options = ConnectSettings::new(server.url()).command_timeout(Duration::from_secs(10));
    options.connect().await.unwrap().cached("user", CacheSettings::new().load_timeout(Duration::from_secs(20))).unwrap()
}

/// A load that takes as long as `gate` is closed.
fn spawn_get(users: &Cached, loads: &Arc<AtomicU32>, gate: &Arc<tokio::sync::Semaphore>) -> JoinHandle<Got> {
    let (users, loads, gate) = (users.clone(), Arc::clone(loads), Arc::clone(gate));
    let loader = move |_| async move {
        loads.fetch_add(1, SeqCst);
        drop(gate.acquire().await);
        Ok(Some(Bytes::from("Ada")))
    };
    tokio::spawn(async move { users.get("42", loader).await })
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(BOUND, waiting).await.is_ok(), "waited in vain until {what}");
}

/// How many wait in the server's queues.
fn waiters(server: &Server) -> usize {
    let info = resil_harness::ok(&mut server.connect(), &["INFO", "resil"]);
    let info: String = redis::from_redis_value(info).unwrap();
    let of = |name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)).map_or(0, |count| count.trim().parse().unwrap())
    };
    of("resil_blocked_waiters:") + of("resil_async_waiters:")
}

async fn all_get_it(tasks: Vec<JoinHandle<Got>>) {
    for task in tasks {
        let got = tokio::time::timeout(BOUND, task).await.expect("nobody is stuck").unwrap();
        assert_eq!(got.unwrap().into_value().unwrap(), "Ada");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_callers_over_four_processes_are_one_load() {
    let server = Server::fresh();
    let (loads, gate) = (Arc::default(), Arc::new(tokio::sync::Semaphore::new(0)));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let users = users(&server).await;
        tasks.extend((0..250).map(|_| spawn_get(&users, &loads, &gate)));
    }
    eventually("three processes wait in the server", || waiters(&server) == 3).await;
    gate.add_permits(1);
    all_get_it(tasks).await;
    assert_eq!(loads.load(SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_during_a_load_fails_nobody() {
    let mut server = Server::fresh();
    let (loads, gate) = (Arc::default(), Arc::new(tokio::sync::Semaphore::new(0)));
    let handles = [users(&server).await, users(&server).await];
    let mut tasks: Vec<_> = (0..100).map(|_| spawn_get(&handles[0], &loads, &gate)).collect();
    eventually("it loads", || loads.load(SeqCst) == 1).await;
    tasks.extend((0..100).map(|_| spawn_get(&handles[1], &loads, &gate)));
    eventually("the other process waits in the server", || waiters(&server) == 1).await;
    server.kill9();
    eventually("the other process loads for itself", || loads.load(SeqCst) == 2).await;
    gate.add_permits(1);
    all_get_it(tasks).await;
    assert_eq!(loads.load(SeqCst), 2, "one load for each process");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_call_never_gets_what_another_process_invalidated() {
    let server = Server::fresh();
    let (loads, gate) = (Arc::default(), Arc::new(tokio::sync::Semaphore::new(0)));
    let (here, there) = (users(&server).await, users(&server).await);
    let before = spawn_get(&here, &loads, &gate);
    eventually("it loads", || loads.load(SeqCst) == 1).await;
    assert!(there.invalidate("42").await.unwrap());
    let after = spawn_get(&here, &loads, &gate);
    gate.add_permits(1);
    all_get_it(vec![before, after]).await;
    assert_eq!(loads.load(SeqCst), 2);
    assert!(there.invalidate("42").await.unwrap(), "the second was kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_over_four_processes_run_once() {
    let server = Server::fresh();
    let runs = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let client = resil::connect(&server.url()).await.unwrap();
        let payments = client.idempotent("pay", IdempotencySettings::new().wait(BOUND)).unwrap();
        for _ in 0..50 {
            let (payments, runs) = (payments.clone(), Arc::clone(&runs));
            tasks.push(tokio::spawn(async move {
                let paying = async |_| {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    Ok::<_, String>(runs.fetch_add(1, SeqCst).to_string())
                };
                payments.run("42", b"seven euros", paying).await
            }));
        }
    }
    for task in tasks {
        let outcome = tokio::time::timeout(BOUND, task).await.expect("nobody is stuck").unwrap().unwrap();
        assert_eq!(outcome.value.as_deref(), Some(&b"0"[..]));
    }
    assert_eq!(runs.load(SeqCst), 1);
}

#[tokio::test]
async fn work_runs_only_if_enough_replicas_know_of_it() {
    let primary = Server::fresh();
    let replica = Server::replica_of(&primary, Options::default());
    wait_for_sync(&primary, &replica);
    let client = resil::connect(&primary.url()).await.unwrap();
    let runs = AtomicU32::new(0);
    let paying = async |_| {
        runs.fetch_add(1, SeqCst);
        Ok::<_, String>("paid")
    };
    let demanding = client.idempotent("pay", IdempotencySettings::new().replicas(2)).unwrap();
    let short = demanding.run("42", b"", paying).await.map(drop);
    assert!(matches!(short, Err(Failure::Resil(Error::BackendUnavailable(_)))), "{short:?}");
    assert_eq!(runs.load(SeqCst), 0, "it was given back before it began");
    let modest = client.idempotent("pay", IdempotencySettings::new().replicas(1)).unwrap();
    let outcome = modest.run("42", b"", paying).await.expect("one has it, and nobody else is at it");
    assert_eq!((outcome.value.as_deref(), runs.load(SeqCst)), (Some(&b"paid"[..]), 1));
    let memory = resil::connect("memory://").await.unwrap();
    let refused = memory.idempotent("pay", IdempotencySettings::new().replicas(1)).map(drop);
    assert!(matches!(&refused, Err(Error::InvalidPolicy { field, .. }) if field == "replicas"), "{refused:?}");
}
