//! What an idempotency key promises, one sentence after the other, each with the smallest story that shows it.

use super::key::{Begun, RunReply};
use resil_core::idempotency::{Committed, Replay, Settled};
use resil_core::waited::{End, Reason, Renewed};
use resil_core::{Instant, Span};

use super::gaps::{DAY, HOUR, MINUTE, MS, SECOND};
use super::key::{Key, Wish, work};

const COMMITTED: Committed = Committed::Committed { stored: true };

fn replay(result: &str, age: i64) -> Settled {
    Settled::Replay(Replay { failed: false, result: Some(result.as_bytes().into()), age: Span::from_us(age) })
}

fn busy(remaining: i64, attempt: u32) -> Settled {
    Settled::Busy { remaining: Span::from_us(remaining), attempt }
}

/// A key whose runner "a" was not heard of any more.
fn lapsed(wish: Wish) -> Key {
    let mut key = Key::default();
    key.run("a", wish);
    key.later(wish.lease);
    key
}

#[test]
fn one_runs_the_next_is_busy_the_last_gets_it() {
    let mut key = Key::default();
    assert_eq!(key.run("a", work()).attempt, 1);
    key.now += SECOND;
    assert_eq!(key.reported("b", work()), busy(9 * SECOND, 1));
    assert_eq!(key.commit("a", "paid"), COMMITTED);
    key.now += SECOND;
    assert_eq!(key.reported("b", work()), replay("paid", SECOND));
    assert_eq!(key.reported("a", work()), replay("paid", SECOND));
}

#[test]
fn begin_by_the_same_token_is_the_same_run() {
    let mut key = Key::default();
    let first = key.run("a", work());
    key.now += SECOND;
    let again = key.run("a", work());
    assert_eq!((again.fence, again.attempt, again.lease.as_us()), (first.fence, 1, 10 * SECOND));
    let shorter = key.run("a", work().lease(SECOND));
    assert_eq!(shorter.lease.as_us(), 10 * SECOND, "a lease never ends earlier than was promised");
}

#[test]
fn a_waiter_gets_the_result_in_its_reply() {
    let mut key = Key::default();
    key.run("a", work());
    let ids = ["b", "c", "d"].map(|token| key.queue_up(token, work().waits(SECOND)));
    key.commit("a", "paid");
    for id in ids {
        assert_eq!(key.answered(id), replay("paid", 0));
    }
}

#[test]
fn a_waiters_wait_is_its_own() {
    let mut key = Key::default();
    key.run("a", work());
    let long = key.queue_up("b", work().waits(5 * SECOND));
    let short = key.queue_up("c", work().waits(SECOND));
    key.later(SECOND);
    assert_eq!(key.answered(short), busy(9 * SECOND, 1));
    assert_eq!(key.open, [long]);
    key.later(4 * SECOND);
    assert_eq!(key.answered(long), busy(5 * SECOND, 1));
}

#[test]
fn a_late_timeout_names_the_attempt_it_waited_for() {
    let mut key = Key::default();
    key.run("a", work());
    let id = key.queue_up("b", work().waits(SECOND));
    key.later(MINUTE);
    assert_eq!(key.answered(id), busy(0, 1));
}

#[test]
fn asking_again_moves_the_position_to_the_new_call() {
    let mut key = Key::default();
    key.run("a", work());
    let old = key.queue_up("b", work().waits(5 * SECOND));
    key.queue_up("c", work().waits(5 * SECOND));
    let new = key.queue_up("b", work().waits(5 * SECOND));
    assert_eq!(key.replies, [RunReply::Superseded { id: old }]);
    key.abort("a");
    assert_eq!(key.answered_run(new).attempt, 2);
    assert_eq!(key.begin("c", work()), Begun::Refused(busy(10 * SECOND, 2)), "without WAIT it leaves the queue");
    assert!(key.open.is_empty(), "{:?}", key.open);
}

#[test]
fn an_abort_frees_at_once() {
    let mut key = Key::default();
    key.run("a", work());
    assert_eq!(key.abort("a"), None);
    assert_eq!(key.abort("a"), None, "its first reply may have been lost");
    assert_eq!(key.commit("a", "paid"), Committed::Lost(Reason::Aborted));
    assert_eq!(key.run("b", work()).attempt, 2);
    let waits = key.queue_up("c", work().waits(SECOND));
    key.abort("b");
    assert_eq!(key.answered_run(waits).attempt, 3);
}

#[test]
fn an_abort_by_a_waiter_takes_it_out() {
    let mut key = Key::default();
    key.run("a", work());
    let leaves = key.queue_up("b", work().waits(SECOND));
    let stays = key.queue_up("c", work().waits(SECOND));
    assert_eq!(key.abort("b"), None);
    assert_eq!(*key.reply(leaves), RunReply::Superseded { id: leaves });
    assert_eq!(key.abort("b"), Some(Reason::Taken), "it waits no longer");
    key.abort("a");
    assert_eq!(key.answered_run(stays).attempt, 2);
}

#[test]
fn exactly_one_waiter_takes_a_lapsed_runners_work() {
    let mut key = Key::default();
    let first = key.run("a", work());
    let [second, third] = ["b", "c"].map(|token| key.queue_up(token, work().waits(MINUTE)));
    key.later(10 * SECOND);
    let run = key.answered_run(second);
    assert_eq!((run.attempt, run.waited.as_us()), (2, 10 * SECOND));
    assert!(run.fence > first.fence);
    assert_eq!((key.replies.len(), key.open.clone()), (1, vec![third]));
    assert_eq!(
        key.endings.iter().map(|end| (end.how, end.held.as_us())).collect::<Vec<_>>(),
        [(End::Expired, 10 * SECOND)]
    );
}

#[test]
fn the_old_runner_has_lost_once_another_took_its_work() {
    let mut key = lapsed(work());
    key.run("b", work());
    assert_eq!(key.commit("a", "too late"), Committed::Lost(Reason::Taken));
    assert_eq!(key.abort("a"), Some(Reason::Taken));
    assert_eq!(key.renew("a", SECOND), Renewed::Lost(Reason::Taken));
    key.commit("b", "paid");
    assert_eq!(key.reported("a", work()), replay("paid", 0));
}

#[test]
fn a_commit_by_the_last_token_counts_after_a_lapse() {
    let mut key = lapsed(work());
    assert_eq!(key.renew("a", SECOND), Renewed::Lost(Reason::Expired), "it does not run any more");
    key.now += DAY - 1;
    assert_eq!(key.commit("a", "paid"), COMMITTED);
    assert_eq!(key.reported("b", work()), replay("paid", 0));
}

#[test]
fn a_runner_whose_connection_closed_may_still_commit() {
    let mut key = Key::default();
    let fence = key.run("a", work()).fence;
    assert!(key.close(fence));
    assert!(!key.close(fence));
    assert_eq!(key.renew("a", SECOND), Renewed::Lost(Reason::Closed));
    assert_eq!(key.commit("a", "paid"), COMMITTED);
}

#[test]
fn an_undelivered_run_goes_to_the_next_waiter_at_once() {
    let mut key = Key::default();
    key.run("a", work());
    let [gone, next] = ["b", "c"].map(|token| key.queue_up(token, work().waits(MINUTE)));
    key.abort("a");
    let fence = key.answered_run(gone).fence;
    assert!(key.take_back(fence));
    assert_eq!(key.answered_run(next).attempt, 3);
}

#[test]
fn with_hold_nobody_runs_after_a_lapse() {
    let mut key = Key::default();
    key.run("a", work().or_hold());
    let ids = ["b", "c"].map(|token| key.queue_up(token, work().waits(MINUTE)));
    key.later(10 * SECOND);
    for id in ids {
        assert_eq!(key.answered(id), Settled::Held { attempt: 1 });
    }
    for token in ["a", "b"] {
        assert_eq!(key.reported(token, work().waits(MINUTE)), Settled::Held { attempt: 1 });
    }
    assert_eq!(key.commit("b", "not mine"), Committed::Lost(Reason::Taken));
    let mut other = key.clone();
    assert_eq!(key.commit("a", "paid"), COMMITTED);
    assert_eq!(key.reported("b", work()), replay("paid", 0));
    assert_eq!(other.abort("a"), None);
    assert_eq!(other.run("b", work()).attempt, 2);
}

#[test]
fn with_hold_an_abort_by_the_runner_itself_holds_nothing() {
    let mut key = Key::default();
    key.run("a", work().or_hold());
    key.abort("a");
    assert_eq!(key.run("b", work()).attempt, 2);
}

#[test]
fn a_different_fingerprint_is_a_mismatch_in_every_phase() {
    let mismatch = Begun::Refused(Settled::Mismatch);
    let asks_in_vain = |key: &mut Key| {
        assert_eq!(key.begin("b", work().of("other").waits(MINUTE)), mismatch);
        assert_eq!(key.begin("a", work().of("other")), mismatch, "the runner's own token, too");
        assert_eq!(key.look("other"), Settled::Mismatch);
        assert_ne!(key.look("this"), Settled::Mismatch);
        assert_ne!(key.look(""), Settled::Mismatch, "who gives none is not checked");
    };
    let mut running = Key::default();
    running.run("a", work().of("this"));
    asks_in_vain(&mut running);
    asks_in_vain(&mut lapsed(work().of("this")));
    asks_in_vain(&mut lapsed(work().of("this").or_hold()));
    let mut done = running.clone();
    done.commit("a", "paid");
    asks_in_vain(&mut done);
    running.abort("a");
    asks_in_vain(&mut running);
}

#[test]
fn a_fingerprint_stays_while_attempts_come_and_go() {
    let mut key = lapsed(work().of("this"));
    assert_eq!(key.run("b", work()).attempt, 2, "one that gives none may run");
    assert_eq!(key.reported("c", work().of("other")), Settled::Mismatch);
    key.commit("b", "paid");
    assert_eq!(key.reported("c", work().of("other")), Settled::Mismatch);
    assert_eq!(key.reported("c", work().of("this")), replay("paid", 0));
}

#[test]
fn a_waiter_does_not_run_another_requests_work() {
    let mut key = Key::default();
    key.run("a", work());
    let this = key.queue_up("b", work().of("this").waits(MINUTE));
    let [other, late] = ["c", "d"].map(|token| key.queue_up(token, work().of("other").waits(MINUTE)));
    key.abort("a");
    assert_eq!(key.answered_run(this).attempt, 2);
    let mut done = key.clone();
    key.abort("b");
    assert_eq!([key.answered(other), key.answered(late)], [Settled::Mismatch, Settled::Mismatch]);
    done.commit("b", "paid");
    assert_eq!(done.answered(other), Settled::Mismatch, "nor does it get the other's result");
}

#[test]
fn a_final_error_is_replayed_as_an_error() {
    let mut key = Key::default();
    key.run("a", work());
    let id = key.queue_up("b", work().waits(SECOND));
    key.commit_with("a", DAY, Some(b"card refused"), true);
    let error = Replay { failed: true, result: Some(b"card refused".as_slice().into()), age: Span::ZERO };
    assert_eq!(key.answered(id), Settled::Replay(error.clone()));
    assert_eq!(key.reported("c", work()), Settled::Replay(error));
}

#[test]
fn a_commit_again_is_the_same_reply_and_changes_nothing() {
    let mut key = Key::default();
    key.run("a", work());
    key.commit("a", "paid");
    let before = key.record.clone();
    key.now += SECOND;
    assert_eq!(key.commit_with("a", HOUR, None, true), COMMITTED);
    assert_eq!(key.record, before);
    assert_eq!(key.abort("a"), Some(Reason::Committed));
    assert_eq!(key.renew("a", SECOND), Renewed::Lost(Reason::Committed));
}

#[test]
fn a_dropped_result_keeps_the_record() {
    let mut key = Key::default();
    key.run("a", work());
    let id = key.queue_up("b", work().waits(SECOND));
    let dropped = Committed::Committed { stored: false };
    assert_eq!(key.commit_with("a", DAY, None, false), dropped);
    let done = Settled::Replay(Replay { failed: false, result: None, age: Span::ZERO });
    assert_eq!(key.answered(id), done);
    assert_eq!(key.reported("c", work()), done);
    assert_eq!(key.commit("a", "now there is room"), dropped, "the same reply again");
}

#[test]
fn an_event_counts_once_per_ttl() {
    let mut key = Key::default();
    assert_eq!(key.once("", MINUTE), Ok(true));
    assert_eq!(key.once("", MINUTE), Ok(false), "no token is nobody's");
    key.now += MINUTE - 1;
    assert_eq!(key.once("", HOUR), Ok(false));
    key.now += 1;
    assert_eq!(key.once("", MINUTE), Ok(true));
}

#[test]
fn an_event_counts_again_for_the_token_that_counted_it() {
    let mut key = Key::default();
    assert_eq!(key.once("a", MINUTE), Ok(true));
    key.now += MINUTE - 1;
    assert_eq!([key.once("a", MINUTE), key.once("b", MINUTE), key.once("", MINUTE)], [Ok(true), Ok(false), Ok(false)]);
    key.now += 1;
    assert_eq!(key.once("b", MINUTE), Ok(true), "asking again has not made it last longer");
    assert_eq!(key.once("a", MINUTE), Ok(false));
}

#[test]
fn events_and_work_do_not_mix() {
    let mut key = Key::default();
    assert_eq!(key.once("a", MINUTE), Ok(true));
    assert_eq!(key.begin("a", work().waits(SECOND)), Begun::Conflict);
    assert_eq!(key.commit("a", "paid"), Committed::Lost(Reason::Absent));
    key.now += MINUTE;
    key.run("a", work());
    assert_eq!(key.once("a", MINUTE), Err(()));
    key.commit_with("a", MINUTE, None, false);
    assert_eq!(key.once("a", MINUTE), Err(()));
    key.now += MINUTE;
    assert_eq!(key.once("a", MINUTE), Ok(true));
}

#[test]
fn a_result_is_forgotten_exactly_at_its_time() {
    let mut key = Key::default();
    key.run("a", work().of("this"));
    key.commit_with("a", MINUTE, Some(b"paid"), false);
    key.now += MINUTE - 1;
    assert_eq!(key.look("this"), replay("paid", MINUTE - 1));
    assert_eq!(key.record.gc_at(7), Some(Instant::from_us(key.now + 1)));
    key.now += 1;
    assert_eq!(key.look("this"), Settled::Miss);
    assert_eq!(key.commit("a", "paid"), Committed::Lost(Reason::Absent));
    assert_eq!(key.run("b", work().of("other")).attempt, 1, "it is another lifetime");
}

#[test]
fn an_aborted_first_attempt_is_forgotten_after_a_minute() {
    for (wish, kept) in [(work(), MINUTE), (work().of("this"), DAY), (work().keep(SECOND), SECOND)] {
        let mut key = Key::default();
        key.run("a", wish);
        assert_eq!(key.abort("a"), None);
        key.later(kept - 1);
        assert_eq!(key.abort("a"), None, "the same reply again");
        key.later(1);
        assert_eq!(key.abort("a"), Some(Reason::Absent));
    }
    // What an attempt before it did, nobody knows: that is not forgotten.
    let mut key = Key::default();
    key.run("a", work().lease(SECOND));
    key.later(SECOND);
    key.run("b", work());
    assert_eq!(key.abort("b"), None);
    key.later(HOUR);
    assert_eq!(key.run("c", work()).attempt, 3);
}

#[test]
fn a_record_without_a_runner_is_forgotten_after_keep() {
    for looks_meanwhile in [false, true] {
        let mut key = Key::default();
        key.run("a", work().of("this").keep(MINUTE));
        key.now += 10 * SECOND;
        if looks_meanwhile {
            key.tick();
        }
        key.now += MINUTE - 1;
        let mut just = key.clone();
        assert_eq!(just.reported("b", work().of("other")), Settled::Mismatch);
        assert_eq!(just.run("b", work()).attempt, 2);
        assert!(key.record.gc_at(7).is_some_and(|gc_at| gc_at.as_us() > key.now), "nothing is collected too early");
        key.now += 1;
        assert_eq!(key.commit("a", "paid"), Committed::Lost(Reason::Absent));
        assert_eq!(key.run("b", work().of("other")).attempt, 1);
    }
}

#[test]
fn a_waiter_knows_of_a_lapse_though_keep_is_over() {
    let mut key = Key::default();
    key.run("a", work().of("this").keep(MS));
    let id = key.queue_up("b", work().waits(MINUTE));
    key.later(10 * SECOND + 2 * MS);
    assert_eq!(key.answered_run(id).attempt, 2);
    assert_eq!(key.reported("c", work().of("other")), Settled::Mismatch);
}

#[test]
fn fences_grow_over_attempts_lifetimes_events_deletions_restarts_and_promotions() {
    let mut key = Key::default();
    let mut fences = vec![key.run("a", work()).fence];
    key.abort("a");
    fences.push(key.run("b", work()).fence);
    key.commit_with("b", 1, None, false);
    key.now += 1;
    assert_eq!(key.once("", 1), Ok(true));
    key.now += 1;
    fences.push(key.run("c", work()).fence);
    key.delete();
    fences.push(key.run("d", work()).fence);
    key.restart();
    key.abort("d");
    fences.push(key.run("e", work()).fence);
    key.abort("e");
    key.promote(-30 * SECOND);
    fences.push(key.run("f", work()).fence);
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "{fences:?}");
}

#[test]
fn a_bound_runner_with_heartbeats_never_ends_earlier() {
    let mut key = Key::default();
    let fence = key.run("a", work()).fence;
    key.now += 6 * SECOND;
    assert!(key.extend(fence, key.now + HOUR));
    assert_eq!(key.lease_end(), Some(key.now + 10 * SECOND), "at most its own length ahead");
    let end = key.lease_end();
    assert!(key.extend(fence, key.now + SECOND));
    key.now -= SECOND / 2;
    assert!(key.extend(fence, key.now + HOUR));
    assert_eq!(key.lease_end(), end, "not even if the clock jitters");
    assert!(!key.extend(fence + 1, key.now + HOUR));
}

#[test]
fn no_more_may_wait_than_is_allowed() {
    let mut key = Key::default();
    key.run("a", work());
    let two = Wish { most: 2, ..work().waits(MINUTE) };
    let ids = ["b", "c"].map(|token| key.queue_up(token, two));
    assert_eq!(key.reported("d", two), busy(10 * SECOND, 1));
    assert!(key.leave(ids[0]));
    assert!(!key.leave(ids[0]));
    key.queue_up("d", two);
}

#[test]
fn a_wait_of_nothing_is_a_try() {
    let mut key = Key::default();
    key.run("a", work());
    assert_eq!(key.reported("b", work().waits(0)), busy(10 * SECOND, 1));
    assert!(key.open.is_empty(), "{:?}", key.open);
}
