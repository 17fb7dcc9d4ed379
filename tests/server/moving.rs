//! A value is copied, renamed, dumped or carried to another server: it stays the limit it was.

use redis::{Connection, Value};
use resil_harness::{Server, ok};

use crate::driven::{digest, driven, integer, say, set_clock, start_driven};
use crate::samples::{FILLED_US, assert_all_live_on, fill_all};

fn dump(connection: &mut Connection, key: &str) -> Vec<u8> {
    match ok(connection, &["DUMP", key]) {
        Value::BulkString(payload) => payload,
        other => panic!("DUMP {key}: {other:?}"),
    }
}

#[test]
fn a_copy_is_equal_and_goes_its_own_way() {
    let (_server, mut connection) = start_driven();
    for sample in fill_all(&mut connection) {
        let key = &sample.key;
        assert_eq!(integer(&mut connection, &format!("COPY {key} copy")), 1);
        sample.assert_lives_on_at(&mut connection, "copy");
        sample.assert_lives_on_at(&mut connection, key);
        say(&mut connection, "DEL copy");
    }
}

#[test]
fn a_copy_replaces_whatever_limit_was_there() {
    let (_server, mut connection) = start_driven();
    say(&mut connection, "RES.WINDOW target 10 1h COST 10");
    for sample in fill_all(&mut connection) {
        assert_eq!(integer(&mut connection, &format!("COPY {} target REPLACE", sample.key)), 1);
        sample.assert_lives_on_at(&mut connection, "target");
    }
}

#[test]
fn a_copy_in_another_database_is_equal() {
    let (_server, mut connection) = start_driven();
    for sample in fill_all(&mut connection) {
        say(&mut connection, &format!("COPY {} copy DB 7", sample.key));
        say(&mut connection, "SELECT 7");
        sample.assert_lives_on_at(&mut connection, "copy");
        say(&mut connection, "DEL copy");
        say(&mut connection, "SELECT 0");
    }
}

#[test]
fn what_is_dumped_can_be_restored_under_any_name() {
    let (_server, mut connection) = start_driven();
    for sample in fill_all(&mut connection) {
        let payload = dump(&mut connection, &sample.key);
        let expires_at_ms = integer(&mut connection, &format!("PEXPIRETIME {}", sample.key)).to_string();
        let restore = [b"RESTORE", b"restored".as_slice(), expires_at_ms.as_bytes(), &payload, b"ABSTTL", b"REPLACE"];
        ok(&mut connection, &restore);
        sample.assert_lives_on_at(&mut connection, "restored");
    }
}

#[test]
fn a_limit_restored_without_expiry_gets_one() {
    let (_server, mut connection) = start_driven();
    let samples = fill_all(&mut connection);
    for sample in &samples {
        let payload = dump(&mut connection, &sample.key);
        ok(&mut connection, &[b"RESTORE", b"restored".as_slice(), b"0", &payload, b"REPLACE"]);
        assert_eq!(integer(&mut connection, "PEXPIRETIME restored"), -1);
        // Two minutes on every kind grants what it is asked for.
        set_clock(&mut connection, FILLED_US + 120_000_000);
        say(&mut connection, &sample.kind.ask.replace("{}", "restored"));
        assert!(integer(&mut connection, "PEXPIRETIME restored") > FILLED_US / 1_000, "{}", sample.kind.name);
        set_clock(&mut connection, FILLED_US);
    }
}

#[test]
fn a_renamed_limit_keeps_its_state() {
    let (_server, mut connection) = start_driven();
    for sample in fill_all(&mut connection) {
        say(&mut connection, &format!("RENAME {} renamed", sample.key));
        assert_eq!(integer(&mut connection, &format!("EXISTS {}", sample.key)), 0);
        sample.assert_lives_on_at(&mut connection, "renamed");
    }
}

#[test]
fn a_limit_moved_to_another_database_keeps_its_state() {
    let (_server, mut connection) = start_driven();
    for sample in fill_all(&mut connection) {
        assert_eq!(integer(&mut connection, &format!("MOVE {} 3", sample.key)), 1);
        assert_eq!(integer(&mut connection, &format!("EXISTS {}", sample.key)), 0);
        say(&mut connection, "SELECT 3");
        sample.assert_lives_on_at(&mut connection, &sample.key);
        say(&mut connection, "SELECT 0");
    }
}

#[test]
fn swapped_databases_swap_their_limits() {
    let (_server, mut connection) = start_driven();
    let samples = fill_all(&mut connection);
    say(&mut connection, "SWAPDB 0 5");
    assert_eq!(integer(&mut connection, "DBSIZE"), 0);
    say(&mut connection, "SELECT 5");
    assert_all_live_on(&mut connection, &samples);
}

#[test]
fn migrated_limits_arrive_whole_and_are_gone_at_the_source() {
    let (_from, mut source) = start_driven();
    let to = Server::start(driven());
    let mut target = to.connect();
    // MIGRATE sends what is left to live by the real clock, in whole milliseconds: the expiry may be one off.
    let samples = fill_all(&mut source);
    let digests: Vec<String> = samples.iter().map(|sample| digest(&mut source, &sample.key)).collect();
    let keys: Vec<&str> = samples.iter().map(|sample| sample.key.as_str()).collect();
    let port = to.port().to_string();
    ok(&mut source, &[&["MIGRATE", "127.0.0.1", &port, "", "0", "10000", "KEYS"], keys.as_slice()].concat());
    assert_eq!(integer(&mut source, "DBSIZE"), 0);
    for (key, digest_before) in keys.iter().zip(digests) {
        assert_eq!(digest(&mut target, key), digest_before);
    }
    set_clock(&mut target, FILLED_US);
    for sample in &samples {
        sample.assert_replies_like_twin_at(&mut target, &sample.key);
    }
}
