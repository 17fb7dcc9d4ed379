//! TAKE, DONE, RETURN, RENEW: sentences.

use resil_core::Span;
use resil_core::dead_letters::{BatchRenewed, ConfigChange, Ended, Failed, Jitter, Pause, Place, Standing};
use resil_core::waited::{Decision, Reason};

use super::asking::*;
use super::key::*;

fn none() -> ConfigChange {
    ConfigChange { jitter: Some(Jitter::None), ..ConfigChange::default() }
}

#[test]
fn the_same_token_gets_the_same_entries_and_fences() {
    let mut key = Key::default();
    for id in ["a", "b", "c"] {
        key.retried(&fault(id));
    }
    key.later(MINUTE);
    let first = key.take("t", 2);
    key.later(10 * SECOND);
    let Decision::Granted(again) = key.ask("t", SECOND, 1, None) else { panic!("the same again") };
    assert_eq!(again.entries, first, "COUNT is ignored");
    assert_eq!(again.lease.as_us(), 20 * SECOND, "the lease is not made shorter");
    key.done("a", first[0].fence);
    assert_eq!(key.take("t", 10), first[1..]);
    key.later(HOUR);
    assert_eq!(key.ids("t", 1), ["c"], "once the lease has ended it is a new call");
}

#[test]
fn count_bounds_what_is_taken() {
    let mut key = Key { is_checked: false, ..Key::default() };
    for id in 0..1_100 {
        key.retried(&fault(&format!("m{id}")).random(0));
    }
    key.later(MINUTE);
    assert_eq!(key.take("t", 7).len(), 7);
    assert_eq!(key.take("u", 5_000).len(), 1_000, "at most a thousand");
    assert_eq!(key.take("v", 5_000).len(), 93);
}

#[test]
fn a_take_stops_before_sixteen_megabytes_but_gives_one() {
    let mut key = Key { is_checked: false, ..Key::default() };
    let (large, half) = ("x".repeat(17 << 20), "x".repeat(9 << 20));
    for (id, payload) in [("a", &large), ("b", &half), ("c", &half)] {
        key.retried(&fault(id).payload(Some(payload)));
        key.now += MS;
    }
    key.later(MINUTE);
    assert_eq!(key.ids("t", 10), ["a"]);
    assert_eq!(key.ids("u", 10), ["b"]);
    assert_eq!(key.ids("v", 10), ["c"]);
}

#[test]
fn due_entries_come_first_and_then_the_oldest() {
    let mut key = Key::default();
    key.retried(&fault("late").after(30 * SECOND));
    key.retried(&fault("one").after(10 * SECOND));
    key.retried(&fault("two").after(10 * SECOND));
    key.retried(&fault("soon").after(5 * SECOND));
    assert_eq!(key.none("t"), Some(5 * SECOND));
    key.later(MINUTE);
    assert_eq!(key.ids("t", 10), ["soon", "one", "two", "late"]);
    assert_eq!(key.none("u"), None, "leases are not due");
}

#[test]
fn a_take_of_many_gives_only_what_is_due() {
    let mut key = Key::default();
    for (id, seconds) in [("now", 5), ("at once", 10), ("later", 11), ("much later", 30)] {
        key.retried(&fault(id).after(seconds * SECOND));
    }
    key.later(10 * SECOND);
    assert_eq!(key.ids("t", 10), ["now", "at once"]);
    assert_eq!(key.none("u"), Some(SECOND));
}

#[test]
fn a_paused_ledger_gives_nothing() {
    let mut key = Key::default();
    key.retried(&fault("a"));
    key.later(MINUTE);
    let pause = |pause| ConfigChange { paused: Some(pause), ..ConfigChange::default() };
    key.configure(&pause(Pause::On));
    assert_eq!(key.none("t"), None);
    key.configure(&pause(Pause::For(Span::from_secs(10))));
    assert_eq!(key.none("t"), Some(10 * SECOND));
    key.later(10 * SECOND);
    assert_eq!(key.ids("t", 1), ["a"]);
    key.retried(&fault("b"));
    key.configure(&pause(Pause::On));
    key.later(MINUTE);
    assert_eq!(key.none("u"), None);
    key.configure(&pause(Pause::Off));
    assert_eq!(key.ids("u", 1), ["b"]);
}

#[test]
fn what_is_returned_is_due_again_and_nothing_is_counted() {
    let mut key = Key::default();
    key.retried(&fault("a"));
    key.later(MINUTE);
    let (_, fence) = key.one("t");
    assert_eq!(key.give_back("a", fence, 5 * SECOND), Ended::Ended);
    assert_eq!(key.give_back("a", fence, 9 * SECOND), Ended::Ended, "said again");
    assert_eq!(key.none("u"), Some(5 * SECOND));
    key.later(5 * SECOND);
    let taken = key.take("u", 1);
    assert_eq!((taken[0].attempt, taken[0].lapses), (1, 0));
    key.give_back("a", taken[0].fence, 0);
    assert!(matches!(key.fail(&fault("a").by(taken[0].fence)), Failed::Lost(_)));
    assert!(matches!(key.done("a", taken[0].fence), Ended::Lost(_)));
    assert_eq!(key.ids("v", 1), ["a"], "without a delay at once");
}

#[test]
fn a_reply_that_was_not_delivered_changes_nothing() {
    let mut key = Key::default();
    key.retried(&fault("a"));
    key.later(MINUTE);
    let (_, fence) = key.one("t");
    assert!(key.take_back(fence));
    let taken = key.take("u", 1);
    assert_eq!((taken[0].attempt, taken[0].lapses), (1, 0));
}

#[test]
fn an_undelivered_reply_is_due_after_a_clock_set_back() {
    let mut key = Key::default();
    key.retried(&fault("a"));
    key.later(MINUTE);
    let (_, fence) = key.one("t");
    key.later(-HOUR);
    key.take_back(fence);
    assert_eq!(key.ids("u", 1), ["a"]);
}

#[test]
fn a_renewed_lease_ends_later() {
    let mut key = Key::default();
    key.retried(&fault("a"));
    key.retried(&fault("b"));
    key.later(MINUTE);
    let taken = key.take("t", 2);
    key.later(20 * SECOND);
    assert_eq!(key.renew("t", MINUTE), BatchRenewed::Granted { entries: 2, lease: Span::from_secs(60) });
    key.done("a", taken[0].fence);
    key.later(50 * SECOND);
    assert_eq!(key.renew("t", MINUTE), BatchRenewed::Granted { entries: 1, lease: Span::from_secs(60) });
    key.later(MINUTE);
    assert!(matches!(key.renew("t", MINUTE), BatchRenewed::Lost(_)));
    assert!(matches!(key.renew("nobody", MINUTE), BatchRenewed::Lost(_)));
}

#[test]
fn done_is_remembered_for_ten_minutes() {
    let mut key = Key::default();
    key.retried(&fault("a"));
    key.later(MINUTE);
    let (_, fence) = key.one("t");
    assert_eq!(key.done("a", fence), Ended::Ended);
    assert_eq!(key.ledger.len(), 0, "what never died is gone");
    key.later(10 * MINUTE - 1);
    assert_eq!(key.done("a", fence), Ended::Ended);
    assert!(matches!(key.done("a", fence + 1), Ended::Lost(_)));
    assert!(matches!(key.fail(&fault("a").by(fence)), Failed::Lost(_)));
    assert_eq!(key.standing("a"), Some((Standing::Done, 0)));
    assert_eq!(key.fail(&fault("a")), Failed::Known { standing: Standing::Done, attempt: 0 });
    key.later(1);
    assert_eq!(key.standing("a"), None);
    assert!(matches!(key.done("a", fence), Ended::Lost(_)));
    assert_eq!(key.retried(&fault("a").payload(Some("other"))).0, 1, "it is a new message");
}

#[test]
fn the_last_ten_thousand_ends_are_remembered() {
    let mut key = Key { is_checked: false, ..Key::default() };
    let mut first = 0;
    for batch in 0..11 {
        for id in 0..1_000 {
            key.retried(&fault(&format!("m{batch}-{id}")).random(0));
        }
        key.later(SECOND);
        let taken = key.take("t", 1_000);
        if batch == 0 {
            first = taken[0].fence;
        }
        key.done_all(&taken.iter().map(|entry| (id_of(entry), entry.fence)).collect::<Vec<_>>());
    }
    assert!(matches!(key.done("m0-0", first), Ended::Lost(_)));
    assert_eq!(key.standing("m0-0"), None);
    assert!(key.standing("m1-0").is_some());
}

#[test]
fn several_ends_get_a_verdict_each() {
    let mut key = Key::default();
    key.retried(&fault("a"));
    key.retried(&fault("b"));
    key.later(MINUTE);
    let taken = key.take("t", 2);
    let pairs = [("a".into(), taken[0].fence), ("x".into(), 5), ("b".into(), taken[1].fence)];
    assert_eq!(key.done_all(&pairs), [Ended::Ended, Ended::Lost(Reason::Absent), Ended::Ended]);
}

#[test]
fn a_full_ledger_refuses_what_is_new_only() {
    let mut key = Key::default();
    key.room.entries = 3;
    for id in ["a", "b", "c"] {
        key.retried(&fault(id));
    }
    assert_eq!(key.fail(&fault("d")), Failed::Full);
    assert!(matches!(key.fail(&fault("a")), Failed::Known { .. }));
    key.later(MINUTE);
    let (id, fence) = key.one("t");
    key.retried(&fault(&id).by(fence));
    key.room.entries = 100;
    key.room.bytes = key.ledger.bytes();
    assert_eq!(key.fail(&fault("d")), Failed::Full);
}

#[test]
fn a_taker_that_waits_gets_what_becomes_due() {
    let mut key = Key::default();
    assert_eq!(key.ask("t", MINUTE, 5, Some(MINUTE)), Decision::Queued);
    let first = key.calls;
    assert_eq!(key.ask("u", MINUTE, 5, Some(MINUTE)), Decision::Queued);
    let second = key.calls;
    let (_, delay) = key.retried(&fault("a"));
    assert_eq!(key.wake, Some(key.now + delay), "the timer is set for what is due");
    key.later(delay);
    assert!(key.open == [second], "{first} has its reply");
    assert_eq!(key.place("a"), Some(Place::Taken));
    key.now += MINUTE - delay;
    key.tick();
    assert!(matches!(key.reply(second), TakeReply::TimedOut { .. }));
}

#[test]
fn a_taker_that_left_gets_nothing() {
    let mut key = Key::default();
    key.ask("t", MINUTE, 1, Some(MINUTE));
    let id = key.calls;
    assert!(key.leave(id));
    key.retried(&fault("a"));
    key.later(SECOND);
    assert_eq!(key.place("a"), Some(Place::Waiting));
}

#[test]
fn a_clock_that_is_set_back_delays_nothing_for_long() {
    for has_others in [false, true] {
        let mut key = Key::default();
        key.configure(&none());
        key.later(DAY);
        key.retried(&fault("lapsed"));
        key.later(SECOND);
        let (_, fence) = key.one("t");
        key.close(fence);
        key.retried(&fault("returned"));
        key.retried(&fault("failed").prior(4));
        key.later(500 * MS);
        let taken = key.take("u", 1);
        key.give_back("returned", taken[0].fence, 5 * SECOND);
        key.now -= DAY;
        for round in 0..100 {
            if has_others && round < 90 {
                key.retried(&fault(&format!("other{round}")).after(HOUR));
                key.retried(&fault(&format!("next{round}")).random(0));
            }
            key.later(100 * MS);
        }
        for id in ["lapsed", "returned", "failed"] {
            let due = key.ledger.get(id.as_bytes()).expect("waiting").due_at.expect("waiting").as_us();
            assert!(due <= key.now, "{id} is due in {}", due - key.now);
        }
    }
}
