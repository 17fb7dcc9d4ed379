//! What was heard in this generation: a list that only grows, counted again whenever somebody asks.

use std::collections::BTreeSet;

use super::rules::Window;

/// Calls heard of together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Heard {
    at_us: i64,
    caller: u64,
    calls: Calls,
    /// It counts for QUORUM.
    evidence: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Calls {
    pub ok: u32,
    pub failed: u32,
    pub slow: u32,
    /// Failures in a row at its end.
    pub run: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    heard: Vec<Heard>,
    /// The window, and the evidence, begin with these entries of `heard`.
    window_from: usize,
    evidence_from: usize,
}

impl Counts {
    pub fn hear(&mut self, at_us: i64, caller: u64, calls: Calls, evidence: bool) {
        self.heard.push(Heard { at_us, caller, calls, evidence });
    }

    pub fn is_empty(&self) -> bool {
        self.heard.len() == self.window_from && self.failures_in_a_row() == 0
    }

    pub fn empty_window(&mut self) {
        self.window_from = self.heard.len();
    }

    pub fn drop_evidence(&mut self) {
        self.evidence_from = self.heard.len();
    }

    pub fn failures_in_a_row(&self) -> u32 {
        let mut run = 0;
        for Heard { calls, .. } in self.heard.iter().rev() {
            if calls.ok > 0 {
                return run + calls.run;
            }
            run += calls.failed;
        }
        run
    }

    /// `(calls, failed, slow)` in the window.
    pub fn totals(&self, window: Window, now_us: i64) -> (u32, u32, u32) {
        let heard = &self.heard[self.window_from..];
        match window {
            Window::Count(size) => {
                let calls = heard.iter().rev().flat_map(|heard| heard.calls.one_by_one(size).into_iter().rev());
                calls.take(size).fold((0, 0, 0), |(calls, failed, slow), (bad, late)| {
                    (calls + 1, failed + bad as u32, slow + late as u32)
                })
            }
            Window::Time(length_us) => {
                let slice = |at_us: i64| at_us / (length_us / 20);
                let inside = heard.iter().filter(|heard| slice(now_us) - slice(heard.at_us) < 20);
                inside.fold((0, 0, 0), |(calls, failed, slow), Heard { calls: more, .. }| {
                    (calls + more.ok + more.failed, failed + more.failed, slow + more.slow)
                })
            }
        }
    }

    /// Calls of a time window that are at most so old.
    pub fn calls_younger_than(&self, age_us: i64, now_us: i64) -> u32 {
        let young = self.heard[self.window_from..].iter().filter(|heard| now_us - heard.at_us < age_us);
        young.map(|heard| heard.calls.ok + heard.calls.failed).sum()
    }

    /// Distinct callers that failed inside the window.
    pub fn accusers(&self, window: Window, now_us: i64) -> usize {
        let mut callers = BTreeSet::new();
        let mut calls_since = 0;
        for (index, heard) in self.heard.iter().enumerate().skip(self.window_from).rev() {
            let inside = match window {
                Window::Count(size) => calls_since < size,
                Window::Time(length_us) => heard.at_us > now_us - length_us,
            };
            if heard.evidence && inside && index >= self.evidence_from {
                callers.insert(heard.caller);
            }
            if let Window::Count(size) = window {
                calls_since += heard.calls.one_by_one(size).len();
            }
        }
        callers.len()
    }
}

impl Calls {
    /// `(failed, slow)` of each call, oldest first: failures, successes, the final run; slow ones first. "A batch weighs
    /// at most the window": a larger one is scaled down, rounded towards failure.
    fn one_by_one(&self, window: usize) -> Vec<(bool, bool)> {
        let given = (self.ok + self.failed) as usize;
        let (mut failed, mut slow, mut calls) = (self.failed as usize, self.slow as usize, given);
        if given > window {
            let up = |part: usize| (part * window).div_ceil(given);
            (failed, slow, calls) = (up(failed), up(slow), window);
        }
        let run = (self.run as usize).min(failed);
        let bad = |index: usize| index < failed - run || index >= calls - run;
        (0..calls).map(|index| (bad(index), index < slow)).collect()
    }
}
