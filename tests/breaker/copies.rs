//! A breaker is the same wherever it comes back from: a replica, a file, a reload, a copy.

use redis::{Connection, Value};
use resil_harness::{Options, Server, eventually, ok, wait_for_sync};

use crate::driven::{SOON, Say, driven, start_driven, start_with};
use crate::phases::{PHASES, assert_same, fill_all, filled, seen, seen_as};

fn with_file() -> Options {
    driven().config("appendonly", "yes").config("appendfsync", "always")
}

fn rewrite_file(connection: &mut Connection) {
    connection.say("BGREWRITEAOF");
    eventually("the append-only file is rewritten", SOON, || {
        connection.info("persistence", "aof_rewrite_in_progress") == "0"
            && connection.info("persistence", "aof_rewrite_scheduled") == "0"
    });
    assert_eq!(connection.info("persistence", "aof_last_bgrewrite_status"), "ok");
}

#[test]
fn replica_and_its_replica_are_equal_in_every_phase() {
    let (primary, mut connection) = start_driven();
    let replica = Server::replica_of(&primary, driven());
    let last = Server::replica_of(&replica, driven());
    let before = filled(&mut connection);
    wait_for_sync(&primary, &replica);
    wait_for_sync(&replica, &last);
    assert_same(&mut replica.connect(), &before);
    assert_same(&mut last.connect(), &before);
    assert_eq!(replica.connect().info_number("resil", "apply_refused"), 0);
    let late = Server::replica_of(&last, driven());
    assert_same(&mut late.connect(), &before);
}

#[test]
fn a_snapshot_brings_every_phase_back() {
    let (mut server, mut connection) = start_driven();
    let before = filled(&mut connection);
    server.restart_after_save();
    assert_same(&mut server.connect(), &before);
}

#[test]
fn a_debug_reload_brings_every_phase_back() {
    let (_server, mut connection) = start_driven();
    let before = filled(&mut connection);
    connection.say("DEBUG RELOAD");
    assert_same(&mut connection, &before);
}

#[test]
fn a_file_of_changes_brings_every_phase_back() {
    let (mut server, mut connection) = start_with(with_file().config("aof-use-rdb-preamble", "no"));
    let before = filled(&mut connection);
    server.restart_after_kill();
    assert_same(&mut server.connect(), &before);
}

#[test]
fn a_rewritten_file_of_commands_brings_every_phase_back() {
    let (mut server, mut connection) = start_with(with_file().config("aof-use-rdb-preamble", "no"));
    let before = filled(&mut connection);
    rewrite_file(&mut connection);
    server.restart_after_kill();
    assert_same(&mut server.connect(), &before);
}

#[test]
fn a_rewritten_file_with_preamble_brings_every_phase_back() {
    let (mut server, mut connection) = start_with(with_file().config("aof-use-rdb-preamble", "yes"));
    let before = filled(&mut connection);
    rewrite_file(&mut connection);
    server.restart_after_kill();
    assert_same(&mut server.connect(), &before);
}

#[test]
fn a_copy_is_equal_and_lives_its_own_life() {
    let (_server, mut connection) = start_driven();
    fill_all(&mut connection);
    let before = seen(&mut connection);
    for (key, _) in PHASES {
        assert_eq!(connection.integer(&format!("COPY {key} copy:{key}")), 1);
    }
    assert_eq!(seen_as(&mut connection, |key| format!("copy:{key}")), before);
    for (key, _) in PHASES {
        connection.say(&format!("RES.BREAKER FORCE copy:{key} OPEN ACTOR other"));
        connection.say(&format!("RES.BREAKER RESET copy:{key}"));
    }
    assert_eq!(seen(&mut connection), before, "what was copied does not follow its copy");
}

#[test]
fn a_restored_dump_is_equal() {
    let (_server, mut connection) = start_driven();
    let other = Server::start(driven());
    let mut on_other = other.connect();
    fill_all(&mut connection);
    for (key, _) in PHASES {
        let Value::BulkString(payload) = connection.say(&format!("DUMP {key}")) else { panic!("no payload of {key}") };
        let (restored, expiry) = (format!("restored:{key}"), connection.integer(&format!("PEXPIRETIME {key}")).max(0));
        let at_ms = expiry.to_string();
        ok(&mut on_other, &[b"RESTORE".as_slice(), restored.as_bytes(), at_ms.as_bytes(), &payload, b"ABSTTL"]);
    }
    let restored = seen_as(&mut on_other, |key| format!("restored:{key}"));
    assert_eq!(restored, seen(&mut connection));
}

#[test]
fn renamed_moved_and_swapped_breakers_are_equal() {
    let (_server, mut connection) = start_driven();
    fill_all(&mut connection);
    let before = seen(&mut connection);
    for (key, _) in PHASES {
        connection.say(&format!("RENAME {key} renamed:{key}"));
        assert_eq!(connection.integer(&format!("MOVE renamed:{key} 3")), 1);
    }
    connection.say("SWAPDB 3 7");
    connection.say("SELECT 7");
    assert_eq!(seen_as(&mut connection, |key| format!("renamed:{key}")), before);
}
