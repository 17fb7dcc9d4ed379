//! Rules for dead letters that no other sentence proves by itself.

use resil_core::dead_letters::{Category, Class, Diagnosed, ListFilter, Place};

use super::asking::*;
use super::key::*;

#[test]
fn a_dead_letter_stands_in_nobodys_way() {
    let mut key = Key::default();
    key.dead(&["a", "b"]);
    key.retried(&fault("c").random(0));
    key.later(SECOND);
    assert_eq!(key.ids("t", 10), ["c"]);
    assert_eq!(key.none("u"), None, "nobody gets the dead without a redrive");
    key.later(300 * DAY);
    assert_eq!(
        (key.place("a"), key.place("b")),
        (Some(Place::Dead), Some(Place::Dead)),
        "nor do they go by themselves"
    );
}

#[test]
fn what_died_keeps_its_payload_errors_and_times() {
    let mut key = Key::default();
    let first_at = key.now;
    key.retried(&fault("a").error("first").of("x").class(Class::Business));
    for error in ["second", "third"] {
        key.later(MINUTE);
        let (_, fence) = key.one(error);
        key.retried(&fault("a").payload(None).error(error).by(fence));
    }
    key.later(MINUTE);
    let (_, fence) = key.one("last");
    let (deaths, group, reason) = key.dies(&fault("a").payload(None).error("fourth").by(fence));
    assert_eq!((deaths, &group[..], reason), (1, "order/fourth", "retries"));
    let died_at = key.now;
    for _ in 0..2 {
        let entry = key.ledger.get(b"a").expect("dead");
        assert_eq!((entry.first_error, entry.last_error), (&b"first"[..], &b"fourth"[..]));
        assert_eq!((entry.attempt, entry.attempts.len(), entry.class), (4, 4, Class::Business));
        assert_eq!(entry.message.payload(), Some(&b"body of a"[..]), "as it came");
        assert_eq!((entry.message.kind(), entry.message.aggregate()), (&b"order"[..], &b"x"[..]));
        assert_eq!((entry.first_at.as_us(), entry.last_at.as_us()), (first_at, died_at));
        assert_eq!(entry.died_at.map(|at| at.as_us()), Some(died_at));
        key.restart(DAY);
    }
}

#[test]
fn a_case_keeps_what_was_written_down() {
    let mut key = Key::default();
    key.dead(&["a"]);
    let opened = key.now;
    let Diagnosed::Case(number) = key.diagnose_as(&[GROUP], Category::Business, None) else { panic!("a case") };
    key.later(100 * DAY);
    key.restart(0);
    let case = key.ledger.case(number).expect("kept");
    assert_eq!((case.category, case.cause, case.fix), (Category::Business, &b"a cause"[..], &b"a fix"[..]));
    assert_eq!((case.decision, case.actor, case.user), (&b"a decision"[..], &b"ada"[..], &b"default"[..]));
    assert_eq!((case.opened_at.as_us(), &case.groups[..]), (opened, &[GROUP.as_bytes()][..]));
    assert!(key.audit()[0].contains("a cause"), "{:?}", key.audit());
}

#[test]
fn every_dead_letter_shows_in_lists_groups_and_counts() {
    let mut key = Key::default();
    for (at, kind) in ["order", "bill", "order"].into_iter().enumerate() {
        key.dies(&fault(&format!("m{at}")).kind(kind).finally());
    }
    key.later(1_000 * DAY);
    assert_eq!(key.ledger.count(Place::Dead), 3);
    let mut listed = Vec::new();
    let filter = ListFilter { place: Some(Place::Dead), kind: Some(b"order"), ..ListFilter::default() };
    key.ledger.list(&filter, 0, 10, |entry| listed.push(entry.message.id().to_vec()));
    assert_eq!(listed, [b"m0".to_vec(), b"m2".to_vec()]);
    let groups: Vec<(String, usize)> = key
        .ledger
        .groups(0, 10)
        .0
        .map(|group| (String::from_utf8_lossy(group.name).into_owned(), group.dead))
        .collect();
    assert_eq!(groups, [("order/no luck".into(), 2), ("bill/no luck".into(), 1)]);
}
