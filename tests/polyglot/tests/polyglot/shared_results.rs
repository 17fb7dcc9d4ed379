//! One load, one run: a single process works, and all others get what it brought, byte for byte.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use redis::Value;
use resil_harness::ok;
use serde_json::{Value as Json, json};

use crate::fleet::{Fleet, Heard};

/// The two things whose results are shared: how to ask, where the result is, and what to say to see it.
struct Kind {
    name: &'static str,
    key_prefix: &'static str,
    command: &'static str,
    /// Where in the reply of GET the bytes are.
    place: usize,
}

const LOAD: Kind = Kind { name: "cached", key_prefix: "resil:cache:shared", command: "RES.SFLIGHT", place: 1 };
const RUN: Kind = Kind { name: "idempotent", key_prefix: "resil:idemp:shared", command: "RES.IDEMP", place: 2 };

impl Kind {
    fn ask(&self, key: &str, codec: &str) -> Json {
        let mut ask = json!({ "do": self.name, "name": "shared", "key": key, "codec": codec });
        if self.name == "idempotent" {
            ask["lease_ms"] = 30_000.into();
        }
        ask
    }

    /// What the server keeps.
    fn kept(&self, fleet: &Fleet, key: &str) -> Vec<u8> {
        let key = format!("{}:{{{key}}}", self.key_prefix);
        match ok(&mut fleet.server.connect(), &[self.command, "GET", &key]) {
            Value::Array(fields) => match fields.get(self.place) {
                Some(Value::BulkString(bytes)) => bytes.clone(),
                other => panic!("no bytes at {}: {other:?}", self.place),
            },
            other => panic!("{other:?}"),
        }
    }
}

/// All ask for `key`, `leader` first if one is named; exactly one gets inside, and all get its value.
fn one_for_all(fleet: &mut Fleet, kind: &Kind, key: &str, codec: &str, leader: Option<usize>, value: &Json) {
    let ask = kind.ask(key, codec);
    let mut tags = Vec::new();
    if let Some(leader) = leader {
        let tag = fleet.ask(leader, &ask);
        fleet.hear_inside(tag);
        tags.push((leader, tag));
    }
    for worker in (0..fleet.size()).filter(|&worker| Some(worker) != leader) {
        tags.push((worker, fleet.ask(worker, &ask)));
    }
    let (runner, tag) = match leader {
        Some(_) => tags[0],
        None => match fleet.hear() {
            (worker, Heard::Inside(tag, _)) => (worker, tag),
            other => panic!("nobody can be done before one was inside: {other:?}"),
        },
    };
    let field = if kind.name == "cached" { "followers" } else { "waiters" };
    let waiting = i64::try_from(fleet.size() - 1).unwrap();
    fleet.until_info(kind.command, &format!("{}:{{{key}}}", kind.key_prefix), field, waiting);
    fleet.tell(runner, tag, &json!({ "value": value }));
    for _ in 0..tags.len() {
        let (worker, heard) = fleet.hear();
        let Heard::Done(tag, got) = heard else { panic!("{:?}: {heard:?}", fleet.language(worker)) };
        assert!(tags.contains(&(worker, tag)));
        assert_eq!(
            &got,
            value,
            "{:?} got another value than {:?} made",
            fleet.language(worker),
            fleet.language(runner)
        );
    }
}

/// Keys in the order of the alphabet, which is the order a sorted map writes them in.
fn value_with_everything() -> Json {
    json!({
        "big": 9_007_199_254_740_991_i64,
        "empty": {},
        "list": [1, -2.5, null, true, "", []],
        "quote": "\"\\/\n\u{7f}",
        "text": "Grüße, 世界 ☂ 😀",
    })
}

fn every_byte() -> Vec<u8> {
    (0..=255).chain((0..=255).rev()).collect()
}

fn all_get_the_same_from_any_worker(kind: &Kind) {
    let mut fleet = Fleet::of_each(2);
    let json = value_with_everything();
    let as_bytes = STANDARD.encode(every_byte());
    for leader in 0..fleet.size() {
        let key = format!("json-{leader}");
        one_for_all(&mut fleet, kind, &key, "json", Some(leader), &json);
        let (kept, language) = (kind.kept(&fleet, &key), fleet.language(leader));
        let wanted = serde_json::to_string(&json).unwrap();
        assert_eq!(String::from_utf8_lossy(&kept), wanted, "{language:?} writes JSON in another way");

        let key = format!("bytes-{leader}");
        one_for_all(&mut fleet, kind, &key, "bytes", Some(leader), &as_bytes.clone().into());
        assert_eq!(kind.kept(&fleet, &key), every_byte(), "{language:?} changed bytes");
    }
    for round in 0..5 {
        one_for_all(&mut fleet, kind, &format!("race-{round}"), "json", None, &json!({ "round": round }));
    }
}

#[test]
fn one_process_loads_and_every_language_gets_its_bytes() {
    all_get_the_same_from_any_worker(&LOAD);
}

#[test]
fn one_process_runs_and_every_language_gets_its_result() {
    all_get_the_same_from_any_worker(&RUN);
}

#[test]
fn three_processes_with_500_callers_each_load_once() {
    const CALLERS: usize = 500;
    let mut fleet = Fleet::of_each(1);
    let ask = LOAD.ask("crowd", "json");
    for _ in 0..CALLERS {
        for worker in 0..fleet.size() {
            fleet.ask(worker, &ask);
        }
    }
    let (runner, tag) = match fleet.hear() {
        (worker, Heard::Inside(tag, _)) => (worker, tag),
        other => panic!("nobody can be done before one was inside: {other:?}"),
    };
    // Each of the other processes waits once, however many of its callers do.
    let others = i64::try_from(fleet.size() - 1).unwrap();
    fleet.until_info(LOAD.command, &format!("{}:{{crowd}}", LOAD.key_prefix), "followers", others);
    fleet.tell(runner, tag, &json!({ "value": "Ada" }));
    for _ in 0..CALLERS * fleet.size() {
        let (worker, heard) = fleet.hear();
        let Heard::Done(_, got) = heard else { panic!("a second load in {:?}: {heard:?}", fleet.language(worker)) };
        assert_eq!(got, "Ada");
    }
}
