//! Questions that nobody drives. The callers of a flight drive its JOIN in place (see `asking`), and one that keeps its get without
//! polling it, in a `buffered` stream, say, would keep what the server grants: nobody else could load. So a task looks now and then, and drives
//! what has been open since its last look. It ends when nothing is in flight, and begins with the next get.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::CacheCore;
use super::table::CacheTable;
use crate::backend::Backend;

const LOOK_EVERY: Duration = Duration::from_millis(100);

struct Minder {
    table: Weak<CacheTable>,
    has_ended: bool,
}

/// Dropped with its runtime: the next get begins another.
impl Drop for Minder {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade().filter(|_| !self.has_ended) {
            table.is_minded.store(false, Ordering::SeqCst);
        }
    }
}

/// A flight of `core` was begun.
pub(super) fn mind(core: &CacheCore) {
    let (client, table) = (&core.client, &core.table);
    // In memory the reply is there at once.
    let is_minded = matches!(client.backend(), Backend::Memory(_)) || table.is_minded.load(Ordering::SeqCst);
    if is_minded || table.is_minded.swap(true, Ordering::SeqCst) {
        return;
    }
    let minder = Minder { table: Arc::downgrade(table), has_ended: false };
    if let Some(runtime) = client.background() {
        let (clock, closing) = (client.clock().clone(), client.inner().closing.clone());
        runtime.spawn(closing.run_until_cancelled_owned(minder.run(clock)));
    }
}

impl Minder {
    async fn run(mut self, clock: crate::clock::Clock) {
        // Begun between the last look but one and the last: each is driven by one task, however long it stays open.
        let mut numbers = 0..0;
        loop {
            clock.sleep(LOOK_EVERY).await;
            let Some(table) = self.table.upgrade() else { return };
            let Some((open, last)) = table.open_of(numbers.clone()) else {
                self.has_ended = true;
                return;
            };
            numbers = numbers.end..last + 1;
            open.into_iter().for_each(|asking| drop(tokio::spawn(asking)));
        }
    }
}
