//! What an owner is notified of what it has, had and never had.

use super::key::Acquired;
use proptest::prelude::*;
use resil_core::Span;
use resil_core::lock::Released;
use resil_core::waited::{Reason, Renewed};

use super::key::{HOUR, Key, MINUTE, MS, SECOND, permit, reader, writer};
use super::seed;

const GRACE: i64 = 60 * SECOND;

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn asking_again_is_the_same_grant_and_no_shorter(
        first in 10 * MS..=MINUTE,
        passed in 0..10 * MS,
        second in 10 * MS..=MINUTE,
        bulkhead: bool,
    ) {
        let (mut key, wish) = if bulkhead { (Key::bulkhead(), permit(1)) } else { (Key::lock(), writer()) };
        let fence = key.take("a", wish.lease(first));
        let end = key.end_of("a");
        key.now += passed;
        prop_assert_eq!(key.take("a", wish.lease(second).waits(SECOND)), fence);
        prop_assert_eq!(key.end_of("a"), end.max(key.now + second));
        prop_assert_eq!(key.holders.len(), 1);
    }

    /// Whether or not somebody else has it by then, and with its fence or without.
    #[test]
    fn releasing_again_is_released_again_for_a_grace(later in 0..=2 * GRACE, taken: bool, names_fence: bool) {
        let mut key = Key::lock();
        let fence = key.take("a", writer());
        key.now += SECOND;
        let first = key.release("a", Some(fence));
        prop_assert_eq!(first, Released::Released { held: Span::from_secs(1) });
        if taken {
            key.take("b", writer().lease(HOUR));
        }
        key.now += later;
        let again = key.release("a", names_fence.then_some(fence));
        let gone = if taken { Reason::Taken } else { Reason::Absent };
        prop_assert_eq!(again, if later < GRACE { first } else { Released::Lost(gone) });
        prop_assert_eq!(key.owners(), if taken { vec!["b"] } else { vec![] });
    }
}

#[test]
fn the_own_end_is_named_first_else_taken_else_absent() {
    type EndIt = fn(&mut Key, u64);
    let ends: [(EndIt, Reason); 4] = [
        (|key, _| key.later(10 * SECOND), Reason::Expired),
        (|key, _| assert_eq!(key.break_all(), 1), Reason::Broken),
        (|key, fence| assert!(key.close(fence)), Reason::Closed),
        (|key, fence| assert!(key.take_back(fence)), Reason::Released),
    ];
    for (end, reason) in ends {
        let mut key = Key::lock();
        let fence = key.take("a", writer());
        end(&mut key, fence);
        assert_eq!(key.renew("a", None, SECOND), Renewed::Lost(reason));
        key.take("b", writer().lease(HOUR));
        assert_eq!(key.renew("a", Some(fence), SECOND), Renewed::Lost(reason), "even now that another has it");
        assert_eq!(key.renew("never here", None, SECOND), Renewed::Lost(Reason::Taken));
        key.later(GRACE);
        assert_eq!(key.renew("a", Some(fence), SECOND), Renewed::Lost(Reason::Taken));
        key.release("b", None);
        assert_eq!(key.renew("a", None, SECOND), Renewed::Lost(Reason::Absent));
    }
}

#[test]
fn a_permit_is_never_taken_by_another() {
    let mut key = Key::bulkhead();
    key.take("a", permit(3));
    assert_eq!(key.renew("never here", None, SECOND), Renewed::Lost(Reason::Absent));
}

#[test]
fn the_end_of_a_lease_is_remembered_at_its_time() {
    let mut key = Key::lock();
    key.take("a", writer());
    key.now += 10 * SECOND + GRACE - 1;
    assert_eq!(key.renew("a", None, SECOND), Renewed::Lost(Reason::Expired));
    key.now += 1;
    assert_eq!(key.renew("a", None, SECOND), Renewed::Lost(Reason::Absent));
}

#[test]
fn only_a_lone_reader_without_waiters_becomes_the_writer() {
    let mut key = Key::lock();
    let fence = key.take("a", reader());
    assert_eq!(key.take("a", writer()), fence);
    assert_eq!(key.writers(), 1);

    let mut key = Key::lock();
    key.take("a", reader());
    key.take("b", reader());
    assert_eq!(key.ask("a", writer()), Acquired::Conflict);
    assert_eq!(key.ask("a", writer().waits(MINUTE)), Acquired::Conflict);
    assert_eq!((key.writers(), key.edits.len()), (0, 0));
    key.release("b", None);
    let waits = key.queue_up("c", writer().waits(MINUTE));
    assert_eq!(key.ask("a", writer()), Acquired::Conflict);
    key.leave(waits);
    key.take("a", writer());
    assert_eq!(key.writers(), 1);
}

#[test]
fn another_reader_with_an_ended_lease_is_no_deadlock() {
    let mut key = Key::lock();
    key.take("a", reader().lease(HOUR));
    key.take("b", reader());
    key.now += 10 * SECOND;
    key.take("a", writer());
    assert_eq!((key.owners(), key.writers()), (vec!["a".into()], 1));
}

#[test]
fn a_downgrade_lets_in_readers_up_to_the_next_writer() {
    let mut key = Key::lock();
    let fence = key.take("a", writer());
    key.queue_up("b", reader().waits(MINUTE));
    key.queue_up("c", reader().waits(MINUTE));
    key.queue_up("d", writer().waits(MINUTE));
    key.queue_up("e", reader().waits(MINUTE));
    assert_eq!(key.take("a", reader()), fence);
    assert_eq!(key.served(), ["b", "c"]);
    assert_eq!((key.owners().len(), key.queued()), (3, vec!["d".into(), "e".into()]));
}

#[test]
fn a_renewal_ends_the_lease_a_lease_from_now() {
    let mut key = Key::lock();
    let fence = key.take("a", writer());
    for lease in [MINUTE, SECOND] {
        let Renewed::Granted(grant) = key.renew("a", Some(fence), lease) else { panic!("it holds") };
        assert_eq!((grant.fence, grant.lease.as_us(), key.end_of("a")), (fence, lease, key.now + lease));
    }
}

#[test]
fn a_bound_lease_is_never_cut_nor_too_long() {
    let mut key = Key::lock();
    let fence = key.take("a", writer());
    let end = key.end_of("a");
    assert!(key.extend(fence, end - 1) && key.edits.is_empty());
    key.later(5 * SECOND);
    assert!(key.extend(fence, end + HOUR));
    assert_eq!(key.end_of("a"), key.now + 10 * SECOND);
    // Within its jitter the clock may run back: the end stays, though it is more than a lease away now.
    let end = key.end_of("a");
    key.now -= SECOND / 2;
    assert!(key.extend(fence, end + 1));
    assert_eq!(key.end_of("a"), end);
}

#[test]
fn a_break_ends_every_holding_and_serves_the_queue() {
    let mut key = Key::lock();
    for name in ["a", "b", "c"] {
        key.take(name, reader());
    }
    key.queue_up("d", writer().waits(MINUTE));
    assert_eq!(key.break_all(), 3);
    assert_eq!((key.endings.len(), key.served(), key.owners()), (3, vec!["d".into()], vec!["d".into()]));
}
