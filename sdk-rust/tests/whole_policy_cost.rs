//! What a whole policy adds to a call that is ready. Not a benchmark: a hint while working.
//! `cargo test --release -p resil --test whole_policy_cost -- --ignored --nocapture`

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::ready;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use resil::breaker::BreakerOptions;
use resil::policy::{LocalBulkhead, Policy, RetrySettings, TimeoutSettings, retry_all};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator; only a number is counted beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CALLS: u32 = 200_000;

#[tokio::test]
#[ignore = "prints figures; 2 us is for a release build on a machine that is idle"]
async fn a_chain_of_retry_timeout_bulkhead_and_breaker_costs_at_most_two_microseconds_and_two_allocations() {
    let client = resil::connect("memory://").await.unwrap();
    let policy = Policy::builder("cost")
        .timeout(TimeoutSettings { attempt: Some(Duration::from_secs(1)), total: Some(Duration::from_secs(5)) })
        .retry(&RetrySettings::default())
        .breaker(client.breaker("cost", BreakerOptions::new()).unwrap())
        .bulkhead(LocalBulkhead::new("cost", 10, 0).unwrap())
        .build()
        .unwrap();
    let call = || policy.call(retry_all, || ready(black_box(Ok::<u64, u64>(1))));
    println!("{} bytes of future", std::mem::size_of_val(&call()));
    call().await.unwrap();
    let (mut best, mut allocations) = (Duration::MAX, f64::MAX);
    for _ in 0..5 {
        let (began, before) = (Instant::now(), ALLOCATIONS.load(Relaxed));
        for _ in 0..CALLS {
            black_box(call().await).unwrap();
        }
        best = best.min(began.elapsed());
        allocations = allocations.min((ALLOCATIONS.load(Relaxed) - before) as f64 / f64::from(CALLS));
    }
    let ns = best.as_nanos() as f64 / f64::from(CALLS);
    println!("{ns:.1} ns and {allocations:.3} allocations a call");
    assert!(allocations <= 2.0, "{allocations} allocations a call");
    assert!(ns <= 2_000.0, "{ns} ns a call");
}
