//! Waiting with a bound: tests ask again instead of sleeping and hoping.

use std::time::{Duration, Instant};

/// Time between two questions: short beside what a server needs for anything worth waiting for.
const PAUSE: Duration = Duration::from_millis(5);

/// Asks until the reply is yes; panics naming `what` when `bound` passes first.
#[track_caller]
pub fn eventually(what: &str, bound: Duration, holds: impl FnMut() -> bool) {
    assert!(becomes_true(bound, holds), "waited {bound:?} in vain until {what}");
}

/// Asks until the reply is yes; says no when `bound` passes first. Always asks at least once.
pub fn becomes_true(bound: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + bound;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}
