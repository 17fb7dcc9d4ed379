//! A key redis-cell left behind: only the nanosecond at which its debt is gone is known.

use proptest::prelude::*;
use resil_core::Instant;
use resil_core::rate_limit::{Ask, Reading, Tier, step};

use crate::schedule::{START_US, fill_us, quota};
use crate::seed;

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn an_adopted_key_owes_what_redis_cell_said(
        quota in quota(),
        ahead_64ths in -16..=80i128,
        ahead_ns in -2_000..=2_000i128,
    ) {
        let ahead_ns = fill_us(&quota) as i128 * 1_000 * ahead_64ths / 64 + ahead_ns;
        let tier = Tier::adopted(quota, (START_US as i128 * 1_000 + ahead_ns) as i64);
        let peeked = step(&[tier], &[quota], Ask::Peek, Instant::from_us(START_US)).expect("one tier");
        let Reading { remaining, reset_after, capacity, .. } = peeked.verdict.binding();

        // All in thousandths of a grain: `period` grains to a cell, `limit` grains to a microsecond.
        let (limit, cell) = (quota.limit() as i128, quota.period().as_us() as i128 * 1_000);
        let full = capacity as i128 * cell;
        let owed = (ahead_ns * limit).clamp(0, full);
        let taken = (capacity - remaining) as i128 * cell;
        prop_assert!(taken >= owed, "no cell is given away");
        prop_assert!(taken < owed + cell + 1_000, "none is lost but to a grain of rounding");
        let drained = reset_after.as_us() as i128 * 1_000 * limit;
        prop_assert!(drained >= owed && drained < owed + 1_000 * limit + 1_000, "reset is the debt, rounded up");
    }
}
