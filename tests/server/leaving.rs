//! Every way a key can leave or be re-timed: what leaves leaves wholly, and what stays is what it was.

use redis::{Connection, ConnectionLike, Value};
use resil_harness::{Server, eventually, ok};

use crate::driven::{SOON, START_US, info_number, integer, numbers, say, set_clock, start_driven};
use crate::samples::{Sample, fill_all, unsealed};

/// No value is left in memory: the gauges count every value that was made and not freed.
#[track_caller]
fn assert_nothing_left(connection: &mut Connection) {
    assert_eq!(integer(connection, "DBSIZE"), 0);
    // Large and flushed values are freed on another thread.
    eventually("all values are freed", SOON, || {
        let gauges = ["resil_gcra_keys", "resil_window_keys", "resil_breaker_keys"];
        gauges.iter().all(|gauge| info_number(connection, "resil", gauge) == 0)
    });
}

/// After `leave` the key replies as if it had never been used.
fn assert_fresh_after(leave: impl Fn(&mut Connection, &Sample)) {
    let (_server, mut connection) = start_driven();
    for sample in fill_all(&mut connection) {
        leave(&mut connection, &sample);
        assert_eq!(integer(&mut connection, &format!("EXISTS {}", sample.key)), 0, "{}", sample.kind.name);
        let again = unsealed(say(&mut connection, &sample.kind.ask.replace("{}", &sample.key)));
        let fresh = unsealed(say(&mut connection, &sample.kind.ask.replace("{}", "fresh")));
        assert_eq!(again, fresh, "{}", sample.kind.name);
        say(&mut connection, &format!("DEL {} fresh", sample.key));
    }
    assert_nothing_left(&mut connection);
}

#[test]
fn a_deleted_limit_starts_anew() {
    assert_fresh_after(|connection, sample| assert_eq!(integer(connection, &format!("DEL {}", sample.key)), 1));
}

#[test]
fn an_unlinked_limit_starts_anew() {
    assert_fresh_after(|connection, sample| assert_eq!(integer(connection, &format!("UNLINK {}", sample.key)), 1));
}

#[test]
fn a_limit_that_was_expired_in_the_past_starts_anew() {
    assert_fresh_after(|connection, sample| {
        assert_eq!(integer(connection, &format!("PEXPIRE {} -1", sample.key)), 1);
    });
}

#[test]
fn a_limit_expired_by_its_user_goes_at_that_time() {
    assert_fresh_after(|connection, sample| {
        say(connection, &format!("PEXPIRE {} 1", sample.key));
        eventually("the key is gone", SOON, || integer(connection, &format!("EXISTS {}", sample.key)) == 0);
    });
}

#[test]
fn a_limit_renamed_away_starts_anew() {
    assert_fresh_after(|connection, sample| {
        say(connection, &format!("RENAME {} elsewhere", sample.key));
        say(connection, "DEL elsewhere");
    });
}

#[test]
fn a_string_set_over_a_limit_replaces_it_wholly() {
    assert_fresh_after(|connection, sample| {
        say(connection, &format!("SET {} text", sample.key));
        assert_eq!(integer(connection, &format!("PTTL {}", sample.key)), -1);
        say(connection, &format!("DEL {}", sample.key));
    });
}

#[test]
fn a_key_renamed_onto_a_limit_replaces_it_wholly() {
    assert_fresh_after(|connection, sample| {
        say(connection, "RPUSH list a b");
        say(connection, &format!("RENAME list {}", sample.key));
        assert_eq!(integer(connection, &format!("LLEN {}", sample.key)), 2);
        say(connection, &format!("DEL {}", sample.key));
    });
}

#[test]
fn a_payload_restored_over_a_limit_replaces_it_wholly() {
    assert_fresh_after(|connection, sample| {
        say(connection, "SET other text");
        let Value::BulkString(payload) = say(connection, "DUMP other") else { panic!("DUMP gives bytes") };
        ok(connection, &[b"RESTORE", sample.key.as_bytes(), b"0", &payload, b"REPLACE"]);
        say(connection, &format!("DEL other {}", sample.key));
    });
}

#[test]
fn flushing_frees_every_value() {
    for flush in ["FLUSHALL", "FLUSHALL ASYNC", "FLUSHALL SYNC", "FLUSHDB", "FLUSHDB ASYNC"] {
        let (_server, mut connection) = start_driven();
        fill_all(&mut connection);
        // Enough keys that a lazy flush really happens on the other thread.
        for number in 0..500 {
            say(&mut connection, &format!("RES.GCRA many:{number} 10 60s AND 100 1h"));
            say(&mut connection, &format!("RES.WINDOW windows:{number} 10 60s"));
        }
        say(&mut connection, flush);
        assert_nothing_left(&mut connection);
        assert_eq!(numbers(&mut connection, "RES.GCRA many:1 10 60s"), [1, 10, 9, 0, 6_000]);
    }
}

#[test]
fn a_large_window_is_freed_on_another_thread_without_trace() {
    let (_server, mut connection) = start_driven();
    for step in 0..5_000 {
        set_clock(&mut connection, START_US + step);
        say(&mut connection, "RES.WINDOW w 10000 1h");
    }
    say(&mut connection, "UNLINK w");
    assert_nothing_left(&mut connection);
}

/// Thirty thousand new limits; how many of the calls were refused.
fn fill_many(connection: &mut Connection) -> usize {
    let mut refused = 0;
    for batch in 0..300 {
        let mut pipeline = redis::pipe();
        for number in 0..100 {
            pipeline.cmd("RES.GCRA").arg(format!("g:{batch}:{number}")).arg(100).arg("1h");
        }
        pipeline.cmd("RES.WINDOW").arg(format!("w:{batch}")).arg(100).arg("1h");
        let packed = pipeline.get_packed_pipeline();
        let replies = connection.req_packed_commands(&packed, 0, pipeline.len()).expect("the server replies");
        refused += replies.iter().filter(|reply| matches!(reply, Value::ServerError(_))).count();
    }
    refused
}

fn let_evict_above(connection: &mut Connection, used_memory: i64) {
    say(connection, &format!("CONFIG SET maxmemory {used_memory} maxmemory-policy allkeys-random"));
}

#[test]
fn evicted_limits_leave_a_sane_server() {
    let server = Server::fresh();
    let mut connection = server.connect();
    let used = info_number(&mut connection, "memory", "used_memory");
    fill_many(&mut connection);
    let_evict_above(&mut connection, used + 1_000_000);
    eventually("most limits are evicted", SOON, || {
        numbers(&mut connection, "RES.GCRA.PEEK g 100 1h");
        info_number(&mut connection, "stats", "evicted_keys") > 10_000
    });
    say(&mut connection, "CONFIG SET maxmemory 0");
    let keys = integer(&mut connection, "DBSIZE");
    let gauge = |connection: &mut Connection, name: &str| info_number(connection, "resil", name);
    eventually("the gauges count what is there", SOON, || {
        gauge(&mut connection, "resil_gcra_keys") + gauge(&mut connection, "resil_window_keys") == keys
    });
    assert_eq!(fill_many(&mut connection), 0);
}

#[test]
fn where_the_server_may_evict_no_limit_is_refused() {
    let server = Server::fresh();
    let mut connection = server.connect();
    let used = info_number(&mut connection, "memory", "used_memory");
    let_evict_above(&mut connection, used + 2_000_000);
    assert_eq!(fill_many(&mut connection), 0);
    assert!(info_number(&mut connection, "stats", "evicted_keys") > 1_000);
}
