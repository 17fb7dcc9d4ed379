//! Connections cut in the middle of a wait: the lock is had all the same, or the error is clear, and nothing stays behind.

use bytes::Bytes;
use resil::cache::CacheSettings;
use resil::idempotency::IdempotencySettings;
use resil::lock::LockSettings;
use resil::lock::{Lock, LockGuard};
use resil::{Away, Client, Code, Error, Status};
use resil_harness::{Server, ok};
use tokio::task::JoinHandle;

use crate::proxy::Proxy;
use crate::scene::{SLACK, becomes, client, eventually, is_listened, kill_listeners, ms, options, timed, waiters};

/// A lock that somebody holds whose connections are nobody's business, and one who waits for it.
async fn held_and_wanted(
    holder: &Client,
    server: &Server,
    wanting: &Lock,
) -> (LockGuard, JoinHandle<Result<LockGuard, Error>>) {
    let guard = holder
        .lock("orders", LockSettings::new().unbound().lease(ms(60_000)))
        .unwrap()
        .try_acquire()
        .await
        .expect("free");
    let lock = wanting.clone();
    let waiting = tokio::spawn(async move { lock.acquire().await });
    eventually("it waits", async || waiters(server) == 1).await;
    (guard, waiting)
}

/// How many hold it and how many wait for it, once it is these.
async fn comes_to(lock: &Lock, holders: u64, waiters: u64) {
    eventually(&format!("{holders} hold and {waiters} wait"), async || {
        lock.info().await.is_ok_and(|info| (info.holders_total, info.waiters_total) == (holders, waiters))
    })
    .await;
}

#[tokio::test]
async fn a_wait_survives_its_killed_listening_connection() {
    let server = Server::fresh();
    let (holder, other) = (client(&server).await, client(&server).await);
    let lock = other.lock("orders", LockSettings::new().wait(ms(20_000))).unwrap();
    let (guard, waiting) = held_and_wanted(&holder, &server, &lock).await;
    for _ in 0..3 {
        kill_listeners(&server);
        eventually("it listens again", async || is_listened(&server)).await;
    }
    comes_to(&lock, 1, 1).await;
    guard.release().await.expect("released");
    let granted = waiting.await.expect("no panic").expect("granted");
    assert!(granted.is_held());
    granted.release().await.expect("released");
    comes_to(&lock, 0, 0).await;
}

#[tokio::test]
async fn a_wait_survives_all_connections_and_gets_a_lock() {
    let server = Server::fresh();
    let (holder, other) = (client(&server).await, client(&server).await);
    let lock = other.lock("orders", LockSettings::new().wait(ms(20_000))).unwrap();
    let (guard, waiting) = held_and_wanted(&holder, &server, &lock).await;
    ok(&mut server.connect(), &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    comes_to(&lock, 1, 1).await;
    becomes(&holder, Status::Healthy).await;
    guard.release().await.expect("it was not bound to the connection");
    let granted = waiting.await.expect("no panic").expect("granted");
    // Bound to the connection that is there now: it does not end with the one that was.
    tokio::time::sleep(ms(1_500)).await;
    assert!(granted.is_held());
    assert_eq!(granted.check().await, Ok(true));
    granted.release().await.expect("released");
    comes_to(&lock, 0, 0).await;
}

#[tokio::test]
async fn a_wait_survives_a_cut_network_and_is_granted() {
    let server = Server::fresh();
    let proxy = Proxy::to(&server).await;
    let holder = client(&server).await;
    let other = options(&proxy.url()).connect().await.expect("there");
    let lock = other.lock("orders", LockSettings::new().wait(ms(20_000))).unwrap();
    let (guard, waiting) = held_and_wanted(&holder, &server, &lock).await;
    proxy.cut();
    comes_to(&holder.lock("orders", LockSettings::new()).unwrap(), 1, 1).await;
    guard.release().await.expect("released");
    let granted = waiting.await.expect("no panic").expect("granted");
    granted.release().await.expect("released");
    comes_to(&lock, 0, 0).await;
}

#[tokio::test]
async fn a_wait_over_a_closed_network_fails_in_time() {
    let server = Server::fresh();
    let proxy = Proxy::to(&server).await;
    let holder = client(&server).await;
    let other = options(&proxy.url()).connect().await.expect("there");
    let lock = other.lock("orders", LockSettings::new().wait(ms(1_500))).unwrap();
    let (guard, waiting) = held_and_wanted(&holder, &server, &lock).await;
    proxy.close();
    let (refused, took) = timed("a wait", waiting).await;
    let code = refused.expect("no panic").map(drop).expect_err("nobody let go").code();
    assert!(matches!(code, Code::BackendUnavailable | Code::LockTimeout), "{code:?}");
    assert!(took < ms(1_500) + SLACK, "{took:?}");
    comes_to(&holder.lock("orders", LockSettings::new()).unwrap(), 1, 0).await;
    guard.release().await.expect("released");
    proxy.clear_up();
    becomes(&other, Status::Healthy).await;
    lock.acquire().await.expect("free").release().await.expect("released");
    comes_to(&lock, 0, 0).await;
}

#[tokio::test]
async fn a_grant_lost_in_a_frozen_network_is_returned() {
    let server = Server::fresh();
    let proxy = Proxy::to(&server).await;
    let holder = client(&server).await;
    let other = options(&proxy.url()).connect().await.expect("there");
    let lock = other.lock("orders", LockSettings::new().wait(ms(1_000)).lease(ms(60_000))).unwrap();
    let (guard, waiting) = held_and_wanted(&holder, &server, &lock).await;
    proxy.freeze();
    guard.release().await.expect("released");
    comes_to(&holder.lock("orders", LockSettings::new()).unwrap(), 1, 0).await;
    let (refused, took) = timed("a wait", waiting).await;
    let code = refused.expect("no panic").map(drop).expect_err("it never heard").code();
    assert!(matches!(code, Code::BackendUnavailable | Code::LockTimeout), "{code:?}");
    assert!(took < ms(1_000) + SLACK, "{took:?}");
    proxy.clear_up();
    // Long before the lease is over.
    let (next, took) =
        timed("the next", holder.lock("orders", LockSettings::new()).unwrap().acquire_within(ms(20_000))).await;
    next.expect("given back").release().await.expect("released");
    assert!(took < ms(10_000), "{took:?}");
    comes_to(&holder.lock("orders", LockSettings::new()).unwrap(), 0, 0).await;
}

#[tokio::test]
async fn a_waiter_gets_anothers_result_despite_killed_connections() {
    let server = Server::fresh();
    let (here, there) = (client(&server).await, client(&server).await);
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let work = |client: &Client| client.idempotent("pay", IdempotencySettings::new().wait(ms(20_000))).expect("valid");
    let first = tokio::spawn({
        let (work, gate) = (work(&here), gate.clone());
        async move {
            work.run("42", b"", async |_| {
                drop(gate.acquire().await);
                Ok::<_, String>("one")
            })
            .await
        }
    });
    let known = work(&here);
    eventually("it runs", async || {
        matches!(known.get("42").await, Ok(resil::idempotency::RecordedState::Running { .. }))
    })
    .await;
    let second = tokio::spawn({
        let work = work(&there);
        async move { work.run("42", b"", async |_| Ok::<_, String>("two")).await }
    });
    eventually("the other waits", async || waiters(&server) == 1).await;
    kill_listeners(&server);
    eventually("the other listens again", async || is_listened(&server)).await;
    gate.add_permits(1);
    for outcome in [first, second] {
        let outcome = outcome.await.expect("no panic").expect("done");
        assert_eq!(outcome.value.as_deref(), Some(&b"one"[..]), "once, for both");
    }
    eventually("nobody waits", async || waiters(&server) == 0).await;
}

#[tokio::test]
async fn a_waiter_loads_itself_when_the_server_dies() {
    for away in [Away::Local, Away::Open] {
        let mut server = Server::fresh();
        let (here, there) = (client(&server).await, client(&server).await);
        let users = |client: &Client| {
            client.cached("user", CacheSettings::new().load_timeout(ms(20_000)).when_away(away)).expect("valid")
        };
        let slow = tokio::spawn({
            let users = users(&here);
            async move { users.get("42", |_| std::future::pending::<Result<Option<Bytes>, String>>()).await }
        });
        // It has to be the leader before the other asks.
        eventually("it leads", async || {
            ok(&mut server.connect(), &["EXISTS", "resil:cache:user:{42}"]) == redis::Value::Int(1)
        })
        .await;
        let looks = users(&there);
        let waiting = async {
            let mut looking = std::pin::pin!(looks.get("42", |_| async { Ok::<_, String>(Some(Bytes::from("own"))) }));
            tokio::select! {
                got = &mut looking => panic!("nobody else loads: {got:?}"),
                _ = eventually("it waits", async || waiters(&server) == 1) => {}
            }
            server.kill9();
            timed("a load", looking).await
        };
        let (got, took) = waiting.await;
        assert_eq!(got.expect("loaded here").into_value().as_deref(), Some(&b"own"[..]), "{away:?}");
        assert!(took < ms(1_500), "{away:?}: {took:?}");
        slow.abort();
    }
}
