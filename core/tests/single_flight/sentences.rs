//! What single flight promises, one sentence after the other, each with the smallest story that shows it.

use super::key::{Joined, LeadReply};
use resil_core::Span;
use resil_core::single_flight::{Abandoned, Publication, Published, Seen};
use resil_core::waited::{End, Reason, Renewed};

use super::gaps::{HOUR, MINUTE, SECOND};
use super::key::{Key, Wish, now_or_never, waits};

fn value(bytes: &str) -> Publication {
    stale_for(bytes, 0)
}

fn stale_for(bytes: &str, stale: i64) -> Publication {
    Publication::Value { bytes: bytes.as_bytes().into(), stale: Span::from_us(stale) }
}

fn error(text: &str) -> Publication {
    Publication::Error { text: text.as_bytes().into() }
}

fn fresh(bytes: &str, age: i64, fresh: i64) -> Seen {
    Seen::Value { bytes: bytes.as_bytes().into(), age: Span::from_us(age), fresh: Span::from_us(fresh) }
}

fn stale(bytes: &str, age: i64) -> Seen {
    Seen::Stale { bytes: bytes.as_bytes().into(), age: Span::from_us(age) }
}

fn failed(text: &str) -> Seen {
    Seen::Error { text: text.as_bytes().into() }
}

fn busy(remaining: i64) -> Seen {
    Seen::Busy { remaining: Span::from_us(remaining) }
}

fn published(followers: usize) -> Published {
    Published::Published { followers }
}

/// Something that ends the lead with this fence.
type Ends = fn(&mut Key, u64);

/// A key that "a" loaded: fresh for a minute, and stale for another.
fn loaded() -> Key {
    let mut key = Key::default();
    key.lead("a");
    key.publish("a", MINUTE, stale_for("one", MINUTE));
    key
}

#[test]
fn one_leads_and_everybody_gets_what_it_loaded() {
    let mut key = Key::default();
    key.lead("a");
    let ids = ["b", "c", "d"].map(|token| key.follow(token, 5 * SECOND));
    key.now += SECOND;
    assert_eq!(key.reported("e"), busy(9 * SECOND));
    assert_eq!(key.publish("a", MINUTE, value("one")), published(3));
    for id in ids {
        assert_eq!(key.answered(id), fresh("one", 0, MINUTE));
    }
    key.now += SECOND;
    assert_eq!(key.reported("e"), fresh("one", SECOND, MINUTE - SECOND));
}

#[test]
fn join_by_the_leading_token_is_the_same_lead_again() {
    let mut key = Key::default();
    let first = key.lead("a");
    key.now += SECOND;
    let again = key.lead("a");
    assert_eq!((again.fence, again.lease.as_us()), (first.fence, 10 * SECOND));
    let Joined::Granted(shorter) = key.join("a", Wish { lease: SECOND, ..now_or_never() }) else { panic!("it leads") };
    assert_eq!(shorter.lease.as_us(), 10 * SECOND, "a lease never ends earlier than was promised");
}

#[test]
fn a_followers_wait_is_its_own() {
    let mut key = Key::default();
    key.lead("a");
    let long = key.follow("b", 5 * SECOND);
    let short = key.follow("c", SECOND);
    key.later(SECOND);
    assert_eq!((key.answered(short), key.open.clone()), (busy(9 * SECOND), vec![long]));
    key.later(4 * SECOND);
    assert_eq!(key.answered(long), busy(5 * SECOND));
    key.lead("a");
    let impatient = key.follow("b", SECOND);
    let patient = key.follow("c", MINUTE);
    key.later(30 * SECOND);
    assert_eq!(key.answered(impatient), busy(0), "it had given up before the lead was free, however late this is");
    key.answered_lead(patient);
}

#[test]
fn a_dead_or_cancelled_leader_never_fails_its_followers() {
    let ends: [Ends; 5] = [
        |key, _| key.later(10 * SECOND),
        |key, _| assert_eq!(key.abandon("a", None), Abandoned::Abandoned),
        |key, fence| assert!(key.close(fence)),
        |key, fence| assert!(key.take_back(fence)),
        |key, _| assert!(key.invalidate(false)),
    ];
    for end in ends {
        let mut key = Key::default();
        let fence = key.lead("a").fence;
        let [first, second] = ["b", "c"].map(|token| key.follow(token, MINUTE));
        end(&mut key, fence);
        assert!(key.answered_lead(first).fence > fence);
        assert_eq!((key.replies.len(), key.open.clone()), (1, vec![second]), "one leads, the other goes on waiting");
        assert_eq!(key.publish("b", MINUTE, value("one")), published(1));
        assert_eq!(key.answered(second), fresh("one", 0, MINUTE));
    }
}

#[test]
fn what_a_void_leader_loaded_is_never_seen() {
    let ends: [(Ends, Reason); 4] = [
        (|key, _| key.later(10 * SECOND), Reason::Expired),
        (|key, fence| assert!(key.close(fence)), Reason::Closed),
        (|key, _| assert!(key.invalidate(false)), Reason::Invalidated),
        (|key, _| assert!(key.invalidate(true)), Reason::Invalidated),
    ];
    for (end, reason) in ends {
        let mut key = Key::default();
        let fence = key.lead("a").fence;
        end(&mut key, fence);
        assert_eq!(key.publish("a", MINUTE, value("void")), Published::Lost(reason));
        assert_eq!(key.renew("a", SECOND), Renewed::Lost(reason));
        assert_eq!(key.look(), Seen::Miss);
        key.lead("b");
        let follows = key.follow("c", MINUTE);
        assert_eq!(key.publish("a", MINUTE, value("void")), Published::Lost(reason), "superseded, too");
        assert_eq!(key.abandon("a", None), Abandoned::Lost(reason));
        key.publish("b", MINUTE, value("good"));
        assert_eq!(key.answered(follows), fresh("good", 0, MINUTE));
        assert_eq!(key.publish("a", MINUTE, value("void")), Published::Lost(reason), "and long after");
        assert_eq!(key.reported("d"), fresh("good", 0, MINUTE));
    }
}

#[test]
fn a_token_that_never_led_has_nothing_to_say() {
    let mut key = Key::default();
    assert_eq!(key.publish("x", MINUTE, value("forged")), Published::Lost(Reason::Absent));
    key.lead("a");
    assert_eq!(key.publish("x", MINUTE, value("forged")), Published::Lost(Reason::Taken));
    assert_eq!(key.abandon("x", Some(HOUR)), Abandoned::Lost(Reason::Taken));
    assert_eq!(key.renew("x", HOUR), Renewed::Lost(Reason::Taken));
}

#[test]
fn stale_is_served_only_inside_its_time() {
    let mut key = loaded();
    key.now += MINUTE - 1;
    assert_eq!(key.look(), fresh("one", MINUTE - 1, 1));
    key.now += 1;
    assert_eq!(key.look(), stale("one", MINUTE));
    key.now += MINUTE - 1;
    assert_eq!(key.look(), stale("one", 2 * MINUTE - 1));
    key.now += 1;
    assert_eq!(key.look(), Seen::Miss);
    assert_eq!(key.lead("b").stale, None);
}

#[test]
fn past_its_ttl_one_leads_and_others_get_stale() {
    let mut key = loaded();
    key.now += MINUTE;
    assert_eq!(key.lead("b").stale.as_deref(), Some(b"one".as_slice()));
    assert_eq!(key.join("c", waits(MINUTE)), Joined::Refused(stale("one", MINUTE)));
    assert_eq!(key.lead("b").stale.as_deref(), Some(b"one".as_slice()));
    key.abandon("b", None);
    assert_eq!(key.lead("c").stale.as_deref(), Some(b"one".as_slice()), "giving up keeps it");
}

#[test]
fn followers_of_a_lead_without_stale_value_wait() {
    let mut key = loaded();
    key.now += 2 * MINUTE - SECOND;
    key.lead("b");
    assert_eq!(key.reported("c"), stale("one", 2 * MINUTE - SECOND));
    key.now += SECOND;
    let id = key.follow("c", MINUTE);
    key.publish("b", MINUTE, value("two"));
    assert_eq!(key.answered(id), fresh("two", 0, MINUTE));
}

#[test]
fn invalidate_voids_a_leader_that_started_before_it() {
    let mut key = loaded();
    key.now += MINUTE;
    key.lead("b");
    assert!(key.invalidate(false));
    assert_eq!(key.endings.iter().map(|end| end.how).collect::<Vec<_>>(), [End::Broken]);
    assert_eq!(key.publish("b", MINUTE, value("old")), Published::Lost(Reason::Invalidated));
    assert_eq!(key.lead("c").stale, None, "and the value is gone");
    assert_eq!(key.publish("c", MINUTE, value("new")), published(0));
    assert!(key.invalidate(false));
    assert!(!key.invalidate(false), "there is nothing left");
}

#[test]
fn a_soft_invalidation_keeps_a_stale_value_and_one_leads() {
    let mut key = loaded();
    assert!(key.invalidate(true));
    assert_eq!(key.look(), stale("one", 0));
    assert_eq!(key.lead("b").stale.as_deref(), Some(b"one".as_slice()));
    assert_eq!(key.reported("c"), stale("one", 0));
    key.now += 2 * MINUTE;
    assert_eq!(key.look(), Seen::Miss, "for as long as it would have been served anyway");
}

#[test]
fn a_kept_error_goes_to_everybody_then_one_leads() {
    let mut key = Key::default();
    key.lead("a");
    let follows = key.follow("b", MINUTE);
    assert_eq!(key.publish("a", 5 * SECOND, error("down")), published(1));
    assert_eq!(key.answered(follows), failed("down"));
    key.now += 5 * SECOND - 1;
    assert_eq!(key.join("c", waits(MINUTE)), Joined::Refused(failed("down")));
    key.now += 1;
    assert_eq!(key.look(), Seen::Miss);
    key.lead("c");
    assert_eq!(key.reported("d"), busy(10 * SECOND));
}

#[test]
fn an_error_not_kept_goes_to_followers_then_one_leads() {
    let mut key = Key::default();
    key.lead("a");
    let follows = key.follow("b", MINUTE);
    key.publish("a", 0, error("down"));
    assert_eq!(key.answered(follows), failed("down"));
    assert_eq!(key.look(), Seen::Miss);
    key.lead("c");
}

#[test]
fn after_abandon_retry_the_first_follower_leads_in_time() {
    let mut key = Key::default();
    key.lead("a");
    let impatient = key.follow("i", 3 * SECOND);
    let [first, second] = ["b", "c"].map(|token| key.follow(token, MINUTE));
    key.abandon("a", Some(5 * SECOND));
    assert_eq!(key.reported("d"), busy(5 * SECOND));
    assert_eq!(key.wake, Some(key.now + 3 * SECOND));
    key.later(5 * SECOND - 1);
    assert_eq!((key.answered(impatient), key.replies.len()), (busy(1), 1));
    assert_eq!(key.wake, Some(key.now + 1));
    key.later(1);
    key.answered_lead(first);
    assert_eq!(key.open, [second]);
}

#[test]
fn a_follower_that_gave_up_never_leads_after_the_pause() {
    let mut key = Key::default();
    key.lead("a");
    let impatient = key.follow("b", 3 * SECOND);
    let patient = key.follow("c", MINUTE);
    key.abandon("a", Some(5 * SECOND));
    key.later(6 * SECOND);
    assert_eq!(key.answered(impatient), busy(0));
    key.answered_lead(patient);
}

#[test]
fn a_failing_load_keeps_the_stale_value() {
    for gives_up in [true, false] {
        let mut key = loaded();
        key.now += MINUTE;
        key.lead("b");
        if gives_up {
            key.abandon("b", Some(5 * SECOND));
        } else {
            key.publish("b", 5 * SECOND, error("down"));
        }
        assert_eq!(key.reported("c"), stale("one", MINUTE), "nobody leads");
        key.now += 5 * SECOND;
        assert_eq!(key.lead("c").stale.as_deref(), Some(b"one".as_slice()));
    }
}

#[test]
fn an_invalidation_ends_a_pause() {
    let mut key = Key::default();
    key.lead("a");
    let follows = key.follow("b", MINUTE);
    key.abandon("a", Some(HOUR));
    assert!(key.invalidate(false));
    key.answered_lead(follows);
}

#[test]
fn with_ttl_0_only_current_followers_get_it() {
    let mut key = loaded();
    key.now += 2 * MINUTE - SECOND;
    key.lead("b");
    key.now += SECOND;
    let follows = key.follow("c", MINUTE);
    assert_eq!(key.publish("b", 0, stale_for("two", HOUR)), published(1));
    assert_eq!(key.answered(follows), fresh("two", 0, 0));
    assert_eq!(key.look(), Seen::Miss);
    assert_eq!(key.lead("d").stale, None);
}

#[test]
fn empty_is_served_as_empty_and_never_as_stale() {
    let mut key = Key::default();
    key.lead("a");
    let follows = key.follow("b", MINUTE);
    key.publish("a", MINUTE, Publication::Empty);
    assert_eq!(key.answered(follows), Seen::Empty { age: Span::ZERO });
    key.now += MINUTE - 1;
    assert_eq!(key.reported("c"), Seen::Empty { age: Span::from_us(MINUTE - 1) });
    let mut soft = key.clone();
    assert!(soft.invalidate(true));
    assert_eq!(soft.lead("c").stale, None);
    key.now += 1;
    assert_eq!(key.lead("c").stale, None);
}

#[test]
fn publish_or_abandon_by_the_same_token_repeats_its_reply() {
    let mut key = loaded();
    let before = key.flight.clone();
    assert_eq!(key.publish("a", HOUR, value("other")), published(0));
    assert_eq!(key.flight, before, "and changes nothing");
    assert_eq!(key.abandon("a", Some(HOUR)), Abandoned::Lost(Reason::Published));
    key.now += MINUTE - 1;
    assert_eq!(key.publish("a", HOUR, value("other")), published(0));
    key.now += 1;
    assert_eq!(key.publish("a", HOUR, value("other")), Published::Lost(Reason::Absent), "for a minute");
    key.lead("b");
    assert_eq!([key.abandon("b", None), key.abandon("b", Some(HOUR))], [Abandoned::Abandoned; 2]);
    key.lead("c");
}

#[test]
fn an_abandon_by_a_waiter_takes_it_out() {
    let mut key = Key::default();
    key.lead("a");
    let leaves = key.follow("b", MINUTE);
    let stays = key.follow("c", MINUTE);
    assert_eq!(key.abandon("b", Some(HOUR)), Abandoned::Abandoned);
    assert_eq!(key.replies, [LeadReply::Superseded { id: leaves }]);
    assert_eq!(key.abandon("b", None), Abandoned::Lost(Reason::Taken), "it waits no longer");
    key.abandon("a", None);
    key.answered_lead(stays);
}

#[test]
fn an_abandon_by_a_former_leader_takes_it_out() {
    let mut key = Key::default();
    key.lead("a");
    key.abandon("a", None);
    key.lead("b");
    let leaves = key.follow("a", MINUTE);
    assert_eq!(key.abandon("a", None), Abandoned::Abandoned);
    assert_eq!(key.replies, [LeadReply::Superseded { id: leaves }]);
    assert!(key.open.is_empty(), "{:?}", key.open);
    assert_eq!(key.abandon("a", None), Abandoned::Abandoned, "said again");
}

#[test]
fn asking_again_moves_the_position_to_the_new_call() {
    let mut key = Key::default();
    key.lead("a");
    let old = key.follow("b", MINUTE);
    key.follow("c", MINUTE);
    let new = key.follow("b", MINUTE);
    assert_eq!(key.replies.iter().map(|reply| reply.id()).collect::<Vec<_>>(), [old]);
    key.abandon("a", None);
    key.answered_lead(new);
    assert_eq!(key.reported("c"), busy(10 * SECOND), "without WAIT it leaves the queue");
    assert!(key.open.is_empty(), "{:?}", key.open);
}

#[test]
fn no_more_may_wait_than_is_allowed() {
    let mut key = Key::default();
    key.lead("a");
    let two = Wish { most: 2, ..waits(MINUTE) };
    assert_eq!([key.join("b", two), key.join("c", two)], [Joined::Queued, Joined::Queued]);
    assert_eq!(key.join("d", two), Joined::Refused(busy(10 * SECOND)));
    assert!(key.leave(1 + 1));
    assert_eq!(key.join("d", two), Joined::Queued);
}

#[test]
fn a_bound_leader_with_heartbeats_leads_on() {
    let mut key = Key::default();
    let fence = key.lead("a").fence;
    key.now += 12 * SECOND;
    assert!(key.clone().extend(fence, key.now + 7 * SECOND));
    key.tick();
    assert!(!key.extend(fence, key.now + 7 * SECOND));
}

#[test]
fn fences_grow_over_leads_deletions_restarts_and_promotions() {
    let mut key = Key::default();
    let mut fences = vec![key.lead("a").fence];
    key.abandon("a", None);
    fences.push(key.lead("b").fence);
    key.delete();
    fences.push(key.lead("c").fence);
    key.restart();
    key.abandon("c", None);
    fences.push(key.lead("d").fence);
    key.abandon("d", None);
    key.promote(-30 * SECOND);
    fences.push(key.lead("e").fence);
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "{fences:?}");
}
