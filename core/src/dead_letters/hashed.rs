//! Numbers by the hash of a text: which entry has this id. There can be a million, and no step may take long, so nothing is ever
//! moved as a whole: numbers lie in pages of 25, a full page is split in two by one more bit of the hash, and two that are
//! nearly empty become one. What cannot be split, because very many texts share their hash, is kept apart in order.
//!
//! ```text
//!   pages   0     1     2     3  ...        slot = the last bits of the hash
//!           page  page  -     page          no page: that of the slot without its highest bit
//! ```
//! A caller who chooses texts could choose many that share their hash, and every search would have to look at all of them. So a process
//! gives a seed that nobody else knows ([`seed_ids`]). It decides only what lies where: nothing of it is stored, and two ledgers that
//! are equal can have different ones.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::limits::ARRIVAL_MAX;

/// The seed of what is made from now on.
static SEED: AtomicU64 = AtomicU64::new(0);

/// From now on ids are looked up by hashes that only this process knows: `seed` is drawn once, where the process begins. What is
/// there already keeps its own.
pub fn seed_ids(seed: u64) {
    SEED.store(seed, Relaxed);
}

/// Room in a page: with this it has 256 bytes.
const ROOM: usize = 25;
/// Two pages with so many numbers together become one, which is looked for when one of them has half of that.
const FEW: usize = ROOM / 2;
const NUMBER_BITS: u32 = ARRIVAL_MAX.count_ones();
/// The bits of a hash that can choose a slot.
const DEPTH_MAX: u32 = u64::BITS - NUMBER_BITS;
const TAG_BITS: u32 = 16;

#[derive(Clone)]
struct Page {
    /// How many bits of their hashes all numbers here share.
    depth: u8,
    len: u8,
    /// Further bits of the hashes: looked at first, all in one line of memory.
    tags: [u16; ROOM],
    /// Bits of the hash that choose slots, and the number.
    keys: [u64; ROOM],
}

const _: () = assert!(size_of::<Page>() == 256);

#[derive(Clone)]
pub(super) struct Hashed {
    seed: u64,
    /// None, or a power of two.
    pages: Vec<Option<Box<Page>>>,
    len: usize,
    /// What found no room: hash and number.
    crowd: BTreeSet<(u64, u64)>,
}

impl Default for Hashed {
    fn default() -> Self {
        Self { seed: SEED.load(Relaxed), pages: Vec::new(), len: 0, crowd: BTreeSet::new() }
    }
}

/// What lies where follows from the order of arrival, and from the seed.
impl PartialEq for Hashed {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len
    }
}

impl Eq for Hashed {}

impl core::fmt::Debug for Hashed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} numbers by hash", self.len)
    }
}

fn key(hash: u64, number: u64) -> u64 {
    hash & !ARRIVAL_MAX | number & ARRIVAL_MAX
}

fn tag(hash: u64) -> u16 {
    (hash >> (NUMBER_BITS - TAG_BITS)) as u16
}

/// The bits of a key that choose its slot.
fn chooser(key: u64) -> usize {
    (key >> NUMBER_BITS) as usize
}

impl Page {
    fn new(depth: u8) -> Box<Self> {
        Box::new(Self { depth, len: 0, tags: [0; ROOM], keys: [0; ROOM] })
    }

    fn len(&self) -> usize {
        self.len.into()
    }

    fn is_full(&self) -> bool {
        self.len() == ROOM
    }

    fn push(&mut self, tag: u16, key: u64) {
        let at = self.len();
        (self.tags[at], self.keys[at]) = (tag, key);
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        let last = self.len() - 1;
        (self.tags[at], self.keys[at]) = (self.tags[last], self.keys[last]);
        self.len -= 1;
    }

    /// Where keys with these bits of the hash are.
    fn with(&self, hash: u64) -> impl Iterator<Item = usize> {
        let (tag, chooser) = (tag(hash), hash >> NUMBER_BITS);
        let tags = self.tags[..self.len().min(ROOM)].iter().enumerate();
        let at = tags.filter(move |(_, own)| **own == tag).map(|(at, _)| at);
        at.filter(move |at| self.keys[*at] >> NUMBER_BITS == chooser)
    }

    /// Moves what has the next bit of the hash to a page of its own.
    fn split(&mut self) -> Box<Self> {
        let bit = 1 << self.depth;
        self.depth += 1;
        let mut other = Self::new(self.depth);
        for at in (0..self.len()).rev() {
            if chooser(self.keys[at]) & bit != 0 {
                other.push(self.tags[at], self.keys[at]);
                self.remove(at);
            }
        }
        other
    }
}

impl Hashed {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where a text is looked up.
    pub fn hash(&self, text: &[u8]) -> u64 {
        xxh3_64_with_seed(text, self.seed)
    }

    /// The first number with this hash that is the one.
    pub fn find<T>(&self, hash: u64, mut is_it: impl FnMut(u64) -> Option<T>) -> Option<T> {
        let page = self.pages.get(self.slot(hash)).and_then(Option::as_ref);
        let found = page.and_then(|page| page.with(hash).find_map(|at| is_it(page.keys[at] & ARRIVAL_MAX)));
        if found.is_some() || self.crowd.is_empty() {
            return found;
        }
        self.crowd.range((hash, 0)..=(hash, u64::MAX)).find_map(|(_, number)| is_it(*number))
    }

    /// Looks where the numbers with these hashes are. Memory that far apart takes long to come, and comes for many at once if
    /// nothing else is done meanwhile: what follows finds it close by.
    pub fn look_ahead(&self, hashes: impl Iterator<Item = u64>) {
        // Nothing is asked of what comes: a wrong guess would wait for it. A look at every eighth key fetches all of them.
        let pages = hashes.filter_map(|hash| self.pages.get(self.slot(hash))?.as_ref());
        let all = pages.fold(0, |all, page| all ^ page.keys[0] ^ page.keys[8] ^ page.keys[16] ^ page.keys[24]);
        core::hint::black_box(all);
    }

    /// A number that is not there yet.
    pub fn insert(&mut self, hash: u64, number: u64) {
        self.len += 1;
        if self.pages.is_empty() {
            self.pages.push(Some(Page::new(0)));
        }
        loop {
            let (slot, slots) = (self.slot(hash), self.pages.len());
            let Some(page) = &mut self.pages[slot] else { return };
            if !page.is_full() {
                return page.push(tag(hash), key(hash, number));
            }
            let depth = u32::from(page.depth);
            let needs_slots = 1 << depth == slots;
            // Texts that share their hash must not make slots for nothing.
            if depth == DEPTH_MAX || needs_slots && 4 * slots > self.len {
                self.crowd.insert((hash, number));
                return;
            }
            let other = page.split();
            if needs_slots {
                self.pages.resize_with(2 * slots, || None);
            }
            self.pages[slot | 1 << depth] = Some(other);
        }
    }

    pub fn remove(&mut self, hash: u64, number: u64) {
        let (slot, key) = (self.slot(hash), key(hash, number));
        let page = self.pages.get_mut(slot).and_then(Option::as_mut);
        let at = page.as_ref().and_then(|page| page.with(hash).find(|at| page.keys[*at] == key));
        match (page, at) {
            (Some(page), Some(at)) => {
                page.remove(at);
                self.len -= 1;
                self.merge(slot);
            }
            _ => self.len -= usize::from(self.crowd.remove(&(hash, number))),
        }
        if self.len == 0 {
            *self = Self::default();
        }
    }

    /// While a page and the one it was split from have few numbers, they become one.
    fn merge(&mut self, mut slot: usize) {
        while let Some(page) = &self.pages[slot]
            && page.len() <= FEW / 2
            && let Some(bit) = page.depth.checked_sub(1)
        {
            let (depth, len, twin) = (page.depth, page.len(), slot ^ 1 << bit);
            let is_one = self.pages[twin].as_ref().is_some_and(|twin| twin.depth == depth && twin.len() + len <= FEW);
            let (low, high) = (slot.min(twin), slot.max(twin));
            let Some(gone) = is_one.then(|| self.pages[high].take()).flatten() else { return };
            let Some(page) = &mut self.pages[low] else { return };
            page.depth -= 1;
            (0..gone.len()).for_each(|at| page.push(gone.tags[at], gone.keys[at]));
            slot = low;
        }
    }

    fn slot(&self, hash: u64) -> usize {
        let mut slot = chooser(hash) & self.pages.len().wrapping_sub(1);
        while slot != 0 && self.pages.get(slot).is_some_and(Option::is_none) {
            slot ^= 1 << slot.ilog2();
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    /// Numbers that look drawn.
    fn mixed(number: u64) -> u64 {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    fn check(hash_of: impl Fn(u64) -> u64, count: u64) {
        let (mut hashed, mut known) = (Hashed::default(), BTreeSet::new());
        for turn in 0..4 * count {
            // It fills, and then empties.
            let (number, fills) = (mixed(turn) % count + 1, turn < 2 * count || mixed(turn) & 16 == 0);
            let found = hashed.find(hash_of(number), |other| (other == number).then_some(()));
            assert_eq!(found.is_some(), known.contains(&number), "{number} in turn {turn}");
            match (fills, found) {
                (true, None) => {
                    known.insert(number);
                    hashed.insert(hash_of(number), number);
                }
                (false, Some(())) => {
                    known.remove(&number);
                    hashed.remove(hash_of(number), number);
                }
                _ => {}
            }
            assert_eq!(hashed.len(), known.len());
        }
        for number in known {
            hashed.remove(hash_of(number), number);
        }
        assert!(hashed.pages.is_empty() && hashed.crowd.is_empty() && hashed.len() == 0, "nothing is left");
    }

    #[test]
    fn what_was_inserted_is_found_until_it_is_removed() {
        check(mixed, 20_000);
    }

    #[test]
    fn texts_that_share_a_hash_are_distinguished() {
        check(|_| 7, 500);
        check(|number| number % 3, 2_000);
        check(|number| mixed(number) & 0xffff_ffff, 2_000);
    }

    #[test]
    fn with_a_seed_texts_made_to_share_a_hash_differ() {
        // What is mixed with the first eight bytes is public: where they are the same, the next eight do not count.
        let begin = 0xbe4b_a423_396c_feb8_u64.to_le_bytes();
        let crafted: Vec<Vec<u8>> =
            (0..1_000_u64).map(|number| [&begin[..], &number.to_le_bytes(), &[b'x'; 16]].concat()).collect();
        let hashes = |seed: u64| {
            let hashed = Hashed { seed, ..Hashed::default() };
            crafted.iter().map(|text| hashed.hash(text)).collect::<BTreeSet<u64>>().len()
        };
        assert_eq!(hashes(0), 1, "they do without one");
        for seed in [1, 7, u64::MAX, mixed(1), mixed(2)] {
            assert_eq!(hashes(seed), crafted.len(), "seed {seed}");
        }
    }

    #[test]
    fn texts_that_share_a_hash_make_few_slots() {
        let mut hashed = Hashed::default();
        (1..10_000).for_each(|number| hashed.insert(u64::MAX << 50, number));
        assert!(hashed.pages.len() < 5_000, "{} slots", hashed.pages.len());
    }
}
