//! Outcomes that are counted here and not yet sent, in one word.
//!
//! ```text
//!    63        48 47        36 35        24 23        12 11         0
//!   |   tag      |    run     |    slow    |  failures  |     ok     |
//! ```
//! The tag says which generation the outcomes belong to: a call that was admitted in another one is not counted. `run` is the
//! number of failures at the end. A full word is spilled into wider numbers behind a lock, so nothing is lost however long
//! nothing can be sent; that is not the usual course of things.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use resil_core::circuit_breaker::Batch;
use resil_core::limits::TALLY_MAX;
use smallvec::SmallVec;

const FIELD_BITS: u32 = 12;
const FIELD: u64 = (1 << FIELD_BITS) - 1;
const TAG_SHIFT: u32 = 4 * FIELD_BITS;
/// From how many unsent calls on not every call looks at the clock, but only every [`LOOK_EVERY`]th.
const RUSH_FROM: u64 = 4;
const LOOK_EVERY: u64 = 16;
/// Calls in the word from which it must be spilled: well before any number of it is full.
const FULL: u64 = 1 << (FIELD_BITS - 1);

/// Which generation an outcome belongs to, as far as this process has seen them.
pub(super) type Tag = u16;

#[derive(Debug, Default)]
pub(super) struct Unsent {
    word: AtomicU64,
    spilled: Mutex<Counts>,
}

/// What is in the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(u64);

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recorded {
    /// It is the `calls`-th that is not sent.
    Counted { calls: u64 },
    /// It belongs to another generation.
    Stale,
    /// [`Unsent::spill`] first.
    Full,
}

impl Word {
    pub fn tag(self) -> Tag {
        (self.0 >> TAG_SHIFT) as Tag
    }

    fn field(self, index: u32) -> u64 {
        self.0 >> (index * FIELD_BITS) & FIELD
    }

    pub fn counts(self) -> Counts {
        Counts { ok: self.field(0), failures: self.field(1), slow: self.field(2), run: self.field(3) }
    }

    pub fn has_failures(self) -> bool {
        self.field(1) > 0
    }

    /// Several calls came since the last batch went, and one of the last few looked at the clock.
    pub fn is_in_a_rush(self) -> bool {
        self.calls() >= RUSH_FROM && !self.calls().is_multiple_of(LOOK_EVERY)
    }

    fn calls(self) -> u64 {
        self.field(0) + self.field(1)
    }

    fn empty(tag: Tag) -> Self {
        Self(u64::from(tag) << TAG_SHIFT)
    }

    fn with(self, outcome: CountedOutcome) -> Self {
        let slow = u64::from(outcome.is_slow) << (2 * FIELD_BITS);
        let one_run = 1 << (3 * FIELD_BITS);
        if outcome.is_failure {
            Self(self.0 + slow + one_run + (1 << FIELD_BITS))
        } else {
            Self((self.0 & !(FIELD << (3 * FIELD_BITS))) + slow + 1)
        }
    }
}

impl Unsent {
    pub fn word(&self) -> Word {
        Word(self.word.load(Ordering::SeqCst))
    }

    pub fn is_empty(&self) -> bool {
        self.word().calls() == 0 && self.spilled.lock().calls() == 0
    }

    #[inline]
    pub fn record(&self, tag: Tag, outcome: CountedOutcome) -> Recorded {
        let mut word = self.word();
        loop {
            if word.tag() != tag {
                return Recorded::Stale;
            }
            if word.calls() >= FULL {
                return Recorded::Full;
            }
            let next = word.with(outcome);
            match self.word.compare_exchange_weak(word.0, next.0, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Recorded::Counted { calls: next.calls() },
                Err(now) => word = Word(now),
            }
        }
    }

    /// Makes room in the word.
    pub fn spill(&self) {
        let mut spilled = self.spilled.lock();
        let tag = self.word().tag();
        let word = Word(self.word.swap(Word::empty(tag).0, Ordering::SeqCst));
        spilled.append(word.counts());
    }

    /// Takes everything, in the order in which it was counted. `before_failures` runs before a failure leaves the word, so
    /// that a call that does not see it there sees what that did.
    pub fn take(&self, before_failures: impl Fn()) -> (Tag, Counts) {
        let mut spilled = self.spilled.lock();
        if spilled.failures > 0 {
            before_failures();
        }
        let mut word = self.word();
        loop {
            if word.has_failures() {
                before_failures();
            }
            let empty = Word::empty(word.tag()).0;
            match self.word.compare_exchange_weak(word.0, empty, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => break,
                Err(now) => word = Word(now),
            }
        }
        let mut counts = std::mem::take(&mut *spilled);
        counts.append(word.counts());
        (word.tag(), counts)
    }

    /// Another generation begins: what is unsent belongs to none.
    pub fn restart(&self) -> Tag {
        let mut spilled = self.spilled.lock();
        *spilled = Counts::default();
        let tag = self.word().tag().wrapping_add(1);
        self.word.store(Word::empty(tag).0, Ordering::SeqCst);
        tag
    }
}

impl Counts {
    pub fn calls(&self) -> u64 {
        self.ok + self.failures
    }

    /// What came after this.
    fn append(&mut self, later: Self) {
        self.run = if later.ok == 0 { self.run + later.run } else { later.run };
        self.ok += later.ok;
        self.failures += later.failures;
        self.slow += later.slow;
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
