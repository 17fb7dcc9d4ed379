//! A tier in sixteen bytes, for the limits nearly everybody has.
//!
//! A tier fits if limit and capacity are below 2^18, the period is fewer than 2^19 microseconds, milliseconds, seconds
//! or hours, and nothing is reserved. Everything else is kept as a plain [`Tier`] of 32 bytes. The allocator has size
//! classes of 16 and 32 bytes, so packing saves 16 bytes per key.

use super::quota::Quota;
use super::tier::Tier;
use crate::limits::INSTANT_MAX_US;

/// `[tat 53 | count low 11] [count high 8 | unit 2 | limit 18 | capacity 18 | frac 18]`, highest bits first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed([u64; 2]);

const CELL_BITS: u32 = 18;
const CELL_MASK: u64 = (1 << CELL_BITS) - 1;
const COUNT_LOW_BITS: u32 = 11;
const COUNT_HIGH_BITS: u32 = 8;
const COUNT_MAX: i64 = (1 << (COUNT_LOW_BITS + COUNT_HIGH_BITS)) - 1;
/// Microseconds in each unit a period can be counted in, coarsest first.
const UNITS_US: [i64; 4] = [3_600_000_000, 1_000_000, 1_000, 1];

impl Packed {
    pub fn pack(tier: &Tier) -> Option<Self> {
        let Quota { limit, capacity, period_us } = tier.quota;
        let fits = limit as u64 <= CELL_MASK
            && capacity as u64 <= CELL_MASK
            && tier.overhang_ms == 0
            && (0..INSTANT_MAX_US).contains(&tier.tat_us);
        if !fits {
            return None;
        }
        let (unit, count) = count_in_units(period_us)?;
        let high = (tier.tat_us as u64) << COUNT_LOW_BITS | count & ((1 << COUNT_LOW_BITS) - 1);
        let low = (count >> COUNT_LOW_BITS) << (2 + 3 * CELL_BITS)
            | (unit as u64) << (3 * CELL_BITS)
            | (limit as u64) << (2 * CELL_BITS)
            | (capacity as u64) << CELL_BITS
            | tier.frac as u64;
        Some(Self([high, low]))
    }

    pub fn unpack(self) -> Tier {
        let [high, low] = self.0;
        let count = high & ((1 << COUNT_LOW_BITS) - 1) | low >> (2 + 3 * CELL_BITS) << COUNT_LOW_BITS;
        let unit = (low >> (3 * CELL_BITS)) as usize & 3;
        Tier {
            tat_us: (high >> COUNT_LOW_BITS) as i64,
            quota: Quota {
                limit: (low >> (2 * CELL_BITS) & CELL_MASK) as u32,
                capacity: (low >> CELL_BITS & CELL_MASK) as u32,
                period_us: count as i64 * UNITS_US[unit],
            },
            frac: (low & CELL_MASK) as u32,
            overhang_ms: 0,
        }
    }
}

fn count_in_units(period_us: i64) -> Option<(usize, u64)> {
    let (unit, unit_us) = UNITS_US.iter().enumerate().find(|(_, unit_us)| period_us % **unit_us == 0)?;
    let count = period_us / unit_us;
    (1..=COUNT_MAX).contains(&count).then_some((unit, count as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    fn tier(limit: u32, period: Span, capacity: u32, tat_us: i64, frac: u32) -> Tier {
        let quota = Quota::new(limit, period, capacity).expect("a valid quota");
        Tier { tat_us, quota, frac, overhang_ms: 0 }
    }

    #[test]
    fn what_packs_unpacks_to_itself() {
        let periods = [1, 999, 1_000, 60_000_000, 86_400_000_000, 31_622_400_000_000, 524_287];
        for period_us in periods {
            for (limit, capacity) in [(1, 1), (100, 1_000), (262_143, 262_143)] {
                let tier = tier(limit, Span::from_us(period_us), capacity, INSTANT_MAX_US - 1, limit - 1);
                let packed = Packed::pack(&tier).expect("it fits");
                assert_eq!(packed.unpack(), tier);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_not_packed() {
        let second = Span::from_secs(1);
        assert!(Packed::pack(&tier(262_144, second, 1, 0, 0)).is_none());
        assert!(Packed::pack(&tier(1, second, 262_144, 0, 0)).is_none());
        assert!(Packed::pack(&tier(1, Span::from_us(524_289), 1, 0, 0)).is_none());
        let reserved = Tier { overhang_ms: 1, ..tier(1, second, 1, 0, 0) };
        assert!(Packed::pack(&reserved).is_none());
    }
}
