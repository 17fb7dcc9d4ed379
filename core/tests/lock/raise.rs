//! RAISE: the holder's fence, the key's last and the server's floor in one edit, and for the holder only.

use proptest::collection::vec;
use proptest::prelude::*;
use resil_core::Instant;
use resil_core::lock::{HolderEdit, Raised, Released, check};
use resil_core::waited::Reason;

use super::key::{Acquired, JUMP, Key, SECOND, START, reader, writer};
use super::seed;

fn fence_of(raised: Raised) -> Option<u64> {
    match raised {
        Raised::Granted(grant) => Some(grant.fence),
        _ => None,
    }
}

#[test]
fn a_raised_fence_is_the_holders_keys_and_servers() {
    let mut key = Key::lock();
    let first = key.take("a", writer());
    let to = first + 5_000_000;
    assert_eq!(fence_of(key.raise("a", None, 20 * SECOND, to)), Some(to));
    assert!(matches!(key.edits.as_slice(), [HolderEdit::Raised(_)]), "one edit: {:?}", key.edits);
    let holder = key.holders.by_owner(b"a").expect("still held");
    assert_eq!((holder.fence, holder.ends.as_us()), (to, key.now + 20 * SECOND));
    assert_eq!((key.holders.last_fence(), key.floor.highest(), key.replica_floor.highest()), (to, to, to));
    assert!(!check(&key.holders, b"a", Some(first), None, Instant::from_us(key.now)), "the former fence names nothing");
    assert!(matches!(key.release("a", Some(to)), Released::Released { .. }));
    assert!(key.take("b", writer()) > to);
}

#[test]
fn a_lower_fence_only_renews() {
    let mut key = Key::lock();
    let first = key.take("a", writer());
    assert_eq!(fence_of(key.raise("a", Some(first), 20 * SECOND, first - 1)), Some(first));
    assert!(matches!(key.edits.as_slice(), [HolderEdit::Timed { .. }]));
    assert_eq!(key.floor.highest(), first);
}

#[test]
fn only_the_holder_raises_a_fence() {
    let mut key = Key::lock();
    assert_eq!(key.raise("a", None, SECOND, START as u64 + 5), Raised::Lost(Reason::Absent));
    let first = key.take("a", writer());
    assert_eq!(key.raise("b", None, SECOND, first + 5), Raised::Lost(Reason::Taken));
    assert_eq!(key.raise("a", Some(first - 1), SECOND, first + 5), Raised::Lost(Reason::Taken));
    key.now += 10 * SECOND;
    assert_eq!(key.raise("a", None, SECOND, first + 5), Raised::Lost(Reason::Expired));
    assert_eq!((key.holders.last_fence(), key.floor.highest()), (first, first), "nothing was raised");
}

#[test]
fn a_fence_beyond_two_jumps_is_refused_and_changes_nothing() {
    let mut key = Key::lock();
    let first = key.take("a", writer());
    let most = (key.now + 2 * JUMP) as u64;
    let before = key.bytes();
    assert!(matches!(key.raise("a", None, SECOND, most + 1_500), Raised::TooFarAhead(by) if by.as_us() == 1_500));
    assert_eq!((key.bytes(), key.floor.highest()), (before, first));
    assert_eq!(fence_of(key.raise("a", None, SECOND, most)), Some(most));
}

/// It puts nothing ahead, also on a server whose clock was set back since.
#[test]
fn a_fence_the_server_knows_is_never_too_far_ahead() {
    let mut key = Key::lock();
    let first = key.take("a", writer());
    key.now -= 3 * JUMP;
    assert_eq!(fence_of(key.raise("a", None, SECOND, first)), Some(first));
}

#[test]
fn a_reader_raises_no_fence() {
    let mut key = Key::lock();
    let first = key.take("a", reader());
    assert_eq!(key.raise("a", None, SECOND, first + 5), Raised::NotExclusive);
    assert_eq!(key.floor.highest(), first);
}

proptest! {
    #![proptest_config(seed::config())]

    /// Beside grants, releases, restarts and promotions; the key itself compares its replica after every step.
    #[test]
    fn fences_grow_whatever_is_raised_between(steps in vec((0..6u8, 0..3u8, 0..=3 * JUMP, 0..=12 * SECOND), 1..40)) {
        let mut key = Key::lock();
        let mut last = 0;
        for (what, owner, ahead, later) in steps {
            let owner = ["a", "b", "c"][owner as usize];
            key.now += later;
            match what {
                0 | 1 => {
                    let held = key.owners().contains(&owner.to_owned());
                    if let Acquired::Granted(grant) = key.ask(owner, writer()) {
                        prop_assert!(grant.fence > last || held && grant.fence == last, "{} after {last}", grant.fence);
                        last = grant.fence;
                    }
                }
                2 | 3 => {
                    let (to, highest) = ((key.now + ahead) as u64, key.floor.highest());
                    match key.raise(owner, None, 10 * SECOND, to) {
                        Raised::Granted(grant) => {
                            prop_assert!(grant.fence >= to && grant.fence >= last);
                            prop_assert!(ahead <= 2 * JUMP || to <= highest, "only what is known may be further ahead");
                            last = grant.fence;
                        }
                        Raised::TooFarAhead(_) => prop_assert!(ahead > 2 * JUMP),
                        Raised::Lost(_) | Raised::NotExclusive => {}
                    }
                }
                4 => drop(key.release(owner, None)),
                _ => key.restart(),
            }
            prop_assert!(key.floor.highest() >= key.holders.last_fence());
        }
    }
}
