//! What a limit is as a key: it goes by itself when it is idle, and every tool that looks at keys can look at it.

use std::collections::BTreeSet;

use resil_harness::{Server, eventually, ok, reply};

use crate::dice::Dice;
use crate::driven::{SOON, START_US, digest, info_number, integer, numbers, say, set_clock, start_driven, text};
use crate::samples::{assert_all_live_on, fill_all};

#[test]
fn idle_limits_vanish_by_themselves() {
    let server = Server::fresh();
    let mut connection = server.connect();
    for number in 0..100 {
        say(&mut connection, &format!("RES.GCRA g:{number} 10 100ms"));
        say(&mut connection, &format!("RES.GCRA t:{number} 10 50ms AND 20 100ms"));
        say(&mut connection, &format!("RES.WINDOW w:{number} 10 100ms"));
        say(&mut connection, &format!("RES.MGCRA 2 a:{number} 10 50ms 10 b:{number} 10 100ms 10"));
    }
    say(&mut connection, "RES.GCRA reserved 10 100ms COST 10");
    say(&mut connection, "RES.GCRA reserved 10 100ms RESERVE 100ms");
    // Nobody asks for the keys: the server collects them in the background.
    eventually("the database is empty", SOON, || integer(&mut connection, "DBSIZE") == 0);
    assert_eq!(info_number(&mut connection, "resil", "resil_gcra_keys"), 0);
    assert_eq!(info_number(&mut connection, "resil", "resil_window_keys"), 0);
}

#[test]
fn an_idle_throttle_of_redis_cell_vanishes_by_itself() {
    let server = Server::fresh();
    let mut connection = server.connect();
    assert_eq!(numbers(&mut connection, "CL.THROTTLE c 9 10 1")[0], 0);
    eventually("the key is gone", SOON, || integer(&mut connection, "EXISTS c") == 0);
}

#[test]
fn the_expiry_never_costs_a_limit_its_debt() {
    // The server's clock and ours are the same here: if the expiry came before the debt's end, a second bucket
    // would be had within one period.
    let server = Server::fresh();
    let mut connection = server.connect();
    let began = std::time::Instant::now();
    let mut granted = 0;
    while began.elapsed().as_millis() < 600 {
        granted += numbers(&mut connection, "RES.GCRA g 20 100ms BURST 3")[0];
    }
    let bound = 3 + 20 * (began.elapsed().as_millis() as i64 + 1) / 100;
    assert!(granted <= bound, "{granted} granted, at most {bound} allowed");
}

#[test]
fn the_expiry_is_shortly_behind_all_debt() {
    let (_server, mut connection) = start_driven();
    let mut dice = Dice::thrown();
    for round in 0..400 {
        let now_us = START_US + dice.below(1_000_000_000) as i64;
        set_clock(&mut connection, now_us);
        let (limit_max, period_max_ms) = (*dice.pick(&[3, 100, 1_000_000]), *dice.pick(&[20, 10_000, 90_000_000]));
        let (limit, period_ms) = (1 + dice.below(limit_max), 1 + dice.below(period_max_ms));
        let cost = 1 + dice.below(limit);
        let key = format!("k:{round}");
        let line = match dice.below(3) {
            0 => format!("RES.GCRA {key} {limit} {period_ms} COST {cost}"),
            1 => format!("RES.GCRA {key} {limit} {period_ms} AND {limit} {} UPTO {cost}", period_ms * 7),
            _ => format!("RES.WINDOW {key} {} {period_ms} COST {}", limit.min(100_000), cost.min(100_000)),
        };
        let reply = numbers(&mut connection, &line);
        assert!(reply[0] > 0, "{line}: {reply:?}");
        // The last number of each tier is its reset_after_ms; with AND the tiers follow the five.
        let resets = if reply.len() == 5 { vec![reply[4]] } else { vec![reply[8], reply[12]] };
        let debt_ends_ms = now_us / 1_000 + resets.into_iter().max().unwrap();
        let expires_ms = integer(&mut connection, &format!("PEXPIRETIME {key}"));
        assert!(expires_ms > debt_ends_ms, "{line}: expires at {expires_ms}, owes until {debt_ends_ms}");
        let slack_ms = 128 + 7 * period_ms as i64;
        assert!(expires_ms <= debt_ends_ms + slack_ms, "{line}: {} ms too late", expires_ms - debt_ends_ms);
    }
}

#[test]
fn scan_lists_limits_by_their_type() {
    let (_server, mut connection) = start_driven();
    fill_all(&mut connection);
    say(&mut connection, "SET plain text");
    let listed = |connection: &mut redis::Connection, kind: &str| -> BTreeSet<String> {
        let (_, keys): (String, Vec<String>) =
            redis::from_redis_value(say(connection, &format!("SCAN 0 COUNT 1000 TYPE {kind}"))).unwrap();
        keys.into_iter().map(|key| key.trim_start_matches("sample:").to_owned()).collect()
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let buckets = names(&["packed", "large", "fraction", "reserved", "tiers", "cell"]);
    assert_eq!(listed(&mut connection, "resil-gcr"), buckets);
    assert_eq!(listed(&mut connection, "resil-win"), names(&["window"]));
    assert_eq!(listed(&mut connection, "resil-brk"), names(&["breaker", "tripped"]));
    assert_eq!(listed(&mut connection, "string"), names(&["plain"]));
    assert_eq!(text(&mut connection, "TYPE sample:packed"), "resil-gcr");
    assert_eq!(text(&mut connection, "TYPE sample:window"), "resil-win");
}

#[test]
fn memory_usage_is_reported_and_grows_with_the_value() {
    let (_server, mut connection) = start_driven();
    let samples = fill_all(&mut connection);
    let usage = |connection: &mut redis::Connection, key: &str| integer(connection, &format!("MEMORY USAGE {key}"));
    for sample in &samples {
        let bytes = usage(&mut connection, &sample.key);
        assert!((16..=600).contains(&bytes), "{}: {bytes} bytes", sample.kind.name);
    }
    assert!(usage(&mut connection, "sample:packed") < usage(&mut connection, "sample:large"));
    assert!(usage(&mut connection, "sample:large") < usage(&mut connection, "sample:tiers"));
    for step in 0..1_000 {
        set_clock(&mut connection, START_US + step);
        say(&mut connection, "RES.WINDOW w 1000 1h");
    }
    let bytes = usage(&mut connection, "w");
    assert!((16_000..=40_000).contains(&bytes), "a log of 1000 instants takes {bytes} bytes");
}

#[test]
fn every_tool_for_keys_can_look_at_limits() {
    let (_server, mut connection) = start_driven();
    let samples = fill_all(&mut connection);
    for sample in &samples {
        let key = &sample.key;
        for look in ["OBJECT ENCODING", "OBJECT REFCOUNT", "OBJECT IDLETIME", "DEBUG OBJECT", "TOUCH", "TTL", "DUMP"] {
            say(&mut connection, &format!("{look} {key}"));
        }
    }
    for look in
        ["DEBUG DIGEST", "DEBUG HTSTATS 0", "MEMORY DOCTOR", "MEMORY STATS", "MEMORY PURGE", "RANDOMKEY", "KEYS *"]
    {
        say(&mut connection, look);
    }
    say(&mut connection, "CONFIG SET maxmemory-policy allkeys-lfu");
    for sample in &samples {
        say(&mut connection, &format!("OBJECT FREQ {}", sample.key));
    }
    assert_all_live_on(&mut connection, &samples);
}

#[test]
fn a_look_at_a_limit_changes_nothing() {
    let (_server, mut connection) = start_driven();
    for sample in fill_all(&mut connection) {
        let before = digest(&mut connection, &sample.key);
        let look = sample.kind.look.replace("{}", &sample.key);
        let first = say(&mut connection, &look);
        assert_eq!(say(&mut connection, &look), first);
        assert_eq!(digest(&mut connection, &sample.key), before);
        sample.assert_lives_on_at(&mut connection, &sample.key);
    }
}

#[test]
fn active_defragmentation_hurts_no_limit() {
    let (_server, mut connection) = start_driven();
    if reply(&mut connection, &["CONFIG", "SET", "activedefrag", "yes"]).is_err() {
        return println!("skipped: this server was built without active defragmentation");
    }
    say(&mut connection, "CONFIG SET active-defrag-ignore-bytes 1 active-defrag-threshold-lower 1");
    let samples = fill_all(&mut connection);
    for number in 0..20_000 {
        say(&mut connection, &format!("RES.GCRA f:{number} 10 1h AND 100 2h"));
    }
    for number in (0..20_000).filter(|number| number % 7 != 0) {
        say(&mut connection, &format!("DEL f:{number}"));
    }
    eventually("something was moved", SOON, || info_number(&mut connection, "stats", "active_defrag_hits") > 0);
    assert_all_live_on(&mut connection, &samples);
}

#[test]
fn keys_are_any_bytes_and_the_empty_key_is_one() {
    let (_server, mut connection) = start_driven();
    for key in [b"".as_slice(), b"\0", b"a b\r\n\"'", b"\xff\xfe\x00\x80", &[b'k'; 70_000]] {
        let take = [b"RES.GCRA".as_slice(), key, b"10", b"60s"];
        let first: Vec<i64> = redis::from_redis_value(ok(&mut connection, &take)).unwrap();
        let second: Vec<i64> = redis::from_redis_value(ok(&mut connection, &take)).unwrap();
        assert_eq!((first[2], second[2]), (9, 8), "{:?}", key.escape_ascii().to_string());
        say(&mut connection, "DEBUG RELOAD");
        let third: Vec<i64> = redis::from_redis_value(ok(&mut connection, &take)).unwrap();
        assert_eq!(third[2], 7);
    }
}
