//! Fences only grow; nothing done with an old one is mistaken for the present holder's.

use proptest::collection::vec;
use proptest::prelude::*;
use resil_core::lock::{Released, check};
use resil_core::waited::fence::Floor;
use resil_core::waited::{Reason, Renewed};
use resil_core::{Instant, Span};

use super::driver::Driver;
use super::key::{HOUR, JUMP, Key, MINUTE, SECOND, writer};
use super::schedule::wild;
use super::seed;

proptest! {
    #![proptest_config(seed::config())]

    /// Over expiry, deletion, restart, promotion, and clocks that are set back by an hour.
    #[test]
    fn fences_of_a_key_grow_strictly_whatever_happens_to_it(bulkhead: bool, events in wild()) {
        let mut driver = Driver::new(bulkhead);
        for event in &events {
            driver.play(event);
        }
        prop_assert!(driver.fences.is_sorted_by(|earlier, later| earlier < later));
    }

    /// The new primary never heard of the last grants; its clock differs by less than the jump.
    #[test]
    fn fences_grow_over_a_failover_that_loses_the_last_grants(
        gaps in vec(1..=SECOND, 200..=210),
        lost in 0..100usize,
        by in -JUMP / 2..=JUMP / 2,
    ) {
        let mut now = super::key::START;
        let (mut old, mut new) = (Floor::default(), Floor::default());
        let heard = gaps.len() - lost;
        let mut last = 0;
        for (at, gap) in gaps.into_iter().enumerate() {
            now += gap;
            let fence = old.issue(0, Instant::from_us(now));
            prop_assert!(fence > last);
            last = fence;
            if at < heard {
                new.heard_of(fence);
            }
        }
        new.jump(Span::from_us(JUMP), Instant::from_us(now + by));
        prop_assert!(new.issue(0, Instant::from_us(now + by)) > last);
    }

    /// A lease that ended is not renewed, no matter who has the permit now, and by whatever name of it.
    #[test]
    fn a_renewal_never_revives_what_has_ended(late in 0..=HOUR, taken: bool, names_fence: bool) {
        let mut key = Key::lock();
        let fence = key.take("a", writer());
        key.now += 10 * SECOND + late;
        if taken {
            key.take("b", writer());
        }
        let before = key.end_of("b");
        let lost = key.renew("a", names_fence.then_some(fence), HOUR);
        prop_assert!(matches!(lost, Renewed::Lost(_)), "{:?}", lost);
        prop_assert_eq!(key.owners(), if taken { vec!["b"] } else { vec![] });
        prop_assert_eq!(key.end_of("b"), before);
        prop_assert!(!key.extend(fence, key.now + HOUR) && !key.close(fence) && !key.take_back(fence));
        prop_assert_eq!(key.end_of("b"), before);
    }
}

#[test]
fn a_stale_fence_releases_nothing_even_for_the_holder() {
    let mut key = Key::lock();
    let old = key.take("a", writer());
    key.break_all();
    let new = key.take("a", writer());
    assert_eq!(key.release("a", Some(old)), Released::Lost(Reason::Broken));
    assert_eq!(key.renew("a", Some(old), SECOND), Renewed::Lost(Reason::Broken));
    assert_eq!(key.release("a", Some(old - 1)), Released::Lost(Reason::Taken));
    assert_eq!(key.owners(), ["a"]);
    assert!(matches!(key.release("a", Some(new)), Released::Released { .. }));
}

#[test]
fn check_is_true_for_holder_and_fence_within_the_lease() {
    let mut key = Key::lock();
    let fence = key.take("a", writer());
    let ask = |owner: &[u8], fence, now| check(&key.holders, owner, fence, None, Instant::from_us(now));
    assert!(ask(b"a", None, key.now) && ask(b"a", Some(fence), key.now + 10 * SECOND - 1));
    assert!(!ask(b"a", Some(fence - 1), key.now) && !ask(b"b", None, key.now));
    assert!(!ask(b"a", None, key.now + 10 * SECOND));
}

#[test]
fn a_restart_leaves_a_gap_once_and_keeps_every_holding() {
    let mut key = Key::lock();
    let fence = key.take("a", writer());
    key.restart();
    assert_eq!(key.take("a", writer()), fence, "the same grant");
    key.release("a", None);
    let after = key.take("b", writer());
    assert!(after > fence + MINUTE as u64);
    key.release("b", None);
    assert_eq!(key.take("c", writer()), after + 1);
}
