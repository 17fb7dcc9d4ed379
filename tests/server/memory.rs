//! At maxmemory only what needs new memory is refused, and where limits can be evicted, somebody is notified.

use redis::Connection;
use resil_harness::{Flavor, Server, eventually};

use crate::driven::{
    SOON, START_US, digest, driven, info, info_number, integer, numbers, refusal, say, set_clock, start_driven, text,
};

/// From here on the server uses more than it may, and evicts nothing.
fn exhaust(connection: &mut Connection) {
    say(connection, "SETRANGE filler 8000000 x");
    let used = info_number(connection, "memory", "used_memory");
    say(connection, &format!("CONFIG SET maxmemory {} maxmemory-policy noeviction", used - 4_000_000));
    assert!(refusal(connection, "SET plain text").starts_with("OOM "));
}

#[track_caller]
fn assert_out_of_memory(connection: &mut Connection, line: &str, key: &str) {
    let error = refusal(connection, line);
    assert!(error.starts_with("OOM "), "{line}: {error}");
    assert_eq!(integer(connection, &format!("EXISTS {key}")), 0, "{line} created something");
}

#[test]
fn limits_that_exist_work_on_at_maxmemory() {
    let (_server, mut connection) = start_driven();
    numbers(&mut connection, "RES.GCRA g 10 60s COST 5");
    numbers(&mut connection, "RES.GCRA h 10 60s COST 5");
    numbers(&mut connection, "CL.THROTTLE c 9 10 60 5");
    exhaust(&mut connection);
    assert_eq!(numbers(&mut connection, "RES.GCRA g 10 60s")[..3], [1, 10, 4], "a grant");
    assert_eq!(numbers(&mut connection, "RES.GCRA g 10 60s UPTO 3")[..3], [3, 10, 1]);
    assert_eq!(numbers(&mut connection, "RES.GCRA g 10 60s COST 9")[..3], [0, 10, 1], "a denial");
    assert_eq!(numbers(&mut connection, "RES.GCRA.PEEK g 10 60s")[..3], [1, 10, 1]);
    assert_eq!(numbers(&mut connection, "RES.GCRA g 10 60s REFUND 2")[..3], [2, 10, 3]);
    assert_eq!(numbers(&mut connection, "RES.GCRA g 10 60s COST 3")[0], 3);
    assert_eq!(numbers(&mut connection, "RES.GCRA g 10 60s RESERVE 6s")[0], 1, "a reservation");
    assert_eq!(numbers(&mut connection, "RES.MGCRA 1 h 10 60s 10")[..2], [1, -1]);
    assert_eq!(numbers(&mut connection, "CL.THROTTLE c 9 10 60")[..3], [0, 10, 4]);
    assert_eq!(numbers(&mut connection, "RES.GCRA g 10 60s REFUND 99")[2], 10, "a refund to full deletes the key");
    assert_eq!(integer(&mut connection, "EXISTS g"), 0);
}

#[test]
fn a_new_limit_is_refused_at_maxmemory() {
    let (_server, mut connection) = start_driven();
    exhaust(&mut connection);
    assert_out_of_memory(&mut connection, "RES.GCRA new 10 60s", "new");
    assert_out_of_memory(&mut connection, "RES.GCRA new 10 60s UPTO 3", "new");
    assert_out_of_memory(&mut connection, "RES.GCRA new 10 60s RESERVE 1s", "new");
    assert_out_of_memory(&mut connection, "RES.GCRA new 10 60s AND 20 1h", "new");
    assert_out_of_memory(&mut connection, "RES.WINDOW new 10 60s", "new");
    assert_out_of_memory(&mut connection, "CL.THROTTLE new 9 10 60", "new");
    assert_out_of_memory(&mut connection, "RES.MGCRA 1 new 10 60s 10", "new");
    say(&mut connection, "CONFIG SET maxmemory 0");
    assert_eq!(numbers(&mut connection, "RES.GCRA new 10 60s")[..3], [1, 10, 9], "nothing was taken meanwhile");
}

#[test]
fn what_creates_nothing_replies_at_maxmemory_even_without_a_key() {
    let (_server, mut connection) = start_driven();
    exhaust(&mut connection);
    assert_eq!(numbers(&mut connection, "RES.GCRA new 10 60s COST 11"), [0, 10, 10, -1, 0]);
    assert_eq!(numbers(&mut connection, "RES.GCRA new 10 60s REFUND 1"), [0, 10, 10, 0, 0]);
    assert_eq!(numbers(&mut connection, "RES.GCRA.PEEK new 10 60s"), [10, 10, 10, 0, 0]);
    assert_eq!(numbers(&mut connection, "RES.WINDOW new 10 60s COST 11"), [0, 10, 10, -1, 0]);
    assert_eq!(numbers(&mut connection, "RES.WINDOW.PEEK new 10 60s"), [10, 10, 10, 0, 0]);
    assert_eq!(numbers(&mut connection, "CL.THROTTLE new 9 10 60 0"), [0, 10, 10, -1, 0]);
    assert_eq!(numbers(&mut connection, "RES.MGCRA 11 new 10 60s 10")[..2], [0, 0]);
    assert_eq!(integer(&mut connection, "EXISTS new"), 0);
}

#[test]
fn several_keys_are_refused_together_if_any_is_new() {
    let (_server, mut connection) = start_driven();
    numbers(&mut connection, "RES.GCRA old 10 60s COST 5");
    let before = digest(&mut connection, "old");
    exhaust(&mut connection);
    assert_out_of_memory(&mut connection, "RES.MGCRA 1 old 10 60s 10 new 10 60s 10", "new");
    assert_eq!(digest(&mut connection, "old"), before);
}

#[test]
fn a_window_grows_no_further_at_maxmemory() {
    let (_server, mut connection) = start_driven();
    let take_at = |connection: &mut Connection, us: i64| {
        set_clock(connection, START_US + us);
        resil_harness::reply(connection, &["RES.WINDOW", "w", "1000", "60s"])
    };
    take_at(&mut connection, 0).unwrap();
    exhaust(&mut connection);
    let granted = (1..100).take_while(|us| take_at(&mut connection, *us).is_ok()).count();
    assert!(granted < 99, "the log grew to 100 entries at maxmemory");
    let before = digest(&mut connection, "w");
    assert!(take_at(&mut connection, 200).is_err());
    assert_eq!(digest(&mut connection, "w"), before, "a refused take changed the log");
    assert_eq!(numbers(&mut connection, "RES.WINDOW.PEEK w 1000 60s")[0], 1000 - 1 - granted as i64);
    // What has left the window makes room for what comes.
    take_at(&mut connection, 61_000_000).expect("old entries have left");
    assert_eq!(numbers(&mut connection, "RES.WINDOW.PEEK w 1000 60s")[0], 999);
}

#[test]
fn a_full_window_takes_again_at_its_last_instant() {
    let (_server, mut connection) = start_driven();
    numbers(&mut connection, "RES.WINDOW w 1000 60s");
    exhaust(&mut connection);
    let mut newest_us = START_US;
    let refused_us = loop {
        set_clock(&mut connection, newest_us + 1);
        match resil_harness::reply(&mut connection, &["RES.WINDOW", "w", "1000", "60s"]) {
            Ok(_) => newest_us += 1,
            Err(_) => break newest_us + 1,
        }
    };
    assert!(refused_us < START_US + 100);
    set_clock(&mut connection, newest_us);
    assert_eq!(numbers(&mut connection, "RES.WINDOW w 1000 60s")[0], 1);
}

#[test]
fn at_maxmemory_existing_breakers_work_and_new_are_refused() {
    let (_server, mut connection) = start_driven();
    say(&mut connection, "RES.BREAKER TALLY old 0 me 1 OK 1 FAIL 1");
    exhaust(&mut connection);
    say(&mut connection, "RES.BREAKER TALLY old 0 me 2 OK 0 FAIL 5 RUN 5");
    assert!(format!("{:?}", say(&mut connection, "RES.BREAKER ADMIT old")).contains("open"));
    say(&mut connection, "RES.BREAKER RESET old");
    say(&mut connection, "RES.BREAKER STATE new");
    assert_out_of_memory(&mut connection, "RES.BREAKER TALLY new 0 me 1 OK 0 FAIL 5 RUN 5", "new");
    assert_out_of_memory(&mut connection, "RES.BREAKER FORCE new OPEN", "new");
    assert_out_of_memory(&mut connection, "RES.BREAKER CONFIG new RATE 40", "new");
}

#[test]
fn scripts_use_limits_that_exist_at_maxmemory() {
    let (_server, mut connection) = start_driven();
    numbers(&mut connection, "RES.GCRA g 10 60s");
    exhaust(&mut connection);
    let script = "return redis.call('RES.GCRA',KEYS[1],10,'60s')";
    let granted: Vec<i64> =
        redis::from_redis_value(resil_harness::ok(&mut connection, &["EVAL", script, "1", "g"])).unwrap();
    assert_eq!(granted[..3], [1, 10, 8]);
    let error = resil_harness::error_text(&mut connection, &["EVAL", script, "1", "new"]);
    assert!(error.starts_with("OOM "), "{error}");
    assert_eq!(integer(&mut connection, "EXISTS new"), 0);
}

fn warnings(server: &Server) -> usize {
    server.log().matches("may evict limits").count()
}

#[test]
fn an_evicting_policy_is_warned_of_until_set_back() {
    let server = Server::fresh();
    let mut connection = server.connect();
    let risk = |connection: &mut Connection| info(connection, "resil", "resil_eviction_risk");
    assert_eq!((risk(&mut connection), warnings(&server)), ("0".to_owned(), 0));
    for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
        let before = warnings(&server);
        say(&mut connection, &format!("CONFIG SET maxmemory-policy {policy}"));
        assert_eq!((risk(&mut connection), warnings(&server)), ("1".to_owned(), before + 1), "{policy}");
    }
    say(&mut connection, "CONFIG SET maxmemory-policy noeviction");
    assert_eq!((risk(&mut connection), warnings(&server)), ("0".to_owned(), 3));
    say(&mut connection, "CONFIG SET maxmemory 100mb");
    assert_eq!(warnings(&server), 3, "other settings are no reason to warn");
}

#[test]
fn an_evicting_policy_is_warned_of_at_load() {
    let server = Server::start(driven().config("maxmemory-policy", "allkeys-lru"));
    assert_eq!((info(&mut server.connect(), "resil", "resil_eviction_risk").as_str(), warnings(&server)), ("1", 1));
}

#[test]
fn a_limit_takes_no_more_memory_than_promised() {
    const KEYS: i64 = 100_000;
    // Driven, so that none of them expires meanwhile.
    let (server, mut connection) = start_driven();
    let before = info_number(&mut connection, "memory", "used_memory");
    for batch in 0..KEYS / 1_000 {
        let mut pipeline = redis::pipe();
        for number in 0..1_000 {
            let key = format!("limit:{:08}", batch * 1_000 + number);
            pipeline.cmd("RES.GCRA").arg(key).arg(100).arg("60s").ignore();
        }
        pipeline.exec(&mut connection).expect("all are granted");
    }
    assert_eq!(integer(&mut connection, "DBSIZE"), KEYS);
    // The table of keys is moved to a larger one bit by bit; meanwhile there are two.
    eventually("the table of keys is one", SOON, || {
        let tables = text(&mut connection, "DEBUG HTSTATS 0");
        let settled = |line: &str| !line.contains("rehashing index") || line.ends_with("-1");
        !tables.contains("rehashing target") && tables.lines().all(settled)
    });
    drop(connection);
    let bytes = (info_number(&mut server.connect(), "memory", "used_memory") - before) / KEYS;
    println!("{bytes} bytes per key on {}", server.flavor().name());
    // The rest of a key is the server's own, and differs between servers.
    if *server.flavor() == Flavor::named("redis-7.0") {
        assert!(bytes <= 165, "{bytes} bytes per key");
    }
}
