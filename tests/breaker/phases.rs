//! A breaker in every phase, and all that can be seen of it now and later.

use std::collections::BTreeMap;

use redis::Connection;

use crate::asked::{Breaker, Look};
use crate::driven::Say;

/// Each key is called after the state it is in, with what is special about it.
pub const PHASES: &[(&str, &str)] = &[
    ("closed", "closed"),
    ("closed:timed", "closed"),
    ("closed:recovered", "closed"),
    ("closed:reset", "closed"),
    ("closed:configured", "closed"),
    ("open", "open"),
    ("open:grown", "open"),
    ("half-open", "half-open"),
    ("ramping", "ramping"),
    ("forced-open", "forced-open"),
    ("forced-open:probe", "forced-open"),
    ("forced-closed", "forced-closed"),
    ("disabled", "disabled"),
    ("metrics", "metrics"),
];

/// Driven time when all are filled.
pub const FILLED_MS: i64 = 30_000;

/// Milliseconds after `FILLED_MS` at which a breaker is looked at.
const LOOKED_AFTER_MS: &[i64] = &[0, 1, 999, 9_500, 29_000, 31_000, 59_999, 120_000, 3_599_000, 7_200_000, 90_000_000];

/// Fills a key for every phase; the clock then stands at `FILLED_MS`.
#[track_caller]
pub fn fill_all(connection: &mut Connection) {
    connection.clock_at_ms(0);
    closed(connection);
    timed(connection);
    tripped(connection);
    forced(connection);
    connection.config("closed:configured VERSION 7 WINDOW TIME 90s RATE 33 FACTOR 1.25 MAX 1h QUORUM 4");
    connection.clock_at_ms(FILLED_MS);
    for (key, state) in PHASES {
        assert_eq!(connection.look(key).state(), *state, "{key}");
    }
}

/// Counts, a run of failures, evidence of several callers and sequence numbers of batches.
fn closed(connection: &mut Connection) {
    connection.admit("closed QUORUM 4 MINCALLS 60 CONSECUTIVE 9 SLOW 1s VERSION 3");
    for (caller, outcome) in [("a", "FAIL"), ("b", "OK DURATION 2s"), ("c", "FAIL DURATION 1s"), ("c", "FAIL")] {
        connection.call(&format!("closed CALLER {caller}"), outcome);
    }
    connection.tally("closed 0 d 17 OK 20 FAIL 3 SLOW 2 RUN 2");
    connection.tally("closed 0 e 4 OK 0 FAIL 1 RUN 1");
}

/// Slices of a window of time at odd instants.
fn timed(connection: &mut Connection) {
    connection.admit("closed:timed WINDOW TIME 60s MINCALLS 1000 CONSECUTIVE 100 QUORUM 2 IDLE 2h");
    for step in 0..12 {
        connection.clock_at_us(step * 2_345_678);
        connection.tally(&format!("closed:timed 0 caller{} {step} OK {step} FAIL 2 SLOW 1", step % 5));
    }
    connection.clock_at_ms(0);
}

fn tripped(connection: &mut Connection) {
    connection.admit("open CONSECUTIVE 2 OPEN 1m FACTOR 3 MAX 1h");
    connection.config("open:grown CONSECUTIVE 1 OPEN 1s FACTOR 2.5 MAX 1h");
    connection.config("half-open CONSECUTIVE 1 OPEN 10s PROBES 4 SUCCESSES 3 LEASE 50s");
    connection.admit("ramping CONSECUTIVE 1 OPEN 10s SUCCESSES 1 RAMP 66s");
    connection.admit("closed:recovered CONSECUTIVE 1 OPEN 10s SUCCESSES 1 FACTOR 2 MAX 1h");
    for key in ["open", "open:grown", "half-open", "ramping", "closed:recovered", "closed:reset"] {
        connection.trip(key);
    }
    for ms in [1_000, 4_000] {
        connection.clock_at_ms(ms);
        assert_eq!(connection.call("open:grown", "FAIL").state, "open", "a failed probe");
    }
    connection.clock_at_ms(20_000);
    let probes: Vec<String> = (0..4).map(|_| connection.admit("half-open").permit().to_owned()).collect();
    connection.report("half-open", &probes[0], "OK");
    connection.report("half-open", &probes[2], "CANCEL");
    connection.clock_at_us(22_222_222);
    connection.admit("half-open");
    connection.call("ramping", "OK");
    connection.call("closed:recovered", "OK");
    connection.call("closed:recovered CALLER me", "OK DURATION 1h");
    connection.say("RES.BREAKER RESET closed:reset");
    connection.tally("ramping 0 nobody 1 OK 1 FAIL 0");
}

fn forced(connection: &mut Connection) {
    connection.admit("forced-open PROBES 7");
    let maintenance =
        [&b"RES.BREAKER"[..], b"FORCE", b"forced-open", b"OPEN", b"ACTOR", b"an\xffop", b"REASON", b"why: \0"];
    resil_harness::ok(connection, &maintenance);
    connection.force("forced-open:probe OPEN FOR 1h THEN PROBE ACTOR somebody");
    connection.force("forced-closed CLOSED FOR 2h ACTOR somebody");
    connection.tally("forced-closed 0 me 1 OK 3 FAIL 99");
    connection.force("disabled DISABLED REASON experiment");
    connection.config("metrics WINDOW COUNT 7");
    connection.force("metrics METRICS");
    connection.tally("metrics 0 me 1 OK 2 FAIL 30 RUN 9");
}

/// All that is to be seen of every phase: the digest, and what STATE says now and later.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    pub digest: String,
    pub looks: Vec<Look>,
}

/// What is seen of the breakers, under the names `called` gives them. The clock then stands at `FILLED_MS`.
#[track_caller]
pub fn seen_as(connection: &mut Connection, called: impl Fn(&str) -> String) -> BTreeMap<String, Seen> {
    let mut all = BTreeMap::new();
    for (phase, _) in PHASES {
        let key = called(phase);
        let looks = LOOKED_AFTER_MS.iter().map(|after_ms| {
            connection.clock_at_ms(FILLED_MS + after_ms);
            connection.look(&key)
        });
        let looks = looks.collect();
        all.insert((*phase).to_owned(), Seen { digest: connection.digest(&key), looks });
    }
    connection.clock_at_ms(FILLED_MS);
    all
}

#[track_caller]
pub fn seen(connection: &mut Connection) -> BTreeMap<String, Seen> {
    seen_as(connection, str::to_owned)
}

/// When the server collects each of them; -1: never.
#[track_caller]
pub fn expiries(connection: &mut Connection) -> Vec<i64> {
    PHASES.iter().map(|(key, _)| connection.integer(&format!("PEXPIRETIME {key}"))).collect()
}

/// The same breakers with the same future and the same expiries as when `before` was seen.
#[track_caller]
pub fn assert_same(connection: &mut Connection, before: &(BTreeMap<String, Seen>, Vec<i64>)) {
    let now = seen(connection);
    for (key, seen) in &before.0 {
        assert_eq!(&now[key], seen, "{key} changed");
    }
    assert_eq!(expiries(connection), before.1, "expiries changed, in the order of PHASES");
}

/// Fills a key for every phase and remembers what is seen of them.
#[track_caller]
pub fn filled(connection: &mut Connection) -> (BTreeMap<String, Seen>, Vec<i64>) {
    fill_all(connection);
    (seen(connection), expiries(connection))
}
