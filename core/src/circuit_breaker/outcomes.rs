//! The window of outcomes a rate is taken over, in bounded memory.
//!
//! A *count* window is a ring of the last `n` calls, two bits each. A *time* window is a ring of twenty slices, each a
//! twentieth of the span; a slice is forgotten as a whole once any part of it is older than the span, so nothing older
//! than the span ever counts. Slices are rolled by the time that has passed, also over idle hours.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::config::WindowKind;
use crate::limits::CLOCK_JITTER;
use crate::time::{Instant, Span};

/// Slices of a time window.
pub const SLICES: usize = 20;

/// How many calls, and of them how many failed and how many were slow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub calls: u32,
    pub failures: u32,
    pub slow: u32,
}

impl Totals {
    fn add(&mut self, other: Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.failures = self.failures.saturating_add(other.failures);
        self.slow = self.slow.saturating_add(other.slow);
    }
}

/// Calls that are reported together; of one call, or of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Batch {
    pub ok: u32,
    pub failures: u32,
    pub slow: u32,
    /// Failures in a row at its end.
    pub run: u32,
}

impl Batch {
    pub fn calls(&self) -> u32 {
        self.ok.saturating_add(self.failures)
    }

    /// The same proportions in at most `calls` calls, rounded towards failure.
    fn at_most(self, calls: u32) -> Self {
        let given = self.calls();
        if given <= calls {
            return self;
        }
        let share = |part: u32| (part as u64 * calls as u64).div_ceil(given as u64) as u32;
        let failures = share(self.failures).min(calls);
        Self { ok: calls - failures, failures, slow: share(self.slow).min(calls), run: self.run }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcomes {
    Count(Ring),
    Time(Box<Slices>),
}

impl Outcomes {
    pub fn new(kind: WindowKind) -> Self {
        match kind {
            WindowKind::Count(calls) => Self::Count(Ring::new(calls)),
            WindowKind::Time(length) => Self::Time(Box::new(Slices::new(length))),
        }
    }

    pub fn record(&mut self, batch: Batch, at: Instant) {
        match self {
            Self::Count(ring) => ring.record(batch.at_most(ring.capacity)),
            Self::Time(slices) => slices.record(batch, at),
        }
    }

    /// The clock was set back to `now`: what a time window holds is as old as it was, counted from there.
    pub(super) fn mend(&mut self, now: Instant) {
        if let Self::Time(slices) = self {
            slices.follow_clock_back(slices.slice_of(now));
        }
    }

    /// What the window holds at `now`.
    pub fn totals(&self, now: Instant) -> Totals {
        match self {
            Self::Count(ring) => ring.totals,
            Self::Time(slices) => slices.totals(now),
        }
    }

    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Count(ring) => ring.bits.capacity(),
            Self::Time(_) => size_of::<Slices>(),
        }
    }

    /// Whether it is of this kind and size.
    pub fn is(&self, kind: WindowKind) -> bool {
        match (self, kind) {
            (Self::Count(ring), WindowKind::Count(calls)) => ring.capacity == calls,
            (Self::Time(slices), WindowKind::Time(length)) => slices.length == length,
            _ => false,
        }
    }
}

/// The last calls, two bits each: failed, slow.
#[derive(Debug, Clone)]
pub struct Ring {
    capacity: u32,
    /// Four calls a byte; grows up to the capacity.
    bits: Vec<u8>,
    /// Calls held, and where the oldest stands once the ring is full.
    len: u32,
    oldest: u32,
    totals: Totals,
}

impl Ring {
    fn new(capacity: u32) -> Self {
        Self { capacity, bits: Vec::new(), len: 0, oldest: 0, totals: Totals::default() }
    }

    /// Oldest first: failures that are not in the final run, then successes, then the run. Slow ones come first too.
    fn record(&mut self, batch: Batch) {
        let run = batch.run.min(batch.failures);
        let mut slow = batch.slow;
        for (count, failed) in [(batch.failures - run, true), (batch.ok, false), (run, true)] {
            for _ in 0..count {
                self.push(failed, slow > 0);
                slow = slow.saturating_sub(1);
            }
        }
    }

    fn push(&mut self, failed: bool, slow: bool) {
        let at = if self.len < self.capacity {
            if self.len as usize / 4 == self.bits.len() {
                self.bits.push(0);
            }
            self.len += 1;
            self.totals.calls += 1;
            self.len - 1
        } else {
            let at = self.oldest;
            self.oldest = (self.oldest + 1) % self.capacity;
            let (failed, slow) = self.get(at);
            self.totals.failures -= failed as u32;
            self.totals.slow -= slow as u32;
            at
        };
        let shift = at % 4 * 2;
        let byte = &mut self.bits[at as usize / 4];
        *byte = *byte & !(3 << shift) | (failed as u8 | (slow as u8) << 1) << shift;
        self.totals.failures += failed as u32;
        self.totals.slow += slow as u32;
    }

    fn get(&self, at: u32) -> (bool, bool) {
        let bits = self.bits[at as usize / 4] >> (at % 4 * 2);
        (bits & 1 != 0, bits & 2 != 0)
    }

    /// `(failed, slow)` of every call, oldest first.
    pub fn calls(&self) -> impl ExactSizeIterator<Item = (bool, bool)> + '_ {
        (0..self.len).map(|index| self.get((self.oldest + index) % self.capacity.max(1)))
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(crate) fn from_calls(capacity: u32, calls: impl Iterator<Item = (bool, bool)>) -> Self {
        let mut ring = Self::new(capacity);
        calls.for_each(|(failed, slow)| ring.push(failed, slow));
        ring
    }
}

impl PartialEq for Ring {
    /// The same calls in the same order, wherever they stand in the ring.
    fn eq(&self, other: &Self) -> bool {
        self.capacity == other.capacity && self.calls().eq(other.calls())
    }
}

impl Eq for Ring {}

/// The calls of a span, in slices by absolute time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slices {
    length: Span,
    /// Number of the newest slice since the epoch; its place is that number modulo [`SLICES`].
    newest: i64,
    slices: [Totals; SLICES],
}

impl Slices {
    fn new(length: Span) -> Self {
        Self { length, newest: 0, slices: [Totals::default(); SLICES] }
    }

    fn width_us(&self) -> i64 {
        (self.length.as_us() / SLICES as i64).max(1)
    }

    fn slice_of(&self, at: Instant) -> i64 {
        at.as_us() / self.width_us()
    }

    /// The number that counts as now. Time never runs backwards, but a clock that was set back is followed: then the
    /// slices are as old as they were, counted from the clock's new time.
    fn current(&self, now: Instant) -> i64 {
        let number = self.slice_of(now);
        let ahead_us = (self.newest - number).saturating_mul(self.width_us());
        if ahead_us > CLOCK_JITTER.as_us() + self.width_us() { self.newest } else { number.max(self.newest) }
    }

    fn totals(&self, now: Instant) -> Totals {
        let gone = (self.current(now) - self.newest).min(SLICES as i64);
        let mut totals = Totals::default();
        for age in 0..SLICES as i64 - gone {
            totals.add(self.slices[(self.newest - age).rem_euclid(SLICES as i64) as usize]);
        }
        totals
    }

    fn record(&mut self, batch: Batch, at: Instant) {
        let number = self.slice_of(at);
        if self.current(at) == self.newest && number < self.newest {
            self.follow_clock_back(number);
        }
        let current = self.current(at);
        for passed in (self.newest + 1..=current).rev().take(SLICES) {
            self.slices[passed.rem_euclid(SLICES as i64) as usize] = Totals::default();
        }
        self.newest = current;
        self.slices[current.rem_euclid(SLICES as i64) as usize].add(Totals {
            calls: batch.calls(),
            failures: batch.failures,
            slow: batch.slow,
        });
    }

    /// Renumbers the slices so that the newest is `number`, if the clock was set back for more than jitter.
    fn follow_clock_back(&mut self, number: i64) {
        let ahead_us = (self.newest - number).saturating_mul(self.width_us());
        if ahead_us > CLOCK_JITTER.as_us() + self.width_us() {
            let shift = (number - self.newest).rem_euclid(SLICES as i64) as usize;
            self.slices.rotate_right(shift);
            self.newest = number;
        }
    }

    /// `(newest slice number, slices oldest first)`.
    pub(crate) fn parts(&self) -> (i64, impl Iterator<Item = Totals> + '_) {
        let oldest = self.newest + 1;
        (self.newest, (0..SLICES as i64).map(move |age| self.slices[(oldest + age).rem_euclid(SLICES as i64) as usize]))
    }

    pub(crate) fn from_parts(length: Span, newest: i64, oldest_first: [Totals; SLICES]) -> Self {
        let mut slices = Self { length, newest, slices: [Totals::default(); SLICES] };
        for (age, totals) in oldest_first.into_iter().enumerate() {
            slices.slices[(newest + 1 + age as i64).rem_euclid(SLICES as i64) as usize] = totals;
        }
        slices
    }
}
