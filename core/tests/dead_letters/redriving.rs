//! Redrives: sentences.

use resil_core::dead_letters::{
    Category, Closed, ConfigChange, Diagnosed, Discard, Ended, Place, Rate, RedriveFilter, RedrivePhase,
    RedriveRequest, Redriven, Refusal,
};
use resil_core::waited::Decision;
use resil_core::{Instant, Span};

use super::asking::*;
use super::key::*;

#[test]
fn a_redrive_is_refused_for_a_reason() {
    let mut key = Key::default();
    assert_eq!(key.refusal(&redrive(1)), Refusal::Case);
    key.dead(&["a", "b"]);
    let case = key.diagnose(&[GROUP]);
    let Diagnosed::Case(poison) = key.diagnose_as(&[GROUP], Category::Poison, None) else { panic!("a case") };
    assert_eq!(key.refusal(&redrive(poison)), Refusal::Poison);
    let rate = Some(Rate { count: 1_001, period: Span::from_secs(60) });
    assert_eq!(key.refusal(&RedriveRequest { rate, ..redrive(case) }), Refusal::Rate);
    let filter = RedriveFilter { id: Some(b"x"[..].into()), ..RedriveFilter::default() };
    assert_eq!(key.refusal(&RedriveRequest { filter, ..redrive(case) }), Refusal::Nothing);
    key.hold_id("a", true);
    key.hold_id("b", true);
    assert_eq!(key.refusal(&redrive(case)), Refusal::Held);
    key.hold_id("a", false);
    assert_eq!(key.start(&redrive(case)), 1);
    assert_eq!(key.refusal(&redrive(case)), Refusal::Running);
    let (id, fence) = key.one("t");
    assert_eq!(id, "a");
    key.dies(&fault("a").by(fence).finally());
    key.later(SECOND);
    let only_a = RedriveFilter { id: Some(b"a"[..].into()), ..RedriveFilter::default() };
    assert_eq!(key.refusal(&RedriveRequest { filter: only_a, ..redrive(case) }), Refusal::Again);
    assert_eq!(key.refusal(&redrive(case)), Refusal::Held);
    key.hold_id("b", false);
    key.start(&redrive(case));
    let (_, fence) = key.one("u");
    key.done("b", fence);
    key.later(SECOND);
    let next = key.diagnose(&[GROUP]);
    key.start(&redrive(next));
    let (id, fence) = key.one("v");
    assert_eq!(id, "a", "a new case redrives it again");
    key.done("a", fence);
    assert_eq!(key.close_case(case, Discard::No), Closed::Closed);
    assert_eq!(key.refusal(&redrive(case)), Refusal::Closed);
}

#[test]
fn a_refused_redrive_changes_nothing() {
    let mut key = Key::default();
    key.dead(&["a"]);
    let before = key.ledger.clone();
    key.refusal(&redrive(7));
    assert!(key.edits.is_empty());
    assert_eq!(key.ledger, before);
}

#[test]
fn a_redrive_covers_what_died_before_it_in_its_groups() {
    let mut key = Key::default();
    key.dead(&["a"]);
    key.dies(&fault("other").error("else").finally());
    key.later(SECOND);
    let case = key.diagnose(&[GROUP]);
    assert_eq!(key.start(&redrive(case)), 1);
    key.dies(&fault("late").finally());
    let given = drain(&mut key, START + 10 * MINUTE).len();
    assert_eq!(given, 1);
    assert_eq!((key.place("other"), key.place("late")), (Some(Place::Dead), Some(Place::Dead)));
}

#[test]
fn a_redrive_is_scoped_by_its_filter() {
    let mut key = Key::default();
    key.dies(&fault("a").group("g").finally());
    key.later(MINUTE);
    key.dies(&fault("b").group("g").kind("bill").of("x").finally());
    key.later(MINUTE);
    key.dies(&fault("c").group("g").of("x").finally());
    key.later(MINUTE);
    let case = key.diagnose(&["g"]);
    let died = |at| Some(Instant::from_us(START + at));
    let count = |key: &mut Key, filter| match key.redrive(&RedriveRequest { filter, dry_run: true, ..redrive(case) }) {
        Redriven::DryRun(matched) => matched.sample.iter().map(|id| String::from_utf8_lossy(id).into()).collect(),
        Redriven::Refused(Refusal::Nothing) => Vec::<String>::new(),
        other => panic!("{other:?}"),
    };
    let all = RedriveFilter::default();
    assert_eq!(count(&mut key, RedriveFilter { id: Some(b"b"[..].into()), ..all.clone() }), ["b"]);
    assert_eq!(count(&mut key, RedriveFilter { kind: Some(b"order"[..].into()), ..all.clone() }), ["a", "c"]);
    assert_eq!(count(&mut key, RedriveFilter { aggregate: Some(b"x"[..].into()), ..all.clone() }), ["b", "c"]);
    assert_eq!(count(&mut key, RedriveFilter { since: died(MINUTE), ..all.clone() }), ["b", "c"]);
    assert_eq!(count(&mut key, RedriveFilter { until: died(MINUTE), ..all.clone() }), ["a"]);
    assert_eq!(count(&mut key, RedriveFilter { until: died(-1), ..all }), [""; 0]);
    assert!(key.redrive_of(case).is_none(), "DRYRUN starts nothing");
}

#[test]
fn a_redrive_gives_out_by_death_at_its_pace() {
    let mut key = Key::default();
    let (case, ids) = dead_case(&mut key, 5);
    key.start(&redrive(case));
    let mut given = Vec::new();
    for turn in 0..5 {
        let taken = key.take(&format!("t{turn}"), 10);
        given.extend(taken.iter().map(id_of));
        assert_eq!(taken.len(), 1, "one at a time, whatever COUNT says");
        assert_eq!(taken[0].case, Some(case));
        assert_eq!((taken[0].attempt, taken[0].deaths), (0, 1));
        if turn < 4 {
            assert_eq!(key.none("w"), Some(600 * MS), "a hundred per minute");
            key.later(600 * MS - 1);
            assert_eq!(key.none("w"), Some(1));
            key.later(1);
        }
    }
    assert_eq!(given, ids);
}

#[test]
fn retries_of_redriven_entries_pass_the_same_pace() {
    let mut key = Key::default();
    let (case, _) = dead_case(&mut key, 2);
    let rate = Some(Rate { count: 1, period: Span::from_secs(60) });
    key.start(&RedriveRequest { rate, ..redrive(case) });
    let (id, fence) = key.one("t");
    key.retried(&fault(&id).by(fence));
    key.later(30 * SECOND);
    assert_eq!(key.none("u"), Some(30 * SECOND));
    key.later(30 * SECOND);
    let (id, fence) = key.one("u");
    assert_eq!(id, "m1", "due since the redrive started");
    key.done("m1", fence);
    key.later(MINUTE);
    assert_eq!(key.ids("v", 10), ["m0"]);
    assert_eq!(key.none("w"), None);
}

#[test]
fn two_redrives_share_one_pace() {
    let mut key = Key::default();
    key.dies(&fault("a").group("g").finally());
    key.dies(&fault("b").group("h").finally());
    key.now += MS;
    let (one, two) = (key.diagnose(&["g"]), key.diagnose(&["h"]));
    key.start(&redrive(one));
    key.start(&redrive(two));
    assert_eq!(key.take("t", 10).len(), 1);
    assert_eq!(key.none("u"), Some(600 * MS));
}

#[test]
fn a_slow_redrive_is_waited_for_by_a_fast_one() {
    let mut key = Key::default();
    key.dies(&fault("a").group("g").finally());
    key.dies(&fault("b").group("h").finally());
    key.now += MS;
    let (one, two) = (key.diagnose(&["g"]), key.diagnose(&["h"]));
    let rate = Some(Rate { count: 1, period: Span::from_secs(60) });
    key.start(&RedriveRequest { rate, ..redrive(one) });
    key.start(&redrive(two));
    assert_eq!(key.ids("t", 10), ["a"]);
    assert_eq!(key.none("u"), Some(MINUTE));
}

#[test]
fn a_lower_ratemax_slows_a_redrive_that_runs() {
    let mut key = Key::default();
    let (case, _) = dead_case(&mut key, 2);
    key.start(&redrive(case));
    let rate_max = Some(Rate { count: 10, period: Span::from_secs(60) });
    key.configure(&ConfigChange { rate_max, ..ConfigChange::default() });
    key.one("t");
    assert_eq!(key.none("u"), Some(6 * SECOND));
}

#[test]
fn the_pace_holds_after_idle_hours() {
    let mut key = Key::default();
    let (case, _) = dead_case(&mut key, 300);
    key.is_checked = false;
    key.start(&redrive(case));
    key.later(5 * HOUR);
    let begin = key.now;
    let given = drain(&mut key, begin + 2 * MINUTE);
    assert!(given.len() > 150, "{}", given.len());
    let most = given.iter().map(|from| given.iter().filter(|at| (*from..*from + MINUTE).contains(*at)).count()).max();
    assert!(most <= Some(101), "{most:?}");
}

#[test]
fn the_pace_holds_across_a_failover() {
    for promotes in [false, true] {
        let mut key = Key::default();
        let (case, _) = dead_case(&mut key, 3);
        key.start(&redrive(case));
        key.one("t");
        if promotes {
            key.promote(0)
        } else {
            key.restart(0)
        };
        assert_eq!(key.none("u"), Some(600 * MS));
        key.later(600 * MS);
        assert_eq!(key.take("u", 5).len(), 1);
    }
}

#[test]
fn a_clock_set_back_does_not_stop_a_redrive() {
    let mut key = Key::default();
    key.later(DAY);
    let (case, _) = dead_case(&mut key, 3);
    key.start(&redrive(case));
    key.one("t");
    key.later(-HOUR);
    key.later(600 * MS);
    assert_eq!(key.take("u", 5).len(), 1);
    assert_eq!(key.none("v"), Some(600 * MS));
}

#[test]
fn the_first_ones_are_tried_before_the_rest() {
    let mut key = Key::default();
    let (case, ids) = dead_case(&mut key, 8);
    key.start(&RedriveRequest { first: 4, ..redrive(case) });
    let mut fences = Vec::new();
    for id in &ids[..4] {
        let (given, fence) = key.one(&format!("t{id}"));
        assert_eq!(given, *id);
        fences.push(fence);
        key.later(SECOND);
    }
    assert_eq!(key.none("u"), None, "the rest waits for outcomes");
    assert_eq!(key.redrive_of(case).expect("one").phase, RedrivePhase::Verifying);
    key.dies(&fault(&ids[0]).by(fences[0]).finally());
    key.done(&ids[1], fences[1]);
    assert_eq!(key.none("u"), None);
    key.done(&ids[2], fences[2]);
    assert_eq!(key.ids("u", 9), [ids[4].as_str()], "half of them are resolved");
}

#[test]
fn a_redrive_stops_if_too_few_are_resolved() {
    let mut key = Key::default();
    let (case, ids) = dead_case(&mut key, 8);
    key.start(&RedriveRequest { first: 3, ..redrive(case) });
    for (turn, id) in ids[..3].iter().enumerate() {
        let (_, fence) = key.one(&format!("t{id}"));
        if turn == 0 {
            key.done(id, fence);
        } else {
            key.dies(&fault(id).by(fence).finally());
        }
        key.later(SECOND);
    }
    assert_eq!(key.redrive_of(case).expect("one").phase, RedrivePhase::Failed);
    assert_eq!(key.alerts().last().expect("an alert"), &("stopped", case.to_string()));
    assert_eq!(key.none("u"), None);
}

#[test]
fn a_redrive_stops_when_most_last_outcomes_are_deaths() {
    let mut key = Key::default();
    let (case, ids) = dead_case(&mut key, 40);
    key.start(&RedriveRequest { first: 1, ..redrive(case) });
    let mut given = 0;
    // A taker waits all the time, so that nothing is drawn too soon nor too late.
    while key.now < START + HOUR {
        let taken = key.take(&format!("t{}", key.now), 1);
        for entry in &taken {
            given += 1;
            if given <= 20 {
                key.done(&id_of(entry), entry.fence);
            } else {
                key.ask(&format!("w{}", key.now), MINUTE, 1, Some(MS));
                key.dies(&fault(&id_of(entry)).by(entry.fence).finally());
            }
        }
        key.later(SECOND);
    }
    assert_eq!(given, 31, "ten of twenty are no more than half");
    let view = key.redrive_of(case).expect("one");
    assert_eq!((view.phase, view.resolved, view.died), (RedrivePhase::Failed, 20, 11));
    assert_eq!(key.alerts().iter().filter(|(kind, _)| *kind == "stopped").count(), 1);
    assert_eq!(key.place(&ids[31]), Some(Place::Dead));
}

#[test]
fn a_failed_redrive_gives_nothing_to_waiters() {
    let mut key = Key::default();
    let (case, ids) = dead_case(&mut key, 40);
    key.start(&RedriveRequest { rate: Some(Rate { count: 1_000, period: Span::from_secs(60) }), ..redrive(case) });
    let mut fences = Vec::new();
    for id in &ids[..11] {
        fences.push(key.one(&format!("t{id}")).1);
        key.later(60 * MS);
    }
    for (id, fence) in ids.iter().zip(&fences[..10]) {
        key.dies(&fault(id).by(*fence).finally());
    }
    key.ask("first", MINUTE, 1, Some(MINUTE));
    key.ask("second", MINUTE, 1, Some(MINUTE));
    key.dies(&fault(&ids[10]).by(fences[10]).finally());
    assert_eq!(key.redrive_of(case).expect("one").given, 12);
    key.later(30 * SECOND);
    let view = key.redrive_of(case).expect("one");
    assert_eq!((view.given, view.phase), (12, RedrivePhase::Failed));
}

#[test]
fn a_redriven_entry_has_new_attempts_and_keeps_its_history() {
    let mut key = Key::default();
    key.retried(&fault("a").error("first"));
    key.later(MINUTE);
    let (_, fence) = key.one("t");
    key.dies(&fault("a").by(fence).finally());
    key.later(SECOND);
    let case = key.diagnose(&[GROUP]);
    key.start(&redrive(case));
    for attempt in 1..=5 {
        let (_, fence) = key.one(&format!("t{attempt}"));
        assert_eq!(key.retried(&fault("a").by(fence)).0, attempt);
        key.later(MINUTE);
    }
    let (_, fence) = key.one("last");
    assert_eq!(key.dies(&fault("a").by(fence)).0, 2, "its second death");
    let entry = key.ledger.get(b"a").expect("dead");
    assert_eq!((entry.first_error, entry.cases), (&b"first"[..], &[case][..]));
}

#[test]
fn oneshot_gives_one_attempt() {
    let mut key = Key::default();
    let (case, _) = dead_case(&mut key, 1);
    key.start(&RedriveRequest { oneshot: true, ..redrive(case) });
    let (id, fence) = key.one("t");
    assert_eq!(key.dies(&fault(&id).by(fence)).2, "retries");
}

#[test]
fn a_redrive_shows_no_more_than_it_covers() {
    let mut key = Key::default();
    let (case, ids) = dead_case(&mut key, 20);
    for (count, shown) in [(Some(1), 1), (Some(15), 10), (None, 10)] {
        let request = RedriveRequest { count, dry_run: true, ..redrive(case) };
        let Redriven::DryRun(matched) = key.redrive(&request) else { panic!("it covers some") };
        let sample: Vec<&[u8]> = matched.sample.iter().map(|id| &id[..]).collect();
        assert_eq!(sample, ids[..shown].iter().map(|id| id.as_bytes()).collect::<Vec<_>>());
    }
}

#[test]
fn count_bounds_a_redrive() {
    let mut key = Key::default();
    let (case, _) = dead_case(&mut key, 5);
    assert_eq!(key.start(&RedriveRequest { count: Some(2), ..redrive(case) }), 2);
    assert_eq!(drain(&mut key, START + 10 * MINUTE).len(), 2);
    assert_eq!(key.redrive_of(case).expect("one").phase, RedrivePhase::Finished);
    assert_eq!(key.start(&redrive(case)), 3, "the rest can follow");
}

#[test]
fn a_stopped_redrive_gives_nothing_more() {
    let mut key = Key::default();
    let (case, _) = dead_case(&mut key, 3);
    assert_eq!(key.stop(case), None);
    key.start(&redrive(case));
    let (id, fence) = key.one("t");
    let view = key.stop(case).expect("a redrive");
    assert_eq!((view.phase, view.given, view.active), (RedrivePhase::Stopped, 1, 1));
    key.later(HOUR);
    assert_eq!(key.ids("u", 5), [id.as_str()], "only what was given out before, and lapsed");
    assert_eq!(key.refusal(&redrive(case)), Refusal::Running, "until that has ended");
    let fence = fence.max(key.ledger.last_fence());
    assert_eq!(key.done(&id, fence), Ended::Ended);
    key.later(SECOND);
    assert_eq!(key.start(&redrive(case)), 2);
    assert_eq!(key.audit().iter().filter(|action| action.starts_with("stop")).count(), 1);
}

#[test]
fn auto_redrives_what_dies_later_after_a_quiet_minute() {
    let mut key = Key::default();
    key.dead(&["before"]);
    let Diagnosed::Case(case) = key.diagnose_as(&[GROUP], Category::Infrastructure, Some(HOUR)) else { panic!() };
    key.later(SECOND);
    for id in ["a", "b", "c"] {
        key.dies(&fault(id).finally());
        key.later(30 * SECOND);
    }
    assert_eq!(key.none("t"), None, "not while they die");
    key.later(30 * SECOND);
    let (id, fence) = key.one("t");
    assert_eq!(id, "a", "what died before the diagnosis stays");
    key.later(MINUTE / 6);
    assert_eq!(key.none("u"), None, "one at first");
    key.done("a", fence);
    let rest = drain(&mut key, START + 10 * MINUTE).len();
    assert_eq!(rest, 2);
    assert_eq!(key.place("before"), Some(Place::Dead));
    assert!(key.redrive_of(case).expect("one").is_auto);
    key.dies(&fault("d").finally());
    key.later(2 * MINUTE);
    assert_eq!(key.ids("v", 1), ["d"], "and again");
    key.now = START + 2 * HOUR;
    key.dies(&fault("late").finally());
    key.later(10 * MINUTE);
    assert!(!key.ids("w", 5).contains(&"late".to_string()), "its time is over");
}

#[test]
fn auto_wakes_a_taker_that_waits() {
    let mut key = Key::default();
    key.dead(&["before"]);
    key.diagnose_as(&[GROUP], Category::Infrastructure, Some(HOUR));
    key.later(SECOND);
    key.dies(&fault("a").finally());
    let died = key.now;
    key.ask("t", MINUTE, 1, Some(10 * MINUTE));
    while key.place("a") == Some(Place::Dead) {
        let wake = key.wake.expect("a timer");
        assert!(wake <= died + 2 * MINUTE, "{}", wake - died);
        key.now = key.now.max(wake);
        key.settle();
    }
    assert_eq!(key.now, died + MINUTE);
}

#[test]
fn a_search_that_skips_a_few_does_not_spin() {
    let mut key = Key::default();
    let (case, ids) = dead_case(&mut key, 100);
    for (at, id) in ids.iter().enumerate() {
        if at % 10 != 9 {
            key.hold_id(id, true);
        }
    }
    key.start(&redrive(case));
    key.settle();
    assert_eq!(key.ids("t", 5), ["m9"]);
    key.settle();
}

#[test]
fn a_search_passes_over_many() {
    let mut key = Key { is_checked: false, ..Key::default() };
    for at in 0..12_000 {
        key.dies(
            &fault(&format!("m{at}")).group("g").kind(if at % 6_000 == 5_999 { "bill" } else { "order" }).finally(),
        );
    }
    key.later(SECOND);
    let case = key.diagnose(&["g"]);
    let filter = RedriveFilter { kind: Some(b"bill"[..].into()), ..RedriveFilter::default() };
    let Redriven::Started(matched) = key.redrive(&RedriveRequest { filter, ..redrive(case) }) else { panic!() };
    assert!(!matched.is_complete);
    key.settle();
    assert_eq!(key.ids("t", 1), ["m5999"]);
    key.later(MINUTE / 10);
    assert_eq!(key.ids("u", 1), ["m11999"]);
    key.later(SECOND);
    assert_eq!(key.redrive_of(case).expect("one").phase, RedrivePhase::Draining);
    let filter = RedriveFilter { id: Some(b"m11000"[..].into()), ..RedriveFilter::default() };
    let case = key.diagnose(&["g"]);
    let Redriven::Started(matched) = key.redrive(&RedriveRequest { filter, ..redrive(case) }) else { panic!() };
    assert_eq!((matched.count, matched.is_complete), (1, true), "an id is looked up");
    assert_eq!(key.ids("v", 1), ["m11000"]);
}

#[test]
fn a_waiter_gets_a_redriven_entry_when_its_turn_comes() {
    let mut key = Key::default();
    let (case, _) = dead_case(&mut key, 2);
    assert_eq!(key.ask("t", MINUTE, 1, Some(MINUTE)), Decision::Queued);
    assert_eq!(key.ask("u", MINUTE, 1, Some(MINUTE)), Decision::Queued);
    key.start(&redrive(case));
    assert_eq!(key.replies.len(), 1);
    let begin = key.now;
    while key.replies.is_empty() || key.now == begin {
        key.now = key.wake.expect("a timer").max(key.now);
        key.tick();
    }
    assert_eq!(key.now, begin + 600 * MS);
}
