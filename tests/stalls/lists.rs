//! RES.LIST and RES.TOP beside very many keys: no call takes the server for a millisecond.

use std::time::Duration;

use redis::{Connection, Value};
use resil_harness::ok;

use crate::pinger::{each, on_cpu, our_server, plain_keys};
use crate::{TRIES, size};

/// docs/operations.md promises it.
const CALL_MAX: Duration = Duration::from_millis(1);

/// The cursor of a page.
fn next(connection: &mut Connection, kind: &str, pattern: &str, cursor: &str) -> String {
    let words = ["RES.LIST", kind, "LIMIT", "1000", "MATCH", pattern, "CURSOR", cursor];
    let Value::Array(parts) = ok(connection, &words) else { panic!("a cursor and rows") };
    redis::from_redis_value(parts[0].clone()).expect("a text")
}

/// How long the longest call took the server.
fn longest(pid: u32, connection: &mut Connection, act: &mut dyn FnMut(&mut Connection) -> bool) -> Duration {
    let mut longest = Duration::ZERO;
    loop {
        let before = on_cpu(pid);
        let is_more = act(connection);
        longest = longest.max(on_cpu(pid).saturating_sub(before));
        if !is_more {
            return longest;
        }
    }
}

/// A call that is timed; true while there is more to list.
type TimedCall = Box<dyn FnMut(&mut Connection) -> bool>;

#[test]
fn no_list_and_no_ranking_takes_a_millisecond_beside_many_keys() {
    let server = our_server();
    let (pid, mut connection) = (server.pid(), server.connect());
    plain_keys(&server, size(100_000, 1_000_000));
    each(&mut connection, size(20_000, 200_000), |number| format!("RES.LOCK ACQUIRE l{number} owner 10000s"));
    each(&mut connection, size(20_000, 100_000), |number| format!("RES.BREAKER FORCE b{number} OPEN"));
    each(&mut connection, 20_000, |number| format!("RES.GCRA g{} 1 1h", number % 300));
    let mut calls: Vec<(&str, TimedCall)> = Vec::new();
    for kind in ["LOCK", "BREAKER"] {
        let mut cursor = "0".to_owned();
        calls.push((
            kind,
            Box::new(move |connection| {
                cursor = next(connection, kind, "*", &cursor);
                cursor != "0"
            }),
        ));
    }
    for kind in ["DENIED", "WAITING", "HELD"] {
        let mut left = 100;
        calls.push((
            kind,
            Box::new(move |connection| {
                ok(connection, &["RES.TOP", kind, "LIMIT", "128"]);
                left = (left + 99) % 100;
                left != 0
            }),
        ));
    }
    for (what, mut act) in calls {
        let mut best = Duration::MAX;
        for _ in 0..TRIES {
            best = best.min(longest(pid, &mut connection, &mut act));
            if best <= CALL_MAX {
                break;
            }
        }
        println!("{what}: {best:?}");
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
            cursor = next(connection, "LOCK", &pattern, &cursor);
            cursor != "0"
        };
        let best = (0..TRIES).map(|_| longest(pid, &mut connection, &mut act)).min().unwrap_or_default();
        println!("{:.20}...: {best:?}", pattern);
        assert!(best <= 2 * CALL_MAX, "{best:?} for {pattern}");
    }
}
