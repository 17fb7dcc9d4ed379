//! `RES.LIST` and `RES.TOP`: what they show is what an independent scan finds, whatever happens to the keys.

use std::collections::{BTreeMap, BTreeSet};

use redis::Connection;
use resil_harness::{Options, Server, ok, wait_for_sync};

use crate::dice::Dice;
use crate::driven::{info, integer, refusal, say, start_driven};
use crate::pages::{array, page, rows, text};

/// What SCAN calls it, and LIST.
const TYPES: [(&str, &str); 5] = [
    ("resil-brk", "BREAKER"),
    ("resil-lck", "LOCK"),
    ("resil-blk", "BULKHEAD"),
    ("resil-pol", "POLICY"),
    ("resil-dlq", "DLQ"),
];

/// Of these only some keys are listed: those that a field of their INFO says so of.
const IN_FLIGHT: [(&str, &str, &str); 2] =
    [("resil-idm", "RUN", "RES.IDEMP INFO"), ("resil-sfl", "LOAD", "RES.SFLIGHT INFO")];

const DATABASES: u64 = 3;

/// A command that makes a key of each type.
pub fn create(kind: &str, key: &str) -> Vec<String> {
    let words: Vec<&str> = match kind {
        "BREAKER" => vec!["RES.BREAKER", "FORCE", key, "OPEN"],
        "LOCK" => vec!["RES.LOCK", "ACQUIRE", key, "me", "1h"],
        "BULKHEAD" => vec!["RES.BULKHEAD", "ENTER", key, "me", "5", "1h"],
        "POLICY" => vec!["RES.POLICY", "SET", key, r#"{"retry":{"maxAttempts":3}}"#],
        _ => vec!["RES.DLQ", "FAIL", key, "id", "ERROR", "e", "PAYLOAD", "p"],
    };
    words.into_iter().map(str::to_owned).collect()
}

/// All keys that LIST shows, each once.
fn listed(connection: &mut Connection, line: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for row in rows(connection, line) {
        assert!(all.insert(row["key"].clone()), "{} is listed twice by {line}", row["key"]);
    }
    all
}

fn scanned(connection: &mut Connection, kind: &str) -> BTreeSet<String> {
    let (mut cursor, mut all) = ("0".to_owned(), BTreeSet::new());
    loop {
        let mut reply = array(say(connection, &format!("SCAN {cursor} COUNT 1000 TYPE {kind}"))).into_iter();
        cursor = text(&reply.next().expect("a cursor"));
        all.extend(array(reply.next().expect("keys")).iter().map(text));
        if cursor == "0" {
            return all;
        }
    }
}

#[track_caller]
fn assert_lists_are_true(connection: &mut Connection, after: &str) {
    for db in 0..DATABASES {
        say(connection, &format!("SELECT {db}"));
        for (kind, word) in TYPES {
            let (scanned, listed) =
                (scanned(connection, kind), listed(connection, &format!("RES.LIST {word} LIMIT 7")));
            assert_eq!(listed, scanned, "{word} of database {db} after {after}");
        }
        for (kind, word, info) in IN_FLIGHT {
            let mut in_flight = scanned(connection, kind);
            in_flight.retain(|key| is_in_flight(connection, &format!("{info} {key}")));
            let listed = listed(connection, &format!("RES.LIST {word} LIMIT 7"));
            assert_eq!(listed, in_flight, "{word} of database {db} after {after}");
        }
    }
    say(connection, "SELECT 0");
}

/// Whether INFO says that somebody runs or leads, or nobody may.
fn is_in_flight(connection: &mut Connection, info: &str) -> bool {
    let fields: BTreeMap<String, String> =
        array(say(connection, info)).chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
    match fields.get("phase") {
        Some(phase) => {
            ["running", "held"].contains(&phase.as_str()) || phase == "lapsed" && fields["on_lapse"] == "hold"
        }
        None => fields["leader"] != "nil",
    }
}

/// Every way in which a run and a load begin and end.
const WORK: [&str; 16] = [
    "RES.IDEMP BEGIN KEY me 1h",
    "RES.IDEMP BEGIN KEY me 1h",
    "RES.IDEMP BEGIN KEY other 1h KEEP 1h",
    "RES.IDEMP BEGIN KEY me 2ms ONLAPSE HOLD",
    "RES.IDEMP BEGIN KEY me 2ms",
    "RES.IDEMP COMMIT KEY me 1h done",
    "RES.IDEMP ABORT KEY me",
    "RES.IDEMP RENEW KEY me 1h",
    "RES.IDEMP ONCE KEY 1h",
    "RES.SFLIGHT JOIN KEY me 1h",
    "RES.SFLIGHT JOIN KEY me 1h",
    "RES.SFLIGHT JOIN KEY me 2ms",
    "RES.SFLIGHT PUBLISH KEY me 1h VALUE v",
    "RES.SFLIGHT SET KEY 5ms VALUE v",
    "RES.SFLIGHT ABANDON KEY me",
    "RES.SFLIGHT INVALIDATE KEY",
];

/// Every way in which keys come and go, at random.
#[test]
fn lists_agree_with_a_scan_whatever_happens_to_keys() {
    let mut dice = Dice::thrown();
    let mut server = Server::start(Options::default().config("appendonly", "no").config("enable-debug-command", "yes"));
    let replica = Server::replica_of(&server, Options::default());
    let mut connection = server.connect();
    for round in 0..600 {
        let db = dice.below(DATABASES);
        say(&mut connection, &format!("SELECT {db}"));
        let names: Vec<String> = (0..2).map(|_| format!("k{}", dice.below(40))).collect();
        let (one, other) = (names[0].as_str(), names[1].as_str());
        let (_, word) = *dice.pick(&TYPES);
        let line: Vec<String> = match dice.below(24) {
            16.. => dice.pick(&WORK).replace("KEY", one).split(' ').map(str::to_owned).collect(),
            0..=6 => create(word, one),
            7 => vec!["DEL".into(), one.into()],
            8 => vec!["RENAME".into(), one.into(), other.into()],
            9 => vec!["MOVE".into(), one.into(), dice.below(DATABASES).to_string()],
            10 => ["COPY", one, other, "REPLACE"].map(str::to_owned).to_vec(),
            11 => ["COPY", one, other, "DB", &dice.below(DATABASES).to_string(), "REPLACE"].map(str::to_owned).to_vec(),
            12 => vec!["UNLINK".into(), one.into(), other.into()],
            13 => vec!["SET".into(), one.into(), "plain".into()],
            14 => vec!["PEXPIRE".into(), one.into(), "1".into()],
            _ => match dice.below(8) {
                0 => vec!["FLUSHDB".into()],
                1 => vec!["FLUSHALL".into(), "ASYNC".into()],
                2 | 3 => ["SWAPDB", "0", &dice.below(DATABASES).to_string()].map(str::to_owned).to_vec(),
                4 => ["DEBUG", "RELOAD"].map(str::to_owned).to_vec(),
                _ => create(word, other),
            },
        };
        let _may_fail = resil_harness::reply(&mut connection, &line);
        if round % 20 == 19 {
            // What expires in a millisecond has expired for both.
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert_lists_are_true(&mut connection, &format!("{line:?} in round {round}"));
        }
    }
    wait_for_sync(&server, &replica);
    assert_lists_are_true(&mut replica.connect(), "replication");
    say(&mut connection, "SELECT 0");
    ok(&mut connection, &create("BREAKER", "kept"));
    drop(connection);
    server.restart_after_save();
    let mut connection = server.connect();
    assert!(listed(&mut connection, "RES.LIST BREAKER").contains("kept"));
    assert_lists_are_true(&mut connection, "a restart");
    assert_eq!(info(&mut connection, "resil", "resil_internal_errors"), "0");
}

#[test]
fn keys_that_stay_are_listed_exactly_once() {
    let server = Server::start(Options::default());
    let mut connection = server.connect();
    for number in 0..300 {
        ok(&mut connection, &create("BREAKER", &format!("stays{number}")));
        ok(&mut connection, &create("BREAKER", &format!("goes{number}")));
    }
    let (mut cursor, mut seen, mut calls) = ("0".to_owned(), BTreeSet::new(), 0);
    loop {
        let (next, rows) = page(&mut connection, &format!("RES.LIST BREAKER LIMIT 10 CURSOR {cursor}"));
        for row in rows.iter().filter(|row| row["key"].starts_with("stays")) {
            assert!(seen.insert(row["key"].clone()), "{} is listed twice", row["key"]);
        }
        say(&mut connection, &format!("DEL goes{calls} goes{}", 299 - calls));
        ok(&mut connection, &create("BREAKER", &format!("new{calls}")));
        (cursor, calls) = (next, calls + 1);
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen.len(), 300);
}

/// It is another key, under a name that was there: a walk that goes on may meet it never, or twice. All others are met once.
#[test]
fn a_key_that_another_replaces_counts_as_a_new_key() {
    let server = Server::start(Options::default());
    let mut connection = server.connect();
    for number in 0..200 {
        ok(&mut connection, &create("BREAKER", &format!("b{number}")));
    }
    // A page is short where the server was short of time.
    let (mut cursor, mut first) = page(&mut connection, "RES.LIST BREAKER LIMIT 20");
    while first.len() < 3 {
        let (next, more) = page(&mut connection, &format!("RES.LIST BREAKER LIMIT 20 CURSOR {cursor}"));
        cursor = next;
        first.extend(more);
    }
    let early: Vec<String> = first.iter().map(|row| row["key"].clone()).collect();
    let late: Vec<String> =
        (0..200).map(|number| format!("b{number}")).filter(|key| !early.contains(key)).take(3).collect();
    // A listed key takes the place of one that is not listed yet, and the other way round; one is copied over a listed one.
    say(&mut connection, &format!("RENAME {} {}", early[0], late[0]));
    say(&mut connection, &format!("RENAME {} {}", late[1], early[1]));
    say(&mut connection, &format!("COPY {} {} REPLACE", late[2], early[2]));
    let touched = [&early[0], &early[1], &late[0], &late[1], &early[2]];
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let (mut cursor, mut rows) = (cursor, first);
    loop {
        for row in &rows {
            *seen.entry(row["key"].clone()).or_default() += 1;
        }
        if cursor == "0" {
            break;
        }
        (cursor, rows) = page(&mut connection, &format!("RES.LIST BREAKER LIMIT 20 CURSOR {cursor}"));
    }
    for number in 0..200 {
        let key = format!("b{number}");
        let count = seen.get(&key).copied().unwrap_or(0);
        match touched.contains(&&key) {
            true => assert!(count <= 2, "{key} is listed {count} times"),
            false => assert_eq!(count, 1, "{key}"),
        }
    }
    // The next walk has every key once, by the name that it has now.
    assert_lists_are_true(&mut connection, "keys were replaced");
}

#[test]
fn a_user_sees_only_keys_it_may_read() {
    let server = Server::start(Options::default());
    let mut connection = server.connect();
    for key in ["mine:1", "mine:2", "theirs:1"] {
        ok(&mut connection, &create("BREAKER", key));
        ok(&mut connection, &create("LOCK", &format!("{key}:lock")));
        say(&mut connection, &format!("RES.IDEMP BEGIN {key}:run me 1h"));
        say(&mut connection, &format!("RES.SFLIGHT JOIN {key}:load me 1h"));
        ok(&mut connection, &["RES.GCRA", &format!("{key}:limit"), "1", "1h"]);
        for _ in 0..600 {
            ok(&mut connection, &["RES.GCRA", &format!("{key}:limit"), "1", "1h"]);
        }
    }
    say(&mut connection, "ACL SETUSER reader on >secret +@all ~mine:*");
    say(&mut connection, "ACL SETUSER writer on >secret +@all %W~*");
    let mut reader = server.connect();
    say(&mut reader, "AUTH reader secret");
    let mine: BTreeSet<String> = ["mine:1", "mine:2"].map(str::to_owned).into();
    assert_eq!(listed(&mut reader, "RES.LIST BREAKER LIMIT 1"), mine);
    for (word, what) in [("RUN", "run"), ("LOAD", "load")] {
        let mine: BTreeSet<String> = mine.iter().map(|key| format!("{key}:{what}")).collect();
        assert_eq!(listed(&mut reader, &format!("RES.LIST {word} LIMIT 1")), mine);
    }
    for line in ["RES.TOP HELD", "RES.TOP DENIED"] {
        let rows = array(say(&mut reader, line));
        assert_eq!(rows.len(), 2, "{line}: {rows:?}");
        assert!(!format!("{rows:?}").contains("theirs"));
        assert_eq!(array(say(&mut connection, line)).len(), 3, "{line}");
    }
    let mut writer = server.connect();
    say(&mut writer, "AUTH writer secret");
    assert_eq!(listed(&mut writer, "RES.LIST BREAKER"), BTreeSet::new());
}

/// RES.TOP DENIED: key, estimate and error.
fn denied(connection: &mut Connection, line: &str) -> Vec<(String, i64, i64)> {
    let rows = array(say(connection, line)).into_iter().map(|row| {
        let row: BTreeMap<String, String> = array(row).chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
        assert_eq!(row["kind"], "limit");
        let number = |name: &str| row[name].parse().expect("a number");
        (row["key"].clone(), number("estimate"), number("error"))
    });
    rows.collect()
}

fn deny(connection: &mut Connection, key: &str, denials: i64) {
    let mut pipe = redis::pipe();
    for _ in 0..=denials {
        pipe.cmd("RES.GCRA").arg(key).arg("1").arg("1h").ignore();
    }
    pipe.query::<()>(connection).expect("verdicts");
}

/// The page promises 997 of 1,000. Of 120 estimates more than five are off by chance in one run of 300,000.
#[test]
fn the_keys_refused_most_are_estimated_within_their_error() {
    const KEYS: i64 = 120;
    const OUTSIDE_MAX: usize = 5;
    let page = include_str!("../../docs/commands/res.top.md");
    assert!(
        page.contains("within `error` of the estimate in 997 of 1,000 cases"),
        "what is tested is what the page says"
    );
    let server = Server::start(Options::default());
    let mut connection = server.connect();
    let denials = |number: i64| 600 + number * 10;
    for number in 0..KEYS {
        deny(&mut connection, &format!("g{number}"), denials(number));
    }
    let rows = denied(&mut connection, "RES.TOP DENIED LIMIT 128");
    assert_eq!(rows.len(), KEYS as usize);
    let is_outside = |(key, estimate, error): &&(String, i64, i64)| {
        let truth = denials(key[1..].parse().expect("a number"));
        assert!(*error < truth, "an error as large as the number says nothing: {key} {estimate} {error}");
        (estimate - truth).abs() > *error
    };
    let outside: Vec<_> = rows.iter().filter(is_outside).collect();
    assert!(outside.len() <= OUTSIDE_MAX, "{outside:?}");
}

#[test]
fn the_keys_refused_most_come_first_among_many_others() {
    let server = Server::start(Options::default());
    let mut connection = server.connect();
    for number in 0..2_000 {
        deny(&mut connection, &format!("rare{number}"), 8);
    }
    for (key, denials) in [("first", 12_000), ("second", 6_000), ("third", 3_000)] {
        deny(&mut connection, key, denials);
    }
    let keys: Vec<String> =
        denied(&mut connection, "RES.TOP DENIED LIMIT 3").into_iter().map(|(key, ..)| key).collect();
    assert_eq!(keys, ["first", "second", "third"]);
}

#[test]
fn the_longest_waits_and_holds_come_first() {
    let (server, mut connection) = start_driven();
    let mut waiters = Vec::new();
    for number in 0..3 {
        crate::driven::set_clock(&mut connection, 4_102_444_800_000_000 + number * 1_000_000);
        say(&mut connection, &format!("RES.LOCK ACQUIRE l{number} holder{number} 1h"));
        let mut waiter = server.connect();
        let line = format!("RES.LOCK ACQUIRE l{number} waiter{number} 1h WAIT 5m");
        waiter.send_packed_command(&redis::cmd("ECHO").arg("x").get_packed_command()).expect("sent");
        waiter.recv_response().expect("an echo");
        let mut command = redis::Cmd::new();
        line.split(' ').for_each(|word| _ = command.arg(word));
        waiter.send_packed_command(&command.get_packed_command()).expect("sent");
        waiters.push(waiter);
        let waits = number + 1;
        resil_harness::eventually("it waits", std::time::Duration::from_secs(10), || {
            info(&mut connection, "resil", "resil_blocked_waiters") == waits.to_string()
        });
    }
    crate::driven::set_clock(&mut connection, 4_102_444_800_000_000 + 10_000_000);
    for (line, field, owner) in
        [("RES.TOP WAITING LIMIT 2", "waited_ms", "waiter"), ("RES.TOP HELD LIMIT 2", "held_ms", "holder")]
    {
        let rows = array(say(&mut connection, line)).into_iter();
        let rows: Vec<BTreeMap<String, String>> =
            rows.map(|row| array(row).chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()).collect();
        let seen: Vec<(&str, &str)> = rows.iter().map(|row| (row["owner"].as_str(), row[field].as_str())).collect();
        assert_eq!(seen, [(&*format!("{owner}0"), "10000"), (&*format!("{owner}1"), "9000")], "{line}");
    }
    let rows = rows(&mut connection, "RES.LIST LOCK STATE contended MATCH l0");
    assert_eq!((rows[0]["waiters"].as_str(), rows[0]["oldest_wait_ms"].as_str()), ("1", "10000"));
    assert_eq!(info(&mut connection, "resil", "resil_oldest_wait_ms"), "10000");
}

#[test]
fn top_can_be_switched_off() {
    let server = Server::start(Options::default().module_args(["top", "no"]));
    let mut connection = server.connect();
    for _ in 0..1_000 {
        say(&mut connection, "RES.GCRA g 1 1h");
    }
    assert!(array(say(&mut connection, "RES.TOP DENIED")).is_empty());
}

#[test]
fn evicted_keys_are_not_listed() {
    let server = Server::start(Options::default());
    let mut connection = server.connect();
    for number in 0..2_000 {
        ok(&mut connection, &create("BREAKER", &format!("b{number}")));
    }
    say(&mut connection, "CONFIG SET maxmemory-policy allkeys-random");
    let used: i64 = info(&mut connection, "memory", "used_memory").parse().expect("a number");
    say(&mut connection, &format!("CONFIG SET maxmemory {}", used - 300_000));
    for number in 0..200 {
        let _may_fail = resil_harness::reply(&mut connection, &["SET", &format!("s{number}"), "x"]);
    }
    say(&mut connection, "CONFIG SET maxmemory 0");
    assert!(integer(&mut connection, "DBSIZE") < 2_000, "something was evicted");
    assert_lists_are_true(&mut connection, "eviction");
}

#[test]
fn breakers_are_counted_by_state() {
    let server = Server::start(Options::default());
    let mut connection = server.connect();
    for key in ["a", "b", "c"] {
        say(&mut connection, &format!("RES.BREAKER FORCE {key} OPEN"));
    }
    say(&mut connection, "RES.BREAKER FORCE b CLOSED");
    say(&mut connection, "DEL c");
    say(&mut connection, "COPY a d");
    let states = info(&mut connection, "resil", "resil_breakers");
    assert!(states.contains("forced_open=2,forced_closed=1"), "{states}");
    assert!(refusal(&mut connection, "RES.LIST BREAKER STATE ajar").contains("half-open"));
}

/// `resil_bytes` of INFO, by kind.
fn bytes_by_kind(connection: &mut Connection) -> BTreeMap<String, i64> {
    let bytes = info(connection, "resil", "resil_bytes");
    let pair = |pair: &str| {
        let (kind, bytes) = pair.split_once('=').expect("kind=bytes");
        (kind.to_owned(), bytes.parse().expect("a number"))
    };
    bytes.split(',').map(pair).collect()
}

/// A kind as INFO names it, and what makes keys of it: one that stays small and one that grows.
const BYTES_OF: [(&str, &[&str]); 10] = [
    ("gcra", &["RES.GCRA KEY 10 60s"]),
    ("gcra", &["RES.GCRA KEY 10 1s AND 100 60s AND 1000 1h"]),
    ("window", &["RES.WINDOW KEY 1000 1h COST 3", "RES.WINDOW KEY 1000 1h", "RES.WINDOW KEY 1000 1h"]),
    ("breaker", &["RES.BREAKER TALLY KEY 0 me 1 OK 90 FAIL 0", "RES.BREAKER FORCE KEY OPEN ACTOR ann REASON why"]),
    ("lock", &["RES.LOCK ACQUIRE KEY worker-7 1h"]),
    ("bulkhead", &["RES.BULKHEAD ENTER KEY worker-1 9 1h", "RES.BULKHEAD ENTER KEY worker-2 9 1h"]),
    ("idemp", &["RES.IDEMP BEGIN KEY worker-7 1h", "RES.IDEMP COMMIT KEY worker-7 1h some-result"]),
    ("sflight", &["RES.SFLIGHT JOIN KEY worker-7 1h", "RES.SFLIGHT PUBLISH KEY worker-7 1h VALUE some-value"]),
    ("dlq", &["RES.DLQ FAIL KEY id ERROR e PAYLOAD LONG"]),
    ("guard", &[r#"RES.POLICY SET KEY {"bulkhead":{"maxConcurrent":9}}"#, "RES.GUARD ENTER KEY worker-7"]),
];

#[test]
fn bytes_of_each_kind_are_about_what_memory_usage_says() {
    let server = Server::start(Options::default().config("enable-debug-command", "yes"));
    let mut connection = server.connect();
    for (kind, lines) in BYTES_OF {
        let mut usage = 0;
        for number in 0..50 {
            let key = format!("k{number}");
            for line in lines {
                say(&mut connection, &line.replace("KEY", &key).replace("LONG", &"p".repeat(3_000)));
            }
            usage += integer(&mut connection, &format!("MEMORY USAGE {key} SAMPLES 0"));
        }
        let bytes = bytes_by_kind(&mut connection);
        let others: i64 = bytes.iter().filter(|(other, _)| *other != kind).map(|(_, bytes)| bytes).sum();
        // MEMORY USAGE has the name, the entry of the table and what the allocator rounds up.
        assert!(bytes[kind] <= usage && bytes[kind] * 4 >= usage - 50 * 96, "{kind}: {} of {usage}", bytes[kind]);
        assert_eq!(others, 0, "{kind}: {bytes:?}");
        for line in ["COPY k0 copied", "RENAME k1 renamed", "MOVE k2 1", "UNLINK k3", "DEBUG RELOAD", "PEXPIRE k4 1"] {
            let _ledgers_cannot_be_copied = resil_harness::reply(&mut connection, &line.split(' ').collect::<Vec<_>>());
        }
        // Valkey frees in the background by default.
        say(&mut connection, "FLUSHALL SYNC");
        let left: i64 = bytes_by_kind(&mut connection).values().sum();
        assert_eq!(left, 0, "{kind}: {:?}", bytes_by_kind(&mut connection));
    }
}

/// One step of a hostile operator's walk: what is done while a list is read.
#[test]
fn a_list_ends_despite_flushes_swaps_and_renames() {
    let server = Server::start(Options::default().config("enable-debug-command", "yes"));
    let mut connection = server.connect();
    for way in ["FLUSHALL", "FLUSHDB ASYNC", "SWAPDB 0 1", "RENAME k150 other", "COPY k150 other", "DEBUG RELOAD"] {
        for number in 0..300 {
            ok(&mut connection, &create("LOCK", &format!("k{number}")));
        }
        let (mut cursor, rows) = page(&mut connection, "RES.LIST LOCK LIMIT 100");
        assert!(cursor != "0" && rows.len() <= 100, "{way}");
        let _may_fail = resil_harness::reply(&mut connection, &way.split(' ').collect::<Vec<_>>());
        let mut pages = 0;
        while cursor != "0" {
            cursor = page(&mut connection, &format!("RES.LIST LOCK LIMIT 100 CURSOR {cursor}")).0;
            pages += 1;
            assert!(pages < 20, "{way}: the list has an end");
        }
        assert_lists_are_true(&mut connection, way);
        say(&mut connection, "FLUSHALL");
    }
    assert_eq!(info(&mut connection, "resil", "resil_internal_errors"), "0");
}
