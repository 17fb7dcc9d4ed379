//! Entries by their arrival. Arrivals are given in a row and most entries leave in about that order, so neighbours lie together:
//! 16 of them share a shelf, and a bit says which of its places are taken. To find one costs a search among shelves, of which
//! there are few, and a shelf with one entry left takes no more than that needs.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::entry::Entry;

const BITS: u32 = 4;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Arrivals {
    /// By their arrivals without the last bits.
    shelves: BTreeMap<u64, Shelf>,
    len: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Shelf {
    /// The places that are taken, one bit for each.
    taken: u16,
    /// What is in them, in their order. Only while an entry is changed is its slot empty.
    slots: Vec<Option<Entry>>,
}

/// The shelf of an arrival, and the bit of its place.
fn place_of(arrival: u64) -> (u64, u16) {
    (arrival >> BITS, 1 << (arrival & ((1 << BITS) - 1)))
}

impl Shelf {
    fn position(&self, bit: u16) -> Option<usize> {
        (self.taken & bit != 0).then(|| self.before(bit))
    }

    /// How many lie before that place.
    fn before(&self, bit: u16) -> usize {
        (self.taken & (bit - 1)).count_ones() as usize
    }

    /// The arrivals on it, from `first` on, and their entries.
    fn entries(&self, number: u64, first: u64) -> impl Iterator<Item = (u64, &Entry)> {
        let (mut left, mut slots) = (self.taken, self.slots.iter());
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
        let (number, bit) = place_of(arrival);
        let shelf = self.shelves.get(&number)?;
        shelf.slots.get(shelf.position(bit)?)?.as_ref()
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
        if shelf.taken & bit != 0 {
            shelf.slots[position] = Some(entry);
        } else {
            shelf.slots.insert(position, Some(entry));
            shelf.taken |= bit;
            self.len += 1;
        }
    }

    /// Takes an entry out for good, if it is there and `is_it` says so.
    pub fn remove_if(&mut self, arrival: u64, is_it: impl FnOnce(&Entry) -> bool) -> Option<Entry> {
        let (number, bit) = place_of(arrival);
        let shelf = self.shelves.get_mut(&number)?;
        let position = shelf.position(bit)?;
        if !shelf.slots[position].as_ref().is_some_and(is_it) {
            return None;
        }
        let entry = shelf.slots.remove(position);
        shelf.taken &= !bit;
        self.len -= 1;
        if shelf.taken == 0 {
            self.shelves.remove(&number);
        } else if shelf.slots.len() * 4 <= shelf.slots.capacity() {
            shelf.slots.shrink_to_fit();
        }
        entry
    }

    /// In their order, from one on.
    pub fn from(&self, first: u64) -> impl Iterator<Item = (u64, &Entry)> {
        self.shelves.range(place_of(first).0..).flat_map(move |(number, shelf)| shelf.entries(*number, first))
    }
}
