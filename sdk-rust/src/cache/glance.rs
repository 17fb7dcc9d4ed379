//! What the local tier has, for a binding that keeps it once more on its own side, because to come here for each hit costs more than the hit.
//!
//! # What such a binding must do
//! It takes an [epoch](Cached::epoch), and serves what it got from [`Cached::glance`] only while that is still the epoch of the glance, and for no longer than `left`,
//! counted from before it asked. The epoch changes with every invalidation that this process makes or hears of, when it hears no more, when it
//! hears again, and when the client closes. So whatever empties the tier, in part or as a whole, ends everything that was got before.
//!
//! The epoch has 32 bits: `left` is bounded, so that it cannot come round while something is served.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use bytes::Bytes;
use metrics::Counter;

use super::Cached;

const LEFT_MAX: Duration = Duration::from_secs(60);

/// A value of the local tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glance {
    pub bytes: Bytes,
    pub age: Duration,
    /// How long it may be kept; zero where time is driven by a test.
    pub left: Duration,
    pub epoch: u32,
}

impl Cached {
    /// What the local tier has of `key`, and is not empty. `None` also if the client closes: [`get`](Self::get) says so. It is counted as
    /// a get that was answered locally, and is no call for telemetry.
    #[doc(hidden)]
    pub fn glance(&self, key: &str, epoch: &AtomicU32) -> Option<Glance> {
        let core = &self.0;
        let clock = core.client.clock();
        let (bytes, age, left, epoch) = core.table.glance(key, core.local(), epoch, clock.now())?;
        // Afterwards: a client that begins to close from here on ends this epoch.
        if core.client.inner().closing.is_cancelled() {
            return None;
        }
        core.meters.local_gets().increment(1);
        let left = if clock.is_driven() { Duration::ZERO } else { left.min(LEFT_MAX) };
        Some(Glance { bytes, age, left, epoch })
    }

    /// A new epoch, which goes on for as long as it is kept. Each is a number of its own, because some languages want memory for themselves.
    #[doc(hidden)]
    pub fn epoch(&self) -> Arc<AtomicU32> {
        self.0.table.epoch()
    }

    /// How many values the local tier holds at most; 0 if there is none.
    #[doc(hidden)]
    pub fn local_size(&self) -> usize {
        let local = self.0.local();
        if local.ttl.is_zero() { 0 } else { local.size }
    }

    /// Counts gets that were answered locally: also by what the binding keeps.
    #[doc(hidden)]
    pub fn local_gets(&self) -> Counter {
        self.0.meters.local_gets()
    }
}

#[cfg(test)]
#[path = "tests/glance.rs"]
mod tests;
