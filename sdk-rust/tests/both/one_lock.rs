//! Ten thousand tasks that want one lock, wherever it lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use resil::lock::Lock;
use tokio::task::JoinSet;

pub const TASKS: usize = 10_000;

/// Begins them; each checks that it is alone. How many had their turn so far is counted.
pub fn wanted_by_all(lock: &Lock) -> (JoinSet<()>, Arc<AtomicUsize>) {
    let (inside, served) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (lock, inside, served) = (lock.clone(), Arc::clone(&inside), Arc::clone(&served));
        tasks.spawn(async move {
            let guard = lock.acquire().await.expect("granted");
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
            served.fetch_add(1, Ordering::SeqCst);
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.expect("released");
        });
    }
    (tasks, served)
}
