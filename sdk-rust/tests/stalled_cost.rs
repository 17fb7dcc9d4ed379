//! What a server that stalls costs those who go on calling it: a few megabytes, however many give up meanwhile.
#![cfg(feature = "redis")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use resil::limiter::Limit;
use resil::policy::Timeout;
use resil::{Away, Code, ConnectSettings};
use resil_harness::Server;
use tokio::task::JoinSet;

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator; only numbers are counted beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(LIVE.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const TASKS: usize = 90;
const CALLS_EACH: usize = 20;
const KEY_BYTES: usize = 256 << 10;
/// Each caller's own key, twice (as it is given, and as it is at the server), and what waits to be sent: the bytes, those
/// being sent, and the room that buffers have because they double.
const MOST_BYTES: usize = 3 * TASKS * KEY_BYTES + (40 << 20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_costs_bounded_memory_and_time() {
    let server = Arc::new(Server::fresh());
    // Nobody learns for a long time that the server is away: only the callers' own time limits end their calls.
    let options = ConnectSettings::new(server.url()).command_timeout(Duration::from_secs(60));
    let client = options.connect().await.expect("a server that is there");
    let limit = Limit::per_second(1_000_000).when_away(Away::Closed);
    let limiter = client.limiter("api", limit).expect("valid");
    let total = Timeout::total(Duration::from_millis(100)).expect("valid");
    server.pause();
    let (before, begun) = (LIVE.load(Relaxed), Instant::now());
    MOST.store(before, Relaxed);
    let mut tasks = JoinSet::new();
    for number in 10..10 + TASKS {
        let (limiter, total) = (limiter.clone(), total.clone());
        tasks.spawn(async move {
            let key = number.to_string().repeat(KEY_BYTES / 2);
            let mut longest = Duration::ZERO;
            for _ in 0..CALLS_EACH {
                let begun = Instant::now();
                let code = total.call(async || limiter.check(&key).await.map(drop)).await.err().and_then(|e| e.code());
                assert_eq!(code, Some(Code::Timeout));
                longest = longest.max(begun.elapsed());
            }
            longest
        });
    }
    let longest = tasks.join_all().await.into_iter().max().unwrap_or_default();
    let (most, asked) = (MOST.load(Relaxed) - before, TASKS * CALLS_EACH * KEY_BYTES);
    let mib = |bytes: usize| bytes >> 20;
    println!(
        "{} MiB asked in {:?}, at most {} MiB held, {longest:?} the longest",
        mib(asked),
        begun.elapsed(),
        mib(most)
    );
    assert!(most < MOST_BYTES && 2 * MOST_BYTES < asked, "{} MiB, of {} MiB allowed", mib(most), mib(MOST_BYTES));
    assert!(longest < Duration::from_secs(3), "{longest:?}");
    server.resume();
    let served = tokio::time::timeout(Duration::from_secs(30), limiter.check("after")).await;
    assert!(matches!(served, Ok(Ok(_))), "{served:?}");
}
