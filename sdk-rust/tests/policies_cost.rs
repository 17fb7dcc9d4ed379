//! What each policy adds to a call that is ready, beside its nearest relatives. Not a benchmark: a hint while working.
//! `cargo test -p resil --test policies_cost -- --ignored --nocapture`

use std::future::ready;
use std::hint::black_box;
use std::time::{Duration, Instant};

use resil::policy::{Fallback, Hedge, HedgeSettings, LocalBulkhead, Retry, RetrySettings, Timeout, retry_all};

const CALLS: u32 = 300_000;

/// The best of five rounds, in ns for one call.
macro_rules! measure {
    ($name:literal, $call:expr) => {
        let mut best = Duration::MAX;
        for _ in 0..5 {
            let began = Instant::now();
            for _ in 0..CALLS {
                black_box($call.await).expect("it succeeds");
            }
            best = best.min(began.elapsed());
        }
        println!("{:>7.1} ns  {}", best.as_nanos() as f64 / f64::from(CALLS), $name);
    };
}

#[tokio::test]
#[ignore = "prints figures, checks nothing"]
async fn what_a_ready_call_costs() {
    let call = || ready(black_box(Ok::<u64, u64>(1)));
    let second = Duration::from_secs(1);
    let timeout = Timeout::attempt(second).expect("valid");
    let semaphore = tokio::sync::Semaphore::new(10);
    let bulkhead = LocalBulkhead::new("cost", 10, 0).expect("valid");
    let unlimited = Retry::new(&RetrySettings { budget: None, ..RetrySettings::default() }).expect("valid");
    let retry = Retry::new(&RetrySettings::default()).expect("valid");
    let hedge = Hedge::new(&HedgeSettings::default()).expect("valid");
    let percentile = HedgeSettings { percentile: Some(95.0), ..HedgeSettings::default() };
    let percentile = Hedge::new(&percentile).expect("valid");
    let fallback = Fallback::<u64, u64>::value(1);
    measure!("nothing", call());
    measure!("tokio::time::timeout", async { tokio::time::timeout(second, call()).await.expect("in time") });
    measure!("Timeout", timeout.call(call));
    measure!("tokio Semaphore, acquire", async {
        let _permit = semaphore.acquire().await;
        call().await
    });
    measure!("tokio Semaphore, try_acquire", async {
        let _permit = semaphore.try_acquire();
        call().await
    });
    measure!("LocalBulkhead", bulkhead.call(call));
    measure!("Retry without budget", unlimited.call(retry_all, call));
    measure!("Retry", retry.call(retry_all, call));
    measure!("Hedge, fixed delay", hedge.call(retry_all, call));
    measure!("Hedge, percentile", percentile.call(retry_all, call));
    measure!("Fallback", fallback.call(call));
    measure!(
        "fallback, total, retry, bulkhead, timeout",
        fallback.around(|| timeout.around(|| retry.around(retry_all, || bulkhead.around(|| timeout.call(call)))))
    );
    let late = || async {
        tokio::task::yield_now().await;
        Ok::<u64, u64>(1)
    };
    measure!("one wait: tokio::time::timeout", async { tokio::time::timeout(second, late()).await.expect("in time") });
    measure!("one wait: Timeout", timeout.call(late));
}
