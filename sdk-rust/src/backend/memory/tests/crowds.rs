//! Many at once, on several threads: nobody is forgotten, nobody is served twice, two writers are never inside.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_tasks_take_turns_on_one_lock() {
    let memory = Arc::new(Memory::new(Clock::system()));
    let (inside, turns) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..10_000 {
        let (memory, inside, turns) = (Arc::clone(&memory), Arc::clone(&inside), Arc::clone(&turns));
        tasks.spawn(async move {
            let granted = waits(&memory, &format!("RES.LOCK ACQUIRE l w{number} 1h WAIT 5m")).await.expect("a reply");
            let fence = fence_of(&granted);
            assert_eq!(inside.fetch_add(1, SeqCst), 0, "alone");
            assert!(turns.fetch_max(fence, SeqCst) < fence, "fences grow");
            inside.fetch_sub(1, SeqCst);
            assert!(reply(&memory, &format!("RES.LOCK RELEASE l w{number}")).starts_with("RELEASED "));
        });
    }
    let all = async {
        while let Some(task) = tasks.join_next().await {
            task.expect("no panic");
        }
    };
    tokio::time::timeout(Duration::from_secs(120), all).await.expect("everybody had a turn");
    assert!(reply(&memory, "RES.LOCK INFO l").contains("holders_total=0 waiters= waiters_total=0"));
}

/// Writers, readers, waits that end at any moment, leases that lapse: what is inside is always allowed to be.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_writers_are_never_inside_whatever_is_dropped_when() {
    let memory = Arc::new(Memory::new(Clock::system()));
    let until = tokio::time::Instant::now() + Duration::from_secs(3);
    // The owner of each fence that is reported: the caller that gets it holds it by the store's own account.
    let (writers, readers) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let grants = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..64u64 {
        let (memory, writers, readers) = (Arc::clone(&memory), Arc::clone(&writers), Arc::clone(&readers));
        let grants = Arc::clone(&grants);
        tasks.spawn(async move {
            let mut round = 0u64;
            while tokio::time::Instant::now() < until {
                round += 1;
                let (key, reads) = (rand::random_range(0..2), rand::random_ratio(1, 3));
                let (owner, shared) = (format!("w{number}.{round}"), if reads { " SHARED" } else { "" });
                let asked = waits(&memory, &format!("RES.LOCK ACQUIRE l{key} {owner} 1m WAIT 5s{shared}"));
                let patience = Duration::from_micros(rand::random_range(0..2_000));
                let Ok(granted) = tokio::time::timeout(patience, asked).await else { continue };
                fence_of(&granted.expect("no error"));
                if key == 0 {
                    let (own, other) = if reads { (&readers, &writers) } else { (&writers, &readers) };
                    let before = own.fetch_add(1, SeqCst);
                    assert!(reads || before == 0, "a second writer");
                    assert_eq!(other.load(SeqCst), 0, "a reader beside a writer");
                    tokio::task::yield_now().await;
                    own.fetch_sub(1, SeqCst);
                }
                grants.fetch_add(1, SeqCst);
                assert!(reply(&memory, &format!("RES.LOCK RELEASE l{key} {owner}")).starts_with("RELEASED "));
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    assert!(grants.load(SeqCst) > 1_000, "{} grants", grants.load(SeqCst));
    for key in 0..2 {
        let left = reply(&memory, &format!("RES.LOCK INFO l{key}"));
        assert!(left.contains("holders_total=0 waiters= waiters_total=0"), "nothing is left behind: {left}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leases_and_patience_end_by_the_machines_clock() {
    let memory = Arc::new(Memory::new(Clock::system()));
    call(&memory, "RES.LOCK ACQUIRE l a 50ms").expect("free");
    let b = waits(&memory, "RES.LOCK ACQUIRE l b 1h WAIT 5s");
    assert!(answered(b).await.starts_with("GRANTED "));
    let c = waits(&memory, "RES.LOCK ACQUIRE l c 1h WAIT 20ms");
    assert!(answered(c).await.starts_with("TIMEOUT b "));
}
