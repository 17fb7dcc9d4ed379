//! What changes nothing says nothing: it is not replicated, dirties nothing and breaks no WATCH. What changes something
//! does all of that.

use redis::{Connection, Value};
use resil_harness::{Options, Server, wait_for_sync};

use crate::asked::Breaker;
use crate::driven::{START_US, Say, driven, start_with};

const KEYS: &str = "closed open probed forced for conf brought none text";

/// `{old}` is a permit of generation 0.
const CHANGES_NOTHING: &[&str] = &[
    // Admitted while closed, and denied.
    "ADMIT closed",
    "ADMIT closed CALLER somebody",
    "ADMIT none",
    "ADMIT conf CALLER somebody",
    "ADMIT open",
    "ADMIT probed",
    "ADMIT forced",
    "ADMIT for",
    // Options that are there already, or that do not apply.
    "ADMIT brought VERSION 2 RATE 20 OPEN 10s",
    "ADMIT brought RATE 99",
    "ADMIT brought VERSION 1 RATE 99",
    "ADMIT conf VERSION 3 RATE 20 OPEN 10s",
    "ADMIT conf VERSION 3 WINDOW TIME 5s",
    "ADMIT open VERSION 0x",
    "CONFIG conf VERSION 3 RATE 20 OPEN 10s",
    "CONFIG conf RATE 20",
    // Reports that do not count.
    "REPORT closed {old} IGNORE",
    "REPORT closed {old} CANCEL DURATION 1h CORRELATION text",
    "REPORT closed rubbish FAIL",
    "REPORT open {old} FAIL",
    "REPORT open {old} OK",
    "REPORT probed {old} FAIL",
    "REPORT none {old} IGNORE",
    "TALLY closed 0 me 1 OK 3 FAIL 1",
    "TALLY closed 0 me 0 OK 3 FAIL 1",
    "TALLY closed 77 me 2 OK 3 FAIL 1",
    "TALLY closed 0 me 2 OK 0 FAIL 0",
    "TALLY open 0 you 1 OK 0 FAIL 5",
    // Nothing to lift, nothing to reset, the same by the same for the same.
    "FORCE closed AUTO",
    "FORCE none AUTO ACTOR me",
    "FORCE forced OPEN ACTOR me REASON why",
    "FORCE for CLOSED FOR 1h",
    "RESET none",
    // Looks.
    "STATE closed",
    "STATE open",
    "STATE probed",
    "STATE forced",
    "STATE none",
    "HELP",
    // Refused.
    "ADMIT closed RATE 101",
    "ADMIT none RATE 0 CONSECUTIVE 0",
    "ADMIT text",
    "REPORT closed {old} MAYBE",
    "REPORT text {old} OK",
    "TALLY closed 0 me 2 OK 99999 FAIL 0",
    "TALLY text 0 me 2 OK 1 FAIL 0",
    "FORCE closed AJAR",
    "FORCE text OPEN",
    "RESET text",
    "RESET closed surplus",
    "CONFIG conf PROBES 0",
    "CONFIG text RATE 5",
    "STATE text",
    "NOPE closed",
];

const CHANGES: &[&str] = &[
    "ADMIT none RATE 20",
    "ADMIT brought VERSION 3 RATE 20",
    "CONFIG conf RATE 21",
    "CONFIG conf VERSION 2",
    "CONFIG closed RATE 50",
    "REPORT closed {old} OK",
    "REPORT closed {old} FAIL",
    "REPORT none {old} OK",
    "TALLY closed 0 me 2 OK 1 FAIL 0",
    "FORCE closed OPEN",
    "FORCE forced OPEN ACTOR another REASON why",
    "FORCE for CLOSED FOR 2h",
    "FORCE forced AUTO",
    "RESET closed",
    "RESET open",
];

/// The same words with a permit of generation 0 in its place.
fn line(template: &str) -> String {
    format!("RES.BREAKER {}", template.replace("{old}", &format!("0.{START_US:x}.0")))
}

fn prepare(connection: &mut Connection) {
    connection.say("FLUSHALL");
    connection.clock_at_ms(0);
    connection.tally("closed 0 me 1 OK 3 FAIL 1");
    connection.tally("open 0 me 1 OK 0 FAIL 5");
    connection.config("probed CONSECUTIVE 1 OPEN 1ms PROBES 1");
    connection.trip("probed");
    connection.admit("brought VERSION 2 RATE 20 OPEN 10s");
    connection.config("conf VERSION 3 RATE 20 OPEN 10s");
    connection.say("SET text hello");
    connection.clock_at_ms(1);
    connection.force("forced OPEN ACTOR me REASON why");
    connection.force("for CLOSED FOR 1h");
    assert!(connection.admit("probed").admitted);
}

/// All that would betray a change to somebody else.
#[derive(Debug, PartialEq)]
struct Traces {
    replicated: i64,
    written: i64,
    dirt: i64,
    digests: Vec<String>,
}

fn traces(connection: &mut Connection) -> Traces {
    Traces {
        replicated: connection.info_number("replication", "master_repl_offset"),
        written: connection.info_number("persistence", "aof_current_size"),
        dirt: connection.info_number("persistence", "rdb_changes_since_last_save"),
        digests: KEYS.split(' ').map(|key| connection.digest(key)).collect(),
    }
}

/// The primary pings its replicas once a second; here the stream carries commands only. Each is in the file before it
/// is answered.
fn with_all_listeners() -> Options {
    driven().config("repl-ping-replica-period", "3600").config("appendonly", "yes").config("appendfsync", "always")
}

#[test]
fn what_changes_nothing_is_neither_replicated_nor_written_nor_dirt() {
    let (primary, mut connection) = start_with(with_all_listeners());
    let replica = Server::replica_of(&primary, driven());
    prepare(&mut connection);
    wait_for_sync(&primary, &replica);
    for template in CHANGES_NOTHING {
        let before = traces(&mut connection);
        let reply = connection.outcome(&line(template));
        assert_eq!(traces(&mut connection), before, "{template}: {reply}");
    }
    for template in CHANGES {
        prepare(&mut connection);
        let before = traces(&mut connection);
        connection.say(&line(template));
        let after = traces(&mut connection);
        assert!(after.replicated > before.replicated, "{template} was not replicated");
        assert!(after.written > before.written, "{template} was not written");
        assert!(after.dirt > before.dirt, "{template} is no dirt");
        assert_ne!(after.digests, before.digests, "{template} changed nothing");
    }
    wait_for_sync(&primary, &replica);
    let mut on_replica = replica.connect();
    for key in KEYS.split(' ') {
        assert_eq!(on_replica.digest(key), connection.digest(key), "{key}");
    }
}

#[test]
fn dirt_is_counted_for_changes_only_where_nobody_listens() {
    let (_server, mut connection) = start_with(driven());
    prepare(&mut connection);
    let dirt = |connection: &mut Connection| connection.info_number("persistence", "rdb_changes_since_last_save");
    for template in CHANGES_NOTHING {
        let before = dirt(&mut connection);
        let reply = connection.outcome(&line(template));
        assert_eq!(dirt(&mut connection), before, "{template}: {reply}");
    }
    for template in CHANGES {
        prepare(&mut connection);
        let before = dirt(&mut connection);
        connection.say(&line(template));
        assert!(dirt(&mut connection) > before, "{template}");
    }
}

/// Whether a transaction that watches every key runs although `line` came in between.
fn transaction_survives(server: &Server, line: &str) -> bool {
    let (mut watcher, mut other) = (server.connect(), server.connect());
    watcher.say(&format!("WATCH {KEYS}"));
    other.outcome(line);
    watcher.say("MULTI");
    watcher.say("PING");
    watcher.say("EXEC") != Value::Nil
}

#[test]
fn only_calls_that_change_something_break_a_watch() {
    let (server, mut connection) = start_with(driven());
    prepare(&mut connection);
    for template in CHANGES_NOTHING {
        assert!(transaction_survives(&server, &line(template)), "{template} broke a WATCH");
    }
    for template in CHANGES {
        prepare(&mut connection);
        assert!(!transaction_survives(&server, &line(template)), "{template} broke no WATCH");
    }
}
