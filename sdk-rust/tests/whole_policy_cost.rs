//! What a whole policy allocates for a call that is ready: nothing. How long it takes is what `make bench` measures.

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::ready;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use resil::breaker::BreakerSettings;
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

const CALLS: u64 = 20_000;

#[tokio::test]
async fn a_chain_of_four_policies_allocates_nothing_when_ready() {
    let client = resil::connect("memory://").await.unwrap();
    let policy = Policy::builder("cost")
        .timeout(TimeoutSettings { attempt: Some(Duration::from_secs(1)), total: None })
        .retry(&RetrySettings::default())
        .breaker(client.breaker("cost", BreakerSettings::new()).unwrap())
        .bulkhead(LocalBulkhead::new("cost", 10, 0).unwrap())
        .build()
        .unwrap();
    let call = || policy.call(retry_all, || ready(black_box(Ok::<u64, u64>(1))));
    call().await.unwrap();
    let mut fewest = u64::MAX;
    for _ in 0..5 {
        let before = ALLOCATIONS.load(Relaxed);
        for _ in 0..CALLS {
            black_box(call().await).unwrap();
        }
        fewest = fewest.min(ALLOCATIONS.load(Relaxed) - before);
    }
    // Batches of the breaker, and a task now and then that sends what is left of them.
    assert!(fewest < CALLS / 100, "{fewest} allocations in {CALLS} calls");
}
