//! The only reader of time. A command reads it once.
//!
//! With the load argument `test-clock yes` the clock can be set by `RES._CLOCK`, so that tests drive time instead of
//! sleeping; without it that command does not exist.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use resil_core::Instant;
use resil_core::limits::{FILL_MAX, INSTANT_MAX_US, RESERVE_MAX};

/// The instant set by a test, or 0 while the real clock runs.
static SET_US: AtomicI64 = AtomicI64::new(0);

/// The latest now the machines are handed: whatever they add to it still fits an instant.
pub const LATEST_US: i64 = INSTANT_MAX_US - FILL_MAX.as_us() - 2 * RESERVE_MAX.as_us();

pub fn now() -> Instant {
    let set_us = SET_US.load(Relaxed);
    if set_us != 0 {
        return Instant::from_us(set_us);
    }
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Instant::from_us(i64::try_from(since_epoch.as_micros()).unwrap_or(LATEST_US).min(LATEST_US))
}

/// Stops the clock at `us`; 0 lets it run again.
pub fn set(us: i64) {
    SET_US.store(us, Relaxed);
}
