//! Outcomes that were counted here, and how they are sent: as batches that one TALLY each can carry.

use resil_core::circuit_breaker::Batch;
use resil_core::limits::TALLY_MAX;
use smallvec::SmallVec;

/// From how many unsent calls on not every call looks at the clock, but only every [`LOOK_EVERY`]th.
const RUSH_FROM: u64 = 4;
const LOOK_EVERY: u64 = 16;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub ok: u64,
    pub failures: u64,
    pub slow: u64,
    /// Failures at the end.
    pub run: u64,
}

/// How a call came out, as far as a batch has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CountedOutcome {
    pub is_failure: bool,
    pub is_slow: bool,
}

impl Counts {
    pub fn calls(&self) -> u64 {
        self.ok + self.failures
    }

    /// Several calls came since the last batch went, and one of the last few looked at the clock.
    pub fn is_in_a_rush(&self) -> bool {
        self.calls() >= RUSH_FROM && !self.calls().is_multiple_of(LOOK_EVERY)
    }

    pub fn add(&mut self, outcome: CountedOutcome) {
        self.slow += u64::from(outcome.is_slow);
        if outcome.is_failure {
            self.failures += 1;
            self.run += 1;
        } else {
            self.ok += 1;
            self.run = 0;
        }
    }

    /// The same as batches that one TALLY each can carry: the failures before the last success spread evenly, the run at
    /// the end.
    pub fn split(self) -> SmallVec<[Batch; 1]> {
        const MOST: u64 = TALLY_MAX as u64;
        let mut batches = SmallVec::new();
        let (mut ok, mut loose, mut slow, mut run) = (self.ok, self.failures - self.run, self.slow, self.run);
        let mut rounds = ok.max(loose).div_ceil(MOST);
        let mut push = |ok: u64, loose: u64, run: u64| {
            let slow_ones = slow.min(ok + loose + run);
            slow -= slow_ones;
            // All at most MOST.
            let [ok, failures, slow, run] = [ok, loose + run, slow_ones, run].map(|count| count as u32);
            batches.push(Batch { ok, failures, slow, run });
        };
        while rounds > 0 {
            let (some_ok, some_loose) = (ok.div_ceil(rounds), loose.div_ceil(rounds));
            (ok, loose, rounds) = (ok - some_ok, loose - some_loose, rounds - 1);
            let some_run = if rounds == 0 { run.min(MOST - some_loose) } else { 0 };
            run -= some_run;
            push(some_ok, some_loose, some_run);
        }
        while run > 0 {
            let some_run = run.min(MOST);
            run -= some_run;
            push(0, 0, some_run);
        }
        batches
    }
}

#[cfg(test)]
#[path = "tests/batch.rs"]
mod tests;
