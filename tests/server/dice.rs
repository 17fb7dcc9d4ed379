//! Chance with a seed that is always shown: `RESIL_SEED=n` plays the same game again.

use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64.
pub struct Dice(u64);

impl Dice {
    /// Seeded by `RESIL_SEED`, else by the clock; the seed is printed, so that a failing test shows it.
    pub fn thrown() -> Self {
        let of_the_clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
        let given = std::env::var("RESIL_SEED").ok().map(|text| text.parse().expect("RESIL_SEED is a number"));
        let seed = given.unwrap_or_else(of_the_clock);
        println!("RESIL_SEED={seed}");
        Self(seed)
    }

    /// From 0 to `bound` - 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}
