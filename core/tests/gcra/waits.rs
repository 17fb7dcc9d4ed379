//! The numbers of a reply are promises too: each is put to the test on a copy of the key.

use proptest::collection::vec;
use proptest::prelude::*;
use resil_core::Span;
use resil_core::rate_limit::{Ask, Quota, Wait};

use crate::schedule::{Called, DAY_US, Event, Key, anything, exactly, fill_us, quota, steady, unsteady};
use crate::seed;

/// Configurations a key is called with in turns: usually one, else the rate, period or burst changes all the time.
fn configurations() -> impl Strategy<Value = Vec<Quota>> {
    prop_oneof![vec(quota(), 1), vec(quota(), 2..=4)]
}

/// Plays `events`, each with one of the configurations; `each` sees the key after every call.
fn play(
    quotas: &[Quota],
    events: &[Event],
    mut each: impl FnMut(&Key, Quota, &Called) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let mut key = Key::new();
    for event in events {
        let quota = *event.config.get(quotas);
        key.elapse(event, &quota);
        for _ in 0..1 + event.reply_lost as usize {
            let called = key.call(&[quota], event.want.ask(&quota));
            each(&key, quota, &called)?;
        }
    }
    Ok(())
}

/// What a caller that was not given everything asks for after its wait: the same, or one more cell after UPTO.
fn asked_again(called: &Called) -> Option<Ask> {
    match called.ask {
        Ask::Take(_) | Ask::Reserve { .. } if called.verdict.granted == 0 => Some(called.ask),
        Ask::UpTo(cells) if called.verdict.granted < cells => Some(Ask::Take(1)),
        _ => None,
    }
}

proptest! {
    #![proptest_config(seed::config())]

    // Property 11: beyond the limit a call is refused with a positive time to wait, and that time is true.
    #[test]
    fn retry_after_is_exact_for_a_lone_caller(
        quotas in configurations(),
        events in unsteady(anything()),
    ) {
        play(&quotas, &events, |key, quota, called| {
            let Some(again) = asked_again(called) else { return Ok(()) };
            match called.verdict.binding().retry_after {
                Wait::Never => {
                    let (Ask::Take(cells) | Ask::Reserve { cells, .. }) = again else { unreachable!("{again:?}") };
                    prop_assert!(cells > quota.capacity());
                    prop_assert_eq!(key.would(4_000 * DAY_US, &[quota], again).granted, 0);
                }
                wait => {
                    prop_assert!(exactly(wait) > 0, "refused, and reported not to wait");
                    prop_assert!(key.would(exactly(wait), &[quota], again).granted > 0, "after the exact wait");
                    prop_assert!(key.would(wait.ms() * 1_000, &[quota], again).granted > 0, "after the reply's ms");
                    prop_assert_eq!(key.would(exactly(wait) - 1, &[quota], again).granted, 0, "a microsecond early");
                }
            }
            Ok(())
        })?;
    }

    /// However the clock is set: nobody is asked to wait longer than a bucket takes to fill and the longest booking.
    #[test]
    fn no_clock_step_freezes_a_bucket_longer_than_filling_it(
        quotas in configurations(),
        events in unsteady(anything()),
    ) {
        let longest_fill_us = quotas.iter().map(fill_us).max().expect("at least one") + 1;
        let mut booked_us = 0;
        play(&quotas, &events, |key, quota, called| {
            if let Ask::Reserve { within, .. } = called.ask {
                booked_us = within.as_us().max(booked_us);
            }
            let longest_us = longest_fill_us + booked_us + 1_000;
            let reading = key.would(0, &[quota], Ask::Peek).binding();
            prop_assert!(exactly(reading.retry_after) <= longest_us);
            prop_assert!(reading.reset_after.as_us() <= longest_us);
            Ok(())
        })?;
    }

    #[test]
    fn remaining_cells_can_be_taken_at_once_and_no_more(
        quotas in configurations(),
        events in steady(anything()),
    ) {
        play(&quotas, &events, |key, quota, called| {
            let remaining = called.verdict.binding().remaining;
            prop_assert!(remaining <= quota.capacity());
            prop_assert_eq!(key.would(0, &[quota], Ask::Peek).granted, remaining);
            prop_assert_eq!(key.would(0, &[quota], Ask::UpTo(u32::MAX)).granted, remaining);
            prop_assert_eq!(key.would(0, &[quota], Ask::Take(remaining + 1)).granted, 0);
            if remaining > 0 {
                prop_assert_eq!(key.would(0, &[quota], Ask::Take(remaining)).granted, remaining);
            }
            Ok(())
        })?;
    }

    #[test]
    fn the_bucket_is_full_exactly_after_reset_after(
        quotas in configurations(),
        events in steady(anything()),
    ) {
        play(&quotas, &events, |key, quota, called| {
            let reset_us = called.verdict.binding().reset_after.as_us();
            let full = key.would(reset_us, &[quota], Ask::Peek);
            prop_assert_eq!(full.granted, quota.capacity());
            prop_assert_eq!(full.binding().reset_after, Span::ZERO);
            if reset_us > 0 {
                let nearly = key.would(reset_us - 1, &[quota], Ask::Peek);
                prop_assert_eq!(nearly.binding().reset_after, Span::from_us(1));
            }
            Ok(())
        })?;
    }

    #[test]
    fn upto_grants_what_peek_promised(quotas in configurations(), events in unsteady(anything())) {
        play(&quotas, &events, |key, quota, called| {
            let promised = key.would(0, &[quota], Ask::Peek).granted;
            if let Ask::UpTo(cells) = called.ask {
                prop_assert_eq!(key.would(0, &[quota], Ask::UpTo(cells)).granted, promised.min(cells));
            }
            if promised > 0 {
                prop_assert_eq!(key.would(0, &[quota], Ask::UpTo(promised)).granted, promised);
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_refund_gives_back_at_most_what_is_owed(
        quotas in configurations(),
        events in unsteady(anything()),
        cells in 1..=3_000u32,
    ) {
        play(&quotas, &events, |key, quota, _| {
            let before = key.would(0, &[quota], Ask::Peek).binding();
            let mut copy = key.clone();
            let refunded = copy.call(&[quota], Ask::Refund(cells));
            let after = refunded.verdict.binding();
            prop_assert!(refunded.verdict.granted <= cells);
            prop_assert!(after.remaining <= quota.capacity());
            prop_assert!(after.remaining as u64 <= before.remaining as u64 + refunded.verdict.granted as u64);
            prop_assert_eq!(refunded.changed, refunded.verdict.granted > 0);
            if refunded.verdict.granted < cells {
                prop_assert_eq!(after.remaining, quota.capacity(), "all that was owed is back");
                prop_assert!(copy.tiers.is_empty() || !refunded.changed, "a full bucket is not stored");
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_refund_on_a_missing_key_creates_nothing(quota in quota(), cells in 1..=1_000_000u32) {
        let mut key = Key::new();
        let called = key.call(&[quota], Ask::Refund(cells));
        prop_assert_eq!(called.verdict.granted, 0);
        prop_assert_eq!(called.verdict.binding().remaining, quota.capacity());
        prop_assert!(!called.changed);
    }
}
