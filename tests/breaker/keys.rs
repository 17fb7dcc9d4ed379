//! What a breaker is as a key: it goes by itself when it is idle, unless somebody configured or forced it for good.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redis::Connection;
use resil_harness::{Options, Server, eventually, ok, wait_for_sync};

use crate::asked::Breaker;
use crate::driven::{SOON, START_MS, Say, driven, start_driven};
use crate::phases::{PHASES, fill_all};
use crate::seed::seeded;

fn expiry(connection: &mut Connection, key: &str) -> i64 {
    connection.integer(&format!("PEXPIRETIME {key}"))
}

#[test]
fn an_idle_breaker_goes_at_its_time() {
    let server = Server::fresh();
    let mut connection = server.connect();
    let began = Instant::now();
    connection.admit("k IDLE 1s CONSECUTIVE 9");
    connection.tally("k 0 me 1 OK 3 FAIL 2");
    eventually("the key is gone", SOON, || connection.integer("EXISTS k") == 0);
    assert!(began.elapsed() >= Duration::from_secs(1), "gone after {:?}", began.elapsed());
    let look = connection.look("k");
    assert_eq!((look.state(), look.number("generation"), look.number("failures")), ("closed", 0, 0));
    assert_eq!(look.text("config.consecutive"), "5", "what came with ADMIT went with the counts");
    eventually("its memory is given back", SOON, || connection.info_number("resil", "breaker_keys") == 0);
}

#[test]
fn a_breaker_in_use_outlives_its_idle_time() {
    let server = Server::fresh();
    let mut connection = server.connect();
    let began = Instant::now();
    let mut asked = began;
    connection.admit("k IDLE 1s CONSECUTIVE 0");
    for seq in 1.. {
        let asked_before = std::mem::replace(&mut asked, Instant::now());
        connection.tally(&format!("k 0 me {seq} OK 1 FAIL 0"));
        let look = connection.look("k");
        if asked_before.elapsed() >= Duration::from_secs(1) {
            return println!("skipped: this machine stood still for the whole idle time");
        }
        assert_eq!(look.text("config.consecutive"), "0", "it went although it was in use");
        if began.elapsed() > Duration::from_millis(2_500) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `key digest` of every key.
fn digests(connection: &mut Connection) -> BTreeSet<String> {
    let keys: Vec<String> = redis::from_redis_value(connection.say("KEYS *")).expect("keys are text");
    keys.into_iter().map(|key| format!("{key} {}", connection.digest(&key))).collect()
}

#[test]
fn breakers_that_expire_are_equal_on_replicas_and_files() {
    let mut rng = seeded("come and go");
    let mut primary = Server::start(Options::default().config("appendonly", "yes").config("appendfsync", "always"));
    let replica = Server::replica_of(&primary, Options::default());
    let mut connection = primary.connect();
    let began = Instant::now();
    let mut seq = 0;
    // Half of them are left alone for longer than their idle time, again and again, and find nothing when asked next.
    while began.elapsed() < Duration::from_millis(3_500) {
        let busy = if (began.elapsed().as_millis() / 1_200).is_multiple_of(2) { 0..15 } else { 15..30 };
        let key = format!("b:{}", rng.u32(busy));
        seq += 1;
        connection.admit(&format!("{key} IDLE 1s WINDOW COUNT {} CONSECUTIVE 0", 5 + seq % 3));
        connection.tally(&format!("{key} 0 me {seq} OK 1 FAIL {}", rng.u32(..2)));
    }
    for number in 0..30 {
        connection.say(&format!("PERSIST b:{number}"));
    }
    let here = digests(&mut connection);
    assert!(!here.is_empty());
    wait_for_sync(&primary, &replica);
    assert_eq!(digests(&mut replica.connect()), here, "on the replica");
    assert_eq!(replica.connect().info_number("resil", "apply_refused"), 0);
    assert!(connection.info_number("stats", "expired_keys") > 0, "none of them ever went");
    primary.restart_after_kill();
    // A file says nothing of a missing expiry, and does of an expiry taken away.
    assert_eq!(digests(&mut primary.connect()), here, "from the file");
}

#[test]
fn breakers_dropped_all_at_once_are_freed_wherever_that_happens() {
    let (_server, mut connection) = start_driven();
    for line in ["FLUSHALL ASYNC", "FLUSHALL SYNC", "FLUSHDB ASYNC", "SWAPDB 0 1"] {
        fill_all(&mut connection);
        assert!(connection.info_number("resil", "breaker_keys") > 0);
        connection.say(line);
        connection.say("SELECT 0");
        connection.say("FLUSHALL");
        eventually("all are freed", SOON, || connection.info_number("resil", "breaker_keys") == 0);
    }
    fill_all(&mut connection);
    for (key, _) in PHASES {
        connection.say(&format!("UNLINK {key}"));
    }
    eventually("all are freed", SOON, || connection.info_number("resil", "breaker_keys") == 0);
}

#[test]
fn the_expiry_lies_behind_idle_but_not_far() {
    let (_server, mut connection) = start_driven();
    for (idle, idle_ms, slack_ms) in [("1s", 1_000, 200), ("1m", 60_000, 8_500), ("10h", 36_000_000, 4_300_000)] {
        let key = format!("k:{idle}");
        connection.clock_at_ms(777);
        connection.admit(&format!("{key} IDLE {idle}"));
        connection.call(&key, "OK");
        let after_ms = expiry(&mut connection, &key) - START_MS - 777;
        assert!((idle_ms + 1..=idle_ms + slack_ms).contains(&after_ms), "{idle}: {after_ms} ms");
    }
}

#[test]
fn a_changed_breaker_stays_while_old_permits_live() {
    let (_server, mut connection) = start_driven();
    connection.admit("k IDLE 1s CONSECUTIVE 1 OPEN 30s");
    let old = connection.admit("k").permit().to_owned();
    connection.trip("k");
    let kept_ms = expiry(&mut connection, "k") - START_MS;
    assert!(kept_ms > 3_600_000 + 30_000, "{kept_ms} ms after the trip a permit of generation 0 could count again");
    connection.say("DEL k");
    connection.clock_at_us(3_600_000_001);
    assert_eq!(connection.report("k", &old, "FAIL").said(), ("stale", "closed"), "older than an hour");
    assert_eq!(connection.integer("EXISTS k"), 0);
}

#[test]
fn a_report_after_the_key_went_is_stale() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 1 OPEN 1s SUCCESSES 1");
    connection.trip("k");
    connection.clock_at_ms(1_000);
    let probe = connection.admit("k").permit().to_owned();
    connection.report("k", &probe, "OK");
    let closed = connection.admit("k");
    assert!(closed.generation > 0);
    connection.say("PEXPIRE k 1");
    eventually("the key is gone", SOON, || connection.integer("EXISTS k") == 0);
    for permit in [probe.as_str(), closed.permit()] {
        let reply = connection.report("k", permit, "FAIL");
        assert_eq!((reply.said(), reply.generation), (("stale", "closed"), 0));
    }
    assert_eq!(connection.integer("EXISTS k"), 0);
    // And so it is in the key's next life.
    connection.clock_at_us(1_000_001);
    connection.trip("k");
    assert_eq!(connection.report("k", &probe, "OK").said(), ("stale", "open"));
}

#[test]
fn lasting_configuration_and_endless_force_have_no_expiry() {
    let (_server, mut connection) = start_driven();
    connection.config("configured IDLE 1s");
    connection.call("configured", "OK");
    connection.force("endless OPEN");
    connection.force("for OPEN FOR 2h");
    assert_eq!(["configured", "endless"].map(|key| expiry(&mut connection, key)), [-1, -1]);
    let after_ms = expiry(&mut connection, "for") - START_MS;
    assert!(after_ms > 7_200_000 + 3_600_000, "collected {after_ms} ms after, before its generation may be forgotten");
    connection.force("endless AUTO");
    assert!(expiry(&mut connection, "endless") > START_MS, "lifted, it may go");
    connection.force("configured OPEN FOR 1s");
    connection.force("configured AUTO");
    connection.say("RES.BREAKER RESET configured");
    assert_eq!(expiry(&mut connection, "configured"), -1, "a configuration that lasts outlives all of that");
    connection.force("for OPEN");
    assert_eq!(expiry(&mut connection, "for"), -1);
}

/// A change of a breaker `k`, whatever it was before.
const CHANGES: &[&str] = &[
    "RES.BREAKER TALLY k 0 me 2 OK 1 FAIL 0",
    "RES.BREAKER FORCE k CLOSED FOR 1h",
    "RES.BREAKER RESET k",
    "RES.BREAKER CONFIG k RATE 77",
    "RES.BREAKER ADMIT k VERSION 9 RATE 77",
];

/// The expiry of `k` after `change`, with `meddling` before it.
fn expiry_after(connection: &mut Connection, begin: &str, meddling: &[&str], change: &str) -> i64 {
    connection.say("DEL k");
    connection.say(begin);
    connection.tally("k 0 me 1 OK 1 FAIL 1");
    for line in meddling {
        connection.say(line);
    }
    connection.say(change);
    expiry(connection, "k")
}

#[test]
fn the_next_change_undoes_a_users_expiry() {
    let (primary, mut connection) = start_driven();
    let replica = Server::replica_of(&primary, driven());
    let mut on_replica = replica.connect();
    for begin in ["RES.BREAKER ADMIT k RATE 50", "RES.BREAKER CONFIG k RATE 50"] {
        for change in CHANGES {
            let untouched = expiry_after(&mut connection, begin, &[], change);
            for meddling in [
                &["EXPIRE k 100000"][..],
                &["PERSIST k"],
                &["PEXPIREAT k 9000000000000"],
                &["EXPIRE k 100000", "PERSIST k"],
                &["EXPIRE k 100000", "RENAME k other", "RENAME other k"],
                &["EXPIRE k 100000", "COPY k other", "RENAME other k"],
                &["EXPIRE k 100000", "MOVE k 5", "SWAPDB 0 5"],
            ] {
                let after = expiry_after(&mut connection, begin, meddling, change);
                assert_eq!(after, untouched, "{begin}, {meddling:?}, {change}");
                wait_for_sync(&primary, &replica);
                assert_eq!(expiry(&mut on_replica, "k"), untouched, "on the replica: {meddling:?}, {change}");
            }
        }
    }
}

#[test]
fn a_retimed_keys_copy_gets_its_own_expiry() {
    let (_server, mut connection) = start_driven();
    for (begin, lasts) in [("RES.BREAKER ADMIT source RATE 50", false), ("RES.BREAKER CONFIG source RATE 50", true)] {
        for meddling in ["EXPIRE source 100000", "PERSIST source"] {
            for line in ["DEL source k", begin, meddling, "COPY source k", "RES.BREAKER TALLY k 0 me 1 OK 1 FAIL 0"] {
                connection.say(line);
            }
            let after_ms = expiry(&mut connection, "k") - START_MS;
            let is_own = if lasts { after_ms == -1 - START_MS } else { (3_600_000..7_200_000).contains(&after_ms) };
            assert!(is_own, "{begin}, {meddling}: expires {after_ms} ms after");
        }
    }
}

#[test]
fn the_next_change_restores_expiry_after_reloads_too() {
    let (_server, mut connection) = start_driven();
    for begin in ["RES.BREAKER ADMIT k RATE 50", "RES.BREAKER CONFIG k RATE 50"] {
        for change in CHANGES {
            let untouched = expiry_after(&mut connection, begin, &[], change);
            for meddling in [&["EXPIRE k 100000", "DEBUG RELOAD"][..], &["PERSIST k", "DEBUG RELOAD"]] {
                let after = expiry_after(&mut connection, begin, meddling, change);
                assert_eq!(after, untouched, "{begin}, {meddling:?}, {change}");
            }
            for ttl in ["0", "100000000"] {
                expiry_after(&mut connection, begin, &[], "PING");
                let payload: Vec<u8> = redis::from_redis_value(connection.say("DUMP k")).expect("a payload");
                ok(&mut connection, &[b"RESTORE".as_slice(), b"k", ttl.as_bytes(), &payload, b"REPLACE"]);
                connection.say(change);
                assert_eq!(expiry(&mut connection, "k"), untouched, "{begin}, RESTORE with {ttl}, {change}");
            }
        }
    }
}
