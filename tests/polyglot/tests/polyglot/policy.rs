//! One stored policy: a change reaches the processes of all languages while they call, and no call fails because of it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use resil_harness::ok;
use serde_json::{Value as Json, json};

use crate::fleet::{Fleet, Heard};

const KEY: &str = "resil:policy:{pay}";
const CHANGES: u64 = 1_000;

/// What the fleet shares in one, nothing of it in the other.
const DOCUMENTS: [&str; 2] = [
    r#"{"timeout":{"total":"30s"},"retry":{"maxAttempts":2},"breaker":{"consecutiveFailures":1000}}"#,
    r#"{"timeout":{"total":"30s","attempt":"20s"}}"#,
];

#[test]
fn a_change_reaches_every_language_and_fails_no_call() {
    let mut fleet = Fleet::of_each(2);
    let mut operator = fleet.server.connect();
    let mut set = |version: u64| {
        let document = DOCUMENTS[usize::try_from(version % 2).unwrap()];
        ok(&mut operator, &["RES.POLICY", "SET", KEY, document]);
    };
    set(1);
    let ask = json!({ "do": "follow", "name": "pay", "until": CHANGES });
    let tags: HashMap<usize, _> = (0..fleet.size()).map(|worker| (worker, fleet.ask(worker, &ask))).collect();
    let mut took: Vec<Duration> = Vec::new();
    for version in 1..=CHANGES {
        let begun = Instant::now();
        if version > 1 {
            set(version);
        }
        for _ in 0..fleet.size() {
            let (worker, heard) = fleet.hear();
            assert_eq!(heard, Heard::Inside(tags[&worker], json!({ "version": version })));
        }
        if version > 1 {
            took.push(begun.elapsed());
        }
        for (worker, tag) in &tags {
            fleet.tell(*worker, *tag, &json!({}));
        }
    }
    for _ in 0..fleet.size() {
        let (worker, heard) = fleet.hear();
        let Heard::Done(_, done) = heard else { panic!("a call of {:?} failed: {heard:?}", fleet.language(worker)) };
        assert!(done["calls"].as_u64() > Some(CHANGES), "{done}");
        let whole = [json!("total attempt"), json!("total retry breaker")];
        let orders = done["orders"].as_array().unwrap();
        assert!(orders.iter().all(|order: &Json| whole.contains(order)), "of two versions: {orders:?}");
    }
    took.sort();
    let p99 = took[took.len() * 99 / 100];
    println!("from SET to {} processes: p50 {:?}, p99 {p99:?}", fleet.size(), took[took.len() / 2]);
    assert!(p99 <= Duration::from_millis(100), "from SET to every SDK: {p99:?}");
}
