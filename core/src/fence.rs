//! Fences: numbers that only grow, for stores that refuse what comes from an earlier holder.
//!
//! A fence is `max(now in microseconds, the key's last + 1, the server's highest + 1)`. One number per server is enough:
//! no counter has to outlive its key. It is carried by replicated grants and by snapshots, and after a load or a
//! promotion it jumps ahead, because the former primary may have issued numbers this server never heard of. So fences
//! grow over expiry, deletion, restart, failover and migration as long as the clocks of successive primaries differ by
//! less than the jump.

use crate::limits::FENCE_MAX;
use crate::time::{Instant, Span};

/// The highest fence a server has issued or heard of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Floor {
    highest: u64,
    jump_us: u64,
}

impl Floor {
    /// A fence above every earlier one, here and in the key whose last was `last`.
    pub fn issue(&mut self, last: u64, now: Instant) -> u64 {
        let now = now.as_us().max(0).cast_unsigned();
        if self.jump_us > 0 {
            self.highest = self.highest.max(now).saturating_add(self.jump_us);
            self.jump_us = 0;
        }
        self.highest = now.max(last.saturating_add(1)).max(self.highest.saturating_add(1)).min(FENCE_MAX);
        self.highest
    }

    /// A fence that another server issued, or this one before it restarted.
    pub fn heard_of(&mut self, fence: u64) {
        self.highest = self.highest.max(fence.min(FENCE_MAX));
    }

    /// The next fence leaves a gap of `jump`: the server was loaded or promoted.
    pub fn jump(&mut self, jump: Span) {
        self.jump_us = jump.as_us().cast_unsigned();
    }

    /// What a snapshot carries.
    pub fn highest(&self) -> u64 {
        self.highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_grows_when_the_clock_stands_or_runs_back() {
        let mut floor = Floor::default();
        let at = Instant::from_us(1_000);
        assert_eq!(floor.issue(0, at), 1_000);
        assert_eq!(floor.issue(0, at), 1_001);
        assert_eq!(floor.issue(0, Instant::from_us(10)), 1_002);
        assert_eq!(floor.issue(5_000, at), 5_001);
        assert_eq!(floor.issue(0, Instant::from_us(9_000)), 9_000);
    }

    #[test]
    fn a_jump_leaves_a_gap_once() {
        let mut floor = Floor::default();
        floor.heard_of(2_000);
        floor.jump(Span::from_us(500));
        floor.jump(Span::from_us(500));
        assert_eq!(floor.issue(0, Instant::from_us(1_000)), 2_501);
        assert_eq!(floor.issue(0, Instant::from_us(1_000)), 2_502);
    }
}
