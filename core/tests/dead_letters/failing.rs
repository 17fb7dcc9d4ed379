//! FAIL, and what becomes of it: sentences.

use resil_core::Span;
use resil_core::dead_letters::{
    Class, ConfigChange, Death, Ended, Failed, Jitter, LedgerEdit, Place, RetriesChange, Standing,
};
use resil_core::waited::Reason;

use super::asking::*;
use super::key::*;

fn none() -> ConfigChange {
    ConfigChange { jitter: Some(Jitter::None), ..ConfigChange::default() }
}

/// Fails `id` until it dies: the delays on the way, and why it died.
fn until_death(key: &mut Key, fault: &Fault) -> (Vec<i64>, &'static str) {
    let mut delays = Vec::new();
    let mut fence = None;
    loop {
        let next = Fault { fence, ..fault.clone() };
        match key.fail(&next) {
            Failed::Retry { attempt, delay } => {
                delays.push(delay.as_us() / MS);
                assert_eq!(attempt as usize, delays.len(), "attempts are counted from one");
                key.later(delay.as_us());
                let taken = key.take(&format!("token {attempt}"), 1);
                assert_eq!(taken[0].attempt, attempt, "TAKE says the same number");
                fence = Some(taken[0].fence);
            }
            Failed::Dead { reason, .. } => return (delays, reason.text()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_class_is_retried_as_often_as_it_says() {
    let mut key = Key::default();
    key.configure(&none());
    let usual = vec![500, 1_000, 2_000, 4_000, 8_000];
    assert_eq!(until_death(&mut key, &fault("a")), (usual.clone(), "retries"));
    assert_eq!(until_death(&mut key, &fault("b").class(Class::Business)), (usual[..3].to_vec(), "retries"));
    assert_eq!(until_death(&mut key, &fault("c").class(Class::External)), (usual, "retries"));
}

#[test]
fn a_delay_grows_until_its_cap() {
    let mut key = Key::default();
    let retries = RetriesChange { most: Some(12), ..RetriesChange::default() };
    key.configure(&ConfigChange { retries: [retries; 3], ..none() });
    let (delays, _) = until_death(&mut key, &fault("a"));
    assert_eq!(delays[5..], [16_000, 30_000, 30_000, 30_000, 30_000, 30_000, 30_000]);
    let (delays, _) = until_death(&mut key, &fault("b").class(Class::External));
    assert_eq!(delays[5..], [16_000, 32_000, 64_000, 128_000, 256_000, 300_000, 300_000]);
}

#[test]
fn no_delay_is_below_a_tenth_of_a_second() {
    let mut key = Key::default();
    let retries = RetriesChange { base: Some(Span::from_us(1)), cap: Some(Span::from_ms(50)), most: None };
    key.configure(&ConfigChange { retries: [retries; 3], ..ConfigChange::default() });
    for (at, random) in [0, 1, u64::MAX / 2, u64::MAX].into_iter().enumerate() {
        let (_, delay) = key.retried(&fault(&format!("a{at}")).random(random));
        assert_eq!(delay, 100 * MS);
    }
}

#[test]
fn full_jitter_lies_between_the_least_delay_and_the_backoff() {
    let mut key = Key::default();
    assert_eq!(key.retried(&fault("a").random(0)).1, 100 * MS);
    assert_eq!(key.retried(&fault("b").random(1 << 63)).1, 300 * MS);
    let (_, delay) = key.retried(&fault("c").random(u64::MAX));
    assert!((499 * MS..=500 * MS).contains(&delay), "{delay}");
}

#[test]
fn added_jitter_never_lifts_a_delay_above_the_cap() {
    let mut key = Key::default();
    key.configure(&ConfigChange { jitter: Some(Jitter::Plus(10)), ..ConfigChange::default() });
    assert_eq!(key.retried(&fault("a").random(0)).1, 500 * MS);
    let (_, delay) = key.retried(&fault("b").random(u64::MAX));
    assert!((549 * MS..=550 * MS).contains(&delay), "{delay}");
    assert_eq!(key.retried(&fault("c").prior(4).random(u64::MAX)).1 / SECOND, 8);
    let retries = RetriesChange { most: Some(50), ..RetriesChange::default() };
    key.configure(&ConfigChange { retries: [retries; 3], ..ConfigChange::default() });
    assert_eq!(key.retried(&fault("d").prior(20).random(u64::MAX)), (21, 30 * SECOND));
}

#[test]
fn after_delays_a_retry_up_to_its_most() {
    let mut key = Key::default();
    key.configure(&none());
    assert_eq!(key.retried(&fault("a").after(MINUTE)).1, MINUTE);
    assert_eq!(key.retried(&fault("b").after(MS)).1, 500 * MS, "never sooner than the backoff");
    assert_eq!(key.retried(&fault("c").after(2 * HOUR)).1, HOUR);
    key.configure(&ConfigChange { after_max: Some(Span::from_secs(10)), ..ConfigChange::default() });
    assert_eq!(key.retried(&fault("d").after(MINUTE)).1, 10 * SECOND);
}

#[test]
fn an_uncounted_failure_waits_as_the_present_attempt() {
    let mut key = Key::default();
    key.configure(&none());
    assert_eq!(key.retried(&fault("a").not_counted()), (0, 500 * MS));
    key.later(SECOND);
    let (_, fence) = key.one("t");
    assert_eq!(key.retried(&fault("a").by(fence)), (1, 500 * MS));
    key.later(SECOND);
    let (_, fence) = key.one("u");
    assert_eq!(key.retried(&fault("a").by(fence)), (2, SECOND));
    key.later(SECOND);
    let (_, fence) = key.one("v");
    assert_eq!(key.retried(&fault("a").by(fence).not_counted()), (2, SECOND));
}

#[test]
fn what_is_never_counted_dies_of_age_after_a_day() {
    let mut key = Key::default();
    key.retried(&fault("a").not_counted());
    key.later(DAY - 1);
    let (_, fence) = key.one("t");
    key.retried(&fault("a").by(fence).not_counted());
    key.later(DAY);
    let (_, fence) = key.one("u");
    assert_eq!(key.dies(&fault("a").by(fence).not_counted()).2, "age");
    assert_eq!(key.ledger.get(b"a").expect("dead").attempt, 0, "nothing was counted");
}

#[test]
fn a_counted_failure_does_not_die_of_age() {
    let mut key = Key::default();
    key.retried(&fault("a"));
    key.later(3 * DAY);
    let (_, fence) = key.one("t");
    assert_eq!(key.retried(&fault("a").by(fence)).0, 2);
}

#[test]
fn a_parked_messages_age_begins_with_its_first_failure() {
    let mut key = Key::default();
    key.dead(&["x"]);
    key.retried(&fault("head").of("o"));
    key.park("tail", "o");
    key.later(2 * DAY);
    let (_, fence) = key.one("t");
    key.done("head", fence);
    let (id, fence) = key.one("u");
    assert_eq!(id, "tail");
    assert_eq!(key.retried(&fault("tail").by(fence).not_counted()).0, 0);
    key.later(DAY);
    let (_, fence) = key.one("v");
    assert_eq!(key.dies(&fault("tail").by(fence).not_counted()).2, "age");
}

#[test]
fn what_is_final_dies_at_once() {
    let mut key = Key::default();
    assert_eq!(key.dies(&fault("a").finally()), (1, "order/no luck".into(), "final"));
    assert_eq!(key.place("a"), Some(Place::Dead));
    assert_eq!(key.ledger.get(b"a").expect("dead").message.payload(), Some(&b"body of a"[..]), "its payload is kept");
}

#[test]
fn prior_attempts_count_in_the_first_failure_only() {
    let mut key = Key::default();
    assert_eq!(key.retried(&fault("a").prior(3)).0, 4);
    key.later(MINUTE);
    let (_, fence) = key.one("t");
    assert_eq!(key.retried(&fault("a").by(fence).prior(3)).0, 5);
    assert_eq!(key.dies(&fault("b").prior(5)).2, "retries");
    assert_eq!(key.retried(&fault("c").prior(2).not_counted()).0, 2);
}

#[test]
fn a_failure_is_judged_by_its_own_class() {
    let mut key = Key::default();
    for attempt in 1..=4 {
        let fence = key.take(&format!("t{attempt}"), 1).first().map(|entry| entry.fence);
        key.retried(&Fault { fence, ..fault("a") });
        key.later(MINUTE);
    }
    let (_, fence) = key.one("t");
    assert_eq!(key.dies(&fault("a").by(fence).class(Class::Business)).2, "retries");
    key.retried(&fault("b").class(Class::Business));
    key.later(MINUTE);
    let (_, fence) = key.one("u");
    key.retried(&fault("b").by(fence));
    assert_eq!(key.ledger.get(b"b").expect("there").class, Class::Business, "a later FAIL keeps the class");
}

#[test]
fn what_the_source_delivers_again_is_known() {
    let mut key = Key::default();
    let known = |place, attempt| Failed::Known { standing: Standing::Here(place), attempt };
    key.retried(&fault("a"));
    assert_eq!(key.fail(&fault("a")), known(Place::Waiting, 1));
    assert_eq!(key.edits, [LedgerEdit::Opened], "and nothing is changed");
    assert_eq!(key.fail(&fault("a").payload(None)), known(Place::Waiting, 1), "nothing to compare");
    key.later(MINUTE);
    let (_, fence) = key.one("t");
    assert_eq!(key.fail(&fault("a")), known(Place::Taken, 1));
    key.dies(&fault("a").by(fence).finally());
    assert_eq!(key.fail(&fault("a").finally()), known(Place::Dead, 2));
}

/// Servers let WAIT count from the last change of a connection: without one, a replica that lacks the message would seem to have it.
#[test]
fn what_is_said_again_can_be_waited_for() {
    let mut key = Key::default();
    key.retried(&fault("a").random(0));
    key.fail(&fault("a"));
    assert_eq!(key.edits, [LedgerEdit::Opened], "KNOWN");
    key.later(SECOND);
    let (_, fence) = key.one("t");
    for turn in 0..2 {
        key.fail(&fault("a").by(fence).random(0));
        assert_eq!(turn == 1, key.edits == [LedgerEdit::Opened], "FAIL by a fence");
    }
    key.later(SECOND);
    let (_, fence) = key.one("u");
    for turn in 0..2 {
        assert_eq!(key.done("a", fence), Ended::Ended);
        assert_eq!(turn == 1, key.edits == [LedgerEdit::Opened], "DONE");
    }
    key.fail(&fault("a"));
    assert_eq!(key.edits, [LedgerEdit::Opened], "KNOWN done");
    key.fail(&fault("a").payload(Some("other bytes")));
    assert_eq!(key.edits, [], "a conflict is not stored anywhere");
}

#[test]
fn other_bytes_under_a_known_id_are_a_conflict() {
    let mut key = Key::default();
    key.retried(&fault("a"));
    for other in [fault("a").payload(Some("other")), fault("a").reference("body of a")] {
        assert_eq!(key.fail(&other), Failed::Conflict);
        assert!(key.edits.is_empty(), "and nothing is changed");
    }
    key.later(MINUTE);
    let (_, fence) = key.one("t");
    assert_eq!(key.fail(&fault("a").payload(Some("other"))), Failed::Conflict);
    assert_eq!(key.fail(&fault("a").payload(Some("other")).by(fence)), Failed::Conflict);
    key.done("a", fence);
    assert_eq!(key.fail(&fault("a").payload(Some("other"))), Failed::Conflict, "while its end is remembered");
}

#[test]
fn a_payload_that_comes_later_is_not_lost() {
    let mut key = Key::default();
    key.retried(&fault("a").payload(None).random(0));
    assert_eq!(key.fail(&fault("a")), Failed::Conflict, "the caller has the only copy");
    assert!(matches!(key.fail(&fault("a").payload(None)), Failed::Known { .. }));
    key.later(SECOND);
    let (_, fence) = key.one("t");
    assert_eq!(key.fail(&fault("a").by(fence)), Failed::Conflict);
    key.done("a", fence);
    assert_eq!(key.fail(&fault("a")), Failed::Conflict, "also when it is done");
}

#[test]
fn a_resolved_entry_still_knows_its_payload() {
    let mut key = Key::default();
    key.dead(&["a"]);
    let case = key.diagnose(&["order/no luck"]);
    key.start(&redrive(case));
    let (_, fence) = key.one("t");
    assert_eq!(key.done("a", fence), Ended::Ended);
    assert_eq!(key.ledger.get(b"a").expect("resolved").message.payload(), None);
    assert_eq!(key.fail(&fault("a").payload(Some("other"))), Failed::Conflict);
    let known = Failed::Known { standing: Standing::Here(Place::Resolved), attempt: 0 };
    assert_eq!(key.fail(&fault("a")), known);
    assert_eq!(key.done("a", fence), Ended::Ended, "said again");
}

#[test]
fn a_fence_that_has_failed_gets_the_same_reply_again() {
    let mut key = Key::default();
    key.retried(&fault("a"));
    key.later(MINUTE);
    let (_, fence) = key.one("t");
    let (attempt, delay) = key.retried(&fault("a").by(fence));
    key.later(SECOND / 10);
    let again = key.retried(&fault("a").by(fence).random(0).finally());
    assert_eq!(again, (attempt, delay.div_euclid(MS) * MS + i64::from(delay % MS > 0) * MS));
    assert_eq!(key.edits, [LedgerEdit::Opened], "and nothing is changed");
    assert!(matches!(key.done("a", fence), Ended::Lost(_)));
    assert!(matches!(key.give_back("a", fence, 0), Ended::Lost(_)));
    key.later(MINUTE);
    let (_, fence) = key.one("u");
    let death = key.dies(&fault("a").by(fence).finally());
    assert_eq!(key.dies(&fault("a").by(fence)), death);
    assert!(matches!(key.done("a", fence), Ended::Lost(_)));
    assert!(matches!(key.give_back("a", fence, 0), Ended::Lost(_)));
}

#[test]
fn an_earlier_fence_is_lost_after_another_take() {
    let mut key = Key::default();
    key.retried(&fault("a"));
    key.later(MINUTE);
    let (_, first) = key.one("t");
    key.later(2 * MINUTE);
    let (_, second) = key.one("u");
    assert!(second > first);
    assert_eq!(key.fail(&fault("a").by(first)), Failed::Lost(Reason::Taken));
    assert_eq!(key.done("a", first), Ended::Lost(Reason::Taken));
    assert_eq!(key.give_back("a", first, 0), Ended::Lost(Reason::Taken));
    assert_eq!(key.done("nobody", second), Ended::Lost(Reason::Absent));
    assert_eq!(key.done("a", second), Ended::Ended);
}

#[test]
fn the_last_fences_done_and_fail_count_after_lapses() {
    let mut key = Key::default();
    key.retried(&fault("a"));
    key.retried(&fault("b"));
    key.later(MINUTE);
    let taken = key.take("t", 2);
    key.later(31 * SECOND);
    assert_eq!(key.place("a"), Some(Place::Waiting));
    assert_eq!(key.done("a", taken[0].fence), Ended::Ended);
    assert_eq!(key.retried(&fault("b").by(taken[1].fence)).0, 2);
    assert_eq!(key.place("a"), None);
}

#[test]
fn a_lapse_waits_as_attempts_and_lapses_together() {
    let mut key = Key::default();
    key.configure(&none());
    key.retried(&fault("a"));
    key.later(SECOND);
    key.one("t");
    let ends = key.now + 30 * SECOND;
    key.now = ends + 100 * MS;
    key.tick();
    let entry = key.ledger.get(b"a").expect("waiting");
    assert_eq!((entry.attempt, entry.lapses), (1, 1));
    assert_eq!(entry.due_at.expect("waiting").as_us(), ends + SECOND);
    assert_eq!(key.none("u"), Some(900 * MS));
}

#[test]
fn what_lapsed_is_given_out_alone() {
    let mut key = Key::default();
    for id in ["a", "b", "c", "d"] {
        key.retried(&fault(id));
        key.now += MS;
    }
    key.later(MINUTE);
    let taken = key.take("t", 2);
    key.done("b", taken[1].fence);
    key.later(MINUTE);
    assert_eq!(key.ids("u", 10), ["c", "d"], "stops before one that lapsed and is not first");
    assert_eq!(key.ids("v", 10), ["a"], "alone");
    assert_eq!(key.ids("w", 10), [""; 0]);
}

#[test]
fn three_lapses_are_a_crash() {
    let mut key = Key::default();
    key.retried(&fault("a"));
    for lapse in 1..=2 {
        key.later(MINUTE);
        key.one(&format!("t{lapse}"));
        key.later(MINUTE);
        assert_eq!(key.ledger.get(b"a").expect("there").lapses, lapse);
    }
    let (_, fence) = key.one("last");
    key.later(MINUTE);
    assert_eq!(key.ledger.get(b"a").expect("dead").reason, Some(Death::Crash));
    assert_eq!(key.dies(&fault("a").by(fence)).2, "crash");
    assert_eq!(key.done("a", fence), Ended::Ended, "its taker was only slow");
    assert_eq!(key.place("a"), Some(Place::Resolved));
}

#[test]
fn a_connection_that_closes_is_a_lapse() {
    let mut key = Key::default();
    key.retried(&fault("a"));
    key.later(MINUTE);
    let (_, fence) = key.one("t");
    assert!(key.close(fence));
    let entry = key.ledger.get(b"a").expect("waiting");
    assert_eq!((entry.place, entry.lapses), (Place::Waiting, 1));
    assert!(entry.due_at.expect("waiting").as_us() >= key.now + 100 * MS);
}

#[test]
fn a_lapse_does_not_count_if_the_server_was_away() {
    for promotes in [false, true] {
        let mut key = Key::default();
        key.retried(&fault("a"));
        key.later(MINUTE);
        for lapse in 0..5 {
            key.one(&format!("t{lapse}"));
            if promotes {
                key.promote(SECOND)
            } else {
                key.restart(SECOND)
            };
            key.later(HOUR);
        }
        let entry = key.ledger.get(b"a").expect("waiting");
        assert_eq!((entry.place, entry.lapses), (Place::Waiting, 0));
    }
}

#[test]
fn an_uncounted_lapse_kills_nothing_under_fewer_crashes() {
    let mut key = Key::default();
    key.retried(&fault("a"));
    key.later(MINUTE);
    for lapse in 0..2 {
        key.one(&format!("t{lapse}"));
        key.later(HOUR);
    }
    key.configure(&ConfigChange { crashes: Some(1), ..ConfigChange::default() });
    key.one("last");
    key.restart(SECOND);
    key.later(HOUR);
    assert_eq!(key.place("a"), Some(Place::Waiting));
}

#[test]
fn many_crashes_can_be_allowed() {
    let mut key = Key::default();
    key.configure(&ConfigChange { crashes: Some(300), ..none() });
    key.retried(&fault("a"));
    for lapse in 0..300 {
        assert_eq!(key.place("a"), Some(Place::Waiting), "{lapse}");
        key.later(MINUTE);
        key.one(&format!("t{lapse}"));
        key.later(MINUTE);
    }
    assert_eq!(key.place("a"), Some(Place::Dead));
}
