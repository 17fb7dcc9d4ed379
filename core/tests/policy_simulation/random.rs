/// SplitMix64: simulations repeat themselves.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    /// How many of `per_second` calls come in this millisecond.
    pub fn arrivals(&mut self, per_second: u64) -> u64 {
        let whole = per_second / 1_000;
        whole + u64::from(self.below(1_000) < per_second % 1_000)
    }
}
