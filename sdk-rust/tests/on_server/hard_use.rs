//! Where nobody meant it to be used: outside of a runtime, with times that are no times, with names without end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use resil::cache::CacheSettings;
use resil::cache::Loaded;
use resil::clock::Clock;
use resil::dispatcher::DispatcherSettings;
use resil::idempotency::IdempotencySettings;
use resil::limiter::Limit;
use resil::lock::LockSettings;
use resil::shared_bulkhead::SharedBulkheadSettings;
use resil::{Client, Code, ConnectSettings, Error, Failure};

use crate::client_ends::alone;

/// What a future comes to that needs nobody to wake it; there is no runtime here.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing to wait for")
}

fn memory() -> Client {
    at_once(resil::connect("memory://")).expect("memory")
}

#[cfg(feature = "redis")]
#[test]
fn connecting_to_a_server_works_outside_of_a_runtime() {
    let server = resil_harness::Server::fresh();
    let client = alone(resil::connect(&server.url())).expect("a server that is there");
    alone(client.wait_ready(Duration::from_secs(5))).expect("ready");
    let required = ConnectSettings::new("redis://127.0.0.1:1").require_server();
    let refused = alone(required.connect()).map(drop).expect_err("nobody is there");
    assert_eq!(refused.code(), Code::BackendUnavailable);
}

#[test]
fn a_memory_lock_dropped_outside_of_runtimes_is_free() {
    let client = memory();
    let lock = client.lock("orders", LockSettings::new()).unwrap();
    for _ in 0..3 {
        drop(at_once(lock.try_acquire()).expect("free"));
    }
    let bulkhead = client.shared_bulkhead("reports", SharedBulkheadSettings::new(1)).unwrap();
    for _ in 0..3 {
        drop(at_once(bulkhead.try_enter()).expect("room"));
    }
}

#[test]
fn a_load_outside_of_a_runtime_is_an_error() {
    let users = memory().cached("user", CacheSettings::new()).expect("valid");
    let got: Result<Loaded, Failure<Arc<String>>> =
        at_once(users.get("42", |_| async { Ok(Some(Bytes::from("ann"))) }));
    let refused = got.expect_err("nobody can run the loader");
    assert!(refused.to_string().contains("tokio runtime"), "{refused}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let got = runtime.block_on(users.get("42", |_| async { Ok::<_, String>(Some(Bytes::from("ann"))) }));
    assert_eq!(got.expect("loaded").into_value(), Some(Bytes::from("ann")), "nothing was left behind");
}

#[test]
fn a_shutdown_begun_outside_can_end_inside_runtimes() {
    let client = memory();
    let begun =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client.shutdown(Duration::ZERO).now_or_never()));
    assert!(begun.is_ok(), "no panic");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let report = runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(5), client.shutdown(Duration::ZERO)).await.expect("an end")
    });
    assert!(report.is_clean());
}

#[test]
fn a_shutdown_without_its_runtime_is_taken_over() {
    let client = memory();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let first = runtime();
    first.block_on(async {
        let busy = client.clone();
        tokio::spawn(async move { busy.in_flight(std::future::pending::<()>()).await });
        tokio::task::yield_now().await;
        let patience = Duration::from_millis(20);
        tokio::time::timeout(patience, client.shutdown(Duration::from_secs(60))).await.expect_err("somebody is busy");
    });
    drop(first);
    runtime().block_on(async {
        tokio::time::timeout(Duration::from_secs(5), client.shutdown(Duration::ZERO)).await.expect("an end")
    });
    assert!(client.is_shutting_down());
}

#[tokio::test]
async fn an_endless_wait_for_a_window_does_not_panic() {
    let clock = Clock::driven();
    let client = ConnectSettings::new("memory://").clock(clock.clone()).connect().await.expect("memory");
    let limiter = client.limiter("api", Limit::window(1, Duration::from_secs(1))).expect("valid");
    limiter.until_ready("ann", Duration::MAX).await.expect("the first");
    let mut second = Box::pin(limiter.until_ready("ann", Duration::MAX));
    assert!(second.as_mut().now_or_never().is_none(), "it waits");
    clock.advance(Duration::from_secs(2));
    tokio::time::timeout(Duration::from_secs(5), second).await.expect("its turn").expect("granted");
}

#[tokio::test]
async fn an_impossible_lease_is_refused_and_costs_nobody_anything() {
    let client = resil::connect("memory://").await.expect("memory");
    let guard = client.lock("orders", LockSettings::new()).unwrap().acquire().await.expect("free");
    for lease in [Duration::ZERO, Duration::from_millis(9), Duration::MAX] {
        let refused = guard.extend(lease).await.expect_err("no lease");
        assert!(matches!(refused, Error::InvalidPolicy { .. } | Error::InvalidArgument(_)), "{refused:?}");
        assert!(guard.is_held(), "{lease:?}");
    }
    assert!(guard.remaining() > Duration::from_secs(5), "{:?}", guard.remaining());
    guard.extend(Duration::from_secs(20)).await.expect("a lease");
    assert!(guard.remaining() > Duration::from_secs(15));
}

#[tokio::test]
async fn health_does_not_grow_with_names_of_ids() {
    let client = resil::connect("memory://").await.expect("memory");
    for id in 0..20_000 {
        client.limiter(&format!("tenant-{id}"), Limit::per_second(1)).expect("valid");
        client.breaker(&format!("host-{id}"), resil::breaker::BreakerSettings::new()).expect("valid");
    }
    let health = client.health();
    assert!(health.policies.len() <= 2_100, "{}", health.policies.len());
    assert_eq!(health.overall, resil::Status::Healthy);
    assert!(health.policies.contains_key("limit:tenant-0"), "those that came first have their names");
}

fn is_send<T: Send>(future: T) -> T {
    future
}

fn is_handle<T: Clone + Send + Sync + std::fmt::Debug + 'static>(_: &T) {}

/// Never run: that it compiles is the promise.
#[allow(dead_code, unused_must_use, clippy::let_underscore_future)]
async fn every_future_can_be_sent_and_every_handle_shared(client: Client) -> Result<(), Failure<Error>> {
    let span = Duration::from_secs(1);
    is_handle(&client);
    is_send(resil::connect(""));
    is_send(client.shutdown(span));
    is_send(client.in_flight(async {}));

    let limiter = client.limiter("l", Limit::per_second(1))?;
    is_handle(&limiter);
    is_send(limiter.check("k"));
    is_send(limiter.check_n("k", 1));
    is_send(limiter.acquire("k"));
    is_send(limiter.acquire_n("k", 1));
    is_send(limiter.up_to("k", 1));
    is_send(limiter.peek("k"));
    is_send(limiter.refund("k", 1));
    is_send(limiter.until_ready("k", span));
    is_send(client.check_all(&[(&limiter, "k")], 1));

    let breaker = client.breaker("b", resil::breaker::BreakerSettings::new())?;
    is_handle(&breaker);
    is_send(breaker.call(|| async { Ok::<_, Error>(()) }));
    is_send(breaker.call_classified(resil::policy::retry_all, || async { Ok::<_, Error>(()) }));
    is_send(breaker.around(resil::policy::retry_all, || async { Ok::<_, Failure<Error>>(()) }));
    is_send(breaker.state());
    is_send(breaker.force(resil::breaker::Force::Auto, None, ""));
    is_send(breaker.reset());
    is_send(breaker.configure(&resil::breaker::BreakerSettings::new()));
    let permit = is_send(breaker.admit()).await?;
    is_send(permit.success());

    let lock = client.lock("k", LockSettings::new()).unwrap();
    is_handle(&lock);
    is_send(lock.try_acquire());
    is_send(lock.until_acquired());
    is_send(lock.acquire_within(span));
    is_send(lock.info());
    is_send(lock.break_lock("", ""));
    is_send(lock.check("", None));
    is_send(lock.with_lock(|_| async { Ok::<_, Error>(()) }));
    let guard = is_send(lock.acquire()).await?;
    is_handle(&guard.held());
    is_send(guard.extend(span));
    is_send(guard.check());
    is_send(guard.reentrant(async {}));
    is_send(guard.release());

    let bulkhead = client.shared_bulkhead("b", SharedBulkheadSettings::new(1)).unwrap();
    is_handle(&bulkhead);
    is_send(bulkhead.try_enter());
    is_send(bulkhead.run(|| async { Ok::<_, Error>(()) }));
    is_send(bulkhead.info());
    is_send(is_send(bulkhead.enter()).await?.leave());

    let work = client.idempotent("w", IdempotencySettings::new())?;
    is_handle(&work);
    is_send(work.run("k", b"", |_| async { Ok::<_, Error>("") }));
    is_send(work.run_json("k", b"", |_| async { Ok::<_, Error>(1) }));
    is_send(work.once("k", span, None));
    is_send(work.get("k"));

    let cached = client.cached("c", CacheSettings::new())?;
    is_handle(&cached);
    is_send(cached.get("k", |_| async { Ok::<_, Error>(None) }));
    is_send(cached.get_json::<u8, _, _, _>("k", |_| async { Ok::<_, Error>(None) }));
    is_send(cached.invalidate("k"));
    is_send(cached.invalidate_soft("k"));
    let versioned = client.versioned_cached("c", CacheSettings::new())?;
    is_handle(&versioned);
    is_send(versioned.get("k", |_| async { Ok::<_, Error>(None) }));
    is_send(versioned.get_at_least("k", 1, |_| async { Ok::<_, Error>(None) }));

    use resil::policy::{Hedge, HedgeSettings, LocalBulkhead, Retry, RetrySettings, Timeout, retry_all};
    let retry = Retry::new(&RetrySettings::default())?;
    is_handle(&retry);
    is_send(retry.call(retry_all, || async { Ok::<_, Error>(()) }));
    let hedge = Hedge::new(&HedgeSettings::default())?;
    is_handle(&hedge);
    is_send(hedge.call(retry_all, || async { Ok::<_, Error>(()) }));
    let timeout = Timeout::total(span)?;
    is_handle(&timeout);
    is_send(timeout.call(|| async { Ok::<_, Error>(()) }));
    let local = LocalBulkhead::new("b", 1, 1)?;
    is_handle(&local);
    is_send(local.call(|| async { Ok::<_, Error>(()) }));
    is_send(local.acquire());
    let fallback = resil::policy::Fallback::<(), Error>::value(());
    is_handle(&fallback);
    is_send(fallback.call(|| async { Ok::<_, Error>(()) }));
    let dispatcher = resil::dispatcher::Dispatcher::new(DispatcherSettings::new(1)).unwrap();
    is_handle(&dispatcher);
    is_send(dispatcher.run([1], |_| async { Ok::<_, Error>(()) }));
    is_send(resil::group::Group::<(), Error>::new().wait());
    Ok(())
}
