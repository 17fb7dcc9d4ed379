//! The queue: its waiters, those who leave it, and the reply to a call that waited there before.

use super::key::{Acquired, LockReply};
use resil_core::Span;
use resil_core::lock::Released;

use super::key::{HOUR, Key, MINUTE, SECOND, permit, reader, writer};

/// How long those who were served in the last step have waited.
fn waited(key: &Key) -> Vec<Span> {
    let waited = key.replies.iter().filter_map(|reply| match reply {
        LockReply::Granted { grant, .. } => Some(grant.waited),
        LockReply::TimedOut { .. } | LockReply::Refused { .. } | LockReply::Superseded { .. } => None,
    });
    waited.collect()
}

#[test]
fn writers_are_served_singly_in_order_of_arrival() {
    let mut key = Key::lock();
    key.take("0", writer());
    let names: Vec<String> = (1..200).map(|number: u32| number.to_string()).collect();
    for name in &names {
        key.queue_up(name, writer().waits(HOUR));
    }
    let mut holder = "0".to_owned();
    for name in names {
        assert!(matches!(key.release(&holder, None), Released::Released { .. }));
        assert_eq!(key.served(), std::slice::from_ref(&name));
        holder = name;
    }
    assert!(key.queue.is_empty());
}

#[test]
fn a_larger_max_serves_those_with_a_smaller_one() {
    let mut key = Key::bulkhead();
    key.take("a", permit(1));
    for owner in ["b", "c", "d"] {
        key.queue_up(owner, permit(1).waits(MINUTE));
    }
    assert!(matches!(key.ask("e", permit(3)), Acquired::Refused(_)), "three are inside before it");
    assert_eq!((key.served(), key.queued()), (vec!["b".into(), "c".into()], vec!["d".into()]));
}

#[test]
fn a_holder_with_a_larger_max_lets_others_in() {
    let mut key = Key::bulkhead();
    key.take("a", permit(1));
    key.queue_up("b", permit(1).waits(MINUTE));
    key.take("a", permit(2));
    assert_eq!(key.served(), ["b"]);
}

#[test]
fn a_smaller_max_ends_nothing_and_binds_those_who_wait() {
    let mut key = Key::bulkhead();
    for owner in ["a", "b", "c"] {
        key.take(owner, permit(3));
    }
    key.queue_up("d", permit(3).waits(MINUTE));
    assert!(matches!(key.ask("e", permit(1)), Acquired::Refused(_)));
    assert_eq!(key.owners(), ["a", "b", "c"]);
    key.release("a", None);
    key.release("b", None);
    assert_eq!(key.queued(), ["d"], "one is inside, and there is one permit now");
    key.release("c", None);
    assert_eq!(key.served(), ["d"]);
}

#[test]
fn a_waiting_writer_is_not_overtaken_by_readers() {
    let mut key = Key::lock();
    key.take("a", reader());
    key.queue_up("b", writer().waits(MINUTE));
    assert!(matches!(key.ask("c", reader()), Acquired::Refused(_)));
    key.queue_up("c", reader().waits(MINUTE));
    key.release("a", None);
    assert_eq!((key.served(), key.queued()), (vec!["b".into()], vec!["c".into()]));
}

#[test]
fn a_writer_that_leaves_lets_the_readers_behind_it_in() {
    let mut key = Key::lock();
    key.take("a", reader());
    let writes = key.queue_up("b", writer().waits(MINUTE));
    key.queue_up("c", reader().waits(MINUTE));
    key.queue_up("d", reader().waits(MINUTE));
    assert!(key.leave(writes));
    assert_eq!(key.served(), ["c", "d"]);
    assert!(!key.leave(writes), "it left before");
}

#[test]
fn asking_again_moves_position_and_wait_to_the_new_call() {
    let mut key = Key::lock();
    key.take("holder", writer().lease(HOUR));
    let first = key.queue_up("a", writer().waits(10 * SECOND));
    key.queue_up("b", writer().waits(HOUR));
    key.later(9 * SECOND);
    let second = key.queue_up("a", writer().waits(10 * SECOND));
    assert_eq!(key.replies, [LockReply::Superseded { id: first }]);
    assert_eq!(key.queued(), ["a", "b"], "its place stays");
    key.later(SECOND);
    assert!(key.replies.is_empty(), "the wait is the new one");
    key.later(2 * SECOND);
    key.release("holder", None);
    assert_eq!((key.served(), waited(&key)), (vec!["a".into()], vec![Span::from_secs(3)]));
    assert_eq!(key.replies[0].id(), second);
}

#[test]
fn asking_again_without_a_wait_leaves_the_queue() {
    let mut key = Key::lock();
    key.take("holder", reader());
    let id = key.queue_up("a", writer().waits(MINUTE));
    key.queue_up("b", reader().waits(MINUTE));
    assert!(matches!(key.ask("a", writer()), Acquired::Refused(_)));
    assert_eq!(key.replies[0], LockReply::Superseded { id });
    assert_eq!((key.served(), key.queued()), (vec!["b".into()], vec![]), "who stood behind it moves up");
}

#[test]
fn a_release_by_a_waiter_lets_those_behind_it_in() {
    let mut key = Key::lock();
    key.take("holder", reader());
    let id = key.queue_up("a", writer().waits(MINUTE));
    key.queue_up("b", reader().waits(MINUTE));
    assert_eq!(key.release("a", None), Released::Released { held: Span::ZERO });
    assert_eq!(key.replies[0], LockReply::Superseded { id });
    assert_eq!((key.served(), key.queued()), (vec!["b".into()], vec![]));
    assert!(matches!(key.release("a", None), Released::Lost(_)), "it neither holds nor waits");
}

#[test]
fn a_release_with_a_fence_leaves_waiters_in_their_position() {
    let mut key = Key::lock();
    let first = key.take("a", writer());
    key.release("a", None);
    key.take("b", writer());
    key.queue_up("a", writer().waits(MINUTE));
    assert!(matches!(key.release("a", Some(first)), Released::Released { .. }), "its release was repeated");
    assert_eq!(key.queued(), ["a"]);
}

#[test]
fn a_waiting_writer_that_asks_to_read_may_fit() {
    let mut key = Key::lock();
    key.take("holder", reader());
    let id = key.queue_up("a", writer().waits(MINUTE));
    key.take("a", reader().waits(MINUTE));
    assert_eq!(key.replies, [LockReply::Superseded { id }]);
    assert_eq!(key.owners(), ["holder", "a"]);
}

#[test]
fn an_owner_that_called_twice_has_one_grant() {
    let mut key = Key::lock();
    key.take("holder", writer());
    key.queue_up("a", writer().waits(MINUTE));
    key.now += 10 * SECOND;
    let fence = key.take("a", writer().waits(MINUTE));
    assert!(matches!(&key.replies[..], [LockReply::Granted { grant, .. }] if grant.fence == fence));
}

#[test]
fn an_undelivered_grant_goes_to_the_next_in_the_queue() {
    let mut key = Key::lock();
    key.take("holder", writer());
    key.queue_up("gone", writer().waits(MINUTE));
    key.queue_up("next", writer().waits(MINUTE));
    key.release("holder", None);
    let fence = key.holders.last_fence();
    assert!(key.take_back(fence));
    assert_eq!(key.served(), ["next"]);
    assert!(key.holders.last_fence() > fence);
}

#[test]
fn a_closed_connections_lock_goes_to_the_next_only_once() {
    let mut key = Key::lock();
    let fence = key.take("crashed", writer());
    key.queue_up("next", writer().waits(MINUTE));
    assert!(key.close(fence));
    assert_eq!(key.served(), ["next"]);
    assert!(!key.close(fence));
    assert_eq!(key.owners(), ["next"]);
}

#[test]
fn lower_numbers_go_first_then_the_order_of_arrival() {
    let mut key = Key::bulkhead();
    key.take("holder", permit(1));
    for (name, priority) in [("f", 9), ("c", 5), ("a", 0), ("d", 5), ("b", 0), ("e", 5)] {
        key.queue_up(name, permit(1).priority(priority).queue(10).waits(HOUR));
    }
    assert_eq!(key.queued(), ["a", "b", "c", "d", "e", "f"]);
}

#[test]
fn a_waiter_gains_a_priority_every_half_minute() {
    let mut key = Key::bulkhead();
    key.take("holder", permit(1).lease(HOUR));
    key.queue_up("old", permit(1).priority(7).queue(10).waits(HOUR));
    key.now += 2 * MINUTE - 1;
    key.queue_up("newer", permit(1).priority(3).queue(10).waits(HOUR));
    assert_eq!(key.queued(), ["newer", "old"], "three gained: 4 is behind 3");
    key.now += 1;
    key.tick();
    assert_eq!(key.queued(), ["old", "newer"], "four gained: among equals the first goes first");
    key.queue_up("urgent", permit(1).priority(2).queue(10).waits(HOUR));
    assert_eq!(key.queued(), ["urgent", "old", "newer"]);
    key.now += 2 * MINUTE;
    key.tick();
    assert_eq!(key.queued(), ["old", "newer", "urgent"], "nobody gets better than 0, and then arrival counts");
}

#[test]
fn an_owner_that_asks_again_keeps_its_age() {
    let mut key = Key::bulkhead();
    key.take("holder", permit(1).lease(HOUR));
    key.queue_up("old", permit(1).priority(5).queue(10).waits(HOUR));
    key.now += MINUTE;
    key.queue_up("old", permit(1).priority(5).queue(10).waits(HOUR));
    key.queue_up("newer", permit(1).priority(4).queue(10).waits(HOUR));
    assert_eq!(key.queued(), ["old", "newer"]);
}

#[test]
fn a_clock_set_slightly_back_lets_nobody_overtake() {
    let mut key = Key::bulkhead();
    key.take("holder", permit(1).lease(HOUR));
    key.queue_up("first", permit(1).queue(10).waits(HOUR));
    key.now -= SECOND / 2;
    key.queue_up("second", permit(1).queue(10).waits(HOUR));
    key.queue_up("other class", permit(1).priority(6).queue(10).waits(HOUR));
    key.now += MINUTE / 2;
    key.tick();
    assert_eq!(
        key.queued(),
        ["first", "second", "other class"],
        "by the clock only the second has waited half a minute"
    );
}

#[test]
fn positions_count_those_who_are_served_before() {
    let mut key = Key::bulkhead();
    key.take("holder", permit(1).lease(HOUR));
    let ids: Vec<u64> = [("d", 9), ("b", 5), ("a", 0), ("c", 5)]
        .map(|(name, priority)| key.queue_up(name, permit(1).priority(priority).queue(10).waits(HOUR)))
        .into();
    assert_eq!(ids.iter().map(|id| key.queue.position(*id)).collect::<Vec<_>>(), [Some(4), Some(2), Some(1), Some(3)]);
    assert_eq!(key.queue.position(99), None);
}

#[test]
fn a_queue_that_is_full_refuses_and_shrinking_evicts_nobody() {
    let mut key = Key::bulkhead();
    for name in ["a", "b", "c"] {
        key.take(name, permit(3));
    }
    key.queue_up("d", permit(3).queue(1).waits(MINUTE));
    assert!(matches!(key.ask("e", permit(3).queue(1).waits(MINUTE)), Acquired::Refused(_)));
    assert!(matches!(key.ask("e", permit(1).queue(3).waits(MINUTE)), Acquired::Refused(_)));
    assert_eq!((key.owners().len(), key.queued()), (3, vec!["d".into()]));
    key.take("a", permit(1));
    assert_eq!(key.owners().len(), 3);
    key.queue_up("e", permit(3).queue(2).waits(MINUTE));
}

#[test]
fn a_wait_of_nothing_is_answered_in_the_same_step() {
    let mut key = Key::lock();
    key.take("holder", writer());
    assert!(matches!(key.ask("a", writer().waits(0)), Acquired::Refused(_)));
    assert_eq!((key.timed_out(), key.queue.len()), (vec![], 0));
}

#[test]
fn a_waiter_for_a_deleted_key_is_served() {
    let mut key = Key::lock();
    key.take("holder", writer());
    key.queue_up("a", writer().waits(MINUTE));
    key.delete();
    assert_eq!(key.served(), ["a"]);
}

#[test]
fn a_refusal_names_the_last_holder_and_the_first_end() {
    let mut key = Key::lock();
    key.take("short", reader().lease(SECOND));
    key.take("long", reader().lease(MINUTE));
    key.take("middle", reader());
    let Acquired::Refused(busy) = key.ask("a", writer()) else { panic!("readers hold") };
    assert_eq!((&*busy.holder, busy.remaining.as_us(), busy.retry_after.as_us()), (&b"long"[..], MINUTE, SECOND));
    assert_eq!((busy.active, busy.queued), (3, 0));
}
