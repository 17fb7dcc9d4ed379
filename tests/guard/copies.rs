//! A policy is the same wherever it comes back from: a replica, a file, a reload, a payload of DUMP.

use redis::Connection;
use resil_harness::{Options, Server, ok, wait_for_sync};

use crate::driven::{START_US, Say, driven, start_driven};
use crate::{ask, ticket};

const WHOLE: &str = r#"{"timeout":{"attempt":"5m","total":"5m"},"breaker":{"consecutiveFailures":3},"rateLimit":{"limit":100,"period":"1h"},"sharedBulkhead":{"maxConcurrentCalls":9},"retry":{"initialBackoff":"10s","jitter":"none"}}"#;

/// Tickets inside, waiting for a retry, and ended; counts in every layer; a tombstone. Gives a ticket that waits.
fn fill(connection: &mut Connection) -> String {
    connection.clock_at_ms(0);
    for key in ["p", "window", "gone"] {
        let kind = if key == "window" { r#""kind":"window","limit""# } else { r#""limit""# };
        let reply =
            ask(connection, &format!("RES.POLICY SET {key} {} ACTOR ada", WHOLE.replacen(r#""limit""#, kind, 1)));
        assert_eq!(reply, "[1 created]");
        let tickets: Vec<String> = ["a", "b", "c"]
            .iter()
            .map(|owner| ticket(&ask(connection, &format!("RES.GUARD ENTER {key} {owner}"))))
            .collect();
        ask(connection, &format!("RES.GUARD EXIT {key} {} OK", tickets[0]));
        assert_eq!(ask(connection, &format!("RES.GUARD EXIT {key} {} FAIL", tickets[1])), "[RETRY 10000 2]");
    }
    let waits = ticket(&ask(connection, "RES.GUARD ENTER p d"));
    assert_eq!(ask(connection, &format!("RES.GUARD EXIT p {waits} FAIL")), "[RETRY 10000 2]");
    assert_eq!(ask(connection, "RES.POLICY DELETE gone ACTOR ada REASON over"), "[2 deleted]");
    ask(connection, "RES.GUARD ENTER p e SUBJECT s");
    waits
}

fn seen(connection: &mut Connection) -> Vec<String> {
    let mut seen = vec![connection.digest("s")];
    for key in ["p", "window", "gone"] {
        seen.push(connection.digest(key));
        seen.push(ask(connection, &format!("RES.POLICY HISTORY {key}")));
    }
    seen.push(ask(connection, "RES.GUARD STATE p"));
    seen.push(ask(connection, "RES.BREAKER STATE p"));
    seen
}

#[track_caller]
fn assert_same_after(options: Options, again: impl FnOnce(&mut Server)) {
    let mut server = Server::start(options);
    let mut connection = server.connect();
    let waits = fill(&mut connection);
    let before = seen(&mut connection);
    again(&mut server);
    let mut connection = server.connect();
    connection.clock_at_ms(0);
    assert_eq!(seen(&mut connection), before);
    assert_eq!(ask(&mut connection, &format!("RES.GUARD EXIT p {waits} FAIL")), "[RETRY 10000 2]");
    let again = ticket(&ask(&mut connection, &format!("RES.GUARD ENTER p d TICKET {waits}")));
    assert_ne!(again, waits);
    assert_eq!(ask(&mut connection, &format!("RES.POLICY SET gone {WHOLE}")), "[3 created]");
    assert_eq!(connection.info_number("resil", "apply_refused"), 0);
    assert_eq!(connection.info_number("resil", "internal_errors"), 0);
}

/// The clock stands already when a file is loaded.
fn standing() -> Options {
    Options::default().module_args(["test-clock", &START_US.to_string()])
}

#[test]
fn a_snapshot_brings_policies_and_tickets_back() {
    assert_same_after(standing(), Server::restart_after_save);
}

#[test]
fn a_very_long_user_name_leaves_readable_policies() {
    let (_server, mut connection) = start_driven();
    let user = "u".repeat(600);
    ask(&mut connection, &format!("ACL SETUSER {user} on nopass ~* &* +@all"));
    ask(&mut connection, &format!("AUTH {user} any"));
    assert_eq!(ask(&mut connection, "RES.POLICY SET p {}"), "[1 created]");
    ask(&mut connection, "RES.DLQ FAIL d m ERROR e PAYLOAD p FINAL");
    ask(&mut connection, "RES.DLQ CONFIG d CRASHES 5");
    assert_eq!(ask(&mut connection, "DEBUG RELOAD"), "OK");
    let history = ask(&mut connection, "RES.POLICY HISTORY p");
    assert!(history.contains(&"u".repeat(512)) && !history.contains(&"u".repeat(513)), "{history}");
}

#[test]
fn a_reload_brings_policies_and_tickets_back() {
    assert_same_after(driven(), |server| drop(server.connect().say("DEBUG RELOAD")));
}

#[test]
fn a_killed_server_has_them_from_its_file() {
    let options = standing().config("appendonly", "yes").config("appendfsync", "always");
    assert_same_after(options.config("aof-use-rdb-preamble", "no"), Server::restart_after_kill);
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
        connection.clock_at_ms(0);
        assert_eq!(seen(&mut connection), before);
        for line in ["RES.GUARD ENTER p x", "RES.GUARD EXIT p 1 OK", "RES.POLICY SET p {}", "RES.POLICY DELETE p"] {
            let error = ask(&mut connection, line);
            assert!(error.starts_with("-READONLY "), "{line}: {error}");
        }
        assert_eq!(connection.info_number("resil", "apply_refused"), 0);
    }
}

#[test]
fn a_promoted_replica_goes_on_and_no_ticket_repeats() {
    let primary = Server::start(driven());
    let replica = Server::replica_of(&primary, driven());
    let mut connection = primary.connect();
    let waits = fill(&mut connection);
    wait_for_sync(&primary, &replica);
    drop(primary);
    let mut connection = replica.connect();
    connection.clock_at_ms(1_000);
    connection.say("REPLICAOF NO ONE");
    let again = ticket(&ask(&mut connection, &format!("RES.GUARD ENTER p d TICKET {waits}")));
    assert!(again.parse::<u64>().unwrap() > waits.parse().unwrap());
    assert_eq!(ask(&mut connection, &format!("RES.GUARD EXIT p {again} OK")), "[DONE]");
}

#[test]
fn a_dump_is_equal_on_another_server() {
    let (server, other) = (Server::start(driven()), Server::start(driven()));
    let (mut connection, mut there) = (server.connect(), other.connect());
    fill(&mut connection);
    there.clock_at_ms(0);
    for key in ["p", "window"] {
        let dump: Vec<u8> = redis::from_redis_value(ok(&mut connection, &["DUMP", key])).expect("bytes");
        ok(&mut there, &[b"RESTORE".as_slice(), key.as_bytes(), b"0", &dump]);
        assert_eq!(there.digest(key), connection.digest(key));
    }
}
