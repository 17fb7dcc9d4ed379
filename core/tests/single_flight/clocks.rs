//! Clocks that are set back, promotions, servers that may not write.

use proptest::prelude::*;
use resil_core::single_flight::{Publication, Seen};
use resil_core::{Instant, Span};

use super::driver::Driver;
use super::gaps::{DAY, HOUR, JITTER, MINUTE, SECOND};
use super::key::{Key, Wish, now_or_never};
use super::schedule::wild;
use super::seed;

fn one(stale: i64) -> Publication {
    Publication::Value { bytes: b"one".as_slice().into(), stale: Span::from_us(stale) }
}

proptest! {
    #![proptest_config(seed::config())]

    /// Wherever the clock is set to, nothing lasts longer from now than its own length and a second.
    #[test]
    fn a_clock_set_back_costs_one_lease_or_ttl(events in wild()) {
        let mut driver = Driver::default();
        for event in &events {
            driver.play(event);
            driver.key.tick();
            let now = Instant::from_us(driver.key.now + JITTER);
            let flight = &driver.key.flight;
            if let Some(leader) = &flight.leader {
                prop_assert!(leader.ends <= now.plus(leader.lease));
            }
            if let Some(pause) = &flight.pause {
                prop_assert!(pause.until <= now.plus(pause.at.until(pause.until)));
            }
            if let Some(value) = &flight.value {
                prop_assert!(value.stale_until <= now.plus(value.at.until(value.stale_until)));
            }
        }
    }

    /// A step that is more than jitter is noticed at once, also where nothing may be written.
    #[test]
    fn followers_keep_their_remaining_wait_after_a_clock_set_back(
        wait in 1..=10 * MINUTE,
        back in JITTER + 1..=HOUR,
        writable: bool,
    ) {
        let mut key = Key::default();
        key.join("a", Wish { lease: DAY, ..now_or_never() });
        key.follow("b", wait);
        key.now -= back;
        if writable { key.tick() } else { key.give_up() }
        prop_assert_eq!(key.queue.first_deadline().map(Instant::as_us), Some(key.now + wait));
    }

    /// What was invalidated stays so, wherever the clock is set to: never again as fresh, after a hard one never at all.
    #[test]
    fn a_clock_set_back_brings_nothing_back_that_was_invalidated(
        ttl in 1..=MINUTE,
        stale in 0..=MINUTE,
        passed in 0..=3 * MINUTE,
        soft: bool,
        back in 0..=3 * MINUTE,
    ) {
        let mut key = Key::default();
        key.lead("a");
        key.publish("a", ttl, one(stale));
        key.now += passed;
        key.invalidate(soft);
        key.now -= back;
        for _ in 0..2 {
            let seen = key.look();
            prop_assert!(seen == Seen::Miss || soft && matches!(seen, Seen::Stale { .. }), "{:?}", seen);
            key.tick();
        }
    }

    #[test]
    fn a_lead_alive_at_promotion_gets_a_whole_lease(passed in 0..10 * SECOND, by in -50 * SECOND..=50 * SECOND) {
        let mut key = Key::default();
        key.lead("a");
        let end = key.now + 10 * SECOND;
        key.now += passed;
        key.promote(by);
        key.tick();
        let left = key.flight.leader.as_ref().map(|leader| leader.ends.as_us() - key.now);
        prop_assert_eq!(left.is_some(), end > key.now);
        prop_assert!(left.is_none_or(|left| (10 * SECOND..=11 * SECOND).contains(&left)));
    }
}

#[test]
fn a_value_from_years_ahead_is_not_kept_for_years() {
    let mut key = Key::default();
    key.now += 3_000 * DAY;
    key.lead("a");
    key.publish("a", MINUTE, one(MINUTE));
    key.later(-3_000 * DAY);
    key.now += MINUTE;
    assert!(matches!(key.look(), Seen::Stale { .. }));
    key.now += MINUTE;
    key.lead("b");
}

#[test]
fn a_pause_from_years_ahead_does_not_last_for_years() {
    let mut key = Key::default();
    key.now += 3_000 * DAY;
    key.lead("a");
    key.abandon("a", Some(MINUTE));
    key.later(-3_000 * DAY);
    key.now += MINUTE;
    key.lead("b");
}

#[test]
fn a_server_that_may_not_write_only_ends_patience() {
    let mut key = Key::default();
    key.lead("a");
    let short = key.follow("b", SECOND);
    let long = key.follow("c", MINUTE);
    let before = key.flight.clone();
    key.now += 20 * SECOND;
    key.give_up();
    assert_eq!((key.flight.clone(), key.open.clone()), (before, vec![long]));
    assert_eq!(key.answered(short), Seen::Busy { remaining: Span::ZERO });
}
