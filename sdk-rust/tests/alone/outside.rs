//! Where there is no tokio runtime nothing panics: pauses and time limits hold all the same, and what needs tasks says so.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use resil::dispatcher::DispatcherSettings;
use resil::dispatcher::{Dispatcher, ItemError};
use resil::group::Group;
use resil::limiter::Limit;
use resil::lock::LockSettings;
use resil::policy::{Retry, RetrySettings, Timeout, retry_all};
use resil::testing::Clock;
use resil::{Client, Code, Failure};

const BOUND: Duration = Duration::from_secs(20);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs it without any runtime; it must not take for ever.
fn alone<F: Future>(future: F) -> (F::Output, Duration) {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut future, begun) = (pin!(future), Instant::now());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return (output, begun.elapsed());
        }
        assert!(begun.elapsed() < BOUND, "it is stuck");
        std::thread::park_timeout(BOUND);
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn client() -> Client {
    alone(resil::connect("memory://")).0.expect("memory needs nothing")
}

#[test]
fn sleeps_end_in_time_and_in_order() {
    let clock = Clock::system();
    let ((), took) = alone(clock.sleep(ms(30)));
    assert!((ms(30)..BOUND).contains(&took), "{took:?}");
    let (short, long) = (clock.sleep(ms(10)), clock.sleep(BOUND * 10));
    let (first, _) = alone(async {
        tokio::select! { () = short => "short", () = long => "long" }
    });
    assert_eq!(first, "short");
}

#[test]
fn a_retry_pauses_and_a_timeout_fires() {
    let retry = Retry::new(&RetrySettings { initial_backoff: ms(10), ..RetrySettings::default() }).expect("valid");
    let tries = AtomicU32::new(0);
    let call = async || if tries.fetch_add(1, SeqCst) < 2 { Err("not yet") } else { Ok("done") };
    assert_eq!(alone(retry.call(retry_all, call)).0, Ok("done"));
    let timeout = Timeout::total(ms(20)).expect("valid");
    let (late, took) = alone(timeout.call(std::future::pending::<Result<(), &str>>));
    assert_eq!(late.expect_err("late").code(), Some(Code::Timeout));
    assert!(took >= ms(20), "{took:?}");
}

#[test]
fn a_wait_for_a_turn_or_a_lock_ends() {
    let client = client();
    let limiter = client.limiter("api", Limit::per_second(20).burst(1)).expect("valid");
    for _ in 0..3 {
        alone(limiter.until_ready("ann", BOUND)).0.expect("its turn comes");
    }
    let lock = client.lock("orders", LockSettings::new().wait(ms(20))).unwrap();
    let (held, _) = alone(lock.acquire());
    assert!(held.expect("free").is_held());
    let _held = alone(lock.acquire()).0.expect("free again");
    let refused = alone(lock.acquire()).0.expect_err("somebody would have to tell it");
    assert!(refused.to_string().contains("tokio runtime"), "{refused}");
}

#[test]
fn what_needs_tasks_says_that_it_needs_a_runtime() {
    let (ran, _) = alone(
        Dispatcher::new(DispatcherSettings::new(2))
            .unwrap()
            .run([1, 2, 3], |item| async move { Ok::<_, String>(item) }),
    );
    assert!(ran.iter().all(|item| matches!(item, Err(ItemError::NotRun))), "{ran:?}");
    for is_all in [false, true] {
        let mut group = Group::<u32, String>::new();
        group.spawn(async { Ok(1) });
        let failure = match is_all {
            false => alone(group.wait()).0.map(drop),
            true => alone(group.wait_all()).0.pop().expect("one").map(drop),
        };
        let Err(Failure::Resil(error)) = failure else { panic!("{failure:?}") };
        assert!(error.code() == Code::InvalidArgument && error.to_string().contains("tokio runtime"), "{error}");
    }
}
