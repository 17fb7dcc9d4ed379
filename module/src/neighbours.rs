//! Which key names could be ours: so that the key events of everybody else's keys cost next to nothing.
//!
//! Every `SET ... PX` of a neighbour is an `expire` event. Looking such a key up, only to see that it is not ours, would
//! make that SET a fifth dearer; a bit of a map decides nearly always. A bit that is set may be another name's: then the
//! key is looked up. Where our keys are many more than bits, every event is looked up again.

use std::cell::RefCell;

/// Bits of the map: 128 KB.
const BITS: usize = 1 << 20;

thread_local! {
    static MAP: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

fn place(salt: u64) -> (usize, u64) {
    let bit = salt as usize % BITS;
    (bit / 64, 1 << (bit % 64))
}

/// A key of this name is ours.
pub fn mark(salt: u64) {
    let (word, bit) = place(salt);
    MAP.with_borrow_mut(|map| {
        if map.is_empty() {
            map.resize(BITS / 64, 0);
        }
        if let Some(word) = map.get_mut(word) {
            *word |= bit;
        }
    });
}

/// False if no key of this name is ours.
pub fn may_be_ours(salt: u64) -> bool {
    let (word, bit) = place(salt);
    MAP.with_borrow(|map| map.get(word).is_some_and(|word| word & bit != 0))
}

/// Every key is gone.
pub fn clear() {
    MAP.with_borrow_mut(|map| map.fill(0));
}
