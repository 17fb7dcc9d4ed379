//! Fences: numbers that only grow, for stores that refuse what comes from an earlier holder.
//!
//! A fence is `max(now in microseconds, the key's last + 1, the server's highest + 1)`. One number per server is enough:
//! no counter has to outlive its key. It is carried by replicated grants and by snapshots, and after a load or a
//! promotion it is put ahead, because the former primary may have issued numbers this server never heard of. So fences
//! grow over expiry, deletion, restart, failover and migration as long as the clocks of successive primaries differ by
//! less than the jump.

use crate::limits::FENCE_MAX;
use crate::time::{Instant, Span};

/// The highest fence a server has issued or heard of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Floor {
    highest: u64,
}

impl Floor {
    /// A fence above every earlier one, here and in the key whose last was `last`.
    pub fn issue(&mut self, last: u64, now: Instant) -> u64 {
        self.highest = us(now).max(last.saturating_add(1)).max(self.highest.saturating_add(1)).min(FENCE_MAX);
        self.highest
    }

    /// A fence that another server issued, or this one before it restarted.
    pub fn heard_of(&mut self, fence: u64) {
        self.highest = self.highest.max(fence.min(FENCE_MAX));
    }

    /// The server was promoted: its predecessor may have issued a little more than was heard of.
    pub fn jump(&mut self, jump: Span, now: Instant) {
        self.highest = self.highest.max(us(now)).saturating_add(jump.as_us().cast_unsigned()).min(FENCE_MAX);
    }

    /// The server was loaded from a file in which fences ran `ahead` of the clock. It may have issued more since, in
    /// lives of which nothing was saved, so it starts as far ahead of the present clock as it may have been then: later
    /// than all of them, however often that happens, and without ever running further ahead.
    pub fn resume(&mut self, ahead: Span, jump: Span, now: Instant) {
        self.heard_of(us(now.plus(ahead.max(jump))));
    }

    /// What a snapshot carries.
    pub fn highest(&self) -> u64 {
        self.highest
    }
}

fn us(now: Instant) -> u64 {
    now.as_us().max(0).cast_unsigned()
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
    fn a_promotion_leaves_a_gap() {
        let mut floor = Floor::default();
        floor.heard_of(2_000);
        floor.jump(Span::from_us(500), Instant::from_us(1_000));
        assert_eq!(floor.issue(0, Instant::from_us(1_000)), 2_501);
        assert_eq!(floor.issue(0, Instant::from_us(1_000)), 2_502);
    }

    #[test]
    fn a_server_started_repeatedly_from_one_file_repeats_no_fence() {
        let (jump, saved_ahead) = (Span::from_us(500), Span::from_us(700));
        let mut last = 0;
        for start in [1_000, 1_010, 1_020, 2_000] {
            let mut floor = Floor::default();
            floor.heard_of(1_700);
            floor.resume(saved_ahead, jump, Instant::from_us(start));
            for now in start..start + 10 {
                let fence = floor.issue(0, Instant::from_us(now));
                assert!(fence > last, "{fence} after {last}");
                last = fence;
            }
        }
    }
}
