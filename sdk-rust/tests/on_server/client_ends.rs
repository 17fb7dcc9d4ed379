//! How a client of a real server ends: dropped, with its runtime, and in the middle of waits.

use std::time::{Duration, Instant};

use resil::breaker::BreakerSettings;
use resil::cache::CacheSettings;
use resil::idempotency::IdempotencySettings;
use resil::limiter::Limit;
use resil::lock::LockSettings;
use resil::{Away, Client, Code, ConnectSettings, Status};
use resil_harness::{Relay, Server};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn client(server: &Server) -> Client {
    ConnectSettings::new(server.url()).command_timeout(ms(2_000)).connect().await.expect("a server that is there")
}

/// Polls on this thread, outside of any runtime.
pub fn alone<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
    let (mut future, begun) = (std::pin::pin!(future), Instant::now());
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            return output;
        }
        assert!(begun.elapsed() < ms(20_000), "it is stuck");
        std::thread::park_timeout(ms(1_000));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_ready_reaches_its_server() {
    let server = Server::fresh();
    let relay = Relay::to(server.port());
    let url = format!("redis://127.0.0.1:{}", relay.port());
    let client = ConnectSettings::new(url).command_timeout(ms(10_000)).connect().await.expect("it is there");
    let limiter = client.limiter("api", Limit::per_second(1_000).when_away(Away::Closed)).expect("valid");
    for round in 0..10 {
        client.wait_ready(ms(20_000)).await.expect("it comes back");
        limiter.check("ann").await.unwrap_or_else(|error| panic!("it was ready in round {round}: {error}"));
        // The client does not know of it yet when it is asked.
        relay.cut();
    }
}

/// Without the one that asks.
fn connections(server: &Server) -> usize {
    let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut server.connect()).expect("a list");
    list.lines().count() - 1
}

async fn eventually(what: &str, within: Duration, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < within, "{what}, within {within:?}");
        tokio::time::sleep(ms(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_last_handle_ends_connections_and_tasks() {
    let server = Server::fresh();
    let tasks_before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    {
        let client = client(&server).await;
        let limiter = client.limiter("api", Limit::per_second(1)).expect("valid");
        limiter.check("ann").await.expect("answered");
        limiter.until_ready("bob", ms(500)).await.expect("its turn");
        let breaker = client.breaker("payments", BreakerSettings::new()).expect("valid");
        let _ = breaker.call(|| async { Err::<(), _>("down") }).await;
        breaker.call(|| async { Ok::<_, &str>(()) }).await.expect("closed");
        let lock = client.lock("orders", LockSettings::new()).unwrap();
        let guard = lock.acquire().await.expect("free");
        tokio::time::timeout(ms(50), lock.acquire()).await.expect_err("it is taken");
        let users = client.cached("user", CacheSettings::new()).expect("valid");
        users.get("42", |_| async { Ok::<_, String>(None) }).await.expect("loaded");
        let work = client.idempotent("charge", IdempotencySettings::new()).expect("valid");
        work.run("1", b"", |_| async { Ok::<_, String>("done") }).await.expect("done");
        assert!(connections(&server) >= 1);
        drop(guard);
    }
    eventually("no connection is left", Duration::from_secs(5), async || connections(&server) == 0).await;
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    eventually("no task is left", Duration::from_secs(5), async || alive() <= tasks_before).await;
}

#[test]
fn a_client_outlives_the_runtime_it_was_connected_in() {
    let server = Server::fresh();
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let first = runtime();
    let client = first.block_on(client(&server));
    let limiter = client.limiter("api", Limit::per_second(10).when_away(resil::Away::Closed)).expect("valid");
    let lock = client.lock("orders", LockSettings::new().wait(ms(200))).unwrap();
    let guard = first.block_on(lock.acquire()).expect("free");
    first.block_on(limiter.check("ann")).expect("granted");
    drop(first);
    // Nobody's runtime: timers are those of the background.
    let outside = alone(limiter.check("ann")).expect("granted");
    assert!(outside.is_granted());
    assert_eq!(alone(lock.acquire()).expect_err("taken").code(), Code::LockTimeout);
    drop(guard);
    runtime().block_on(async {
        tokio::time::timeout(ms(5_000), limiter.check("ann")).await.expect("reported").expect("granted");
        assert_eq!(client.health().overall, Status::Healthy);
        drop(lock.acquire_within(ms(2_000)).await.expect("what was dropped outside was released"));
        tokio::time::timeout(ms(10_000), client.shutdown(ms(10))).await.expect("an end");
    });
}

#[test]
fn a_client_without_its_runtime_says_so() {
    let server = Server::fresh();
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let first = runtime();
    let options = ConnectSettings::new(server.url()).runtime(first.handle().clone());
    let client = first.block_on(options.connect()).expect("a server that is there");
    let limiter = client.limiter("api", Limit::per_second(10).when_away(resil::Away::Closed)).expect("valid");
    first.block_on(limiter.check("ann")).expect("granted");
    drop(first);
    runtime().block_on(async {
        let refused = tokio::time::timeout(ms(5_000), limiter.check("ann")).await.expect("reported").expect_err("gone");
        assert_eq!(refused.code(), Code::BackendUnavailable);
        assert!(refused.to_string().contains("has ended"), "{refused}");
        assert_eq!(client.health().overall, Status::Unhealthy, "the task of the connection is gone");
        let lock = tokio::time::timeout(
            ms(5_000),
            client.lock("orders", LockSettings::new().wait(ms(200))).unwrap().acquire(),
        )
        .await
        .expect("reported");
        let lock = lock.expect_err("gone");
        assert_eq!(lock.code(), Code::BackendUnavailable);
        assert_eq!(lock.to_string(), refused.to_string(), "the cause is named by whatever is called");
        tokio::time::timeout(ms(10_000), client.shutdown(ms(10))).await.expect("an end");
    });
}

#[tokio::test]
async fn a_client_that_is_endlessly_patient_can_wait() {
    let server = Server::fresh();
    let options = ConnectSettings::new(server.url()).command_timeout(Duration::from_secs(3_600));
    let client = options.connect().await.expect("a server that is there");
    let lock = client.lock("orders", LockSettings::new().wait(ms(100))).unwrap();
    let _guard = lock.acquire().await.expect("free");
    assert_eq!(lock.acquire().await.expect_err("taken").code(), Code::LockTimeout);
}

/// A caller that gives up just when it is granted leaves nobody's lock behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_dropped_at_its_grant_leaves_no_holder() {
    const ROUNDS: u64 = 400;
    let server = Server::fresh();
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let (lock, other) = (
        ours.lock("orders", LockSettings::new()).unwrap(),
        theirs.lock("orders", LockSettings::new().wait(Duration::from_secs(3))).unwrap(),
    );
    let mut cancelled = 0;
    for round in 0..ROUNDS {
        let guard = other.acquire().await.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await.map(drop) }
        });
        eventually("it waits", ms(5_000), async || other.info().await.is_ok_and(|info| info.waiters_total == 1)).await;
        let releasing = tokio::spawn(async move { guard.release().await });
        // Spread around the moment at which the grant arrives.
        for _ in 0..round % 40 * 25 {
            std::hint::spin_loop();
        }
        if round % 3 == 0 {
            tokio::task::yield_now().await;
        }
        waiting.abort();
        cancelled += u64::from(waiting.await.is_err());
        releasing.await.expect("no panic").expect("released");
    }
    println!("{cancelled} of {ROUNDS} were dropped before they had it");
    eventually("nobody holds it", ms(2_000), async || other.info().await.is_ok_and(|info| info.holders_total == 0))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_dropped_at_its_run_leaves_no_runner() {
    const ROUNDS: u64 = 400;
    let server = Server::fresh();
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let (work, other) = (
        ours.idempotent("charge", IdempotencySettings::new()).expect("valid"),
        theirs.idempotent("charge", IdempotencySettings::new()).expect("valid"),
    );
    for round in 0..ROUNDS {
        let (begin, begun) = tokio::sync::oneshot::channel();
        let (fail, failed) = tokio::sync::oneshot::channel();
        let running = tokio::spawn({
            let other = other.clone();
            async move {
                let run = async |_| {
                    let _ = begin.send(());
                    let _ = failed.await;
                    Err::<&str, _>("down")
                };
                other.run("1", b"", run).await
            }
        });
        let patience = Duration::from_secs(4);
        tokio::time::timeout(patience, begun)
            .await
            .unwrap_or_else(|_| panic!("round {round}: it runs"))
            .expect("begun");
        let waiting = tokio::spawn({
            let work = work.clone();
            async move { work.run("1", b"", |_| async { Err::<&str, _>("down") }).await.is_ok() }
        });
        tokio::time::sleep(ms(3)).await;
        let _ = fail.send(());
        for _ in 0..round % 40 * 25 {
            std::hint::spin_loop();
        }
        if round % 3 == 0 {
            tokio::task::yield_now().await;
        }
        waiting.abort();
        let _ = waiting.await;
        running.await.expect("no panic").expect_err("it fails");
    }
}
