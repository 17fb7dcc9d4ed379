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

/// The bits of the four calls in a byte that say failed, and those that say slow.
const FAILED: u8 = 0b0101_0101;
const SLOW: u8 = 0b1010_1010;

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
            let slow_ones = slow.min(count);
            slow -= slow_ones;
            self.push(slow_ones, failed, true);
            self.push(count - slow_ones, failed, false);
        }
    }

    /// `count` calls of the same outcome, a byte at a time.
    #[inline]
    fn push(&mut self, count: u32, failed: bool, slow: bool) {
        // Most batches are of one kind.
        if count > 0 {
            self.push_some(count, failed, slow);
        }
    }

    fn push_some(&mut self, mut count: u32, failed: bool, slow: bool) {
        let outcome = (failed as u8 * FAILED) | (slow as u8 * SLOW);
        self.totals.failures += if failed { count } else { 0 };
        self.totals.slow += if slow { count } else { 0 };
        while count > 0 {
            let full = self.len == self.capacity;
            let at = if full { self.oldest } else { self.len };
            let calls = count.min(4 - at % 4).min(self.capacity - at);
            if at as usize / 4 == self.bits.len() {
                self.bits.push(0);
            }
            let byte = &mut self.bits[at as usize / 4];
            let mask = (u8::MAX >> (8 - calls * 2)) << (at % 4 * 2);
            // Most often there is no failure to forget.
            let old = *byte & mask;
            if old != 0 {
                self.totals.failures -= (old & FAILED).count_ones();
                self.totals.slow -= (old & SLOW).count_ones();
            }
            *byte = *byte & !mask | outcome & mask;
            if full {
                self.oldest = if at + calls == self.capacity { 0 } else { at + calls };
            } else {
                self.len += calls;
            }
            count -= calls;
        }
        self.totals.calls = self.len;
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
        calls.for_each(|(failed, slow)| ring.push(1, failed, slow));
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
        let newest_at = self.newest.rem_euclid(SLICES as i64);
        let mut totals = Totals::default();
        for (at, slice) in (0..).zip(&self.slices) {
            let age = if at <= newest_at { newest_at - at } else { newest_at - at + SLICES as i64 };
            if age + gone < SLICES as i64 {
                totals.add(*slice);
            }
        }
        totals
    }

    fn record(&mut self, batch: Batch, at: Instant) {
        let number = self.slice_of(at);
        self.follow_clock_back(number);
        let current = number.max(self.newest);
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
