//! Two counts over the recent past: a ring of slots, each a part of the window.
//!
//! The window is the present slot and the `N - 1` before it, so what counts reaches back by between `(N - 1)/N` of the window and all of it.
//! A clock that runs back counts into the newest slot that was seen: nothing becomes new again.
//!
//! If the window changes its length, what was recent is put into the present slot: it counts for a little longer, and is never
//! forgotten early.

use crate::time::{Instant, Span};

/// What was counted in one slot of time: the one of this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecentSlot {
    pub number: i64,
    pub counts: [u64; 2],
}

/// Two counts of the last window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recent<const N: usize> {
    slots: [RecentSlot; N],
    newest: i64,
    slot: Span,
}

const NEVER: i64 = i64::MIN / 2;

impl<const N: usize> Default for Recent<N> {
    fn default() -> Self {
        Self { slots: [RecentSlot { number: NEVER, counts: [0, 0] }; N], newest: NEVER, slot: Span::ZERO }
    }
}

impl<const N: usize> Recent<N> {
    /// One made of slots that [`slots`](Self::slots) gave, of the same window.
    pub fn from_slots(window: Span, slots: impl IntoIterator<Item = RecentSlot>) -> Self {
        let mut recent = Self { slot: slot_of::<N>(window), ..Self::default() };
        for slot in slots {
            recent.newest = recent.newest.max(slot.number);
            recent.slots[slot.number.rem_euclid(N as i64) as usize] = slot;
        }
        recent
    }

    /// The slots that have something in them, and are not over.
    pub fn slots(&self) -> impl Iterator<Item = RecentSlot> + '_ {
        let oldest = self.newest - N as i64;
        self.slots.iter().copied().filter(move |slot| slot.number > oldest && slot.counts != [0, 0])
    }

    /// Adds to both counts.
    pub fn add(&mut self, window: Span, now: Instant, counts: [u64; 2]) {
        self.turn(window, now);
        let slot = &mut self.slots[self.newest.rem_euclid(N as i64) as usize];
        if slot.number != self.newest {
            *slot = RecentSlot { number: self.newest, counts: [0, 0] };
        }
        for (sum, more) in slot.counts.iter_mut().zip(counts) {
            *sum = sum.saturating_add(more);
        }
    }

    /// Both counts of the last window.
    pub fn sums(&self, now: Instant) -> [u64; 2] {
        let newest = if self.slot.is_zero() { self.newest } else { self.newest.max(number(self.slot, now)) };
        let recent = self.slots.iter().filter(|slot| slot.number > newest - N as i64);
        recent.fold([0, 0], |[one, other], slot| {
            [one.saturating_add(slot.counts[0]), other.saturating_add(slot.counts[1])]
        })
    }

    /// The present slot becomes the newest.
    fn turn(&mut self, window: Span, now: Instant) {
        let slot = slot_of::<N>(window);
        if slot != self.slot {
            let (counts, newest) = (self.sums(now), number(slot, now));
            *self = Self { slot, newest, ..Self::default() };
            self.slots[newest.rem_euclid(N as i64) as usize] = RecentSlot { number: newest, counts };
        }
        self.newest = self.newest.max(number(slot, now));
    }
}

fn number(slot: Span, now: Instant) -> i64 {
    now.as_us().div_euclid(slot.as_us())
}

fn slot_of<const N: usize>(window: Span) -> Span {
    Span::from_us((window.as_us() / N as i64).max(1))
}
