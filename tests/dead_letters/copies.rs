//! A ledger is the same wherever it comes back from: a replica, a file, a reload, a payload of DUMP.

use redis::Connection;
use resil_harness::{Options, Server, eventually, ok, wait_for_sync};

use crate::driven::{SOON, START_US, Say, driven};
use crate::letters::given;
use crate::scene::{receive, send};

fn ask(connection: &mut Connection, line: &str) -> String {
    send(connection, line);
    receive(connection)
}

/// Ledgers with entries in every state, and payloads that make many pieces.
fn fill(connection: &mut Connection) {
    connection.clock_at_ms(0);
    let mut say = |line: &str| {
        let reply = ask(connection, line);
        assert!(!reply.starts_with('-') && !reply.starts_with("[LOST"), "{line}: {reply}");
        reply
    };
    say("RES.DLQ CONFIG d JITTER none ACTOR ann");
    for id in ["done", "taken", "lapsed", "returned", "waiting", "alone"] {
        say(&format!(
            "RES.DLQ FAIL d {id} ERROR e-{id} PAYLOAD p-{id} TYPE order AGGREGATE agg-{id} HEADERS h SCHEMA 3"
        ));
    }
    for id in ["resolved", "archived", "dead", "held"] {
        say(&format!("RES.DLQ FAIL d {id} ERROR {id} PAYLOAD p-{id} TYPE pay AGGREGATE agg-{id} FINAL"));
    }
    say("RES.DLQ PARK d parked1 AGGREGATE agg-dead PAYLOAD x");
    say("RES.DLQ PARK d parked2 AGGREGATE agg-dead REF s3://y");
    say("RES.DLQ HOLD d held ON REASON law ACTOR ann CORRELATION c");
    say(&format!("RES._CLOCK {}", START_US + 500_000));
    for (id, token) in [("done", "t1"), ("taken", "t2"), ("lapsed", "t3"), ("returned", "t4")] {
        let lease = if id == "lapsed" { "100ms" } else { "1h" };
        let (given_id, fence) = given(&say(&format!("RES.DLQ TAKE d {token} {lease} META host"))).remove(0);
        assert_eq!(given_id, id);
        match id {
            "done" => drop(say(&format!("RES.DLQ DONE d {id} {fence}"))),
            "returned" => drop(say(&format!("RES.DLQ RETURN d DELAY 1h {id} {fence}"))),
            _ => {}
        }
    }
    say(&format!("RES._CLOCK {}", START_US + 1_000_000));
    say("RES.DLQ DIAGNOSE d pay/resolved CATEGORY infrastructure CAUSE c FIX f AUTO 1h ACTOR ann");
    say("RES.DLQ DIAGNOSE d pay/archived CATEGORY poison CAUSE c FIX f ACTOR ann");
    say("RES.DLQ DIAGNOSE d pay/dead pay/held CATEGORY business CAUSE c FIX f DECISION d ACTOR ann");
    say("RES.DLQ CLOSE d 2 DISCARD ACTOR ann");
    say("RES.DLQ CONFIG d PAUSED yes ACTOR ann");
    say("RES.DLQ CONFIG d PAUSED no ACTOR ann");
    say("RES.DLQ REDRIVE d 1 ACTOR ann");
    let mut taken = (5..9).map(|n| given(&say(&format!("RES.DLQ TAKE d t{n} 1h"))).remove(0));
    let (id, fence) = taken.find(|(id, _)| id == "resolved").expect("its turn comes");
    drop(taken);
    say(&format!("RES.DLQ DONE d {id} {fence}"));
    say("RES.DLQ REDRIVE d 3 RATE 1 1h ACTOR ann");
    say("RES.DLQ CONFIG other CRASHES 7 ACTOR ann");
    let large = vec![0xfe; 300_000];
    ok(connection, &[b"RES.DLQ".as_slice(), b"FAIL", b"large", b"\x00id\xff", b"ERROR", b"\xff", b"PAYLOAD", &large]);
    let mut pipe = redis::pipe();
    for n in 0..3_000 {
        let (id, error) = (format!("m{n}"), format!("error of kind {}", ["a", "b", "c"][n % 3]));
        pipe.cmd("RES.DLQ")
            .arg("FAIL")
            .arg("large")
            .arg(id)
            .arg("ERROR")
            .arg(error)
            .arg("PAYLOAD")
            .arg("x".repeat(200));
        pipe.ignore();
    }
    pipe.query::<()>(connection).expect("all are new");
}

const KEYS: [&str; 3] = ["d", "large", "other"];

/// What every ledger is, and what it shows.
fn seen(connection: &mut Connection) -> Vec<String> {
    let mut seen = Vec::new();
    for key in KEYS {
        seen.push(connection.digest(key));
        for what in ["", "GROUPS", "CASES", "ALERTS", "AUDIT", "CONFIG"] {
            seen.push(ask(connection, &format!("RES.DLQ INFO {key} {what}")));
        }
        seen.push(ask(connection, &format!("RES.DLQ LIST {key} LIMIT 20")));
    }
    seen
}

/// They go on as before.
fn goes_on(connection: &mut Connection) {
    assert_eq!(ask(connection, "RES.DLQ FAIL d done ERROR e PAYLOAD p-done"), "[KNOWN done 0]");
    assert_eq!(ask(connection, "RES.DLQ FAIL d dead ERROR e PAYLOAD p-dead"), "[KNOWN dead 1]");
    assert!(ask(connection, "RES.DLQ FAIL d dead ERROR e PAYLOAD other").starts_with("-CONFLICT "));
    assert_eq!(ask(connection, "RES.DLQ RENEW d t2 1h"), "[GRANTED 1 3600000]");
    assert_eq!(ask(connection, "RES.DLQ PARK d parked3 AGGREGATE agg-dead PAYLOAD z"), "[PARKED 3]");
    let taken = ask(connection, "RES.DLQ TAKE large t 1h COUNT 1000");
    assert!(taken.starts_with("[NONE ") || taken.starts_with("[TAKEN "), "{taken:.80}");
    assert_eq!(connection.info_number("resil", "apply_refused"), 0);
    assert_eq!(connection.info_number("resil", "internal_errors"), 0);
}

/// The clock stands already when a file is loaded: by the real one, leases of 2100 would be far ahead.
fn standing() -> Options {
    Options::default().module_args(["test-clock", &START_US.to_string()])
}

fn with_file(preamble: &str) -> Options {
    standing().config("appendonly", "yes").config("appendfsync", "always").config("aof-use-rdb-preamble", preamble)
}

#[track_caller]
fn assert_same_after(options: Options, again: impl FnOnce(&mut Server)) {
    let mut server = Server::start(options);
    let mut connection = server.connect();
    fill(&mut connection);
    let before = seen(&mut connection);
    again(&mut server);
    let mut connection = server.connect();
    connection.clock_at_ms(1_000);
    assert_eq!(seen(&mut connection), before);
    goes_on(&mut connection);
}

#[test]
fn a_snapshot_brings_every_state_back() {
    assert_same_after(standing(), Server::restart_after_save);
}

#[test]
fn a_reload_brings_every_state_back() {
    assert_same_after(driven(), |server| drop(server.connect().say("DEBUG RELOAD")));
}

#[test]
fn a_file_of_changes_brings_every_state_back() {
    assert_same_after(with_file("no"), Server::restart_after_kill);
}

#[test]
fn a_rewritten_file_restores_every_state() {
    for preamble in ["no", "yes"] {
        assert_same_after(with_file(preamble), |server| {
            let mut connection = server.connect();
            connection.say("BGREWRITEAOF");
            eventually("the file is rewritten", SOON, || {
                connection.info("persistence", "aof_rewrite_in_progress") == "0"
                    && connection.info("persistence", "aof_rewrite_scheduled") == "0"
            });
            server.restart_after_kill();
        });
    }
}

#[test]
fn a_replica_is_equal_and_only_reads() {
    let primary = Server::start(driven());
    let replica = Server::replica_of(&primary, driven());
    let mut connection = primary.connect();
    fill(&mut connection);
    let before = seen(&mut connection);
    wait_for_sync(&primary, &replica);
    let late = Server::replica_of(&primary, driven());
    for copy in [&replica, &late] {
        let mut connection = copy.connect();
        connection.clock_at_ms(1_000);
        assert_eq!(seen(&mut connection), before);
        assert_eq!(ask(&mut connection, "RES.DLQ GET d done STATE"), "done");
        for line in [
            "RES.DLQ FAIL d x ERROR e",
            "RES.DLQ TAKE d x 1s",
            "RES.DLQ DONE d x 1",
            "RES.DLQ HOLD d dead ON ACTOR ann",
            "RES.DLQ CONFIG d CRASHES 1 ACTOR ann",
        ] {
            let error = ask(&mut connection, line);
            assert!(error.starts_with("-READONLY "), "{line}: {error}");
        }
        assert_eq!(connection.info_number("resil", "apply_refused"), 0);
    }
}

#[test]
fn a_dump_is_equal_elsewhere_and_copy_refused() {
    let (server, other) = (Server::start(driven()), Server::start(driven()));
    let (mut connection, mut there) = (server.connect(), other.connect());
    fill(&mut connection);
    there.clock_at_ms(1_000);
    for key in KEYS {
        let dump: Vec<u8> = redis::from_redis_value(ok(&mut connection, &["DUMP", key])).expect("bytes");
        ok(&mut there, &[b"RESTORE".as_slice(), key.as_bytes(), b"0", &dump]);
        let error = ask(&mut connection, &format!("COPY {key} copy"));
        assert!(error.starts_with('-'), "{error}");
    }
    assert_eq!(connection.integer("EXISTS copy"), 0);
    assert_eq!(seen(&mut there), seen(&mut connection));
    goes_on(&mut there);
}
