//! The only reader of time. A command reads it once.
//!
//! Where the server has the instant at which it began the command (Redis 7.2 and later, Valkey), that is taken; Redis
//! 7.0 has it in milliseconds only, so there the system's clock is asked.
//!
//! With the load argument `test-clock` (`yes`, or an instant to start from) the clock can be set by `RES._CLOCK`, so that tests drive time instead of
//! sleeping; without it that command does not exist.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use resil_core::Instant;
use resil_core::dead_letters::ClockWatch;
use resil_core::limits::{FILL_MAX, INSTANT_MAX_US, RESERVE_MAX};

use crate::server;

/// The instant set by a test, or 0 while the real clock runs.
static SET_US: AtomicI64 = AtomicI64::new(0);

/// The latest now the machines are handed: whatever they add to it still fits an instant.
pub const LATEST_US: i64 = INSTANT_MAX_US - FILL_MAX.as_us() - 2 * RESERVE_MAX.as_us();

pub fn now() -> Instant {
    let set_us = SET_US.load(Relaxed);
    if set_us != 0 {
        return Instant::from_us(set_us);
    }
    let us = server::command_began_us().unwrap_or_else(system_us);
    Instant::from_us(us.clamp(0, LATEST_US))
}

fn system_us() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since_epoch.as_secs() as i64 * 1_000_000 + since_epoch.subsec_micros() as i64
}

thread_local! {
    static WATCH: Cell<ClockWatch> = Cell::default();
}

/// Looks whether the clock has jumped. Called often enough that hours cannot pass unseen.
pub fn watch() {
    let mut watch = WATCH.get();
    watch.look(now());
    WATCH.set(watch);
}

/// True for a day after a jump by more than a day: nobody knows how old anything is.
pub fn has_jumped() -> bool {
    watch();
    WATCH.get().has_jumped(now())
}

/// How long something takes, by a clock that nobody sets.
pub struct Stopwatch(std::time::Instant);

impl Stopwatch {
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    pub fn elapsed(&self) -> std::time::Duration {
        self.0.elapsed()
    }
}

/// True while a test holds the clock.
pub fn is_held() -> bool {
    SET_US.load(Relaxed) != 0
}

/// Stops the clock at `us`; 0 lets it run again.
pub fn set(us: i64) {
    SET_US.store(us, Relaxed);
}
