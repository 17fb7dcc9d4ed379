//! The grace of a bound holding: what the close of its connection leaves to its owner.

use resil_core::waited::{Reason, Renewed};

use super::key::{HOUR, Key, MINUTE, SECOND, reader, writer};

fn renewed(verdict: Renewed) -> u64 {
    match verdict {
        Renewed::Granted(grant) => grant.fence,
        Renewed::Lost(reason) => panic!("{}", reason.text()),
    }
}

#[test]
fn a_close_cuts_the_lease_to_the_grace() {
    let mut key = Key::lock();
    let fence = key.take("a", writer().lease(HOUR));
    key.queue_up("b", writer().waits(HOUR));
    assert!(key.cut(fence, 3 * SECOND, key.now), "it still holds");
    assert_eq!((key.wake, key.served()), (Some(key.now + 3 * SECOND), vec![]));
    key.later(3 * SECOND - 1);
    assert_eq!((key.owners(), key.served()), (vec!["a".into()], vec![]));
    key.later(1);
    assert_eq!((key.owners(), key.served()), (vec!["b".into()], vec!["b".into()]));
    assert_eq!(key.renew("a", Some(fence), HOUR), Renewed::Lost(Reason::Expired));
}

#[test]
fn within_the_grace_its_owner_keeps_the_same_fence() {
    let mut key = Key::lock();
    let fence = key.take("a", writer().lease(HOUR));
    key.queue_up("b", writer().waits(HOUR));
    key.cut(fence, 3 * SECOND, key.now);
    key.later(2 * SECOND);
    assert_eq!(renewed(key.renew("a", Some(fence), HOUR)), fence);
    key.later(MINUTE);
    assert_eq!((key.owners(), key.end_of("a")), (vec!["a".into()], key.now - MINUTE + HOUR));
}

#[test]
fn a_grace_longer_than_the_lease_changes_nothing() {
    let mut key = Key::lock();
    let fence = key.take("a", writer().lease(2 * SECOND));
    key.cut(fence, 3 * SECOND, key.now);
    assert_eq!((key.edits.len(), key.end_of("a")), (0, key.now + 2 * SECOND));
}

#[test]
fn the_grace_counts_from_the_close_however_late_noticed() {
    let mut key = Key::lock();
    let fence = key.take("a", writer().lease(HOUR));
    key.queue_up("b", writer().waits(HOUR));
    key.now += MINUTE;
    assert!(!key.cut(fence, 3 * SECOND, key.now - 10 * SECOND), "it has ended 7 seconds ago");
    assert_eq!(key.served(), ["b"]);
}

#[test]
fn only_the_holding_that_hung_on_the_connection_is_cut() {
    let mut key = Key::lock();
    let fence = key.take("a", reader().lease(HOUR));
    key.take("b", reader().lease(HOUR));
    key.cut(fence, 3 * SECOND, key.now);
    key.later(3 * SECOND);
    assert_eq!(key.owners(), ["b"]);
    assert!(!key.cut(fence, 3 * SECOND, key.now), "it holds no more");
}

/// A lease that lives at a promotion starts anew there. One that was cut after it does not, and one that was cut before
/// it starts its grace anew.
#[test]
fn a_promotion_renews_the_grace_not_the_cut_lease() {
    let mut key = Key::lock();
    let fence = key.take("a", writer().lease(HOUR));
    key.promote(0);
    key.later(SECOND);
    key.cut(fence, 3 * SECOND, key.now);
    key.later(3 * SECOND);
    assert!(key.owners().is_empty(), "cut after the promotion");

    let fence = key.take("a", writer().lease(HOUR));
    key.cut(fence, 3 * SECOND, key.now);
    key.promote(SECOND);
    key.later(3 * SECOND - 1);
    assert_eq!(key.owners(), ["a"]);
    key.later(1);
    assert!(key.owners().is_empty(), "cut before the promotion");
}
