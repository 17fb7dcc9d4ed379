//! Locks on a real server: many tasks on few connections, servers killed, connections cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use resil::lock::Held;
use resil::lock::LockSettings;
use resil::{Client, ConnectSettings, Error};
use resil_harness::{Options, Server, ok, wait_for_sync};

use crate::one_lock;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn client(server: &Server) -> Client {
    ConnectSettings::new(server.url()).command_timeout(ms(2_000)).connect().await.expect("a server that is there")
}

/// One that forgets nothing it has reported.
fn careful() -> Server {
    Server::start(Options::default().config("appendonly", "yes").config("appendfsync", "always"))
}

/// Waits for what becomes true without time being driven, for at most `within`.
async fn eventually(what: &str, within: Duration, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < within, "{what}, within {within:?}");
        tokio::time::sleep(ms(5)).await;
    }
}

fn connections(server: &Server) -> usize {
    let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut server.connect()).expect("a list");
    list.lines().count() - 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_tasks_on_one_lock_need_few_connections() {
    let server = Server::fresh();
    let client = client(&server).await;
    let lock = client.lock("orders", LockSettings::new().wait(Duration::from_secs(300))).unwrap();
    let first = lock.try_acquire().await.expect("free");
    let (mut tasks, served) = one_lock::wanted_by_all(&lock);
    let all = one_lock::TASKS as u64;
    let wait = async || lock.info().await.is_ok_and(|info| info.waiters_total == all);
    eventually("all wait in the server", ms(20_000), wait).await;
    let begun = Instant::now();
    first.release().await.expect("released");
    let mut most = 0;
    let all = async {
        while tasks.join_next().await.transpose().expect("no panic").is_some() {
            let so_far = served.load(Ordering::SeqCst);
            if so_far.is_multiple_of(1_000) {
                most = most.max(connections(&server));
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), all).await.expect("within two minutes");
    assert_eq!(served.load(Ordering::SeqCst), one_lock::TASKS);
    assert!(most <= 5, "{most} connections");
    println!("10,000 hand-overs in {:?}, at most {most} connections", begun.elapsed());
    assert_eq!(lock.info().await.expect("info").holders_total, 0);
}

#[tokio::test]
async fn a_lock_is_not_believed_past_its_deadline() {
    let mut server = careful();
    let client = client(&server).await;
    let guard = client.lock("orders", LockSettings::new().lease(ms(1_500))).unwrap().try_acquire().await.expect("free");
    server.kill9();
    let deadline = Instant::now() + guard.remaining();
    guard.lost().cancelled().await;
    assert!(Instant::now() <= deadline + ms(100), "the token fires by the deadline, but for what the machine does");
    tokio::time::sleep_until((deadline + ms(1)).into()).await;
    assert!(!guard.is_held());
}

#[tokio::test]
async fn a_lock_survives_a_restart_within_its_grace() {
    let mut server = careful();
    let client = client(&server).await;
    let guard = client
        .lock("orders", LockSettings::new().lease(Duration::from_secs(20)).grace(Duration::from_secs(15)))
        .unwrap();
    let guard = guard.try_acquire().await.expect("free");
    let (fence, deadline) = (guard.fence(), guard.deadline());
    server.kill9();
    server.start_again();
    eventually("renewed on the new connection", Duration::from_secs(15), async || guard.deadline() > deadline).await;
    assert!(guard.is_held() && guard.fence() == fence);
    eventually("known on the new connection", Duration::from_secs(5), async || guard.check().await == Ok(true)).await;
    // A renewal over a connection apart may have come first, and that one binds nothing.
    let lock = client.lock("orders", LockSettings::new()).unwrap();
    let is_bound = async || lock.info().await.is_ok_and(|info| info.holders[0].is_bound);
    eventually("bound to the new connection", Duration::from_secs(5), is_bound).await;
}

#[tokio::test]
async fn a_bound_lock_survives_a_cut_and_is_rebound() {
    let server = Server::fresh();
    let client = client(&server).await;
    let guard = client
        .lock("orders", LockSettings::new().lease(Duration::from_secs(60)))
        .unwrap()
        .try_acquire()
        .await
        .expect("free");
    let fence = guard.fence();
    let is_bound = async || {
        client.lock("orders", LockSettings::new()).unwrap().info().await.is_ok_and(|info| info.holders[0].is_bound)
    };
    assert!(is_bound().await);
    for _ in 0..3 {
        ok(&mut server.connect(), &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        eventually("bound again", Duration::from_secs(5), is_bound).await;
        assert!(guard.is_held() && guard.fence() == fence);
    }
    tokio::time::sleep(ms(3_500)).await;
    assert!(guard.is_held() && !guard.lost().is_cancelled(), "beyond the grace of the last cut");
    assert_eq!(guard.check().await, Ok(true));
}

#[tokio::test]
async fn a_cancelled_waiter_leaves_the_server_at_once() {
    let server = Server::fresh();
    let (client, other) = (client(&server).await, client(&server).await);
    let lock = client.lock("orders", LockSettings::new()).unwrap();
    let guard = other.lock("orders", LockSettings::new()).unwrap().try_acquire().await.expect("free");
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    eventually("it waits", ms(5_000), async || lock.info().await.is_ok_and(|info| info.waiters_total == 1)).await;
    waiting.abort();
    eventually("it left", ms(5_000), async || lock.info().await.is_ok_and(|info| info.waiters_total == 0)).await;
    drop(guard);
    let next = lock.acquire_within(ms(5_000)).await.expect("what was dropped is released in the background");
    next.release().await.expect("released");
}

#[tokio::test]
async fn a_lock_is_granted_only_if_enough_replicas_have_it() {
    let primary = Server::fresh();
    let replica = Server::replica_of(&primary, Options::default());
    wait_for_sync(&primary, &replica);
    let client = client(&primary).await;
    let guard =
        client.lock("orders", LockSettings::new().replicas(1)).unwrap().try_acquire().await.expect("one has it");
    guard.release().await.expect("released");
    let short = client.lock("orders", LockSettings::new().replicas(2)).unwrap().try_acquire().await.map(drop);
    assert!(matches!(short, Err(Error::BackendUnavailable(_))), "{short:?}");
    let lock = client.lock("orders", LockSettings::new()).unwrap();
    eventually("given back", ms(5_000), async || lock.info().await.is_ok_and(|info| info.holders_total == 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_two_believe_despite_kills_and_cuts() {
    let mut server = careful();
    let believers: Arc<Mutex<Vec<Held>>> = Arc::default();
    let (over, grants) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let client = client(&server).await;
        for number in 0..3 {
            let (client, believers) = (client.clone(), Arc::clone(&believers));
            let (over, grants) = (Arc::clone(&over), Arc::clone(&grants));
            tasks.spawn(async move {
                let lock = client.lock("orders", LockSettings::new().unbound().lease(ms(400))).unwrap();
                while !over.load(Ordering::SeqCst) {
                    let Ok(guard) = lock.acquire_within(ms(1_000)).await else { continue };
                    grants.fetch_add(1, Ordering::SeqCst);
                    believers.lock().push(guard.held());
                    tokio::time::sleep(ms(5 * number)).await;
                    drop(guard);
                }
            });
        }
    }
    let watcher = std::thread::spawn({
        let (believers, over) = (Arc::clone(&believers), Arc::clone(&over));
        move || {
            while !over.load(Ordering::SeqCst) {
                let mut believers = believers.lock();
                believers.retain(Held::is_held);
                assert!(believers.len() <= 1, "{:?}", believers.iter().map(Held::owner).collect::<Vec<_>>());
                drop(believers);
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    });
    for round in 0..4 {
        tokio::time::sleep(ms(500)).await;
        if round % 2 == 0 {
            server.kill9();
            server.start_again();
        } else {
            ok(&mut server.connect(), &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        }
    }
    let before = grants.load(Ordering::SeqCst);
    eventually("it goes on after all that", Duration::from_secs(30), async || {
        grants.load(Ordering::SeqCst) > before + 10
    })
    .await;
    over.store(true, Ordering::SeqCst);
    let all = async { while tasks.join_next().await.transpose().expect("no panic").is_some() {} };
    tokio::time::timeout(Duration::from_secs(10), all).await.expect("nobody is stuck");
    watcher.join().expect("never two");
}
