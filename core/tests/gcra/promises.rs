//! What is admitted over time.

use proptest::prelude::*;
use resil_core::limits::RESERVE_MAX;
use resil_core::rate_limit::{Ask, Quota, gc_at};
use resil_core::{Instant, Span};

use crate::schedule::{Called, DAY_US, Event, Key, SECOND_US, anything, exactly, quota, spending, steady, unsteady};
use crate::seed;

/// Cells taken (or given back: negative) at an instant.
struct Entry {
    at_us: i64,
    cells: i64,
}

fn cells_taken(called: &Called) -> i64 {
    match called.ask {
        Ask::Peek => 0,
        Ask::Refund(_) => -(called.verdict.granted as i64),
        _ => called.verdict.granted as i64,
    }
}

/// Plays `events`; `each` sees every call with the time that really passed so far.
fn play(quota: Quota, events: &[Event], mut each: impl FnMut(&Key, &Called, i64)) {
    let mut key = Key::new();
    let mut passed_us = 0;
    for event in events {
        passed_us += key.elapse(event, &quota);
        for _ in 0..1 + event.reply_lost as usize {
            let called = key.call(&[quota], event.want.ask(&quota));
            each(&key, &called, passed_us);
        }
    }
}

/// `cells <= capacity + limit * us / period`, in whole numbers.
fn within(quota: &Quota, cells: i64, capacity: i64, us: i64) -> bool {
    let period_us = quota.period().as_us() as i128;
    cells as i128 * period_us <= capacity as i128 * period_us + quota.limit() as i128 * us as i128
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn admitted_minus_refunded_stays_within_capacity_plus_rate(
        quota in quota(),
        events in steady(spending()),
    ) {
        let mut ledger = Vec::new();
        play(quota, &events, |_, called, passed_us| ledger.push(Entry { at_us: passed_us, cells: cells_taken(called) }));
        for (from, first) in ledger.iter().enumerate() {
            let mut admitted = 0;
            for last in &ledger[from..] {
                admitted += last.cells;
                prop_assert!(
                    within(&quota, admitted, quota.capacity() as i64, last.at_us - first.at_us),
                    "{admitted} cells from {} us to {} us of {quota:?}", first.at_us, last.at_us
                );
            }
        }
    }

    /// A reserved cell is admitted when its turn comes. Turns are whole microseconds, so an interval counts as one
    /// longer. A refund that comes while turns are booked may be for any of them: it counts until the last of them.
    #[test]
    fn reserved_cells_are_spread_to_keep_the_rate(quota in quota(), events in steady(anything())) {
        struct Refund { from_us: i64, until_us: i64, cells: i64 }
        let mut turns: Vec<Entry> = Vec::new();
        let mut refunds: Vec<Refund> = Vec::new();
        let mut last_turn_us = 0;
        play(quota, &events, |_, called, passed_us| {
            let cells = cells_taken(called);
            if cells < 0 {
                refunds.push(Refund { from_us: passed_us, until_us: last_turn_us.max(passed_us), cells: -cells });
            } else if cells > 0 {
                let reserved = matches!(called.ask, Ask::Reserve { .. });
                let wait_us = if reserved { exactly(called.verdict.binding().retry_after) } else { 0 };
                last_turn_us = last_turn_us.max(passed_us + wait_us);
                turns.push(Entry { at_us: passed_us + wait_us, cells });
            }
        });
        turns.sort_by_key(|turn| turn.at_us);
        for (from, first) in turns.iter().enumerate() {
            let mut refunds = refunds.iter().filter(|refund| refund.until_us >= first.at_us).peekable();
            let mut net = 0;
            for last in &turns[from..] {
                net += last.cells;
                while let Some(refund) = refunds.next_if(|refund| refund.from_us <= last.at_us) {
                    net -= refund.cells;
                }
                prop_assert!(
                    within(&quota, net, quota.capacity() as i64, last.at_us - first.at_us + 1),
                    "{net} cells from {} us to {} us of {quota:?}", first.at_us, last.at_us
                );
            }
        }
    }

    /// Time here is what really passed. Setting the clock back admits nothing extra; setting it forward refills as if
    /// the time had passed, so at most one bucket, and what was reserved on top of it.
    #[test]
    fn a_clock_step_costs_at_most_one_bucket(quota in quota(), events in unsteady(anything())) {
        let mut ledger = Vec::new();
        let mut steps = 0;
        let mut wall_less_real_us = None;
        let mut booked_us = 0;
        play(quota, &events, |key, called, passed_us| {
            let offset_us = key.now_us - passed_us;
            steps += wall_less_real_us.replace(offset_us).is_some_and(|before| offset_us > before) as i64;
            if let Ask::Reserve { within, .. } = called.ask {
                booked_us = booked_us.max(within.as_us());
            }
            ledger.push((Entry { at_us: passed_us, cells: cells_taken(called) }, steps));
        });
        // What can be booked beyond the capacity, in whole cells, rounded up; it is remembered in milliseconds.
        let booked = (booked_us as i128 + 1_000) * quota.limit() as i128 / quota.period().as_us() as i128 + 1;
        let bucket = quota.capacity() as i64 + if booked_us > 0 { booked as i64 } else { 0 };
        for (from, (first, steps_before)) in ledger.iter().enumerate() {
            let mut admitted = 0;
            for (last, steps) in &ledger[from..] {
                admitted += last.cells;
                let buckets = 1 + steps - steps_before;
                prop_assert!(
                    within(&quota, admitted, bucket * buckets, last.at_us - first.at_us),
                    "{admitted} cells from {} us to {} us with {} steps of {quota:?}",
                    first.at_us, last.at_us, steps - steps_before
                );
            }
        }
    }

    #[test]
    fn three_per_second_is_three_per_second_after_a_year(
        capacity in 2_000_000..3_000_000u32,
        pauses in prop::collection::vec(1..4 * DAY_US / 2, 200..=230),
    ) {
        let quota = Quota::new(3, Span::from_secs(1), capacity).expect("a valid rate");
        let year_us = 365 * DAY_US;
        let mut key = Key::new();
        let end_us = key.now_us + year_us;
        let mut admitted = 0;
        let mut pauses = pauses.iter().cycle();
        while key.now_us < end_us {
            admitted += key.call(&[quota], Ask::UpTo(capacity)).verdict.granted as i64;
            key.now_us = end_us.min(key.now_us + pauses.next().expect("a cycle"));
        }
        admitted += key.call(&[quota], Ask::UpTo(capacity)).verdict.granted as i64;
        prop_assert_eq!(admitted, 3 * (year_us / SECOND_US) + capacity as i64);
    }

    #[test]
    fn a_key_collected_in_time_is_not_missed(quota in quota(), events in steady(anything())) {
        let mut kept = Key::new();
        let mut collected = Key::new();
        for event in &events {
            kept.elapse(event, &quota);
            collected.elapse(event, &quota);
            let due_us = gc_at(&collected.tiers, 0).as_us();
            if collected.now_us >= due_us {
                collected.tiers.clear();
            }
            let ask = event.want.ask(&quota);
            prop_assert_eq!(kept.call(&[quota], ask).verdict, collected.call(&[quota], ask).verdict);
            let reset = kept.would(0, &[quota], Ask::Peek).binding().reset_after;
            let full_at = Instant::from_us(kept.now_us).plus(reset);
            prop_assert!(collected.tiers.is_empty() || gc_at(&collected.tiers, 0) >= full_at);
        }
    }

    #[test]
    fn a_reservation_never_waits_longer_than_it_said_it_would(quota in quota(), events in unsteady(anything())) {
        let mut failure = None;
        play(quota, &events, |_, called, _| {
            let Ask::Reserve { cells, within } = called.ask else { return };
            let granted = called.verdict.granted;
            let wait_us = exactly(called.verdict.binding().retry_after);
            let is_late = granted > 0 && (wait_us > within.as_us() || within > RESERVE_MAX);
            if is_late || (granted != 0 && granted != cells) {
                failure = Some((called.ask, granted, wait_us));
            }
        });
        prop_assert_eq!(failure, None);
    }
}
