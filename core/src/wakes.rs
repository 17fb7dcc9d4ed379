//! A list of what wants to be looked at, and when: small, because there is an entry for every lease.
//!
//! A heap in one piece, to the millisecond. What is called off stays in it until its time comes, or until half of the heap
//! is called off: then it is built anew without.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, BinaryHeap};
use core::cmp::Reverse;

use crate::time::Instant;

/// Rounded up to the millisecond, and cut to 48 bits: until the year 10889. The tag says which kind of name it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at_and_tag: u64,
    name: Box<[u8]>,
}

const TAG_BITS: u32 = 16;

impl Entry {
    fn new(at: Instant, tag: u16, name: &[u8]) -> Self {
        Self { at_and_tag: at_ms(at) << TAG_BITS | u64::from(tag), name: name.into() }
    }
}

fn at_ms(at: Instant) -> u64 {
    at.ceil_ms().clamp(0, (1 << (64 - TAG_BITS)) - 1).cast_unsigned()
}

#[derive(Debug, Clone, Default)]
pub struct Wakes {
    heap: BinaryHeap<Reverse<Entry>>,
    called_off: BTreeSet<Entry>,
}

impl Wakes {
    /// `name` wants to be looked at, at `at`.
    pub fn add(&mut self, at: Instant, tag: u16, name: &[u8]) {
        let entry = Entry::new(at, tag, name);
        if !self.called_off.remove(&entry) {
            self.heap.push(Reverse(entry));
        }
    }

    /// What was asked for is not wanted any more. It must have been asked for.
    pub fn call_off(&mut self, at: Instant, tag: u16, name: &[u8]) {
        self.called_off.insert(Entry::new(at, tag, name));
        if self.called_off.len() * 2 > self.heap.len() {
            let called_off = core::mem::take(&mut self.called_off);
            self.heap.retain(|Reverse(entry)| !called_off.contains(entry));
            self.heap.shrink_to(self.heap.len() * 2);
        }
    }

    /// When the first of them is due.
    pub fn first(&self) -> Option<Instant> {
        let Reverse(entry) = self.heap.peek()?;
        Some(Instant::from_us((entry.at_and_tag >> TAG_BITS).cast_signed().saturating_mul(1_000)))
    }

    /// Takes one that is due.
    pub fn take_due(&mut self, now: Instant) -> Option<(u16, Box<[u8]>)> {
        while self.first()? <= now {
            let Reverse(entry) = self.heap.pop()?;
            if !self.called_off.remove(&entry) {
                return Some((entry.at_and_tag as u16, entry.name));
            }
        }
        None
    }

    /// Takes all.
    pub fn take_all(&mut self) -> impl Iterator<Item = (u16, Box<[u8]>)> + use<> {
        let Self { heap, called_off } = core::mem::take(self);
        let wanted = heap.into_iter().filter(move |Reverse(entry)| !called_off.contains(entry));
        wanted.map(|Reverse(entry)| (entry.at_and_tag as u16, entry.name))
    }

    pub fn is_empty(&self) -> bool {
        self.heap.len() == self.called_off.len()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn at(ms: i64) -> Instant {
        Instant::from_us(ms * 1_000)
    }

    #[test]
    fn they_come_in_the_order_of_time_and_not_before() {
        let mut wakes = Wakes::default();
        for (ms, name) in [(30, "c"), (10, "a"), (20, "b")] {
            wakes.add(at(ms), 7, name.as_bytes());
        }
        assert_eq!(wakes.take_due(at(9)), None);
        assert_eq!(wakes.first(), Some(at(10)));
        assert_eq!(wakes.take_due(at(25)), Some((7, (*b"a").into())));
        assert_eq!(wakes.take_due(at(25)), Some((7, (*b"b").into())));
        assert_eq!(wakes.take_due(at(25)), None);
    }

    #[test]
    fn never_earlier_than_asked_for() {
        let mut wakes = Wakes::default();
        wakes.add(Instant::from_us(10_001), 0, b"a");
        assert_eq!(wakes.take_due(Instant::from_us(10_999)), None);
        assert!(wakes.take_due(Instant::from_us(11_000)).is_some());
    }

    #[test]
    fn what_is_called_off_does_not_come_and_takes_no_room_for_long() {
        let mut wakes = Wakes::default();
        for number in 0..1_000u16 {
            wakes.add(at(i64::from(number)), number, b"name");
        }
        for number in 0..999u16 {
            wakes.call_off(at(i64::from(number)), number, b"name");
        }
        assert!(wakes.heap.len() <= 3, "{}", wakes.heap.len());
        assert!(!wakes.is_empty());
        assert_eq!(wakes.take_due(at(5_000)), Some((999, (*b"name").into())));
        assert_eq!(wakes.take_due(at(5_000)), None);
        assert!(wakes.is_empty());
    }

    #[test]
    fn what_was_called_off_can_be_asked_for_again() {
        let mut wakes = Wakes::default();
        wakes.add(at(1), 1, b"a");
        wakes.add(at(2), 1, b"b");
        wakes.add(at(3), 1, b"c");
        wakes.call_off(at(2), 1, b"b");
        wakes.add(at(2), 1, b"b");
        let all: Vec<_> = core::iter::from_fn(|| wakes.take_due(at(9))).collect();
        assert_eq!(all.len(), 3);
    }
}
