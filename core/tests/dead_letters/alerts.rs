//! Alerts and the audit: sentences.

use resil_core::Span;
use resil_core::dead_letters::{Category, ConfigChange, Discard, Governor, Jitter, Pause, Rate, RetriesChange};

use super::asking::*;
use super::key::*;

fn die(key: &mut Key, from: usize, count: usize, kind: &'static str) {
    for at in from..from + count {
        key.dies(&fault(&format!("{kind}{at}")).kind(kind).finally());
    }
}

fn count(key: &Key, kind: &str) -> usize {
    key.alerts().iter().filter(|(of, _)| *of == kind).count()
}

#[test]
fn more_than_ten_deaths_of_a_type_alert_once() {
    let mut key = Key::default();
    die(&mut key, 0, 10, "order");
    assert_eq!(count(&key, "many"), 0);
    die(&mut key, 10, 1, "order");
    assert_eq!(count(&key, "many"), 1);
    assert!(key.alerts().contains(&("many", "order".into())));
    die(&mut key, 11, 20, "order");
    assert_eq!(count(&key, "many"), 1);
    let id = key.ledger.alerts(0, 9).0.find(|alert| alert.kind.text() == "many").expect("many").id;
    assert!(key.see(id));
    assert!(!key.see(id), "seen before");
    die(&mut key, 31, 10, "order");
    assert_eq!(count(&key, "many"), 1, "SEEN begins anew");
    die(&mut key, 41, 1, "order");
    assert_eq!(count(&key, "many"), 2);
    die(&mut key, 0, 10, "bill");
    assert_eq!(count(&key, "many"), 2, "each type by itself");
}

#[test]
fn a_spike_is_ten_times_the_usual() {
    let mut key = Key { now: START / (5 * MINUTE) * 5 * MINUTE, ..Key::default() };
    die(&mut key, 0, 10, "order");
    assert_eq!(count(&key, "spike"), 0);
    die(&mut key, 10, 1, "order");
    assert_eq!(count(&key, "spike"), 1, "more than ten times one");
    die(&mut key, 11, 50, "order");
    assert_eq!(count(&key, "spike"), 1, "once per bucket");
    key.later(5 * MINUTE);
    die(&mut key, 100, 11, "order");
    assert_eq!(count(&key, "spike"), 2);
}

#[test]
fn a_spike_is_held_against_the_mean_of_a_day() {
    let mut key = Key { now: START / (5 * MINUTE) * 5 * MINUTE, is_checked: false, ..Key::default() };
    for bucket in 0..288 {
        die(&mut key, bucket * 1_000, 2, "order");
        key.later(5 * MINUTE);
    }
    assert_eq!(count(&key, "spike"), 0);
    key.is_checked = true;
    die(&mut key, 500_000, 20, "order");
    assert_eq!(count(&key, "spike"), 0, "twenty are ten times two");
    die(&mut key, 500_020, 1, "order");
    assert_eq!(count(&key, "spike"), 1);
}

#[test]
fn the_third_death_under_an_aggregate_is_an_alert() {
    let mut key = Key::default();
    for id in ["a", "b", "c", "d", "e"] {
        key.dies(&fault(id).of("x").finally());
        assert_eq!(count(&key, "aggregate"), usize::from(id >= "c"), "{id}");
        key.restart(0);
        key.tick();
    }
    key.later(91 * DAY);
    key.purge();
    for id in ["f", "g", "h"] {
        key.dies(&fault(id).of("x").finally());
    }
    assert_eq!(count(&key, "aggregate"), 2, "the next crossing");
}

#[test]
fn an_aggregate_of_one_entry_is_alerted_once() {
    let mut key = Key::default();
    key.dies(&fault("a").of("x").finally());
    for _ in 0..4 {
        key.now += MS;
        let case = key.diagnose(&["order/no luck"]);
        key.start(&redrive(case));
        key.later(SECOND);
        let (_, fence) = key.one("t");
        key.restart(0);
        key.dies(&fault("a").by(fence).finally());
        key.later(SECOND);
    }
    assert_eq!(count(&key, "aggregate"), 1);
}

#[test]
fn a_ledger_that_is_nearly_full_is_an_alert_once() {
    for most in [10, 15, 1_000] {
        let mut key = Key { is_checked: false, ..Key::default() };
        key.room.entries = most;
        let full = most * 8 / 10;
        for at in 0..most {
            assert_eq!(count(&key, "full"), usize::from(at >= full), "{at} of {most}");
            key.retried(&fault(&format!("m{at}")).random(0));
        }
        key.later(SECOND);
        let taken = key.take("t", most / 2);
        key.done_all(&taken.iter().map(|entry| (id_of(entry), entry.fence)).collect::<Vec<_>>());
        for at in 0..most / 2 {
            key.retried(&fault(&format!("n{at}")).random(0));
        }
        assert_eq!(count(&key, "full"), 2, "it was below in between");
    }
}

#[test]
fn deaths_by_time_raise_alerts_too() {
    let mut key = Key::default();
    for id in ["a", "b", "c"] {
        key.retried(&fault(id).of("x"));
    }
    for turn in 0..3 {
        key.later(MINUTE);
        for taker in 0..3 {
            key.take(&format!("t{turn}-{taker}"), 1);
        }
        key.later(MINUTE);
    }
    assert_eq!(count(&key, "aggregate"), 1);
}

#[test]
fn deaths_of_one_moment_alert_in_their_order() {
    let mut key = Key::default();
    for id in ["a", "b", "c", "d", "e", "f"] {
        key.retried(&fault(id).of(if id < "d" { "x" } else { "y" }));
    }
    let mut taken = Vec::new();
    for turn in 0..3 {
        key.later(MINUTE);
        taken = (0..6).flat_map(|taker| key.take(&format!("t{turn}-{taker}"), 1)).collect();
        key.later(MINUTE);
    }
    // Their leases end in the order in which they were taken, and each aggregate has its first death then.
    let mut expected = Vec::new();
    for entry in &taken {
        let alert = ("aggregate", if *id_of(entry) < *"d" { "x" } else { "y" }.to_owned());
        if !expected.contains(&alert) {
            expected.push(alert);
        }
    }
    assert_eq!(taken.len(), 6);
    assert_eq!(key.alerts(), expected);
}

#[test]
fn unseen_alerts_that_make_room_are_raised_again() {
    let mut key = Key { is_checked: false, ..Key::default() };
    die(&mut key, 0, 11, "order");
    for at in 0..1_100 {
        for death in 0..3 {
            key.dies(&fault(&format!("{at}-{death}")).kind("other").of(&at.to_string()).finally());
        }
    }
    assert_eq!(key.ledger.alerts(0, 2_000).0.count(), 1_000);
    assert!(!key.alerts().contains(&("many", "order".into())));
    die(&mut key, 20, 1, "order");
    assert!(key.alerts().contains(&("many", "order".into())));
}

#[test]
fn the_audit_has_what_was_done_not_what_was_refused() {
    let mut key = Key::default();
    key.dead(&["a"]);
    key.refusal(&redrive(1));
    key.diagnose_as(&["nothing"], Category::Contract, None);
    assert_eq!(key.audit(), [""; 0]);
    let case = key.diagnose(&["order/no luck"]);
    key.start(&redrive(case));
    key.stop(case);
    key.stop(case);
    key.close_case(case, Discard::No);
    key.hold_id("a", true);
    key.hold_id("a", true);
    let verbs: Vec<String> = key.audit().iter().map(|row| row.split(' ').next().expect("a word").into()).collect();
    assert_eq!(verbs, ["diagnose", "redrive", "stop", "hold"]);
    let (rows, _) = key.ledger.audit(0, 10);
    for (at, row) in rows.enumerate() {
        assert_eq!((row.id, &*row.user, &*row.actor), (at as u64 + 1, &b"default"[..], &b"ada"[..]));
    }
}

#[test]
fn the_audit_says_what_was_configured() {
    let mut key = Key::default();
    let rate_max = Some(Rate { count: 9, period: Span::from_secs(2) });
    let retries = RetriesChange { most: Some(2), base: None, cap: Some(Span::from_secs(7)) };
    let retries = [RetriesChange::default(), retries, RetriesChange::default()];
    key.configure(&ConfigChange { rate_max, retries, ..ConfigChange::default() });
    key.configure(&ConfigChange { paused: Some(Pause::On), jitter: Some(Jitter::Plus(5)), ..ConfigChange::default() });
    let first = "change the configuration: business retries 2 business cap 7000ms ratemax 9 per 2000ms";
    assert_eq!(key.audit(), [first, "change the configuration: jitter plus 5 paused yes"]);
}

#[test]
fn the_last_thousand_actions_are_kept() {
    let mut key = Key { is_checked: false, ..Key::default() };
    key.dead(&["a"]);
    for turn in 0..1_200 {
        key.hold_id("a", turn % 2 == 0);
    }
    let ids: Vec<u64> = key.ledger.audit(0, 5_000).0.map(|row| row.id).collect();
    assert_eq!((ids.len(), ids[0], ids[999]), (1_000, 201, 1_200));
}

#[test]
fn long_names_of_governors_can_be_replicated() {
    let mut key = Key::default();
    key.dead(&["a"]);
    let long = vec![b'x'; 10_000];
    let governor = Governor { user: &long, actor: &long, correlation: &long };
    let diagnosis = resil_core::dead_letters::Diagnosis {
        groups: vec![b"order/no luck"],
        category: Category::Contract,
        cause: &long,
        fix: &long,
        decision: &long,
        auto: None,
    };
    key.step(|of, setting| resil_core::dead_letters::diagnose(of, &diagnosis, &governor, setting));
    let case = key.ledger.case(1).expect("a case");
    assert_eq!(case.cause.len(), 4_096);
}
