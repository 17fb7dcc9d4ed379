//! Clocks that are set back, promotions, servers that may not write.

use proptest::prelude::*;
use resil_core::idempotency::{Record, Settled, WorkPhase};
use resil_core::{Instant, Span};

use super::driver::Driver;
use super::gaps::{DAY, HOUR, JITTER, MINUTE, SECOND};
use super::key::{Key, work};
use super::schedule::wild;
use super::seed;

/// What is left of a record, and its whole length: a lease, a time to live, a KEEP.
fn left_of(record: &Record, now: i64) -> Option<(i64, i64)> {
    let now = Instant::from_us(now);
    match record {
        Record::Nothing => None,
        Record::Once(once) => Some((now.until(once.until).as_us(), once.at.until(once.until).as_us())),
        Record::Work(work) => Some(match &work.phase {
            WorkPhase::Running { lease, ends, .. } => (now.until(*ends).as_us(), lease.as_us()),
            WorkPhase::Idle { .. } => (now.until(work.kept_until()).as_us(), work.keep.as_us()),
            WorkPhase::Done { at, until, .. } => (now.until(*until).as_us(), at.until(*until).as_us()),
        }),
    }
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
            if let Some((left, whole)) = left_of(&driver.key.record, driver.key.now) {
                prop_assert!(left <= whole + JITTER, "{:?} at {}", driver.key.record, driver.key.now);
            }
        }
    }

    /// A step that is more than jitter is noticed at once, also where nothing may be written.
    #[test]
    fn waiters_keep_their_remaining_wait_after_a_clock_set_back(
        wait in 1..=10 * MINUTE,
        back in JITTER + 1..=HOUR,
        writable: bool,
    ) {
        let mut key = Key::default();
        key.run("a", work().lease(DAY));
        key.queue_up("b", work().waits(wait));
        key.now -= back;
        if writable { key.tick() } else { key.give_up() }
        prop_assert_eq!(key.queue.first_deadline().map(Instant::as_us), Some(key.now + wait));
    }

    #[test]
    fn a_lease_alive_at_promotion_gets_a_whole_lease(
        lease in SECOND..=MINUTE,
        passed in 0..=MINUTE,
        by in -50 * SECOND..=50 * SECOND,
    ) {
        let mut key = Key::default();
        key.run("a", work().lease(lease));
        let end = key.now + lease;
        key.now += passed.min(lease - 1);
        key.promote(by);
        let reported = key.reported_or_run("b");
        match reported {
            Some(Settled::Busy { remaining, .. }) => {
                prop_assert!(end > key.now);
                prop_assert!((lease..=lease + JITTER).contains(&remaining.as_us()));
            }
            other => prop_assert!(other.is_none() && end <= key.now, "{:?}", other),
        }
    }
}

impl Key {
    fn reported_or_run(&mut self, token: &str) -> Option<Settled> {
        match self.begin(token, work()) {
            super::key::Begun::Refused(settled) => Some(settled),
            _ => None,
        }
    }
}

#[test]
fn a_result_from_years_ahead_is_not_kept_for_years() {
    let mut key = Key::default();
    key.now += 3_000 * DAY;
    key.run("a", work());
    key.commit_with("a", MINUTE, None, false);
    key.later(-3_000 * DAY);
    key.now += MINUTE;
    assert_eq!(key.run("b", work()).attempt, 1);
}

#[test]
fn an_event_from_years_ahead_is_not_seen_for_years() {
    let mut key = Key::default();
    key.now += 3_000 * DAY;
    assert_eq!(key.once("", MINUTE), Ok(true));
    key.now -= 3_000 * DAY;
    assert_eq!(key.once("", MINUTE), Ok(false), "it costs one ttl");
    key.now += MINUTE;
    assert_eq!(key.once("", MINUTE), Ok(true));
}

#[test]
fn a_record_from_years_ahead_is_not_held_for_years() {
    let mut key = Key::default();
    key.now += 3_000 * DAY;
    key.run("a", work().or_hold().keep(HOUR));
    key.later(10 * SECOND);
    key.later(-3_000 * DAY);
    key.now += HOUR;
    assert_eq!(key.run("b", work()).attempt, 1);
}

#[test]
fn a_server_that_may_not_write_only_ends_patience() {
    let mut key = Key::default();
    key.run("a", work());
    let [short, long] = [SECOND, MINUTE].map(|wait| key.queue_up(&format!("waits {wait}"), work().waits(wait)));
    let before = key.record.clone();
    key.now += 20 * SECOND;
    key.give_up();
    assert_eq!((key.record.clone(), key.open.clone()), (before, vec![long]));
    assert!(matches!(key.answered(short), Settled::Busy { attempt: 1, .. }));
}

#[test]
fn a_lapse_after_a_promotion_held_the_run_until_then() {
    let mut key = Key::default();
    key.run("a", work());
    key.now += 9 * SECOND;
    key.promote(0);
    key.later(MINUTE);
    assert_eq!(key.endings.iter().map(|end| end.held.as_us()).collect::<Vec<_>>(), [19 * SECOND]);
}

#[test]
fn after_a_promotion_a_look_sees_a_briefly_kept_run() {
    let mut key = Key::default();
    key.run("a", work().of("f").keep(SECOND));
    key.now += 9 * SECOND;
    key.promote(0);
    // The end that is stored, and what is kept after it, are over; nobody has taken a step yet.
    key.now += 5 * SECOND;
    assert_eq!(key.look("f"), Settled::Busy { remaining: Span::from_us(5 * SECOND), attempt: 1 });
    assert_eq!(key.look("other"), Settled::Mismatch);
    let seen = key.look("f");
    key.tick();
    assert_eq!(key.look("f"), seen, "the step finds the same");
}
