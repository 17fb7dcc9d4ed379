//! What changes nothing says nothing: it is not replicated, dirties nothing, breaks no WATCH, invalidates no cache and
//! notifies nobody. What changes something does all of that, once.

use redis::{Connection, Value};
use resil_harness::{Options, Server, wait_for_sync};

use crate::driven::{START_US, driven, info_number, numbers, outcome, say, set_clock};
use crate::listener::Listener;

/// Beforehand: `full` and `w` are exhausted, `half` has five of ten cells, `text` is a string, `none` is no key.
const PREPARE: &[&str] = &[
    "RES.GCRA full 10 60s COST 10",
    "RES.GCRA half 10 60s COST 5",
    "RES.GCRA tiers 10 60s AND 10 1h COST 10",
    "RES.WINDOW w 10 60s COST 10",
    "CL.THROTTLE cell 9 10 60 10",
    "RES.BREAKER TALLY open 0 me 1 OK 0 FAIL 5 RUN 5",
    "RES.BREAKER TALLY closed 0 me 1 OK 3 FAIL 1",
    "SET text hello",
];

const CHANGES_NOTHING: &[&str] = &[
    // Denied.
    "RES.GCRA full 10 60s",
    "RES.GCRA full 10 60s UPTO 3",
    "RES.GCRA full 10 60s RESERVE 5s",
    "RES.GCRA half 10 60s COST 6",
    "RES.GCRA half 10 60s COST 11",
    "RES.GCRA none 10 60s COST 11",
    "RES.GCRA tiers 10 60s AND 10 1h",
    "RES.GCRA full 20 120s COST 20",
    "RES.MGCRA 1 half 10 60s 10 full 10 60s 10 none 10 60s 10",
    "RES.WINDOW w 10 60s",
    "RES.WINDOW w 10 60s UPTO 3",
    "RES.WINDOW w 20 1h COST 11",
    "RES.WINDOW none 10 60s COST 11",
    "CL.THROTTLE cell 9 10 60",
    "RES.BREAKER ADMIT open",
    // Reports that do not count.
    "RES.BREAKER REPORT open permit FAIL",
    "RES.BREAKER TALLY closed 0 me 1 OK 3 FAIL 1",
    "RES.BREAKER TALLY closed 77 me 2 OK 3 FAIL 1",
    // Nothing to give back.
    "RES.GCRA none 10 60s REFUND 3",
    "CL.THROTTLE none 9 10 60 -3",
    // Peeks.
    "RES.GCRA.PEEK half 10 60s",
    "RES.GCRA.PEEK half 99 1h AND 1 1s",
    "RES.GCRA.PEEK none 10 60s",
    "RES.WINDOW.PEEK w 10 60s",
    "RES.WINDOW.PEEK none 10 60s",
    "CL.THROTTLE cell 9 10 60 0",
    "CL.THROTTLE none 9 10 60 0",
    "RES.BREAKER STATE open",
    "RES.BREAKER STATE none",
    "RES.BREAKER HELP",
    // Refused.
    "RES.BREAKER ADMIT half",
    "RES.BREAKER TALLY closed 0 me 3 OK 99999 FAIL 0",
    "RES.GCRA half 0 60s",
    "RES.GCRA half 10 60s COST -1",
    "RES.GCRA half 10 60s COST 1 UPTO 1",
    "RES.GCRA half 10 60s SURPLUS",
    "RES.GCRA text 10 60s",
    "RES.GCRA w 10 60s",
    "RES.GCRA half",
    "RES.GCRA",
    "RES.MGCRA 1 half 10 60s 10 half 10 60s 10",
    "RES.MGCRA 1 half 10 60s 10 text 10 60s 10",
    "RES.WINDOW half 10 60s",
    "RES.WINDOW w 0 60s",
    "RES._APPLY half 1 G",
    "CL.THROTTLE text 9 10 60",
    "CL.THROTTLE cell 9 0 60",
];

/// Each changes `half`, and is granted.
const CHANGES_HALF: &[&str] = &[
    "RES.GCRA half 10 60s",
    "RES.GCRA half 10 60s UPTO 99",
    "RES.GCRA half 10 60s RESERVE 10s",
    "RES.GCRA half 10 60s REFUND 1",
    "RES.GCRA half 10 60s REFUND 99",
    "RES.GCRA half 10 60s AND 20 1h",
    "RES.MGCRA 1 half 10 60s 10",
    "CL.THROTTLE half 9 10 60",
    "CL.THROTTLE half 9 10 60 -1",
];

const KEYS: &[&str] = &["full", "half", "tiers", "w", "cell", "open", "closed", "none", "text"];

/// The primary pings its replicas once a second; here the stream carries commands only.
fn without_pings() -> Options {
    driven().config("repl-ping-replica-period", "3600")
}

fn prepared(options: Options) -> (Server, Connection) {
    let server = Server::start(options);
    let mut connection = server.connect();
    prepare(&mut connection);
    (server, connection)
}

fn prepare(connection: &mut Connection) {
    set_clock(connection, START_US);
    say(connection, "FLUSHALL");
    PREPARE.iter().for_each(|line| {
        say(connection, line);
    });
    set_clock(connection, START_US + 1_000);
}

#[test]
fn what_changes_nothing_is_not_replicated() {
    let (primary, mut connection) = prepared(without_pings());
    let replica = Server::replica_of(&primary, without_pings());
    wait_for_sync(&primary, &replica);
    let offset = |connection: &mut Connection| info_number(connection, "replication", "master_repl_offset");
    for line in CHANGES_NOTHING {
        let before = offset(&mut connection);
        let reply = outcome(&mut connection, line);
        assert_eq!(offset(&mut connection), before, "{line}: {reply}");
    }
    let before = offset(&mut connection);
    numbers(&mut connection, "RES.GCRA half 10 60s");
    assert!(offset(&mut connection) > before, "a grant is replicated");
}

#[test]
fn what_changes_nothing_is_not_written_to_the_file() {
    let (_server, mut connection) = prepared(driven().config("appendonly", "yes"));
    let size = |connection: &mut Connection| info_number(connection, "persistence", "aof_current_size");
    for line in CHANGES_NOTHING {
        let before = size(&mut connection);
        let reply = outcome(&mut connection, line);
        assert_eq!(size(&mut connection), before, "{line}: {reply}");
    }
    let before = size(&mut connection);
    numbers(&mut connection, "RES.GCRA half 10 60s");
    assert!(size(&mut connection) > before, "a grant is written");
}

fn dirt_is_counted_only_for_changes(options: Options) {
    let (_server, mut connection) = prepared(options);
    let dirt = |connection: &mut Connection| info_number(connection, "persistence", "rdb_changes_since_last_save");
    for line in CHANGES_NOTHING {
        let before = dirt(&mut connection);
        let reply = outcome(&mut connection, line);
        assert_eq!(dirt(&mut connection), before, "{line}: {reply}");
    }
    for line in CHANGES_HALF {
        prepare(&mut connection);
        let before = dirt(&mut connection);
        let reply = outcome(&mut connection, line);
        assert!(dirt(&mut connection) > before, "{line}: {reply}");
    }
}

#[test]
fn only_changes_count_towards_the_next_snapshot() {
    dirt_is_counted_only_for_changes(driven());
}

#[test]
fn snapshots_count_only_changes_while_a_file_is_written() {
    dirt_is_counted_only_for_changes(driven().config("appendonly", "yes"));
}

/// Whether a transaction that watches every key runs although `line` came in between.
fn transaction_survives(server: &Server, line: &str) -> bool {
    let (mut watcher, mut other) = (server.connect(), server.connect());
    say(&mut watcher, &format!("WATCH {}", KEYS.join(" ")));
    outcome(&mut other, line);
    say(&mut watcher, "MULTI");
    say(&mut watcher, "PING");
    say(&mut watcher, "EXEC") != Value::Nil
}

#[test]
fn only_calls_that_change_something_break_a_watch() {
    let (server, mut connection) = prepared(driven());
    for line in CHANGES_NOTHING {
        assert!(transaction_survives(&server, line), "{line} broke a WATCH");
    }
    let others = ["RES.WINDOW none 10 60s", "RES.GCRA none 10 60s", "RES.BREAKER TALLY closed 0 me 2 OK 1 FAIL 0"];
    for line in CHANGES_HALF.iter().chain(&others) {
        prepare(&mut connection);
        assert!(!transaction_survives(&server, line), "{line} broke no WATCH");
    }
}

#[test]
fn only_changes_invalidate_caches_and_each_once() {
    let (server, mut connection) = prepared(driven());
    let peek = "RES.GCRA.PEEK half 10 60s";
    let mut cache = Listener::to_invalidations_of(&server, peek);
    for read in
        ["RES.GCRA.PEEK full 10 60s", "RES.GCRA.PEEK none 10 60s", "RES.WINDOW.PEEK w 10 60s", "RES.BREAKER STATE open"]
    {
        cache.reads(read);
    }
    for line in CHANGES_NOTHING {
        outcome(&mut connection, line);
        assert_eq!(cache.invalidated(), [""; 0], "{line}");
    }
    for line in CHANGES_HALF {
        prepare(&mut connection);
        cache.invalidated();
        cache.reads(peek);
        outcome(&mut connection, line);
        assert_eq!(cache.invalidated(), ["half"], "{line}");
    }
}

#[test]
fn what_changes_nothing_notifies_nobody() {
    let (server, mut connection) = prepared(driven());
    let mut listener = Listener::to_notifications(&server);
    for line in CHANGES_NOTHING {
        let reply = outcome(&mut connection, line);
        let heard = listener.notifications();
        assert!(heard.is_empty(), "{line} ({reply}) notified {heard:?}");
    }
}
