//! The counters against exact counts.

use std::collections::HashMap;

use proptest::prelude::*;
use resil_core::heavy_hitters::{COUNTERS, Estimate, HeavyHitters, SpaceSaving};
use resil_core::{Instant, Span};

/// Few keys come often, many come seldom.
fn stream() -> impl Strategy<Value = Vec<u16>> {
    let key = prop_oneof![3 => 0..10u16, 2 => 0..200u16, 1 => 0..3_000u16];
    prop::collection::vec(key, 0..4_000)
}

proptest! {
    #[test]
    fn the_true_count_lies_between_count_minus_error_and_count(keys in stream()) {
        let (mut counters, mut exact) = (SpaceSaving::default(), HashMap::<u16, u64>::new());
        for key in &keys {
            counters.add(0, &key.to_be_bytes());
            *exact.entry(*key).or_default() += 1;
        }
        prop_assert_eq!(counters.added(), keys.len() as u64);
        for key in 0..3_000u16 {
            let truth = exact.get(&key).copied().unwrap_or_default();
            let Estimate { count, error } = counters.estimate(0, &key.to_be_bytes());
            prop_assert!(truth <= count && truth + error >= count, "{key}: {truth}, {count} - {error}");
            prop_assert!(error <= keys.len() as u64 / COUNTERS as u64, "{error}");
        }
    }

    #[test]
    fn the_last_minute_keeps_the_bound_over_its_windows(keys in stream(), pace_ms in 1..40i64) {
        let (mut hitters, mut exact) = (HeavyHitters::default(), HashMap::<u16, u64>::new());
        let start = Instant::from_us(1_000_000);
        let mut now = start;
        for key in &keys {
            if start.until(now) >= Span::from_secs(50) {
                break;
            }
            hitters.add(7, &key.to_be_bytes(), now);
            *exact.entry(*key).or_default() += 1;
            now = now.plus(Span::from_ms(pace_ms));
        }
        let total: u64 = exact.values().sum();
        let top = hitters.top(now, |_, _| true);
        for hit in &top {
            let key = u16::from_be_bytes([hit.name[0], hit.name[1]]);
            let (truth, Estimate { count, error }) = (exact[&key], hit.estimate);
            prop_assert!(truth <= count && truth + error >= count, "{key}: {truth}, {count} - {error}");
            prop_assert!(error <= total / COUNTERS as u64 + 6);
        }
        for (key, truth) in exact.iter().filter(|(_, truth)| **truth > total / COUNTERS as u64 + 6) {
            prop_assert!(top.iter().any(|hit| hit.name == key.to_be_bytes()), "{key} came {truth} times of {total}");
        }
        prop_assert!(top.windows(2).all(|pair| pair[0].estimate.count >= pair[1].estimate.count));
    }

    #[test]
    fn a_minute_later_nothing_is_left(keys in stream()) {
        let (mut hitters, now) = (HeavyHitters::default(), Instant::from_us(5_000_000));
        keys.iter().for_each(|key| hitters.add(0, &key.to_be_bytes(), now));
        prop_assert!(hitters.top(now.plus(Span::from_secs(60)), |_, _| true).is_empty());
    }
}
