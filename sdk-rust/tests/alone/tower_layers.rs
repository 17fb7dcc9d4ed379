//! Every policy as a layer of tower: alone, in stacks, behind buffers, and dropped half-way.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::drive::{drive, poll_now};
use resil::breaker::BreakerSettings;
use resil::clock::Clock;
use resil::limiter::Limit;
use resil::lock::LockSettings;
use resil::policy::{
    BulkheadSettings, CallSettings, Class, Fallback, Hedge, HedgeSettings, LocalBulkhead, PartitionSettings, Policy,
    Retry, RetrySettings, Timeout, TimeoutSettings, retry_all, retry_none,
};
use resil::shared_bulkhead::SharedBulkheadSettings;
use resil::tower::{
    BreakerLayer, BulkheadLayer, FallbackLayer, HedgeLayer, LockLayer, PolicyLayer, RateLimitLayer, RetryLayer,
    SharedBulkheadLayer, TimeoutLayer,
};
use resil::{Client, Code, ConnectSettings, Failure};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

const MS: Duration = Duration::from_millis(1);

/// What the service below does with a request, each time it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Reply(u32),
    Fail(&'static str),
    Hang,
}

type Work = Pin<Box<dyn Future<Output = Result<u32, &'static str>> + Send>>;

/// A service that follows a script, counts its calls, and insists on being ready before each.
#[derive(Clone)]
struct Scripted {
    script: Arc<Vec<Does>>,
    calls: Arc<AtomicU32>,
    readiness: Readiness,
    is_ready: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readiness {
    Ready,
    Never,
    Fails,
}

impl Scripted {
    fn new(script: &[Does]) -> Self {
        Self { script: script.to_vec().into(), calls: Arc::default(), readiness: Readiness::Ready, is_ready: false }
    }

    fn with(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }

    fn calls(&self) -> u32 {
        self.calls.load(SeqCst)
    }
}

impl Service<&'static str> for Scripted {
    type Response = u32;
    type Error = &'static str;
    type Future = Work;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        match self.readiness {
            Readiness::Ready => {
                self.is_ready = true;
                Poll::Ready(Ok(()))
            }
            Readiness::Never => Poll::Pending,
            Readiness::Fails => Poll::Ready(Err("not ready")),
        }
    }

    fn call(&mut self, _request: &'static str) -> Work {
        assert!(std::mem::take(&mut self.is_ready), "called without being made ready");
        let call = self.calls.fetch_add(1, SeqCst) as usize;
        let does = self.script.get(call).or(self.script.last()).copied().unwrap_or(Does::Reply(0));
        Box::pin(async move {
            match does {
                Does::Reply(reply) => Ok(reply),
                Does::Fail(why) => Err(why),
                Does::Hang => std::future::pending().await,
            }
        })
    }
}

fn client(clock: &Clock) -> Client {
    drive(clock, ConnectSettings::new("memory://").clock(clock.clone()).connect()).expect("memory")
}

fn retry(attempts: u32, clock: &Clock) -> Retry {
    let settings = RetrySettings { max_attempts: attempts, budget: None, ..RetrySettings::default() };
    Retry::new(&settings).expect("valid").with_clock(clock.clone())
}

fn bulkhead(max: u32, clock: &Clock) -> LocalBulkhead {
    let settings = BulkheadSettings { max_concurrent_calls: max, ..BulkheadSettings::default() };
    LocalBulkhead::from_settings("b", &settings, clock.clone()).expect("valid")
}

/// Runs on a runtime: some policies finish things in the background.
fn on_runtime<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), future).await.expect("over in time") })
}

#[test]
fn retries_continue_until_success_on_ready_services() {
    let clock = Clock::driven();
    let inner = Scripted::new(&[Does::Fail("a"), Does::Fail("b"), Does::Reply(7)]);
    let service = RetryLayer::new(retry(3, &clock), retry_all::<&'static str>).layer(inner.clone());
    assert_eq!(drive(&clock, service.oneshot("x")), Ok(7));
    assert_eq!(inner.calls(), 3);
}

#[test]
fn what_the_classifier_calls_permanent_is_returned_as_it_is() {
    let clock = Clock::driven();
    let inner = Scripted::new(&[Does::Fail("bad")]);
    let service = RetryLayer::new(retry(3, &clock), retry_none::<&'static str>).layer(inner.clone());
    assert_eq!(drive(&clock, service.oneshot("x")), Err(Failure::Inner("bad")));
    assert_eq!(inner.calls(), 1);
}

#[test]
fn a_failed_reply_is_retried_and_the_last_returned() {
    let clock = Clock::driven();
    let is_bad = |status: &u32| (*status >= 500).then_some(Class::Retry);
    let layer = RetryLayer::new(retry(3, &clock), retry_none::<&'static str>).classify_response(is_bad);
    let recovers = Scripted::new(&[Does::Reply(503), Does::Reply(200)]);
    assert_eq!(drive(&clock, layer.layer(recovers.clone()).oneshot("x")), Ok(200));
    assert_eq!(recovers.calls(), 2);
    let stays = Scripted::new(&[Does::Reply(503), Does::Reply(502), Does::Reply(504)]);
    assert_eq!(drive(&clock, layer.layer(stays.clone()).oneshot("x")), Ok(504));
    assert_eq!(stays.calls(), 3);
    let client_error = Scripted::new(&[Does::Reply(404)]);
    assert_eq!(drive(&clock, layer.layer(client_error.clone()).oneshot("x")), Ok(404));
    assert_eq!(client_error.calls(), 1);
}

#[test]
fn a_timeout_counts_the_time_until_readiness_too() {
    let clock = Clock::driven();
    let timeout = Timeout::attempt(10 * MS).expect("valid").with_clock(clock.clone());
    for inner in [Scripted::new(&[Does::Hang]), Scripted::new(&[Does::Reply(1)]).with(Readiness::Never)] {
        let began = clock.now();
        let service = TimeoutLayer::new(timeout.clone()).layer(inner);
        let late = drive(&clock, service.oneshot("x")).expect_err("too late");
        assert_eq!(late.code(), Some(Code::Timeout));
        assert_eq!(clock.now() - began, 10 * MS);
    }
}

#[test]
fn a_late_reply_is_hedged_and_the_loser_dropped() {
    let clock = Clock::driven();
    let hedge = Hedge::new(&HedgeSettings::default()).expect("valid").with_clock(clock.clone());
    let bulkhead = bulkhead(2, &clock);
    let inner = Scripted::new(&[Does::Hang, Does::Reply(2)]);
    let service = ServiceBuilder::new()
        .layer(HedgeLayer::around(hedge, retry_all::<&'static str>))
        .layer(BulkheadLayer::new(bulkhead.clone()))
        .service(inner.clone());
    let began = clock.now();
    assert_eq!(drive(&clock, service.oneshot("x")), Ok(2));
    assert_eq!(clock.now() - began, 100 * MS);
    assert_eq!(inner.calls(), 2);
    let metrics = bulkhead.metrics();
    assert_eq!((metrics.active, metrics.completed), (0, 2), "the loser gave its place back");
}

#[test]
fn failures_do_not_nest_and_outer_layers_see_inner() {
    let clock = Clock::driven();
    let inner = Scripted::new(&[Does::Hang]);
    let service = ServiceBuilder::new()
        .layer(RetryLayer::around(retry(2, &clock), retry_all::<&'static str>))
        .layer(BulkheadLayer::around(bulkhead(1, &clock)))
        .layer(TimeoutLayer::new(Timeout::attempt(MS).expect("valid").with_clock(clock.clone())))
        .service(inner.clone());
    // Written out: this is its type.
    let failure: Failure<&'static str> = drive(&clock, service.oneshot("x")).expect_err("hangs");
    let Failure::Exhausted { attempts: 2, last } = failure else { panic!("{failure:?}") };
    assert_eq!(last.code(), Some(Code::Timeout));
    assert_eq!(inner.calls(), 2, "the second attempt found the place free again");
}

#[test]
fn a_full_bulkhead_refuses_and_a_drop_returns_the_permit() {
    let clock = Clock::driven();
    let bulkhead = bulkhead(1, &clock);
    let mut service = BulkheadLayer::new(bulkhead.clone()).layer(Scripted::new(&[Does::Hang, Does::Reply(5)]));
    let mut first = service.call("x");
    assert!(poll_now(first.as_mut()).is_pending());
    assert!(poll_now(pin!(service.ready())).is_ready(), "full, and ready all the same");
    let refused = drive(&clock, service.call("y")).expect_err("full");
    assert_eq!(refused.code(), Some(Code::BulkheadFull));
    drop(first);
    assert_eq!(bulkhead.metrics().active, 0);
    assert_eq!(drive(&clock, service.call("z")), Ok(5));
}

#[test]
fn a_request_takes_a_permit_of_its_partition() {
    let clock = Clock::driven();
    let partitions =
        ["a", "b"].map(|name| (name.to_owned(), PartitionSettings { max_concurrent_calls: 1, max_queue: 0 }));
    let settings = BulkheadSettings { partitions: BTreeMap::from(partitions), ..BulkheadSettings::default() };
    let bulkhead = LocalBulkhead::from_settings("b", &settings, clock.clone()).expect("valid");
    let layer = BulkheadLayer::new(bulkhead.clone())
        .partition_by(|request: &&'static str| (!request.is_empty()).then_some(Cow::Borrowed(*request)));
    let mut service = layer.layer(Scripted::new(&[Does::Hang, Does::Reply(1), Does::Reply(2)]));
    let mut hanging = service.call("a");
    assert!(poll_now(hanging.as_mut()).is_pending());
    assert_eq!(drive(&clock, service.call("a")).expect_err("full").code(), Some(Code::BulkheadFull));
    assert_eq!(drive(&clock, service.call("b")), Ok(1));
    assert_eq!(drive(&clock, service.call("")), Ok(2), "the bulkhead itself");
    assert_eq!(drive(&clock, service.call("c")).expect_err("unknown").code(), Some(Code::InvalidArgument));
}

#[test]
fn an_open_circuit_replies_even_without_a_ready_service() {
    let clock = Clock::driven();
    on_runtime(async {
        let client = client(&clock);
        let breaker = client.breaker("c", BreakerSettings::new().consecutive_failures(2)).expect("valid");
        let layer = BreakerLayer::new(breaker, retry_all::<&'static str>);
        let failing = Scripted::new(&[Does::Fail("down")]);
        for _ in 0..2 {
            assert_eq!(layer.layer(failing.clone()).oneshot("x").await, Err(Failure::Inner("down")));
        }
        let never_ready = layer.layer(Scripted::new(&[]).with(Readiness::Never));
        let refused = never_ready.oneshot("x").await.expect_err("open");
        assert_eq!(refused.code(), Some(Code::CircuitOpen));
        assert_eq!(failing.calls(), 2);
    });
}

#[test]
fn replies_that_are_failures_open_the_circuit() {
    let clock = Clock::driven();
    on_runtime(async {
        let client = client(&clock);
        let judge = |status: &u32| match *status {
            500.. => Some(Class::Retry),
            400.. => Some(Class::Ignore),
            _ => None,
        };
        for (status, is_open) in [(503, true), (404, false), (200, false)] {
            let options = BreakerSettings::new().consecutive_failures(2);
            let breaker = client.breaker(&format!("returns {status}"), options).expect("valid");
            let layer = BreakerLayer::new(breaker, retry_all::<&'static str>).classify_response(judge);
            let service = layer.layer(Scripted::new(&[Does::Reply(status)]));
            for _ in 0..2 {
                assert_eq!(service.clone().oneshot("x").await, Ok(status));
            }
            assert_eq!(service.oneshot("x").await.is_err(), is_open, "{status}");
        }
    });
}

#[test]
fn an_error_of_readiness_counts_for_the_breaker() {
    let clock = Clock::driven();
    on_runtime(async {
        let breaker = client(&clock).breaker("c", BreakerSettings::new().consecutive_failures(1)).expect("valid");
        let mut service =
            BreakerLayer::new(breaker, retry_all::<&'static str>).layer(Scripted::new(&[]).with(Readiness::Fails));
        service.ready().await.expect("always ready");
        assert_eq!(service.call("x").await, Err(Failure::Inner("not ready")));
        assert_eq!(service.call("x").await.expect_err("open").code(), Some(Code::CircuitOpen));
    });
}

#[test]
fn the_rate_limit_counts_by_the_key_of_the_request() {
    let clock = Clock::driven();
    on_runtime(async {
        let limiter = client(&clock).limiter("l", Limit::per_minute(2)).expect("valid");
        let inner = Scripted::new(&[Does::Reply(1)]);
        let layer = RateLimitLayer::new(limiter, |request: &&'static str| Cow::Borrowed(*request));
        let mut service = layer.layer(inner.clone());
        for _ in 0..2 {
            assert_eq!(service.call("a").await, Ok(1));
        }
        let refused = service.call("a").await.expect_err("used up");
        assert_eq!(refused.code(), Some(Code::RateLimitExceeded));
        assert!(refused.retry_after().is_some());
        assert_eq!(service.call("b").await, Ok(1));
        assert_eq!(inner.calls(), 3);
    });
}

#[test]
fn a_shared_bulkhead_is_one_for_all_its_services() {
    on_runtime(async {
        let client = resil::connect("memory://").await.expect("memory");
        let layer = SharedBulkheadLayer::new(client.shared_bulkhead("s", SharedBulkheadSettings::new(1)).unwrap());
        let (mut one, mut other) =
            (layer.layer(Scripted::new(&[Does::Hang])), layer.layer(Scripted::new(&[Does::Reply(1)])));
        let mut first = one.call("x");
        assert!(tokio::time::timeout(20 * MS, &mut first).await.is_err(), "it hangs inside");
        assert_eq!(other.call("y").await.expect_err("full").code(), Some(Code::BulkheadFull));
        drop(first);
        while other.call("z").await != Ok(1) {
            tokio::time::sleep(MS).await;
        }
    });
}

#[test]
fn requests_with_the_same_lock_come_singly() {
    on_runtime(async {
        let client = resil::connect("memory://").await.expect("memory");
        let (inside, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (now_inside, seen_most) = (Arc::clone(&inside), Arc::clone(&most));
        let work = service_fn(move |_request: &'static str| {
            let (inside, most) = (Arc::clone(&now_inside), Arc::clone(&seen_most));
            async move {
                most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, SeqCst);
                Ok::<_, &'static str>(())
            }
        });
        let service =
            LockLayer::new(move |request: &&'static str| client.lock(request, LockSettings::new())).layer(work);
        let calls =
            |names: [&'static str; 8]| futures_util::future::join_all(names.map(|name| service.clone().oneshot(name)));
        assert!(calls(["a"; 8]).await.iter().all(Result::is_ok));
        assert_eq!(most.load(SeqCst), 1);
        assert!(calls(["a", "b", "c", "d", "e", "f", "g", "h"]).await.iter().all(Result::is_ok));
        assert!(most.load(SeqCst) > 1, "different locks do not wait for each other");
    });
}

#[test]
fn a_fallback_replies_for_whatever_fails_below_readiness_included() {
    let clock = Clock::driven();
    let layer = FallbackLayer::new(Fallback::<u32, &'static str>::value(42));
    for inner in [Scripted::new(&[Does::Fail("x")]), Scripted::new(&[]).with(Readiness::Fails)] {
        assert_eq!(drive(&clock, layer.layer(inner).oneshot("x")), Ok(42));
    }
    let stack = ServiceBuilder::new()
        .layer(FallbackLayer::around(Fallback::<u32, &'static str>::value(42)))
        .layer(TimeoutLayer::new(Timeout::attempt(MS).expect("valid").with_clock(clock.clone())))
        .service(Scripted::new(&[Does::Hang]));
    assert_eq!(drive(&clock, stack.oneshot("x")), Ok(42));
}

#[test]
fn the_first_layer_of_a_builder_is_the_outermost() {
    let clock = Clock::driven();
    let timeout = Timeout::total(250 * MS).expect("valid").with_clock(clock.clone());
    let settings = RetrySettings {
        max_attempts: 100,
        initial_backoff: 100 * MS,
        backoff_multiplier: 1.0,
        jitter: resil::policy::Jitter::None,
        budget: None,
        ..RetrySettings::default()
    };
    let retry = Retry::new(&settings).expect("valid").with_clock(clock.clone());
    let (inside, outside) = (Scripted::new(&[Does::Fail("x")]), Scripted::new(&[Does::Fail("x"), Does::Reply(1)]));
    let limited = ServiceBuilder::new()
        .layer(TimeoutLayer::around(timeout.clone()))
        .layer(RetryLayer::new(retry.clone(), retry_all::<&'static str>))
        .service(inside.clone());
    assert_eq!(drive(&clock, limited.oneshot("x")).expect_err("late").code(), Some(Code::Timeout));
    assert_eq!(inside.calls(), 3, "at 0, 100 and 200 ms");
    let each = ServiceBuilder::new()
        .layer(RetryLayer::around(retry, retry_all::<&'static str>))
        .layer(TimeoutLayer::new(timeout))
        .service(outside);
    assert_eq!(drive(&clock, each.oneshot("x")), Ok(1));
}

#[test]
fn a_buffer_outlives_every_refusal() {
    on_runtime(async {
        let client = resil::connect("memory://").await.expect("memory");
        let breaker =
            client.breaker("c", BreakerSettings::new().consecutive_failures(1).open_for(Duration::from_secs(1)));
        let breaker = breaker.expect("valid");
        let inner = Scripted::new(&[Does::Fail("down"), Does::Reply(3)]);
        let stack = ServiceBuilder::new()
            .layer(BreakerLayer::around(breaker.clone(), retry_all::<std::io::Error>))
            .layer(BulkheadLayer::new(LocalBulkhead::new("b", 1, 0).expect("valid")))
            .map_err(std::io::Error::other::<&'static str>)
            .service(inner.clone());
        let mut buffer = tower::buffer::Buffer::new(stack, 4);
        let code = |error: tower::BoxError| error.to_string();
        assert_eq!(code(buffer.ready().await.expect("alive").call("x").await.expect_err("fails")), "down");
        for _ in 0..3 {
            let refused = buffer.ready().await.expect("alive").call("x").await.expect_err("open");
            assert!(code(refused).contains("circuit"));
        }
        breaker.reset().await.expect("in memory");
        assert_eq!(buffer.ready().await.expect("alive").call("x").await.expect("closed"), 3);
        assert_eq!(inner.calls(), 2);
    });
}

#[test]
fn a_limit_below_is_waited_for_and_nothing_wasted() {
    let clock = Clock::driven();
    // Each clone has to be made ready for itself: readiness takes the only permit there is.
    let limited = tower::limit::ConcurrencyLimit::new(Scripted::new(&[Does::Hang, Does::Reply(2)]), 1);
    let mut service =
        TimeoutLayer::new(Timeout::attempt(Duration::from_secs(9)).expect("valid").with_clock(clock.clone()))
            .layer(limited);
    let mut first = service.call("x");
    assert!(poll_now(first.as_mut()).is_pending());
    let mut second = service.call("y");
    assert!(poll_now(second.as_mut()).is_pending(), "the permit is taken");
    drop(first);
    assert_eq!(poll_now(second.as_mut()), Poll::Ready(Ok(2)));
}

#[test]
fn a_whole_policy_is_one_layer_with_request_options() {
    let clock = Clock::driven();
    on_runtime(async {
        let client = client(&clock);
        let policy = Policy::builder("p")
            .clock(clock.clone())
            .retry(&RetrySettings { max_attempts: 2, budget: None, ..RetrySettings::default() })
            .timeout(TimeoutSettings { attempt: Some(10 * MS), total: None })
            .limiter(client.limiter("l", Limit::per_minute(4)).expect("valid"))
            .build()
            .expect("valid");
        let layer = PolicyLayer::new(policy, retry_all::<&'static str>)
            .classify_response(|status: &u32| (*status >= 500).then_some(Class::Retry))
            .settings_by(|request: &&'static str| CallSettings::new().key(*request).cost(2));
        let inner = Scripted::new(&[Does::Reply(503), Does::Reply(200), Does::Hang]);
        let mut service = layer.layer(inner.clone());
        assert_eq!(drive(&clock, service.call("a")), Ok(200));
        let refused = poll_now(service.call("a").as_mut());
        assert!(refused.is_pending(), "its four cells are used up: it waits to come back");
        assert_eq!(inner.calls(), 2);
        let late = drive(&clock, service.call("b")).expect_err("hangs");
        assert!(
            matches!(&late, Failure::Exhausted { attempts: 2, last } if last.code() == Some(Code::Timeout)),
            "{late:?}"
        );
    });
}

#[test]
fn services_are_clone_and_send_if_the_inner_one_is() {
    fn assert_clone_and_send<T: Clone + Send>(_: &T) {}
    let clock = Clock::driven();
    let layer = RetryLayer::new(retry(2, &clock), retry_all::<&'static str>);
    let service = layer.layer(Scripted::new(&[Does::Reply(1)]));
    assert_clone_and_send(&service);
    on_runtime(async {
        let handle = tokio::spawn(service.clone().oneshot("x"));
        assert_eq!(handle.await.expect("no panic"), Ok(1));
    });
}
