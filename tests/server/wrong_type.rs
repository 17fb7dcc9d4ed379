//! Foreign keys: every command replies WRONGTYPE, and nothing changes on either side.

use redis::Connection;

use crate::driven::{digest, integer, numbers, refusal, say, start_driven};

/// How a key of each foreign type comes to be.
const FOREIGN: &[(&str, &str)] = &[
    ("string", "SET {} text"),
    ("number", "SET {} -17"),
    ("list", "RPUSH {} a b"),
    ("set", "SADD {} a b"),
    ("zset", "ZADD {} 1 a 2 b"),
    ("hash", "HSET {} a 1"),
    ("stream", "XADD {} * a 1"),
    ("hyperloglog", "PFADD {} a"),
];

const BUCKET_COMMANDS: &[&str] = &[
    "RES.GCRA {} 10 1s",
    "RES.GCRA {} 10 1s AND 20 1m",
    "RES.GCRA {} 10 1s COST 100",
    "RES.GCRA {} 10 1s UPTO 3",
    "RES.GCRA {} 10 1s RESERVE 1s",
    "RES.GCRA {} 10 1s REFUND 1",
    "RES.GCRA.PEEK {} 10 1s",
    "RES.MGCRA 1 {} 10 1s 10",
    "RES.MGCRA 1 good 10 1s 10 {} 10 1s 10",
    "CL.THROTTLE {} 15 30 60",
    "CL.THROTTLE {} 15 30 60 0",
    "CL.THROTTLE {} 15 30 60 -1",
];

const BREAKER_COMMANDS: &[&str] = &[
    "RES.BREAKER ADMIT {}",
    "RES.BREAKER REPORT {} permit OK",
    "RES.BREAKER TALLY {} 0 me 1 OK 1 FAIL 0",
    "RES.BREAKER STATE {}",
    "RES.BREAKER FORCE {} OPEN",
    "RES.BREAKER RESET {}",
    "RES.BREAKER CONFIG {} RATE 40",
];

const WINDOW_COMMANDS: &[&str] = &["RES.WINDOW {} 10 1s", "RES.WINDOW {} 10 1s UPTO 3", "RES.WINDOW.PEEK {} 10 1s"];

#[track_caller]
fn assert_wrong_type_and_unchanged(connection: &mut Connection, line: &str, key: &str) {
    let before = digest(connection, key);
    let error = refusal(connection, &line.replace("{}", key));
    assert!(error.starts_with("WRONGTYPE "), "{line} on {key}: {error}");
    assert_eq!(digest(connection, key), before, "{line} on {key}");
    assert_eq!(integer(connection, &format!("PTTL {key}")), -1, "{line} on {key}");
    assert_eq!(integer(connection, "EXISTS good"), 0, "{line} touched the other key");
}

#[test]
fn a_foreign_key_gets_wrongtype_and_stays() {
    let (_server, mut connection) = start_driven();
    for (key, make) in FOREIGN {
        say(&mut connection, &make.replace("{}", key));
        for line in BUCKET_COMMANDS.iter().chain(WINDOW_COMMANDS).chain(BREAKER_COMMANDS) {
            assert_wrong_type_and_unchanged(&mut connection, line, key);
        }
    }
}

#[test]
fn buckets_windows_and_breakers_do_not_mix() {
    let (_server, mut connection) = start_driven();
    say(&mut connection, "RES.GCRA bucket 10 1s");
    say(&mut connection, "RES.WINDOW window 10 1s");
    say(&mut connection, "RES.BREAKER TALLY breaker 0 me 1 OK 1 FAIL 1");
    let of_each = [("bucket", BUCKET_COMMANDS), ("window", WINDOW_COMMANDS), ("breaker", BREAKER_COMMANDS)];
    for (key, own) in of_each {
        say(&mut connection, &format!("PERSIST {key}"));
        let foreign = of_each.iter().flat_map(|(_, commands)| *commands).filter(|line| !own.contains(line));
        for line in foreign {
            assert_wrong_type_and_unchanged(&mut connection, line, key);
        }
    }
}

#[test]
fn a_wrong_key_among_several_costs_the_others_nothing() {
    let (_server, mut connection) = start_driven();
    say(&mut connection, "RES.GCRA one 10 1s COST 3");
    say(&mut connection, "RPUSH two a");
    let before = digest(&mut connection, "one");
    let error = refusal(&mut connection, "RES.MGCRA 1 one 10 1s 10 two 10 1s 10 three 10 1s 10");
    assert!(error.starts_with("WRONGTYPE "), "{error}");
    assert_eq!(digest(&mut connection, "one"), before);
    assert_eq!(integer(&mut connection, "EXISTS three"), 0);
}

#[test]
fn the_servers_own_commands_find_a_limit_the_wrong_type() {
    let (_server, mut connection) = start_driven();
    say(&mut connection, "RES.GCRA bucket 10 1s");
    say(&mut connection, "RES.WINDOW window 10 1s");
    for key in ["bucket", "window"] {
        let before = digest(&mut connection, key);
        for line in ["GET {}", "INCR {}", "RPUSH {} a", "SADD {} a", "HSET {} a 1", "ZADD {} 1 a", "XADD {} * a 1"] {
            let error = refusal(&mut connection, &line.replace("{}", key));
            assert!(error.starts_with("WRONGTYPE "), "{line}: {error}");
        }
        assert_eq!(digest(&mut connection, key), before);
    }
    assert_eq!(numbers(&mut connection, "RES.GCRA.PEEK bucket 10 1s")[0], 9);
}

#[test]
fn only_cl_throttle_takes_over_what_redis_cell_left() {
    let (_server, mut connection) = start_driven();
    // Eight of sixteen cells of two seconds each are owed: its theoretical arrival time, in nanoseconds.
    let tat_ns = (crate::driven::START_US + 16 * crate::driven::SECOND_US) * 1_000;
    say(&mut connection, &format!("SET cell {tat_ns} PX 100000"));
    for line in
        ["RES.GCRA cell 10 1s", "RES.GCRA.PEEK cell 10 1s", "RES.MGCRA 1 cell 10 1s 10", "RES.WINDOW cell 10 1s"]
    {
        assert!(refusal(&mut connection, line).starts_with("WRONGTYPE "), "{line}");
    }
    // A look takes nothing over.
    assert_eq!(numbers(&mut connection, "CL.THROTTLE cell 15 30 60 0"), [0, 16, 8, -1, 16]);
    assert_eq!(crate::driven::text(&mut connection, "TYPE cell"), "string");
    assert_eq!(numbers(&mut connection, "CL.THROTTLE cell 15 30 60"), [0, 16, 7, -1, 18]);
    assert_eq!(crate::driven::text(&mut connection, "TYPE cell"), "resil-gcr");
    assert_eq!(crate::driven::info_number(&mut connection, "resil", "resil_throttle_adopted"), 1);
}
