//! Fences never go back, whatever happens to the key or the server.

use std::fs;

use redis::{Connection, Value};
use resil_harness::{Server, ok, wait_for_sync};

use crate::asked::Asked;
use crate::driven::{START_US, Say, driven, start_driven};
use crate::payload::Body;

fn dump(connection: &mut Connection, key: &str) -> Vec<u8> {
    match ok(connection, &["DUMP", key]) {
        Value::BulkString(payload) => payload,
        other => panic!("DUMP {key}: {other:?}"),
    }
}

/// One grant after the other, of whatever key: each is above all before.
#[derive(Default)]
struct Fences(Vec<u64>);

impl Fences {
    #[track_caller]
    fn next(&mut self, connection: &mut Connection, key: &str) {
        let owner = format!("o{}", self.0.len());
        let fence = connection.hold(&format!("{key} {owner} 1h"));
        connection.say(&format!("RES.LOCK RELEASE {key} {owner}"));
        let before = self.0.iter().max().copied().unwrap_or(0);
        assert!(fence > before, "{fence} after {before}: {:?}", self.0);
        assert!(fence < 1 << 53);
        self.0.push(fence);
    }
}

#[test]
fn deleted_and_flushed_keys_continue_above() {
    // With a clock that stands still nothing but the floor makes them grow.
    let (_server, mut connection) = start_driven();
    let mut fences = Fences::default();
    for line in ["PING", "DEL k", "UNLINK k", "SET k x", "DEL k", "FLUSHDB", "FLUSHALL", "FLUSHALL ASYNC", "SWAPDB 0 1"]
    {
        connection.say(line);
        if line != "SET k x" {
            fences.next(&mut connection, "k");
            fences.next(&mut connection, "k");
        }
    }
    connection.say("DEBUG RELOAD");
    fences.next(&mut connection, "k");
    // And when it is set back.
    connection.clock_at_ms(-3_600_000);
    connection.say("DEL k");
    fences.next(&mut connection, "k");
}

#[test]
fn a_server_restarted_on_its_data_goes_on_above() {
    let mut server = Server::fresh();
    let mut fences = Fences::default();
    for _ in 0..3 {
        fences.next(&mut server.connect(), "k");
        fences.next(&mut server.connect(), "other");
        server.restart_after_save();
    }
    fences.next(&mut server.connect(), "k");
}

#[test]
fn a_server_restarted_on_nothing_goes_on_above() {
    let mut server = Server::fresh();
    let mut fences = Fences::default();
    for _ in 0..3 {
        fences.next(&mut server.connect(), "k");
        server.restart_after_kill();
        assert_eq!(server.connect().integer("DBSIZE"), 0, "nothing was left");
    }
    fences.next(&mut server.connect(), "k");
}

#[test]
fn a_server_crashing_on_one_snapshot_goes_on_above() {
    let mut server = Server::fresh();
    let mut fences = Fences::default();
    fences.next(&mut server.connect(), "k");
    server.restart_after_save();
    for _ in 0..3 {
        fences.next(&mut server.connect(), "k");
        fences.next(&mut server.connect(), "other");
        server.restart_after_kill();
    }
}

#[test]
fn a_server_restarted_from_an_older_snapshot_goes_on_above() {
    let mut server = Server::fresh();
    let mut connection = server.connect();
    let mut fences = Fences::default();
    fences.next(&mut connection, "k");
    connection.say("SAVE");
    let (file, aside) = (server.dir().join("dump.rdb"), server.dir().join("older.rdb"));
    fs::copy(&file, &aside).unwrap();
    for _ in 0..100 {
        fences.next(&mut connection, "k");
        fences.next(&mut connection, "new");
    }
    connection.say("SAVE");
    server.kill9();
    fs::copy(&aside, &file).unwrap();
    server.start_again();
    fences.next(&mut server.connect(), "k");
    fences.next(&mut server.connect(), "new");
}

#[test]
fn an_older_snapshot_after_several_quick_restarts_goes_on_above() {
    let mut server = Server::fresh();
    let mut fences = Fences::default();
    fences.next(&mut server.connect(), "k");
    server.connect().say("SAVE");
    let (file, aside) = (server.dir().join("dump.rdb"), server.dir().join("older.rdb"));
    fs::copy(&file, &aside).unwrap();
    for _ in 0..3 {
        server.restart_after_save();
        fences.next(&mut server.connect(), "k");
    }
    server.kill9();
    fs::copy(&aside, &file).unwrap();
    server.start_again();
    fences.next(&mut server.connect(), "k");
}

/// The highest fence the snapshot carries, for a key that is not in it.
#[test]
fn a_snapshot_carries_the_floor_beside_the_keys() {
    let mut server = Server::start(driven());
    let mut connection = server.connect();
    // Far ahead of any clock this server will see again: only the floor can be above it.
    connection.clock_at_ms(0);
    let fence = connection.hold("k a 1h");
    connection.say("DEL k");
    assert_eq!(connection.integer("DBSIZE"), 0);
    server.restart_after_save();
    assert!(server.connect().hold("k b 1h") > fence);
    assert!(server.connect().hold("other b 1h") > fence);
}

#[test]
fn a_rewritten_file_keeps_its_floor_of_fences() {
    let options = driven().config("appendonly", "yes").config("appendfsync", "always");
    let mut server = Server::start(options.config("aof-use-rdb-preamble", "no"));
    let mut connection = server.connect();
    connection.clock_at_ms(0);
    let fence = connection.hold("k a 1h");
    connection.say("BGREWRITEAOF");
    resil_harness::eventually("the file is rewritten", crate::driven::SOON, || {
        connection.info("persistence", "aof_rewrite_in_progress") == "0"
            && connection.info("persistence", "aof_rewrite_scheduled") == "0"
    });
    server.restart_after_kill();
    assert!(server.connect().hold("other b 1h") > fence);
}

#[test]
fn a_full_synchronisation_carries_the_floor_to_a_replica() {
    let (mut primary, mut connection) = start_driven();
    let fence = connection.hold("k a 1h");
    connection.say("DEL k");
    let replica = Server::replica_of(&primary, driven());
    wait_for_sync(&primary, &replica);
    let mut on_replica = replica.connect();
    primary.kill9();
    on_replica.clock_at_ms(-59_000);
    on_replica.say("REPLICAOF NO ONE");
    assert!(on_replica.hold("k b 1h") > fence);
}

#[test]
fn a_promoted_replica_goes_on_above_unheard_fences() {
    let (mut primary, mut connection) = start_driven();
    let replica = Server::replica_of(&primary, driven());
    let mut on_replica = replica.connect();
    on_replica.clock_at_ms(0);
    let mut fences = Fences::default();
    fences.next(&mut connection, "k");
    wait_for_sync(&primary, &replica);
    // The link is cut, and the old primary does not know yet that it is none any more.
    on_replica.say("REPLICAOF NO ONE");
    connection.clock_at_ms(30_000);
    for _ in 0..50 {
        fences.next(&mut connection, "k");
    }
    primary.kill9();
    // The clock of the new one is behind by nearly all of `fence-jump`.
    on_replica.clock_at_ms(30_000 - 59_000);
    fences.next(&mut on_replica, "k");
    fences.next(&mut on_replica, "other");
}

#[test]
fn replicated_grants_carry_the_floor() {
    let (mut primary, mut connection) = start_driven();
    let replica = Server::replica_of(&primary, driven());
    let mut on_replica = replica.connect();
    connection.clock_at_ms(10_000_000);
    let fence = connection.hold("k a 1h");
    connection.say("DEL k");
    wait_for_sync(&primary, &replica);
    primary.kill9();
    // Hours behind: but this one heard of the grant.
    on_replica.clock_at_ms(0);
    on_replica.say("REPLICAOF NO ONE");
    assert!(on_replica.hold("k b 1h") > fence);
}

#[test]
fn a_key_takes_its_last_fence_along() {
    let (_server, mut connection) = start_driven();
    let other = Server::start(driven());
    let mut on_other = other.connect();
    on_other.clock_at_ms(-3_600_000);
    let fence = connection.hold("k a 10s");
    let payload = dump(&mut connection, "k");
    ok(&mut on_other, &[b"RESTORE".as_slice(), b"k", b"0", &payload]);
    on_other.say("RES.LOCK BREAK k");
    assert!(on_other.hold("k b 1h") > fence, "an hour behind, and above");
    connection.say("COPY k copy");
    connection.say("RES.LOCK BREAK copy");
    assert!(connection.hold("copy b 1h") > fence);
    connection.say("RENAME copy renamed");
    connection.say("RES.LOCK BREAK renamed");
    assert!(connection.hold("renamed c 1h") > fence + 1);
}

/// A lock nobody holds, whose last fence is `fence`.
fn forged(body: &Body, fence: u64) -> Vec<u8> {
    body.with_pieces(&[crate::states::tagged(b'L', &[fence, 0, 0])]).sealed()
}

/// Nearly the most that a restored fence may be ahead of the clock: a year and a day.
const AHEAD_US: u64 = 365 * 86_400 * 1_000_000;

#[test]
fn a_forged_fence_is_refused_or_its_keys_own_trouble() {
    let server = Server::fresh();
    let mut connection = server.connect();
    let before = connection.hold("k a 1h");
    let body = Body::of(&dump(&mut connection, "k"));
    for fence in [u64::MAX, 1 << 63, 1 << 53, (1 << 53) - 1, (1 << 53) - (1 << 44), before + 2 * AHEAD_US] {
        let payload = forged(&body, fence);
        let words: [&[u8]; 4] = [b"RESTORE", b"forged", b"0", &payload];
        assert!(resil_harness::reply(&mut connection, &words).is_err(), "{fence} was taken");
    }
    let payload = forged(&body, before + AHEAD_US);
    ok(&mut connection, &[b"RESTORE", b"forged".as_slice(), b"0", &payload]);
    let beside = connection.hold("beside a 1h");
    assert!(beside > before && beside < before + 60_000_000, "the others know nothing of it: {beside}");
    assert_eq!(connection.hold("forged a 1h"), before + AHEAD_US + 1);
    let mut last = 0;
    for number in 0..100 {
        let next = connection.hold(&format!("later{number} a 1h"));
        assert!(next > last && next > beside && next < 1 << 53, "{next} after {last}");
        last = next;
    }
}

#[test]
fn the_clock_is_what_fences_are_made_of() {
    let (_server, mut connection) = start_driven();
    connection.clock_at_ms(3_600_000);
    assert_eq!(connection.hold("k a 1h"), (START_US + 3_600_000_000).cast_unsigned());
    assert_eq!(connection.hold("l a 1h"), (START_US + 3_600_000_001).cast_unsigned());
}
