//! Where there is more of something than one step looks at, and texts longer than what is kept: sentences.

use std::str::from_utf8;

use resil_core::dead_letters::{
    BatchRenewed, ConfigChange, Ended, HoldTarget, Jitter, ListFilter, Place, Rate, RedriveRequest,
};
use resil_core::waited::Decision;
use resil_core::{Instant, Span};

use super::asking::*;
use super::key::*;

/// Purges until nothing is left: how many that were.
fn purge_all(key: &mut Key) -> usize {
    let mut all = 0;
    for _ in 0..100 {
        let (purged, left) = key.purge();
        all += purged;
        if left == 0 {
            return all;
        }
    }
    panic!("a purge never ends");
}

#[test]
fn held_entries_hide_nothing_from_a_purge() {
    let mut key = Key { is_checked: false, ..Key::default() };
    for at in 0..12_000 {
        key.dies(&fault(&format!("held{at}")).of("x").finally());
    }
    key.dies(&fault("free").finally());
    key.hold(HoldTarget::Aggregate(b"x"), true);
    key.later(91 * DAY);
    assert_eq!(purge_all(&mut key), 1);
    assert_eq!((key.place("free"), key.ledger.count(Place::Dead)), (None, 12_000));
    // What is known of held entries does not outlive the hold.
    key.hold(HoldTarget::Aggregate(b"x"), false);
    assert_eq!(purge_all(&mut key), 12_000);
}

#[test]
fn what_ends_among_held_entries_is_purged_too() {
    let mut key = Key { is_checked: false, ..Key::default() };
    for at in 0..6_000 {
        key.dies(&fault(&format!("held{at}")).finally());
        key.hold_id(&format!("held{at}"), true);
    }
    key.later(91 * DAY);
    assert_eq!(purge_all(&mut key), 0);
    // A clock that was set back: it dies before those.
    key.now = START - DAY;
    key.dies(&fault("early").finally());
    key.later(200 * DAY);
    assert_eq!(purge_all(&mut key), 1);
    assert_eq!(key.place("early"), None);
}

#[test]
fn held_entries_do_not_stop_resolved_ones_from_being_forgotten() {
    let mut key = Key { is_checked: false, ..Key::default() };
    let (case, _) = dead_case(&mut key, 1_400);
    key.start(&RedriveRequest { rate: Some(Rate { count: 1_000, period: Span::from_secs(60) }), ..redrive(case) });
    let mut handled = 0;
    while handled < 1_400 {
        for entry in key.take(&format!("t{handled}"), 1) {
            key.done(&id_of(&entry), entry.fence);
            handled += 1;
            if handled <= 1_100 {
                key.hold_id(&id_of(&entry), true);
            } else {
                key.room.resolved = 50;
            }
        }
        key.later(60 * MS);
    }
    assert!(key.ledger.count(Place::Resolved) <= 1_150, "{}", key.ledger.count(Place::Resolved));
}

#[test]
fn a_promotion_mends_leases_in_slices_before_they_end() {
    let mut key = Key { is_checked: false, ..Key::default() };
    key.configure(&ConfigChange { jitter: Some(Jitter::None), ..ConfigChange::default() });
    for at in 0..2_000 {
        key.retried(&fault(&format!("m{at}")));
    }
    key.later(SECOND);
    for at in 0..2_000 {
        assert!(matches!(key.ask(&format!("t{at}"), 30 * SECOND, 1, None), Decision::Granted(_)));
    }
    let promoted = key.now + 30 * SECOND - MS;
    key.now = promoted;
    key.promote(0);
    // Nobody looks until they would all have ended.
    key.now += SECOND;
    key.tick();
    assert!(key.edits.len() <= 500, "{} edits in one step", key.edits.len());
    key.settle();
    assert_eq!((key.ledger.count(Place::Taken), key.ledger.leases().count()), (2_000, 2_000));
    assert!(key.ledger.leases().all(|lease| lease.ends == Instant::from_us(promoted + 30 * SECOND)));
    key.later(30 * SECOND);
    assert_eq!(key.ledger.leases().count(), 0, "they end at last");
}

#[test]
fn leases_are_mended_while_others_are_taken() {
    let mut key = Key { is_checked: false, ..Key::default() };
    key.configure(&ConfigChange { jitter: Some(Jitter::None), ..ConfigChange::default() });
    for at in 0..1_300 {
        key.retried(&fault(&format!("m{at}")));
    }
    key.later(SECOND);
    for at in 0..1_200 {
        key.ask(&format!("t{at}"), 30 * SECOND, 1, None);
    }
    key.now -= HOUR;
    for at in 1_200..1_300 {
        key.ask(&format!("t{at}"), 30 * SECOND, 1, None);
    }
    key.settle();
    let latest = Instant::from_us(key.now + 30 * SECOND);
    assert_eq!(key.ledger.leases().filter(|lease| lease.ends > latest).count(), 0);
    key.later(30 * SECOND);
    assert_eq!(key.ledger.leases().count(), 0);
}

#[test]
fn a_name_that_was_cut_is_still_text() {
    let mut key = Key::default();
    // Every place where a character can lie across the limit.
    for shift in 0..4 {
        let pad = "x".repeat(shift);
        let long = format!("{pad}{}", "€".repeat(600));
        for error in [long.clone(), format!("{pad}{}", "1 ".repeat(100) + &long)] {
            let (_, group, _) = key.dies(&fault(&format!("{shift}{}", error.len())).error(&error).finally());
            assert!(!group.contains('\u{fffd}') && group.len() <= 512, "{group}");
            key.diagnose(&[&group]);
        }
        let id = format!("given {shift}");
        let given: &'static str = long.clone().leak();
        key.dies(&fault(&id).kind(given).of(given).group(given).finally());
        let view = key.ledger.get(id.as_bytes()).expect("dead");
        let (kind, aggregate) = (view.message.kind(), view.message.aggregate());
        assert!(from_utf8(kind).is_ok() && from_utf8(aggregate).is_ok() && kind.len() > 1_020);
        // It can be asked for as it was given.
        key.diagnose(&[given]);
        let given = given.as_bytes();
        let filter = ListFilter { kind: Some(given), aggregate: Some(given), group: Some(given), ..Default::default() };
        let mut found = 0;
        key.ledger.list(&filter, 0, 10, |_| found += 1);
        assert_eq!((found, key.hold(HoldTarget::Aggregate(given), true)), (1, 1));
    }
}

#[test]
fn bytes_that_are_no_text_are_cut_at_the_limit() {
    let mut key = Key::default();
    let kind = std::str::from_utf8(b"order").expect("text");
    key.dies(&fault("a").kind(kind).error(&"y".repeat(5_000)).finally());
    assert_eq!(key.ledger.get(b"a").expect("dead").last_error.len(), 1_024);
}

/// A ledger in which one taker has a thousand entries: their ids and fences.
fn a_thousand_taken() -> (Key, Vec<(String, u64)>) {
    let mut key = Key { is_checked: false, ..Key::default() };
    for at in 0..1_000 {
        key.retried(&fault(&format!("m{at}")));
    }
    key.later(HOUR);
    let taken: Vec<_> = key.take("t", 1_000).iter().map(|entry| (id_of(entry), entry.fence)).collect();
    assert_eq!(taken.len(), 1_000);
    key.is_checked = true;
    (key, taken)
}

#[test]
fn a_lease_with_many_entries_ends_in_parts() {
    let (mut key, taken) = a_thousand_taken();
    key.configure(&ConfigChange { crashes: Some(1), ..ConfigChange::default() });
    assert!(key.close(taken[0].1));
    assert_eq!(key.ledger.count(Place::Dead), 100, "one step ends a hundred");
    assert_eq!(key.endings.len(), 1, "its taker has lost them all");
    let closed_at = key.now;
    let mut steps = 1;
    while key.ledger.count(Place::Taken) > 0 {
        assert_eq!(key.wake, Some(closed_at), "the next part follows at once");
        key.now += MS;
        key.tick();
        assert_eq!(key.endings, [], "that is reported once");
        steps += 1;
    }
    assert_eq!((steps, key.ledger.count(Place::Dead), key.first_lease_end()), (10, 1_000, None));
    let died_at = |id: &String| key.ledger.get(id.as_bytes()).and_then(|entry| entry.died_at).map(Instant::as_us);
    assert!(taken.iter().all(|(id, _)| died_at(id) == Some(closed_at)), "all died when the lease ended");
}

#[test]
fn the_rest_of_an_ended_lease_is_not_regiven() {
    let (mut key, taken) = a_thousand_taken();
    assert!(key.close(taken[0].1));
    let mut other = key.clone();
    assert!(matches!(other.renew("t", HOUR), BatchRenewed::Lost(_)));
    assert_eq!((other.ledger.count(Place::Taken), other.ledger.count(Place::Waiting)), (0, 1_000));
    assert_eq!(key.take("t", 1_000), [], "they are due after a backoff");
    assert_eq!(key.ledger.count(Place::Waiting), 1_000);
}

#[test]
fn a_taker_can_finish_while_its_lease_ends() {
    let (mut key, taken) = a_thousand_taken();
    assert!(key.close(taken[0].1));
    assert!(key.done_all(&taken).iter().all(|ended| *ended == Ended::Ended), "no other has them");
    assert_eq!(key.endings, []);
    assert_eq!((key.ledger.len(), key.first_lease_end()), (0, None));
}

#[test]
fn an_undelivered_reply_with_many_entries_is_no_lapse() {
    let (mut key, taken) = a_thousand_taken();
    assert!(key.take_back(taken[0].1));
    key.settle();
    let entry = |id: &String| key.ledger.get(id.as_bytes()).expect("waiting");
    assert!(taken.iter().all(|(id, _)| entry(id).place == Place::Waiting && entry(id).lapses == 0));
    assert_eq!(key.take("u", 1_000).len(), 1_000, "they are due as before");
}

#[test]
fn a_lease_that_ends_in_parts_survives_restarts_and_promotions() {
    for restarts in [true, false] {
        let (mut key, taken) = a_thousand_taken();
        assert!(key.close(taken[0].1));
        if restarts {
            key.restart(SECOND)
        } else {
            key.promote(SECOND)
        }
        key.later(HOUR);
        assert_eq!((key.ledger.count(Place::Taken), key.ledger.count(Place::Waiting)), (0, 1_000));
        let lapses = |id: &String| key.ledger.get(id.as_bytes()).expect("waiting").lapses;
        assert_eq!(taken.iter().filter(|(id, _)| lapses(id) > 0).count(), 100, "the rest is not the messages' fault");
    }
}
