//! Groups, cases, holds, purges, parked entries: sentences.

use resil_core::dead_letters::{
    Category, ClockWatch, Closed, Diagnosed, Discard, Ended, Failed, HoldTarget, ListFilter, Parked, Place, Rate,
    RedriveRequest, Standing,
};
use resil_core::{Instant, Span};

use super::asking::*;
use super::key::*;

#[test]
fn failures_that_differ_in_numbers_are_one_group() {
    let mut key = Key::default();
    let (_, one, _) = key.dies(&fault("a").error("timeout after 30 ms").finally());
    let (_, other, _) = key.dies(&fault("b").error("timeout after 45 ms").finally());
    let (_, kind, _) = key.dies(&fault("c").kind("bill").error("timeout after 45 ms").finally());
    let (_, given, _) = key.dies(&fault("d").group("mine").finally());
    assert_eq!(one, "order/timeout after <n> ms");
    assert_eq!((other, kind.as_str(), given.as_str()), (one, "bill/timeout after <n> ms", "mine"));
    let groups: Vec<usize> = key.ledger.groups(0, 10).0.map(|group| group.dead).collect();
    assert_eq!(groups, [2, 1, 1]);
}

#[test]
fn an_entry_is_in_the_group_of_its_last_failure() {
    let mut key = Key::default();
    key.retried(&fault("a").error("first"));
    key.later(MINUTE);
    let (_, fence) = key.one("t");
    assert_eq!(key.dies(&fault("a").by(fence).error("last").finally()).1, "order/last");
    assert_eq!(key.ledger.groups(0, 10).0.count(), 1, "a group that nobody needs is gone");
    let entry = key.ledger.get(b"a").expect("dead");
    assert_eq!((entry.first_error, entry.last_error), (&b"first"[..], &b"last"[..]));
    assert_eq!(entry.attempts.len(), 2);
}

#[test]
fn an_empty_error_stays_empty() {
    let mut key = Key::default();
    key.retried(&fault("a").group("g").error(""));
    key.retried(&fault("b").group("g").error("text"));
    key.restart(0);
    assert_eq!(key.ledger.get(b"a").expect("waiting").last_error, b"");
}

#[test]
fn the_last_eight_attempts_are_kept() {
    let mut key = Key::default();
    for _ in 0..12 {
        let fence = key.take(&format!("t{}", key.now), 1).first().map(|entry| entry.fence);
        key.retried(&Fault { fence, ..fault("a").not_counted() });
        key.later(MINUTE);
    }
    let attempts = key.ledger.get(b"a").expect("waiting").attempts;
    assert_eq!(attempts.len(), 8);
    assert!(attempts.is_sorted_by_key(|attempt| attempt.at));
}

#[test]
fn a_case_needs_groups_that_exist() {
    let mut key = Key::default();
    key.dead(&["a"]);
    let unknown = key.diagnose_as(&[GROUP, "order/other"], Category::Contract, None);
    assert_eq!(unknown, Diagnosed::UnknownGroup(b"order/other"[..].into()));
    assert!(key.edits.is_empty());
    assert_eq!(key.diagnose(&[GROUP]), 1);
    assert_eq!(key.diagnose(&[GROUP, GROUP]), 2);
    assert_eq!(key.ledger.case(2).expect("a case").groups.len(), 1);
}

#[test]
fn a_case_closes_when_its_entries_are_resolved() {
    let mut key = Key::default();
    let (case, ids) = dead_case(&mut key, 3);
    assert_eq!(key.close_case(9, Discard::No), Closed::NoCase);
    assert_eq!(key.close_case(case, Discard::No), Closed::Open(3));
    assert_eq!(key.close_case(case, Discard::UnderWay), Closed::NotPoison);
    key.later(MS);
    key.dies(&fault("later").finally());
    key.start(&redrive(case));
    let (_, fence) = key.one("t");
    assert_eq!(key.close_case(case, Discard::No), Closed::Open(3));
    key.dies(&fault(&ids[0]).by(fence).finally());
    assert_eq!(key.close_case(case, Discard::No), Closed::Open(3), "one that died again is not resolved");
    drain(&mut key, START + 5 * MINUTE);
    assert_eq!(key.close_case(case, Discard::No), Closed::Open(1));
    let next = key.diagnose(&[GROUP]);
    key.start(&redrive(next));
    drain(&mut key, START + 10 * MINUTE);
    assert_eq!(key.close_case(case, Discard::No), Closed::Closed);
    assert_eq!(key.close_case(case, Discard::No), Closed::Closed);
}

#[test]
fn a_closed_case_refuses_a_discard() {
    let mut key = Key::default();
    key.dead(&["a"]);
    let Diagnosed::Case(redriving) = key.diagnose_as(&[GROUP], Category::Contract, None) else { panic!() };
    key.start(&redrive(redriving));
    let (_, fence) = key.one("t");
    let Diagnosed::Case(poison) = key.diagnose_as(&[GROUP], Category::Poison, None) else { panic!() };
    assert_eq!(key.close_case(poison, Discard::No), Closed::Closed, "nothing of it is dead");
    key.dies(&fault("a").by(fence).finally());
    assert_eq!(key.close_case(poison, Discard::UnderWay), Closed::ClosedBefore);
    assert_eq!((key.ledger.count(Place::Dead), key.ledger.count(Place::Archived)), (1, 0));
    let Diagnosed::Case(again) = key.diagnose_as(&[GROUP], Category::Poison, None) else { panic!() };
    for _ in 0..2 {
        assert_eq!(key.close_case(again, Discard::UnderWay), Closed::Closed, "said again, it is the same");
    }
}

#[test]
fn a_list_of_a_case_has_what_keeps_it_open() {
    let mut key = Key::default();
    let (case, ids) = dead_case(&mut key, 4);
    let listed = |key: &Key| {
        let mut seen = Vec::new();
        let filter = ListFilter { case: Some(case), ..ListFilter::default() };
        key.ledger.list(&filter, 0, 10, |entry| seen.push(String::from_utf8_lossy(entry.message.id()).into_owned()));
        seen
    };
    key.later(MS);
    key.dies(&fault("later").finally());
    assert_eq!(listed(&key), ids, "before anything is redriven, and without what died later");
    key.start(&redrive(case));
    let (id, fence) = key.one("t");
    assert_eq!(key.done(&id, fence), Ended::Ended);
    assert_eq!(listed(&key), ids, "what was redriven and what was not");
    assert_eq!(key.close_case(case, Discard::No), Closed::Open(3));
}

#[test]
fn a_poison_case_archives_its_entries_in_slices() {
    let mut key = Key { is_checked: false, ..Key::default() };
    for at in 0..1_000 {
        key.dies(&fault(&format!("m{at}")).finally());
    }
    key.hold_id("m7", true);
    key.now += MS;
    let Diagnosed::Case(case) = key.diagnose_as(&[GROUP], Category::Poison, None) else { panic!() };
    key.now += MS;
    key.dies(&fault("later").finally());
    assert_eq!(key.close_case(case, Discard::No), Closed::Open(1_000));
    assert_eq!(key.close_case(case, Discard::UnderWay), Closed::Closed);
    assert_eq!(key.wake, Some(key.now), "the rest follows by itself");
    let mut slices = 0;
    while key.ledger.count(Place::Archived) < 1_000 {
        let before = key.ledger.count(Place::Archived);
        key.tick();
        let slice = key.ledger.count(Place::Archived) - before;
        assert!((1..=200).contains(&slice), "{slice}");
        slices += 1;
    }
    assert!(slices >= 5);
    key.settle();
    assert_eq!(key.place("later"), Some(Place::Dead), "it died after the diagnosis");
    assert_eq!(key.ledger.view().cases_open, 0);
    assert!(matches!(key.fail(&fault("m5")), Failed::Known { standing: Standing::Here(Place::Archived), .. }));
    key.is_checked = true;
    key.tick();
}

#[test]
fn what_is_held_keeps_its_payload_and_is_not_purged() {
    let mut key = Key::default();
    let (case, ids) = dead_case(&mut key, 2);
    key.start(&redrive(case));
    let (_, fence) = key.one("t");
    assert_eq!(key.hold_id(&ids[0], true), 1);
    assert_eq!(key.hold_id(&ids[0], true), 1, "said again");
    assert_eq!(key.hold_id("nobody", true), 0);
    assert_eq!(key.place(&ids[0]), Some(Place::Taken), "its taker keeps it");
    assert_eq!(key.ledger.leases().count(), 1);
    assert_eq!(key.done(&ids[0], fence), Ended::Ended);
    assert!(key.ledger.get(b"m0").expect("resolved").message.payload().is_some());
    assert_eq!(key.ledger.view().held, 1);
    key.stop(case);
    key.later(200 * DAY);
    assert_eq!(key.place("m0"), Some(Place::Resolved));
    assert_eq!(key.purge(), (1, 0), "the other one");
    key.hold_id("m0", false);
    key.later(SECOND);
    assert_eq!(key.place("m0"), None, "its time was over long ago");
}

#[test]
fn what_is_held_stays_when_it_is_done() {
    let mut key = Key::default();
    key.retried(&fault("a").random(0));
    key.retried(&fault("b").of("x").random(0));
    key.hold_id("a", true);
    key.hold(HoldTarget::Aggregate(b"x"), true);
    key.later(SECOND);
    for entry in key.take("t", 2) {
        let id = id_of(&entry);
        assert_eq!(key.done(&id, entry.fence), Ended::Ended);
        assert_eq!(key.done(&id, entry.fence), Ended::Ended, "said again");
        let view = key.ledger.get(id.as_bytes()).expect("kept");
        assert_eq!((view.place, view.deaths, view.held), (Place::Resolved, 0, true));
        assert!(view.message.payload().is_some(), "{id} has its payload");
    }
    key.later(200 * DAY);
    assert_eq!(key.purge(), (0, 0));
    key.hold_id("a", false);
    key.later(SECOND);
    assert_eq!((key.place("a"), key.place("b")), (None, Some(Place::Resolved)));
}

#[test]
fn a_held_aggregate_holds_what_comes() {
    let mut key = Key::default();
    key.dies(&fault("a").of("x").finally());
    let aggregate = HoldTarget::Aggregate(b"x");
    assert_eq!(key.hold(aggregate, true), 1);
    key.dies(&fault("b").of("x").finally());
    key.dies(&fault("c").of("y").finally());
    key.hold_id("b", true);
    assert_eq!(key.ledger.view().held, 2);
    key.later(SECOND);
    let case = key.diagnose(&[GROUP]);
    assert_eq!(key.start(&redrive(case)), 1, "held ones are not redriven");
    assert_eq!(key.hold(aggregate, false), 2);
    assert_eq!(key.ledger.view().held, 1, "one is held by itself");
    assert_eq!(key.hold(HoldTarget::Aggregate(b"new"), true), 0);
    key.dies(&fault("d").of("new").finally());
    assert!(key.ledger.get(b"d").expect("dead").held);
    assert_eq!(key.hold(HoldTarget::Aggregate(b""), true), 0, "no aggregate is nothing to hold");
    assert!(!key.ledger.get(b"a").expect("dead").held);
    key.dead(&["e"]);
    assert!(!key.ledger.get(b"e").expect("dead").held);
}

#[test]
fn a_long_aggregate_is_held_as_it_is_kept() {
    let mut key = Key::default();
    let long = "x".repeat(3_000);
    key.dies(&fault("a").of(&long).finally());
    assert_eq!(key.hold(HoldTarget::Aggregate(long.as_bytes()), true), 1);
    assert!(key.ledger.get(b"a").expect("dead").held);
}

#[test]
fn nothing_younger_than_its_retention_is_purged() {
    let mut key = Key::default();
    key.dead(&["a"]);
    key.later(90 * DAY - SECOND);
    assert_eq!(key.purge(), (0, 0));
    assert_eq!(key.purge_of(None, DAY, 10), (0, 0), "whatever the caller says");
    key.later(2 * SECOND);
    assert_eq!(key.purge_of(Some(Place::Resolved), 90 * DAY, 10), (0, 0));
    assert_eq!(key.purge_of(None, 100 * DAY, 10), (0, 0));
    assert_eq!(key.purge_of(Some(Place::Dead), 90 * DAY, 10), (1, 0));
    assert_eq!(key.ledger.len(), 0);
    assert_eq!(key.audit().len(), 1, "a purge of nothing is not in the audit");
}

#[test]
fn a_purge_says_how_much_is_left() {
    let mut key = Key::default();
    for at in 0..30 {
        key.dies(&fault(&format!("m{at}")).error(["x", "y", "z"][at % 3]).finally());
    }
    key.later(91 * DAY);
    assert_eq!(key.purge_of(None, 90 * DAY, 12), (12, 18));
    assert_eq!(key.purge_of(None, 90 * DAY, 12), (12, 6));
    assert_eq!(key.purge_of(None, 90 * DAY, 12), (6, 0));
}

#[test]
fn many_held_entries_do_not_stop_the_end_of_retention() {
    let mut key = Key { is_checked: false, ..Key::default() };
    let (case, _) = dead_case(&mut key, 600);
    key.start(&RedriveRequest { rate: Some(Rate { count: 1_000, period: Span::from_secs(60) }), ..redrive(case) });
    drain(&mut key, START + 5 * MINUTE);
    for at in 0..500 {
        assert_eq!(key.place(&format!("m{at}")), Some(Place::Resolved));
        key.hold_id(&format!("m{at}"), true);
    }
    key.later(91 * DAY);
    assert_eq!(key.ledger.count(Place::Resolved), 500, "all that are not held are gone");
}

#[test]
fn a_clock_that_jumped_is_not_believed_for_a_day() {
    let mut watch = ClockWatch::default();
    let at = |us| Instant::from_us(START + us);
    watch.look(at(0));
    watch.look(at(DAY));
    assert!(!watch.has_jumped(at(DAY)));
    watch.look(at(3 * DAY));
    assert!(watch.has_jumped(at(3 * DAY)));
    assert!(watch.has_jumped(at(4 * DAY - 1)));
    assert!(!watch.has_jumped(at(4 * DAY)));
    watch.look(at(0));
    assert!(watch.has_jumped(at(0)));
}

#[test]
fn resolved_entries_are_kept_for_ninety_days_and_bounded() {
    let mut key = Key::default();
    let (case, ids) = dead_case(&mut key, 4);
    key.start(&redrive(case));
    key.room.resolved = 2;
    drain(&mut key, START + 5 * MINUTE);
    assert_eq!(key.ledger.count(Place::Resolved), 2);
    assert_eq!((key.place(&ids[0]), key.place(&ids[3])), (None, Some(Place::Resolved)));
    key.later(89 * DAY);
    assert_eq!(key.ledger.count(Place::Resolved), 2);
    key.later(DAY);
    assert_eq!(key.ledger.count(Place::Resolved), 0);
}

#[test]
fn resolved_entries_do_not_fill_a_ledger() {
    let mut key = Key::default();
    let (case, _) = dead_case(&mut key, 3);
    key.start(&redrive(case));
    drain(&mut key, START + 5 * MINUTE);
    key.room.entries = 2;
    key.retried(&fault("a"));
    key.retried(&fault("b"));
    assert_eq!(key.fail(&fault("c")), Failed::Full);
}

#[test]
fn parked_entries_leave_one_at_a_time_in_order() {
    let mut key = Key::default();
    assert_eq!(key.park("early", "x"), Parked::Free);
    assert_eq!(key.ledger.len(), 0, "FREE stores nothing");
    key.retried(&fault("head").of("x"));
    assert_eq!(key.park("a", "x"), Parked::Behind { position: 1 });
    assert_eq!(key.park("b", "x"), Parked::Behind { position: 2 });
    assert_eq!(key.park("c", "x"), Parked::Behind { position: 3 });
    let known = Parked::Known { standing: Standing::Here(Place::Parked), attempt: 0 };
    assert_eq!(key.park("b", "x"), known);
    assert_eq!(key.park("other", "y"), Parked::Free);
    key.later(MINUTE);
    for id in ["head", "a", "b", "c"] {
        let taken = key.take(&format!("t{id}"), 10);
        assert_eq!(taken.len(), 1);
        assert_eq!(id_of(&taken[0]), id);
        assert_eq!(key.take("u", 10).len(), 0);
        key.now += MS;
        assert_eq!(key.done(id, taken[0].fence), Ended::Ended);
    }
    assert_eq!(key.park("late", "x"), Parked::Free);
}

#[test]
fn what_is_parked_waits_for_all_that_failed_before_it() {
    let mut key = Key::default();
    key.retried(&fault("one").of("x"));
    key.retried(&fault("two").of("x"));
    key.park("tail", "x");
    key.later(MINUTE);
    let taken = key.take("t", 2);
    key.done("one", taken[0].fence);
    assert_eq!(key.place("tail"), Some(Place::Parked));
    key.done("two", taken[1].fence);
    assert_eq!(key.place("tail"), Some(Place::Waiting));
}

#[test]
fn what_was_parked_is_due_when_it_may_go() {
    let mut key = Key::default();
    key.retried(&fault("head").of("x"));
    key.park("tail", "x");
    key.later(MINUTE);
    let (_, fence) = key.one("t");
    key.retried(&fault("other").random(0));
    key.later(10 * SECOND);
    key.done("head", fence);
    assert_eq!(key.ids("u", 10), ["other", "tail"]);
}

#[test]
fn a_dead_head_keeps_the_rest_parked() {
    let mut key = Key::default();
    key.dies(&fault("head").of("x").finally());
    key.park("a", "x");
    key.later(DAY);
    assert_eq!(key.none("t"), None);
    let Diagnosed::Case(case) = key.diagnose_as(&[GROUP], Category::Poison, None) else { panic!() };
    key.close_case(case, Discard::UnderWay);
    key.settle();
    assert_eq!(key.ids("t", 10), ["a"], "discarding it lets the next go");
    assert_eq!(key.park("b", "x"), Parked::Behind { position: 1 });
}

#[test]
fn a_purged_head_lets_the_next_go() {
    let mut key = Key::default();
    key.dies(&fault("head").of("x").finally());
    key.park("a", "x");
    key.later(91 * DAY);
    assert_eq!(key.purge(), (1, 0));
    assert_eq!(key.ids("t", 10), ["a"]);
}

#[test]
fn an_entry_that_crashes_before_it_fails_has_a_group() {
    let mut key = Key::default();
    key.retried(&fault("head").of("x"));
    key.park("a", "x");
    key.later(MINUTE);
    let (_, fence) = key.one("t");
    key.done("head", fence);
    for turn in 0..3 {
        key.later(MINUTE);
        assert_eq!(key.ids(&format!("t{turn}"), 1), ["a"]);
        key.later(MINUTE);
    }
    let entry = key.ledger.get(b"a").expect("dead");
    assert_eq!((entry.place, entry.attempt), (Place::Dead, 0));
    let group = String::from_utf8_lossy(entry.group).into_owned();
    assert!(!entry.last_error.is_empty());
    let case = key.diagnose(&[&group]);
    key.later(MS);
    assert_eq!(key.start(&redrive(case)), 1);
}

#[test]
fn a_page_of_entries_continues_where_the_last_ended() {
    let mut key = Key::default();
    dead_case(&mut key, 10);
    let mut seen = Vec::new();
    let mut cursor = 0;
    loop {
        cursor = key.ledger.list(&Default::default(), cursor, 3, |entry| seen.push(entry.message.id().to_vec()));
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(seen.len(), 10);
    let mut some = 0;
    let since = Some(Instant::from_us(START + 4 * MS));
    let until = Some(Instant::from_us(START + 6 * MS));
    let filter = resil_core::dead_letters::ListFilter { since, until, ..Default::default() };
    assert_eq!(key.ledger.list(&filter, 0, 100, |_| some += 1), 0);
    assert_eq!(some, 2, "since is inclusive, until is not");
}
