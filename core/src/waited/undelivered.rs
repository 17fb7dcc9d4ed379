//! Grants whose replies are on their way.
//!
//! A grant that was decided for a waiter who is gone by then is taken back, and goes to the next. Until its reply is
//! delivered, a grant is listed here with `K`, whatever the driver needs to find its key again.
//! ```text
//!   sent ──▶ undelivered ── delivered, or in the reply to another call of its owner ──▶ kept
//!                 ├── the client is gone: the driver gets it back, and steps `take_back`
//!                 └── the holding ended meanwhile ──▶ forgotten
//! ```

use alloc::collections::BTreeMap;

#[derive(Debug, Clone)]
pub struct Undelivered<K>(BTreeMap<u64, K>);

impl<K> Default for Undelivered<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: PartialEq> Undelivered<K> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The reply that grants `fence` is on its way.
    pub fn sent(&mut self, fence: u64, key: K) {
        self.0.insert(fence, key);
    }

    /// The reply has arrived, or cannot be taken back any more.
    pub fn delivered(&mut self, fence: u64) {
        self.0.remove(&fence);
    }

    /// The reply to another call of its owner had the grant in `key`.
    pub fn notified_elsewhere(&mut self, key: &K, fence: u64) {
        if self.0.get(&fence) == Some(key) {
            self.0.remove(&fence);
        }
    }

    /// The client is gone: the grant is to be taken back if it is returned here.
    pub fn undeliverable(&mut self, fence: u64) -> Option<K> {
        self.0.remove(&fence)
    }
}
