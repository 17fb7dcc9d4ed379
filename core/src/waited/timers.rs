//! What wants to be looked at, and when: small, because there is an entry for every lease.
//!
//! A heap, to the millisecond, over a dense list of entries. Each entry knows its place in the heap, so it can be moved or
//! removed by its number. A removal fills the gap with the last entry, whose number changes: the owner of the numbers is
//! reported (`moved`).

use alloc::vec::Vec;

use crate::time::Instant;

#[derive(Debug, Clone)]
struct TimerEntry<T> {
    item: T,
    at_ms: i64,
    /// Where the heap has it.
    place: u32,
}

#[derive(Debug, Clone)]
pub struct TimerHeap<T> {
    entries: Vec<TimerEntry<T>>,
    /// Numbers of entries, the earliest first.
    heap: Vec<u32>,
}

impl<T> Default for TimerHeap<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), heap: Vec::new() }
    }
}

impl<T> TimerHeap<T> {
    /// `item` wants to be looked at, at `at` (rounded up to the millisecond). Returns its number.
    pub fn add(&mut self, at: Instant, item: T) -> u32 {
        let number = self.entries.len() as u32;
        self.entries.push(TimerEntry { item, at_ms: at.ceil_ms(), place: number });
        self.heap.push(number);
        self.rise(number as usize);
        number
    }

    /// Removes an entry. `moved` is called with the entry that has this number from now on, if there is one.
    pub fn remove(&mut self, number: u32, moved: impl FnOnce(&T)) -> Option<T> {
        let place = self.entries.get(number as usize)?.place as usize;
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            self.put(place);
            self.sink(place);
            self.rise(place);
        }
        let entry = self.entries.swap_remove(number as usize);
        if let Some(last) = self.entries.get(number as usize) {
            self.heap[last.place as usize] = number;
            moved(&last.item);
        }
        if self.entries.capacity() > 64 && self.entries.len() * 4 < self.entries.capacity() {
            self.entries.shrink_to(self.entries.len() * 2);
            self.heap.shrink_to(self.heap.len() * 2);
        }
        Some(entry.item)
    }

    /// Moves an entry to another instant.
    pub fn move_to(&mut self, number: u32, at: Instant) {
        let Some(entry) = self.entries.get_mut(number as usize) else { return };
        entry.at_ms = at.ceil_ms();
        let place = entry.place as usize;
        self.sink(place);
        self.rise(place);
    }

    /// When an entry is due.
    pub fn at(&self, number: u32) -> Option<Instant> {
        self.entries.get(number as usize).map(|entry| instant(entry.at_ms))
    }

    pub fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(number as usize).map(|entry| &entry.item)
    }

    /// When the first of them is due.
    pub fn first(&self) -> Option<Instant> {
        self.heap.first().map(|number| instant(self.entries[*number as usize].at_ms))
    }

    /// The number of the first.
    pub fn first_number(&self) -> Option<u32> {
        self.heap.first().copied()
    }

    /// Takes any entry, without keeping order: for those who want them all. Nothing else is asked of it afterwards.
    pub fn take_any(&mut self) -> Option<T> {
        self.heap.clear();
        self.entries.pop().map(|entry| entry.item)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 && self.is_before(place, (place - 1) / 2) {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let (left, right) = (2 * place + 1, 2 * place + 2);
            let mut first = place;
            for child in [left, right] {
                if child < self.heap.len() && self.is_before(child, first) {
                    first = child;
                }
            }
            if first == place {
                return;
            }
            self.swap(place, first);
            place = first;
        }
    }

    fn is_before(&self, one: usize, other: usize) -> bool {
        let at_ms = |place: usize| self.entries[self.heap[place] as usize].at_ms;
        at_ms(one) < at_ms(other)
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.put(one);
        self.put(other);
    }

    /// Tells an entry where the heap has it.
    fn put(&mut self, place: usize) {
        let number = self.heap[place] as usize;
        self.entries[number].place = place as u32;
    }
}

fn instant(at_ms: i64) -> Instant {
    Instant::from_us(at_ms.saturating_mul(1_000))
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;

    fn at(ms: i64) -> Instant {
        Instant::from_us(ms * 1_000)
    }

    /// TimerHeap whose items know their numbers, and what must be in them.
    #[derive(Default)]
    struct Kept {
        heap: TimerHeap<u64>,
        numbers: BTreeMap<u64, u32>,
        wanted: BTreeMap<u64, i64>,
    }

    impl Kept {
        fn add(&mut self, item: u64, ms: i64) {
            self.numbers.insert(item, self.heap.add(at(ms), item));
            self.wanted.insert(item, ms);
        }

        fn remove(&mut self, item: u64) {
            let number = self.numbers.remove(&item).expect("it is there");
            let numbers = &mut self.numbers;
            let removed = self.heap.remove(number, |moved| {
                numbers.insert(*moved, number);
            });
            assert_eq!(removed, Some(item));
            self.wanted.remove(&item);
        }

        fn check(&self) {
            assert_eq!(self.heap.first(), self.wanted.values().min().map(|ms| at(*ms)));
            assert_eq!(self.heap.len(), self.wanted.len());
            for (item, number) in &self.numbers {
                assert_eq!(self.heap.get(*number), Some(item));
                assert_eq!(self.heap.at(*number), Some(at(self.wanted[item])));
            }
        }
    }

    #[test]
    fn never_earlier_than_asked_for() {
        let mut heap = TimerHeap::default();
        heap.add(Instant::from_us(10_001), ());
        assert_eq!(heap.first(), Some(Instant::from_us(11_000)));
    }

    #[test]
    fn numbers_and_order_hold_through_any_walk() {
        let mut kept = Kept::default();
        let mut chance = 0x9e37_79b9_7f4a_7c15u64;
        for item in 0..20_000u64 {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (what, ms) = ((chance >> 33) % 8, ((chance >> 40) % 1_000) as i64);
            let some = kept.numbers.keys().nth((chance >> 50) as usize % kept.numbers.len().max(1)).copied();
            match (what, some) {
                (0..=1, Some(some)) if item > 5_000 || kept.wanted.len() > 500 => kept.remove(some),
                (2..=3, Some(some)) => {
                    kept.heap.move_to(kept.numbers[&some], at(ms));
                    kept.wanted.insert(some, ms);
                }
                (4, Some(_)) => {
                    let first = kept.heap.first_number().and_then(|number| kept.heap.get(number).copied());
                    kept.remove(first.expect("there is one"));
                }
                _ => kept.add(item, ms),
            }
            if item % 64 == 0 {
                kept.check();
            }
        }
        while let Some(item) = kept.numbers.keys().next().copied() {
            kept.remove(item);
        }
        kept.check();
        assert!(kept.heap.entries.capacity() <= 64, "it takes no room for long");
    }
}
