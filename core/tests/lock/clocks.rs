//! Clocks that are set back, promotions, and things that end at one instant.

use proptest::collection::vec;
use proptest::prelude::*;
use resil_core::Instant;
use resil_core::lock::{Released, lives};

use super::driver::Driver;
use super::key::{HOUR, Key, MINUTE, MS, SECOND, permit, reader, writer};
use super::schedule::wild;
use super::seed;

const JITTER: i64 = SECOND;

proptest! {
    #![proptest_config(seed::config())]

    /// Wherever the clock is set to, no lease lies further ahead than its own length and a second.
    #[test]
    fn a_clock_set_back_costs_at_most_one_lease(bulkhead: bool, events in wild()) {
        let mut driver = Driver::new(bulkhead);
        for event in &events {
            driver.play(event);
            driver.key.tick();
            let now = driver.key.now;
            for holder in driver.key.holders.iter() {
                prop_assert!(holder.ends.as_us() <= now + holder.lease().as_us() + JITTER, "{:?} at {}", holder, now);
            }
        }
    }

    /// The same where holders are many and the clock goes back so little each time that no single step tells.
    #[test]
    fn many_small_steps_back_freeze_nobody(readers in 1..5usize, steps in vec(1..=JITTER, 200..=210)) {
        let mut key = Key::lock();
        for name in ["a", "b", "c", "d"].iter().take(readers) {
            key.take(name, reader());
        }
        for step in steps {
            key.later(-step);
        }
        for holder in key.holders.iter() {
            prop_assert!(holder.ends.as_us() <= key.now + 10 * SECOND + JITTER);
        }
    }

    /// A step that is more than jitter is noticed at once: what was left to wait is left to wait.
    #[test]
    fn waiters_keep_their_remaining_wait_after_a_clock_set_back(
        waits in vec(1..=10 * MINUTE, 1..6),
        before in 0..=MINUTE,
        back in JITTER + 1..=HOUR,
        writable: bool,
    ) {
        let mut key = Key::lock();
        key.take("holder", writer().lease(24 * HOUR));
        for (at, wait) in waits.iter().enumerate() {
            key.queue_up(&format!("waiter {at}"), writer().waits(MINUTE + wait));
        }
        let look = |key: &mut Key| if writable { key.tick() } else { key.give_up() };
        key.now += before;
        look(&mut key);
        let left: Vec<i64> = key.queue.waiters().map(|waiter| waiter.deadline.as_us() - key.now).collect();
        let waited: Vec<i64> = key.queue.waiters().map(|waiter| key.now - waiter.since.as_us()).collect();
        key.now -= back;
        look(&mut key);
        let still: Vec<i64> = key.queue.waiters().map(|waiter| waiter.deadline.as_us() - key.now).collect();
        prop_assert_eq!(still, left);
        prop_assert_eq!(key.queue.waiters().map(|waiter| key.now - waiter.since.as_us()).collect::<Vec<_>>(), waited);
    }

    /// One, or several: who lives at the promotion has a whole lease from there, who does not is gone, and nobody has
    /// less than before.
    #[test]
    fn a_lease_alive_at_promotion_gets_a_whole_lease(
        leases in vec(10 * MS..=MINUTE, 1..6),
        passed in 0..=MINUTE,
        by in -50 * SECOND..=50 * SECOND,
        until_the_first_look in 0..=5 * SECOND,
    ) {
        let mut key = Key::lock();
        for (at, lease) in leases.iter().enumerate() {
            key.take(&format!("reader {at}"), reader().lease(*lease));
        }
        key.now += passed;
        let before = key.holders.clone();
        key.promote(by);
        let promoted = key.now;
        key.later(until_the_first_look);
        for holder in before.iter() {
            let name = String::from_utf8_lossy(holder.owner()).into_owned();
            let (lease, end) = (holder.lease().as_us(), holder.ends.as_us());
            // A clock that is behind makes of a lease no more than a lease.
            let right = if end <= promoted { 0 } else { (promoted + lease).max(end.min(key.now + lease + JITTER)) };
            let right = if right <= key.now { 0 } else { right };
            let (now, promoted_at) = (Instant::from_us(key.now), Some(Instant::from_us(promoted)));
            prop_assert_eq!(lives(holder, promoted_at, now), right > 0, "a replica's eyes see the same");
            if end <= promoted + lease + JITTER {
                prop_assert_eq!(key.end_of(&name), right, "{} of {}", name, lease);
            } else {
                prop_assert!(key.end_of(&name) <= key.now + lease + JITTER);
            }
        }
    }
}

#[test]
fn a_clock_set_back_before_promotion_lengthens_leases_only_once() {
    for readers in [1, 3] {
        let mut key = Key::lock();
        key.promote(0);
        for name in ["a", "b", "c"].iter().take(readers) {
            key.take(name, reader().lease(HOUR));
        }
        key.later(-10 * MINUTE);
        let end = key.end_of("a");
        assert!(end <= key.now + HOUR + JITTER);
        for _ in 0..5 {
            key.later(MINUTE);
            assert_eq!(key.end_of("a"), end, "nobody renewed it");
            assert!(key.edits.is_empty());
        }
    }
}

#[test]
fn a_promotion_does_not_revive_an_ended_lease() {
    let mut key = Key::lock();
    key.take("a", writer());
    key.now += 10 * SECOND;
    key.promote(0);
    key.take("b", writer());
    assert_eq!(key.endings[0].owner.as_ref(), b"a");
}

#[test]
fn after_a_clock_set_back_dead_holders_block_one_lease() {
    let mut key = Key::lock();
    key.take("dead", writer());
    key.later(-HOUR);
    key.queue_up("next", writer().waits(MINUTE));
    key.later(10 * SECOND);
    assert_eq!(key.served(), ["next"]);
}

#[test]
fn when_lease_and_wait_end_together_the_waiter_is_granted() {
    for late in [0, 1, SECOND, HOUR] {
        let mut key = Key::lock();
        key.take("holder", writer());
        key.queue_up("waiter", writer().waits(10 * SECOND));
        key.later(10 * SECOND + late);
        assert_eq!((key.served(), key.timed_out()), (vec!["waiter".into()], vec![]), "looked at {late} late");
    }
}

#[test]
fn a_grant_at_the_waits_last_instant_stands() {
    let mut key = Key::lock();
    key.take("holder", writer().lease(HOUR));
    key.queue_up("waiter", writer().waits(10 * SECOND));
    key.now += 10 * SECOND;
    assert!(matches!(key.release("holder", None), Released::Released { .. }));
    assert_eq!(key.served(), ["waiter"]);
}

#[test]
fn a_caller_that_had_given_up_is_never_served_later() {
    let mut key = Key::lock();
    key.take("holder", writer());
    let impatient = key.queue_up("impatient", writer().waits(10 * SECOND - 1));
    key.queue_up("patient", writer().waits(10 * SECOND));
    key.later(HOUR);
    assert_eq!((key.timed_out(), key.served()), (vec![impatient], vec!["patient".into()]));
}

#[test]
fn readers_enter_when_the_writer_before_them_gives_up() {
    for late in [0, 1, HOUR] {
        let mut key = Key::lock();
        key.take("first", reader().lease(24 * HOUR));
        let writes = key.queue_up("writer", writer().waits(5 * SECOND));
        key.queue_up("second", reader().waits(10 * SECOND));
        key.queue_up("third", reader().waits(5 * SECOND));
        key.later(5 * SECOND + late);
        assert_eq!(key.timed_out(), [writes], "looked at {late} late");
        assert_eq!(key.served(), ["second", "third"], "looked at {late} late");
    }
}

#[test]
fn a_caller_with_a_smaller_max_blocks_nobody() {
    let mut key = Key::bulkhead();
    key.take("first", permit(5).lease(HOUR));
    key.queue_up("modest", permit(1).waits(5 * SECOND));
    key.take("second", permit(5).waits(MINUTE));
    assert_eq!(
        (key.served(), key.owners()),
        (vec!["modest".into()], vec!["first".into(), "modest".into(), "second".into()])
    );
}

#[test]
fn while_nothing_may_be_written_only_patience_ends() {
    let mut key = Key::lock();
    key.take("holder", writer());
    let impatient = key.queue_up("impatient", writer().waits(5 * SECOND));
    key.queue_up("patient", writer().waits(MINUTE));
    key.now += 20 * SECOND;
    key.give_up();
    assert_eq!((key.timed_out(), key.edits.len(), key.owners()), (vec![impatient], 0, vec!["holder".into()]));
    key.tick();
    assert_eq!(key.served(), ["patient"]);
}
