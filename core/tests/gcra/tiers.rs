//! Several tiers under one key: all or none, matched by period, kept while in debt.

use proptest::collection::vec;
use proptest::prelude::*;
use resil_core::rate_limit::{Ask, Quota, Reading, TooManyTiers, Verdict, Wait, step};
use resil_core::{Instant, Span};

use crate::schedule::{Key, SECOND_US, START_US, anything, steady, unsteady};
use crate::seed;
use crate::token_bucket::play_both;

/// Periods tiers are drawn from; few enough that configurations share some.
const PERIODS_US: [i64; 12] = [
    7,
    1_000,
    250_000,
    SECOND_US,
    SECOND_US + 1,
    10 * SECOND_US,
    60 * SECOND_US,
    61 * SECOND_US,
    900 * SECOND_US,
    3_600 * SECOND_US,
    86_400 * SECOND_US,
    7 * 86_400 * SECOND_US,
];

/// Tiers of distinct periods, in any order.
fn tiers(count: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Vec<Quota>> {
    let periods = Just(PERIODS_US.to_vec()).prop_shuffle();
    let sizes = vec((1..=30u32, prop::option::of(1..=40u32)), count);
    (periods, sizes).prop_map(|(periods, sizes)| {
        let quota = |((limit, burst), period_us): (&(u32, Option<u32>), &i64)| {
            Quota::new(*limit, Span::from_us(*period_us), burst.unwrap_or(*limit)).expect("a valid rate")
        };
        sizes.iter().zip(&periods).map(quota).collect()
    })
}

/// The tier DESIGN.md names: denied, the largest wait, never being the largest; granted, the smallest remainder.
fn speaks_for_all(verdict: &Verdict) -> Reading {
    let wait = |reading: &Reading| match reading.retry_after {
        Wait::Never => i64::MAX,
        Wait::For(span) => span.as_us(),
    };
    let longest = verdict.tiers.iter().map(wait).max().expect("a tier");
    let mut candidates = verdict.tiers.iter();
    let chosen = if longest > 0 {
        candidates.find(|reading| wait(reading) == longest)
    } else {
        let least = verdict.tiers.iter().map(|reading| reading.remaining).min();
        candidates.find(|reading| Some(reading.remaining) == least)
    };
    *chosen.expect("a tier")
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn tiers_are_taken_together_or_not_at_all(quotas in tiers(2..=8), events in steady(anything())) {
        let mut key = Key::new();
        for event in &events {
            key.elapse(event, &quotas[0]);
            let ask = event.want.ask(&quotas[0]);
            let before = key.would(0, &quotas, Ask::Peek);
            let least = before.tiers.iter().map(|reading| reading.remaining).min().expect("a tier");
            let called = key.call(&quotas, ask);
            let granted = called.verdict.granted;
            match ask {
                Ask::Take(cells) => prop_assert_eq!(granted, if cells <= least { cells } else { 0 }),
                Ask::UpTo(cells) => prop_assert_eq!(granted, cells.min(least)),
                _ => {}
            }
            prop_assert_eq!(called.changed, granted > 0 && ask != Ask::Peek);
            if matches!(ask, Ask::Take(_) | Ask::UpTo(_)) {
                for (after, before) in called.verdict.tiers.iter().zip(&before.tiers) {
                    prop_assert_eq!(after.remaining, before.remaining - granted, "each tier pays the same");
                }
            }
        }
    }

    #[test]
    fn the_binding_tier_speaks_for_all(quotas in tiers(2..=8), events in steady(anything())) {
        let mut key = Key::new();
        for event in &events {
            key.elapse(event, &quotas[0]);
            let verdict = key.call(&quotas, event.want.ask(&quotas[0])).verdict;
            prop_assert_eq!(verdict.binding(), speaks_for_all(&verdict));
            if let (Wait::For(span), 0) = (verdict.binding().retry_after, verdict.granted) {
                let again = event.want.ask(&quotas[0]);
                if matches!(again, Ask::Take(_) | Ask::UpTo(_) | Ask::Reserve { .. }) {
                    prop_assert!(key.would(span.as_us(), &quotas, again).granted > 0);
                    prop_assert_eq!(key.would(span.as_us() - 1, &quotas, again).granted, 0);
                }
            }
        }
    }

    #[test]
    fn tiers_match_by_period_and_unnamed_ones_keep_their_debt(
        configurations in vec(tiers(1..=8), 1..=3),
        events in unsteady(anything()),
    ) {
        play_both(&configurations, &events)?;
    }
}

fn hourly(hours: i64) -> Quota {
    Quota::new(5, Span::from_us(hours * 3_600 * SECOND_US), 5).expect("a valid rate")
}

#[test]
fn a_seventeenth_tier_in_debt_is_an_error() {
    let now = Instant::from_us(START_US);
    let mut key = Key::new();
    key.call(&(1..=8).map(hourly).collect::<Vec<_>>(), Ask::Take(1));
    key.call(&(11..=18).map(hourly).collect::<Vec<_>>(), Ask::Take(1));
    assert_eq!(key.tiers.len(), 16);
    assert_eq!(step(&key.tiers, &[hourly(20), hourly(21)], Ask::Take(1), now), Err(TooManyTiers));
    let later = Instant::from_us(START_US + 3_600 * SECOND_US);
    assert!(step(&key.tiers, &[hourly(20), hourly(21)], Ask::Take(1), later).is_ok(), "two have drained by then");
}

#[test]
fn a_drained_old_tier_does_not_hide_a_changed_period() {
    let (short, minute, renamed) = (SECOND_US, 60 * SECOND_US, 2 * 60 * SECOND_US);
    let quota = |period_us| Quota::new(10, Span::from_us(period_us), 10).expect("a valid rate");
    let mut key = Key::new();
    key.call(&[quota(short), quota(minute)], Ask::Take(10));
    key.now_us += 6 * SECOND_US;
    let verdict = key.call(&[quota(renamed)], Ask::Peek).verdict;
    assert_eq!(verdict.granted, 1, "nine of ten cells are still owed");
}
