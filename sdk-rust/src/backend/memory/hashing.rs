//! Keys into numbers: which shard, and where in its map.
//!
//! Callers choose their customers, and those choose names: so there are two secrets in it, made anew for every store. Each sixteen
//! bytes are folded into the number by one multiplication, as foldhash and wyhash do. They are not used themselves because keys
//! of ours have more than sixteen bytes (`resil:limit:...`), where they leave their short way for one that is made for long texts.

use std::hash::{BuildHasher, Hasher};

/// What makes the numbers of one store its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seeds {
    first: u64,
    second: u64,
}

impl Seeds {
    pub fn random() -> Self {
        Self { first: rand::random(), second: rand::random() }
    }
}

impl BuildHasher for Seeds {
    type Hasher = Folding;

    #[inline]
    fn build_hasher(&self) -> Folding {
        Folding { number: self.first, secret: self.second }
    }
}

pub(super) struct Folding {
    number: u64,
    secret: u64,
}

/// Both halves of the product: every bit of it depends on every bit of both.
#[inline]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

impl Folding {
    #[inline]
    fn take(&mut self, low: u64, high: u64) {
        self.number = fold(self.number ^ low, self.secret ^ high);
    }
}

/// Eight bytes from `at` on; the caller has seen that they are there.
#[inline]
fn eight(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl Hasher for Folding {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let length = bytes.len();
        let mut at = 0;
        while length - at > 16 {
            self.take(eight(bytes, at), eight(bytes, at + 8));
            at += 16;
        }
        // From the end, some of them a second time. How many bytes there are is part of every key's number: see `write_usize`.
        match length {
            16.. => self.take(eight(bytes, length - 16), eight(bytes, length - 8)),
            8.. => self.take(eight(bytes, 0), eight(bytes, length - 8)),
            _ => self.take(bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0),
        }
    }

    /// The length of what follows.
    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.number ^= number as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        fold(self.number, self.secret)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_that_are_alike_are_spread_over_shards_and_places() {
        let seeds = Seeds::random();
        let (mut all, mut shards) = (HashSet::new(), [0u32; 64]);
        for number in 0..64_000u32 {
            let hash = seeds.hash_one(format!("resil:limit:api:{{user:{number}}}").as_bytes());
            all.insert(hash);
            shards[(hash >> 40) as usize % 64] += 1;
        }
        assert_eq!(all.len(), 64_000);
        assert!(shards.iter().all(|keys| (700..1_300).contains(keys)), "{shards:?} with {seeds:?}");
    }

    proptest! {
        #[test]
        fn two_keys_have_two_numbers_and_one_key_has_one(
            key in prop::collection::vec(any::<u8>(), 0..70), at in 0usize..70, bit in 0u32..8, cut in 0usize..70,
        ) {
            let seeds = Seeds { first: 0x9e37_79b9_7f4a_7c15, second: 0xd1b5_4a32_d192_ed03 };
            let number = |key: &[u8]| seeds.hash_one(key);
            prop_assert_eq!(number(&key), seeds.hash_one(key.clone().into_boxed_slice()), "as a map has it");
            if at < key.len() {
                let mut other = key.clone();
                other[at] ^= 1 << bit;
                prop_assert_ne!(number(&key), number(&other));
            }
            if cut < key.len() {
                prop_assert_ne!(number(&key), number(&key[..cut]));
            }
        }
    }
}
