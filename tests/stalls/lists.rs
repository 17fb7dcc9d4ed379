//! RES.LIST and RES.TOP beside very many keys: no call takes the server for a millisecond.

use std::time::Duration;

use redis::{Connection, Value};
use resil_harness::ok;

use crate::pinger::{each, on_cpu, our_server, plain_keys};
use crate::{TRIES, size};

/// docs/operations.md promises it.
const CALL_MAX: Duration = Duration::from_millis(1);

const KINDS: [&str; 7] = ["BREAKER", "LOCK", "BULKHEAD", "POLICY", "DLQ", "RUN", "LOAD"];

/// The cursor of a page.
fn next(connection: &mut Connection, kind: &str, filter: &[&str], cursor: &str) -> String {
    let words = [&["RES.LIST", kind, "LIMIT", "1000", "CURSOR", cursor], filter].concat();
    let Value::Array(parts) = ok(connection, &words) else { panic!("a cursor and rows") };
    redis::from_redis_value(parts[0].clone()).expect("a text")
}

/// How long the longest call took the server, and how many calls there were.
fn longest(pid: u32, connection: &mut Connection, act: &mut dyn FnMut(&mut Connection) -> bool) -> (Duration, usize) {
    let (mut longest, mut calls) = (Duration::ZERO, 0);
    loop {
        let before = on_cpu(pid);
        let is_more = act(connection);
        longest = longest.max(on_cpu(pid).saturating_sub(before));
        calls += 1;
        if !is_more {
            return (longest, calls);
        }
    }
}

/// A call that is timed; true while there is more to list.
type TimedCall = Box<dyn FnMut(&mut Connection) -> bool>;

/// Every page of a list.
fn pages(kind: &'static str, filter: &'static [&'static str]) -> TimedCall {
    let mut cursor = "0".to_owned();
    Box::new(move |connection| {
        cursor = next(connection, kind, filter, &cursor);
        cursor != "0"
    })
}

/// The same ranking a hundred times.
fn rankings(kind: &'static str) -> TimedCall {
    let mut left = 100;
    Box::new(move |connection| {
        ok(connection, &["RES.TOP", kind, "LIMIT", "128"]);
        left = (left + 99) % 100;
        left != 0
    })
}

/// A state that none of the keys below is in.
fn no_such_state(kind: &str) -> &'static [&'static str] {
    match kind {
        "BREAKER" => &["STATE", "ramping"],
        "LOCK" => &["STATE", "contended"],
        "BULKHEAD" => &["STATE", "full"],
        "POLICY" => &["STATE", "deleted"],
        "RUN" => &["STATE", "held"],
        "LOAD" => &["STATE", "contended"],
        _ => &["STATE", "paused"],
    }
}

/// The time of a call is that of the server's main thread on a processor, from reading the command until the reply is written.
#[test]
fn no_list_takes_a_millisecond_beside_many_keys() {
    let server = our_server();
    let (pid, mut connection) = (server.pid(), server.connect());
    plain_keys(&server, size(100_000, 1_000_000));
    each(&mut connection, size(20_000, 200_000), |number| format!("RES.LOCK ACQUIRE l{number} owner 10000s"));
    each(&mut connection, size(20_000, 100_000), |number| format!("RES.BREAKER FORCE b{number} OPEN"));
    each(&mut connection, size(10_000, 100_000), |number| format!("RES.BULKHEAD ENTER bulk{number} owner 5 10000s"));
    let policy = r#"{"circuitBreaker":{},"rateLimit":{"limit":1000000,"period":"1s"}}"#;
    each(&mut connection, size(5_000, 50_000), |number| format!("RES.POLICY SET p{number} {policy}"));
    each(&mut connection, size(5_000, 50_000), |number| format!("RES.DLQ FAIL d{number} id ERROR e PAYLOAD p"));
    each(&mut connection, size(10_000, 100_000), |number| format!("RES.IDEMP BEGIN run{number} owner 10000s"));
    each(&mut connection, size(10_000, 100_000), |number| format!("RES.IDEMP ONCE seen{number} 10000s"));
    each(&mut connection, size(10_000, 100_000), |number| format!("RES.SFLIGHT JOIN load{number} owner 10000s"));
    // Bulkheads with very many inside: what is ranked is more than what is shown.
    each(&mut connection, 40_000, |number| format!("RES.BULKHEAD ENTER crowded{} o{number} 1000 10000s", number % 200));
    each(&mut connection, 20_000, |number| format!("RES.GCRA g{} 1 1h", number % 300));
    let mut calls: Vec<(String, TimedCall)> = Vec::new();
    for kind in KINDS {
        for filter in [&[][..], &["MATCH", "*"], &["MATCH", "*nothing*like*this*"], no_such_state(kind)] {
            calls.push((format!("LIST {kind} {}", filter.join(" ")), pages(kind, filter)));
        }
    }
    for kind in ["DENIED", "WAITING", "HELD"] {
        calls.push((format!("TOP {kind}"), rankings(kind)));
    }
    for (what, mut act) in calls {
        let (mut best, mut pages) = (Duration::MAX, 0);
        for _ in 0..TRIES {
            let (taken, calls) = longest(pid, &mut connection, &mut act);
            (best, pages) = (best.min(taken), calls);
            if best <= CALL_MAX {
                break;
            }
        }
        println!("{what}: {best:?} at most, {pages} calls");
        assert!(best <= CALL_MAX, "{what} took {best:?} of the server");
    }
}

/// Names that are long and alike, and patterns that go back as often as they can.
#[test]
fn no_pattern_holds_the_server() {
    let server = our_server();
    let (pid, mut connection) = (server.pid(), server.connect());
    for (length, count) in [(400, 500), (2_000, 100), (100_000, 40)] {
        let name = "a".repeat(length);
        each(&mut connection, count, |number| format!("RES.LOCK ACQUIRE {name}{number} owner 1h"));
    }
    let patterns =
        [format!("{}b", "*a".repeat(250)), format!("*[{}]b", "c".repeat(500)), format!("{}b", "*".repeat(500))];
    for pattern in patterns {
        let mut cursor = "0".to_owned();
        let mut act = |connection: &mut Connection| {
            cursor = next(connection, "LOCK", &["MATCH", &pattern], &cursor);
            cursor != "0"
        };
        let best = (0..TRIES).map(|_| longest(pid, &mut connection, &mut act).0).min().unwrap_or_default();
        println!("{:.20}...: {best:?}", pattern);
        assert!(best <= 2 * CALL_MAX, "{best:?} for {pattern}");
    }
}
