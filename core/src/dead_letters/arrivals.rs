//! Entries by their arrival. Arrivals are given in a row and most entries leave in about that order, so neighbours lie together:
//! 64 of them share a shelf, and a bit says which of its places are taken. To find one costs a search among shelves, of which
//! there are few. What leaves does not move what lies behind it: its slot stays empty until a quarter of them is in use, and
//! then the shelf takes no more than that needs.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::hint::black_box;

use super::entry::Entry;

const BITS: u32 = 6;

#[derive(Debug, Clone, Default)]
pub(super) struct Arrivals {
    /// By their arrivals without the last bits.
    shelves: BTreeMap<u64, Shelf>,
    len: usize,
}

#[derive(Debug, Clone, Default)]
struct Shelf {
    /// The places that are taken, one bit for each.
    taken: u64,
    /// The places that have a slot: those, and some that were taken.
    kept: u64,
    /// What is in them, in their order. The slot of a place that is taken is empty only while its entry is changed.
    slots: Vec<Option<Entry>>,
}

/// Slots that are empty follow from the past.
impl PartialEq for Arrivals {
    fn eq(&self, other: &Self) -> bool {
        self.from(0).eq(other.from(0))
    }
}

impl Eq for Arrivals {}

/// The shelf of an arrival, and the bit of its place.
fn place_of(arrival: u64) -> (u64, u64) {
    (arrival >> BITS, 1 << (arrival & ((1 << BITS) - 1)))
}

impl Shelf {
    fn position(&self, bit: u64) -> Option<usize> {
        (self.taken & bit != 0).then(|| self.before(bit))
    }

    /// How many slots lie before that of the place.
    fn before(&self, bit: u64) -> usize {
        (self.kept & (bit - 1)).count_ones() as usize
    }

    /// Drops the slots of places that are not taken.
    fn shrink(&mut self) {
        let (mut left, taken) = (self.kept, self.taken);
        self.slots.retain(|_| {
            let bit = left & left.wrapping_neg();
            left ^= bit;
            taken & bit != 0
        });
        self.slots.shrink_to_fit();
        self.kept = taken;
    }

    /// The arrivals on it, from `first` on, and their entries.
    fn entries(&self, number: u64, first: u64) -> impl Iterator<Item = (u64, &Entry)> {
        let (mut left, mut slots) = (self.kept, self.slots.iter());
        core::iter::from_fn(move || {
            let slot = slots.next()?;
            let arrival = number << BITS | u64::from(left.trailing_zeros());
            left &= left - 1;
            Some((arrival, slot))
        })
        .filter_map(move |(arrival, slot)| Some((arrival, slot.as_ref().filter(|_| arrival >= first)?)))
    }
}

impl Arrivals {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn contains(&self, arrival: u64) -> bool {
        let (number, bit) = place_of(arrival);
        self.shelves.get(&number).is_some_and(|shelf| shelf.taken & bit != 0)
    }

    pub fn get(&self, arrival: u64) -> Option<&Entry> {
        self.place(arrival)?.as_ref()
    }

    fn place(&self, arrival: u64) -> Option<&Option<Entry>> {
        let (number, bit) = place_of(arrival);
        let shelf = self.shelves.get(&number)?;
        shelf.slots.get(shelf.position(bit)?)
    }

    /// The same of many. None of them is asked for anything before all are looked at: their memory comes at the same time.
    pub fn look_at(&self, arrivals: impl Iterator<Item = u64>) -> impl Iterator<Item = Option<&Entry>> {
        let slots: Vec<Option<&Option<Entry>>> = arrivals.map(|arrival| self.place(arrival)).collect();
        black_box(
            slots
                .iter()
                .flatten()
                .fold(0, |all, slot| all ^ slot.as_ref().map_or(0, |entry| entry.fence ^ entry.at.as_us() as u64)),
        );
        slots.into_iter().map(|slot| slot?.as_ref())
    }

    /// The slot of an entry that is there, or is being changed.
    pub fn slot(&mut self, arrival: u64) -> Option<&mut Option<Entry>> {
        let (number, bit) = place_of(arrival);
        let shelf = self.shelves.get_mut(&number)?;
        let position = shelf.position(bit)?;
        shelf.slots.get_mut(position)
    }

    pub fn insert(&mut self, arrival: u64, entry: Entry) {
        let (number, bit) = place_of(arrival);
        let shelf = self.shelves.entry(number).or_default();
        let position = shelf.before(bit);
        if shelf.kept & bit != 0 {
            shelf.slots[position] = Some(entry);
        } else {
            shelf.slots.insert(position, Some(entry));
        }
        self.len += usize::from(shelf.taken & bit == 0);
        (shelf.taken, shelf.kept) = (shelf.taken | bit, shelf.kept | bit);
    }

    /// Takes an entry out for good, if it is there and `is_it` says so.
    pub fn remove_if(&mut self, arrival: u64, is_it: impl FnOnce(&Entry) -> bool) -> Option<Entry> {
        let (number, bit) = place_of(arrival);
        let shelf = self.shelves.get_mut(&number)?;
        let position = shelf.position(bit)?;
        let entry = shelf.slots[position].take_if(|entry| is_it(entry))?;
        shelf.taken &= !bit;
        self.len -= 1;
        if shelf.taken == 0 {
            self.shelves.remove(&number);
        } else if shelf.taken.count_ones() as usize * 4 <= shelf.slots.capacity() {
            shelf.shrink();
        }
        Some(entry)
    }

    /// In their order, from one on.
    pub fn from(&self, first: u64) -> impl Iterator<Item = (u64, &Entry)> {
        self.shelves.range(place_of(first).0..).flat_map(move |(number, shelf)| shelf.entries(*number, first))
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::super::message::{Facts, Message};
    use super::*;
    use crate::time::Instant;

    fn entry(number: u64) -> Entry {
        let id = format!("m{number}");
        Entry::new(Message::new(&Facts { id: id.as_bytes(), ..Facts::default() }), Instant::EPOCH)
    }

    fn ids(arrivals: &Arrivals) -> Vec<u64> {
        arrivals.from(0).map(|(arrival, _)| arrival).collect()
    }

    #[test]
    fn entries_leave_in_any_order_and_come_back() {
        let mut arrivals = Arrivals::default();
        (0..256).for_each(|number| arrivals.insert(number, entry(number)));
        for step in [5, 7, 3] {
            let gone: Vec<u64> = (0..256).map(|number| number * step * 11 % 256).take(250).collect();
            for number in &gone {
                let left = arrivals.len();
                let removed = arrivals.remove_if(*number, |_| true);
                assert_eq!(removed, Some(entry(*number)));
                assert_eq!((arrivals.get(*number), arrivals.contains(*number)), (None, false));
                assert_eq!((arrivals.remove_if(*number, |_| true), arrivals.slot(*number)), (None, None));
                assert_eq!((arrivals.len(), ids(&arrivals).len()), (left - 1, left - 1));
                let kept: usize = arrivals.shelves.values().map(|shelf| shelf.slots.capacity()).sum();
                assert!(kept <= 64 + 4 * arrivals.len(), "{kept} slots for {}", arrivals.len());
            }
            let left = ids(&arrivals);
            let mut equal = Arrivals::default();
            left.iter().for_each(|number| equal.insert(*number, entry(*number)));
            assert_eq!(arrivals, equal, "what left leaves no trace");
            let seen: Vec<_> = arrivals.look_at(0..256).collect();
            assert!((0..256).zip(seen).all(|(number, seen)| seen == arrivals.get(number)));
            for number in gone.into_iter().rev() {
                arrivals.insert(number, entry(number));
                assert_eq!(arrivals.get(number), Some(&entry(number)));
            }
            assert_eq!(ids(&arrivals), (0..256).collect::<Vec<_>>());
        }
        assert_eq!(arrivals.remove_if(7, |_| false), None);
        assert!(arrivals.contains(7), "only what is meant leaves");
    }
}
