//! A lock or a bulkhead is the same wherever it comes back from: a replica, a file, a reload.

use redis::Connection;
use resil_harness::{Options, Server, eventually, ok, wait_for_sync};

use crate::asked::Asked;
use crate::driven::{SOON, Say};
use crate::shapes::{fill, seen};

fn with_file(preamble: &str) -> Options {
    Options::default()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .config("aof-use-rdb-preamble", preamble)
}

fn rewrite_file(connection: &mut Connection) {
    connection.say("BGREWRITEAOF");
    eventually("the append-only file is rewritten", SOON, || {
        connection.info("persistence", "aof_rewrite_in_progress") == "0"
            && connection.info("persistence", "aof_rewrite_scheduled") == "0"
    });
    assert_eq!(connection.info("persistence", "aof_last_bgrewrite_status"), "ok");
}

/// The same keys, the same states, the same expiries; and they can be used.
#[track_caller]
fn assert_same_after(options: Options, again: impl FnOnce(&mut Server)) {
    let mut server = Server::start(options);
    let filled = fill(&server);
    let before = seen(&mut server.connect());
    again(&mut server);
    let mut connection = server.connect();
    assert_eq!(seen(&mut connection), before);
    assert_eq!(connection.info_number("resil", "apply_refused"), 0);
    assert!(connection.holds("held", "a") && connection.holds("bound", "a") && connection.holds("inherited", "b"));
    assert_eq!(connection.look("shared").holders.len(), 50);
    assert_eq!(connection.ask("RES.LOCK RENEW expired a 1h"), "LOST expired");
    assert_eq!(connection.ask("RES.LOCK RENEW broken a3 1h"), "LOST broken");
    assert_eq!(connection.ask("RES.LOCK RENEW closed a 1h"), "LOST closed");
    assert!(connection.ask("RES.LOCK RELEASE released a").starts_with("RELEASED "));
    drop(filled);
}

#[test]
fn a_snapshot_brings_every_shape_back() {
    assert_same_after(Options::default(), Server::restart_after_save);
}

#[test]
fn a_reload_brings_every_shape_back() {
    assert_same_after(Options::default(), |server| drop(server.connect().say("DEBUG RELOAD")));
}

#[test]
fn a_file_of_changes_brings_every_shape_back() {
    assert_same_after(with_file("no"), Server::restart_after_kill);
}

#[test]
fn a_file_loaded_again_at_once_brings_every_shape_back() {
    assert_same_after(with_file("yes"), |server| drop(server.connect().say("DEBUG LOADAOF")));
}

#[test]
fn a_rewritten_file_of_commands_brings_every_shape_back() {
    assert_same_after(with_file("no"), |server| {
        rewrite_file(&mut server.connect());
        server.restart_after_kill();
    });
}

#[test]
fn a_rewritten_file_with_preamble_brings_every_shape_back() {
    assert_same_after(with_file("yes"), |server| {
        rewrite_file(&mut server.connect());
        server.restart_after_kill();
    });
}

/// How a key of each type begins, for an owner or a caller.
const BEGINNINGS: [(&str, &str); 7] = [
    ("lock", "RES.LOCK ACQUIRE {key} {owner} 1h"),
    ("bulkhead", "RES.BULKHEAD ENTER {key} {owner} 5 1h"),
    ("idempotency", "RES.IDEMP BEGIN {key} {owner} 1h"),
    ("flight", "RES.SFLIGHT JOIN {key} {owner} 1h"),
    ("breaker", "RES.BREAKER TALLY {key} 0 {owner} 1 OK 1 FAIL 1"),
    ("window", "RES.WINDOW {key} 10 1h"),
    ("gcra", "RES.GCRA {key} 10 1h"),
];

fn begin(connection: &mut Connection, how: &str, key: &str, owner: &str) {
    connection.say(&how.replace("{key}", key).replace("{owner}", owner));
}

/// A reload drops keys that have expired, and tells neither the file nor the replicas. What begins in their place is
/// no change of what they still have.
#[test]
fn every_change_of_our_own_file_is_taken_again() {
    let primary = Server::start(with_file("no"));
    let replica = Server::replica_of(&primary, Options::default());
    let mut connection = primary.connect();
    connection.say("DEBUG SET-ACTIVE-EXPIRE 0");
    for (kind, how) in BEGINNINGS {
        connection.say(&format!("SET {kind}-on-a-string text PX 1"));
        begin(&mut connection, how, &format!("{kind}-on-its-own"), "old");
        connection.say(&format!("PEXPIRE {kind}-on-its-own 1"));
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    connection.say("DEBUG RELOAD");
    assert_eq!(connection.integer("DBSIZE"), 0, "all have expired, and are dropped");
    wait_for_sync(&primary, &replica);
    assert_eq!(replica.connect().integer("DBSIZE"), 2 * BEGINNINGS.len() as i64, "the replica does not know");
    for (kind, how) in BEGINNINGS {
        for place in ["a-string", "its-own"] {
            begin(&mut connection, how, &format!("{kind}-on-{place}"), "new");
        }
    }
    let before = seen(&mut connection);
    assert_eq!(before.len(), 2 * BEGINNINGS.len());
    wait_for_sync(&primary, &replica);
    assert_eq!(seen(&mut replica.connect()), before, "on the replica");
    assert_eq!(replica.connect().info_number("resil", "apply_refused"), 0);
    connection.say("DEBUG LOADAOF");
    assert_eq!(seen(&mut connection), before, "from the file");
    assert_eq!(connection.info_number("resil", "apply_refused"), 0);
}

#[test]
fn replica_and_its_replica_are_equal_in_every_shape() {
    let primary = Server::fresh();
    let replica = Server::replica_of(&primary, Options::default());
    let last = Server::replica_of(&replica, Options::default());
    let _filled = fill(&primary);
    let before = seen(&mut primary.connect());
    wait_for_sync(&primary, &replica);
    wait_for_sync(&replica, &last);
    assert_eq!(seen(&mut replica.connect()), before);
    assert_eq!(seen(&mut last.connect()), before);
    assert_eq!(replica.connect().info_number("resil", "apply_refused"), 0);
    let late = Server::replica_of(&last, Options::default());
    assert_eq!(seen(&mut late.connect()), before, "by full synchronisation");
}

#[test]
fn a_replica_that_loads_beside_its_old_data_is_equal() {
    let primary = Server::fresh();
    let filled = fill(&primary);
    let replica = Server::replica_of(&primary, Options::default().config("repl-diskless-load", "swapdb"));
    assert_eq!(seen(&mut replica.connect()), seen(&mut primary.connect()));
    // Cut off, and the primary is another one by now: it is loaded a second time.
    let mut on_replica = replica.connect();
    on_replica.say("REPLICAOF NO ONE");
    on_replica.hold("of_its_own a 1h");
    on_replica.say(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    eventually("the link is up", SOON, || on_replica.info("replication", "master_link_status") == "up");
    wait_for_sync(&primary, &replica);
    assert_eq!(seen(&mut replica.connect()), seen(&mut primary.connect()));
    drop(filled);
}

#[test]
fn a_dump_is_equal_on_another_server() {
    let (server, other) = (Server::fresh(), Server::fresh());
    let _filled = fill(&server);
    let (mut connection, mut on_other) = (server.connect(), other.connect());
    let before = seen(&mut connection);
    for (key, (_, expiry)) in &before {
        let payload: Vec<u8> =
            redis::from_redis_value(ok(&mut connection, &[b"DUMP".as_slice(), key])).expect("a payload");
        ok(&mut on_other, &[b"RESTORE".as_slice(), key, expiry.to_string().as_bytes(), &payload, b"ABSTTL"]);
    }
    assert_eq!(seen(&mut on_other), before);
}

#[test]
fn the_server_collects_a_key_after_lease_and_grace() {
    let server = Server::fresh();
    let _filled = fill(&server);
    let mut connection = server.connect();
    let now_ms = connection.ask("TIME").split(' ').next().unwrap().parse::<i64>().unwrap() * 1_000;
    for (key, (_, expiry)) in seen(&mut connection) {
        let key = String::from_utf8_lossy(&key).into_owned();
        let look = match connection.ask(&format!("TYPE {key}")).as_str() {
            "resil-lck" => connection.look(&key),
            "resil-blk" => connection.look_into(&key),
            _ => continue,
        };
        let last_ms = look.holders.iter().map(|holder| holder.remaining_ms).max().unwrap_or(0);
        // An end that is remembered is a few seconds old at most.
        let least = now_ms + last_ms + if last_ms > 0 { 59_000 } else { 40_000 };
        assert!(expiry >= least, "{key}: {expiry} < {least}");
        assert!(expiry <= now_ms + last_ms + 60_000 + 66_000 + 2_000, "{key} lingers until {expiry}");
    }
}
