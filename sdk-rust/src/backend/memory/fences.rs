//! Fences of a store: one counter for all keys, without a lock.
//!
//! A step reserves as many fences as it can grant, one for the caller and one for each waiter; what it did not use is
//! given back if no other step reserved any meanwhile. What cannot be given back is a gap, and gaps do no harm: a fence only
//! has to be above all that were granted before it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use resil_core::Instant;
use resil_core::waited::Floor;

/// The highest fence that was reserved.
#[derive(Debug, Default)]
pub(super) struct Fences(AtomicU64);

impl Fences {
    /// Runs `step` with fences for `most` grants.
    pub fn issue_for<R>(&self, most: usize, now: Instant, step: impl FnOnce(&mut Floor) -> R) -> R {
        let least = now.as_us().max(1).cast_unsigned();
        let last_of = |highest: u64| (highest + 1).max(least) + (most.max(1) as u64 - 1);
        let reserved = self.0.fetch_update(Relaxed, Relaxed, |highest| Some(last_of(highest)));
        let first = (reserved.unwrap_or_else(|highest| highest) + 1).max(least);
        let last = first + (most.max(1) as u64 - 1);
        let mut floor = Floor::default();
        floor.heard_of(first - 1);
        let result = step(&mut floor);
        let used = floor.highest();
        if used > last {
            self.0.fetch_max(used, Relaxed);
        } else {
            // Fails if another step reserved some meanwhile: then there is a gap.
            let _ = self.0.compare_exchange(last, used, Relaxed, Relaxed);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_only_grow_and_follow_the_clock() {
        let fences = Fences::default();
        let at = Instant::from_us(1_000);
        let issue = |now| fences.issue_for(1, now, |floor| floor.issue(0, now));
        assert_eq!(issue(at), 1_000);
        assert_eq!(issue(at), 1_001);
        assert_eq!(issue(Instant::from_us(10)), 1_002);
        assert_eq!(issue(Instant::from_us(5_000)), 5_000);
    }

    #[test]
    fn what_was_not_used_is_given_back() {
        let fences = Fences::default();
        let at = Instant::from_us(1_000);
        fences.issue_for(500, at, |_| ());
        assert_eq!(fences.issue_for(500, at, |floor| floor.issue(0, at)), 1_000);
        assert_eq!(fences.issue_for(1, at, |floor| floor.issue(0, at)), 1_001);
    }

    #[test]
    fn no_two_threads_get_the_same_fence() {
        let fences = Fences::default();
        let at = Instant::from_us(1_000);
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let take = || (0..10_000).map(|_| fences.issue_for(3, at, |floor| floor.issue(0, at))).collect::<Vec<_>>();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 40_000);
    }
}
