//! Primary and replica: equal to the bit, whatever was asked, and only the primary decides.

use std::collections::BTreeSet;

use redis::Connection;
use resil_harness::{Options, Server, eventually, wait_for_sync};

use crate::driven::{
    SECOND_US, SOON, START_US, calls_of, digest, driven, info, info_number, integer, numbers, refusal, say, set_clock,
    start_driven, text, wait_for_rewrite,
};
use crate::samples::{assert_all_live_on, fill_all};

/// Every key of `one`, with digest and expiry, is on `other`, and no more than these.
#[track_caller]
pub fn assert_same_keys(one: &mut Connection, other: &mut Connection) {
    let (here, there) = (described_keys(one), described_keys(other));
    let only = |left: &BTreeSet<String>, right| left.difference(right).cloned().collect::<Vec<_>>();
    assert!(here == there, "differ: {:#?} against {:#?}", only(&here, &there), only(&there, &here));
}

/// `key expiry digest` of every key.
fn described_keys(connection: &mut Connection) -> BTreeSet<String> {
    let keys: Vec<String> = redis::from_redis_value(say(connection, "KEYS *")).expect("keys are text");
    let described = keys.into_iter().map(|key| {
        let expiry = integer(connection, &format!("PEXPIRETIME {key}"));
        format!("{key} {expiry} {}", digest(connection, &key))
    });
    described.collect()
}

fn pair() -> (Server, Server, Connection, Connection) {
    let (primary, connection) = start_driven();
    let replica = Server::replica_of(&primary, driven());
    let replica_connection = replica.connect();
    (primary, replica, connection, replica_connection)
}

#[test]
fn a_replica_is_equal_after_every_kind_of_call() {
    let (primary, replica, mut connection, mut on_replica) = pair();
    let samples = fill_all(&mut connection);
    wait_for_sync(&primary, &replica);
    assert_same_keys(&mut connection, &mut on_replica);
    for sample in &samples {
        sample.assert_same_at(&mut on_replica, &sample.key);
    }
    assert_eq!(info_number(&mut on_replica, "resil", "resil_apply_refused"), 0);
}

#[test]
fn a_replica_that_came_later_has_what_was_there_before() {
    let (primary, mut connection) = start_driven();
    fill_all(&mut connection);
    let replica = Server::replica_of(&primary, driven());
    assert_same_keys(&mut connection, &mut replica.connect());
}

#[test]
fn each_change_travels_as_one_resolved_command() {
    let (primary, replica, mut connection, mut on_replica) = pair();
    let mut applied = 0;
    let mut expect_one_more = |connection: &mut Connection, line: &str| {
        numbers(connection, line);
        wait_for_sync(&primary, &replica);
        applied += 1;
        assert_eq!(calls_of(&mut on_replica, "RES._APPLY"), applied, "{line}");
        assert_same_keys(connection, &mut on_replica);
    };
    expect_one_more(&mut connection, "RES.GCRA g 10 60s");
    expect_one_more(&mut connection, "RES.GCRA g 10 60s UPTO 3");
    expect_one_more(&mut connection, "RES.GCRA g 10 60s REFUND 1");
    expect_one_more(&mut connection, "RES.GCRA g 10 60s RESERVE 1m");
    expect_one_more(&mut connection, "RES.GCRA t 10 60s AND 20 1h AND 30 1d");
    expect_one_more(&mut connection, "RES.MGCRA 2 a 10 60s 10 b 20 1h 20 c 1000000 1d 1000000");
    expect_one_more(&mut connection, "RES.WINDOW w 10 60s COST 3");
    expect_one_more(&mut connection, "RES.WINDOW w 10 60s UPTO 99");
    expect_one_more(&mut connection, "CL.THROTTLE cell 9 10 60");
    expect_one_more(&mut connection, "CL.THROTTLE cell 9 10 60 4");
    for command in ["RES.GCRA", "RES.MGCRA", "RES.WINDOW", "CL.THROTTLE", "MULTI", "EXEC", "PEXPIREAT"] {
        assert_eq!(calls_of(&mut on_replica, command), 0, "{command} was run on the replica");
    }
}

#[test]
fn a_bucket_given_back_full_is_gone_everywhere() {
    let (primary, replica, mut connection, mut on_replica) = pair();
    for (take, give_back) in [
        ("RES.GCRA k 10 60s COST 4", "RES.GCRA k 10 60s REFUND 4"),
        ("RES.GCRA k 10 60s AND 20 1h COST 4", "RES.GCRA k 10 60s AND 20 1h REFUND 9"),
        ("CL.THROTTLE k 9 10 60 4", "CL.THROTTLE k 9 10 60 -4"),
    ] {
        numbers(&mut connection, take);
        wait_for_sync(&primary, &replica);
        assert_eq!(integer(&mut on_replica, "EXISTS k"), 1);
        numbers(&mut connection, give_back);
        wait_for_sync(&primary, &replica);
        assert_eq!(integer(&mut connection, "EXISTS k") + integer(&mut on_replica, "EXISTS k"), 0, "{give_back}");
    }
}

#[test]
fn a_window_that_was_emptied_and_used_again_is_equal() {
    let (primary, replica, mut connection, mut on_replica) = pair();
    for round in 0..20 {
        // Now and then everything has left, sometimes a part, and the period changes.
        set_clock(&mut connection, START_US + round * round * 3 * SECOND_US);
        let period_s = [30, 60, 7][round as usize % 3];
        numbers(&mut connection, &format!("RES.WINDOW w 10 {period_s}s UPTO 4"));
    }
    wait_for_sync(&primary, &replica);
    assert_same_keys(&mut connection, &mut on_replica);
}

#[test]
fn a_clock_set_back_is_mended_alike_on_both_sides() {
    let (primary, replica, mut connection, mut on_replica) = pair();
    let samples = fill_all(&mut connection);
    set_clock(&mut connection, START_US - 7_200 * SECOND_US);
    for sample in &samples {
        say(&mut connection, &sample.kind.ask.replace("{}", &sample.key));
    }
    numbers(&mut connection, "RES.MGCRA 99 sample:packed 100 60s 100 sample:cell 30 60s 16");
    wait_for_sync(&primary, &replica);
    assert_same_keys(&mut connection, &mut on_replica);
}

#[test]
fn a_replica_never_decides_with_its_own_clock() {
    let (primary, replica, mut connection, mut on_replica) = pair();
    // An hour ahead; then an hour behind.
    for offset_s in [3_600, -3_600] {
        set_clock(&mut on_replica, START_US + offset_s * SECOND_US);
        let samples = fill_all(&mut connection);
        for sample in &samples {
            say(&mut connection, &sample.kind.ask.replace("{}", &sample.key));
        }
        wait_for_sync(&primary, &replica);
        assert_same_keys(&mut connection, &mut on_replica);
        say(&mut connection, "FLUSHALL");
    }
}

#[test]
fn peeks_reply_on_a_replica_and_by_its_own_clock() {
    let (primary, replica, mut connection, mut on_replica) = pair();
    numbers(&mut connection, "RES.GCRA g 60 60s COST 60");
    numbers(&mut connection, "RES.WINDOW w 60 60s COST 60");
    wait_for_sync(&primary, &replica);
    set_clock(&mut on_replica, START_US + 20 * SECOND_US);
    assert_eq!(numbers(&mut on_replica, "RES.GCRA.PEEK g 60 60s"), [20, 60, 20, 0, 40_000]);
    assert_eq!(numbers(&mut on_replica, "RES.WINDOW.PEEK w 60 60s"), [0, 60, 0, 40_000, 40_000]);
    assert_same_keys(&mut connection, &mut on_replica);
}

#[test]
fn whatever_may_write_is_refused_on_a_replica() {
    let (_primary, _replica, mut connection, mut on_replica) = pair();
    numbers(&mut connection, "RES.GCRA k 10 60s");
    for line in [
        "RES.GCRA k 10 60s",
        "RES.GCRA k 10 60s REFUND 1",
        "RES.GCRA k 10 60s COST 99",
        "RES.MGCRA 1 k 10 60s 10",
        "RES.WINDOW w 10 60s",
        "CL.THROTTLE k 9 10 60",
        "CL.THROTTLE k 9 10 60 0",
        "RES._APPLY k 1 bytes",
    ] {
        let error = refusal(&mut on_replica, line);
        assert!(error.starts_with("READONLY "), "{line}: {error}");
    }
}

#[test]
fn the_resolved_command_is_refused_from_everybody_but_the_primary() {
    let (_server, mut connection) = start_driven();
    numbers(&mut connection, "RES.GCRA k 10 60s");
    let before = digest(&mut connection, "k");
    assert!(refusal(&mut connection, "RES._APPLY k 1 bytes").contains("internal"));
    let in_script = ["EVAL", "return redis.call('RES._APPLY','k','1','bytes')", "1", "k"];
    assert!(resil_harness::error_text(&mut connection, &in_script).contains("internal"));
    for line in ["MULTI", "RES._APPLY k 1 bytes"] {
        say(&mut connection, line);
    }
    assert!(crate::driven::outcome(&mut connection, "EXEC").contains("internal"));
    assert_eq!(digest(&mut connection, "k"), before);
    assert_eq!(info_number(&mut connection, "resil", "resil_apply_refused"), 3);
}

#[test]
fn a_replica_of_a_replica_is_equal_too() {
    let (primary, middle, mut connection, mut on_middle) = pair();
    let last = Server::replica_of(&middle, driven());
    fill_all(&mut connection);
    numbers(&mut connection, "RES.GCRA gone 10 60s");
    numbers(&mut connection, "RES.GCRA gone 10 60s REFUND 1");
    wait_for_sync(&primary, &middle);
    wait_for_sync(&middle, &last);
    assert_same_keys(&mut connection, &mut on_middle);
    assert_same_keys(&mut connection, &mut last.connect());
}

#[test]
fn a_replicas_own_file_brings_back_what_it_got() {
    let (primary, mut connection) = start_driven();
    let with_file: Options = driven().config("appendonly", "yes").config("appendfsync", "always");
    let mut replica = Server::replica_of(&primary, with_file.config("aof-use-rdb-preamble", "no"));
    // The snapshot it began with is written to the file first.
    wait_for_rewrite(&mut replica.connect());
    let samples = fill_all(&mut connection);
    wait_for_sync(&primary, &replica);
    replica.kill9();
    // Alone, so that what it has comes from its file.
    say(&mut connection, "CONFIG SET requirepass somebody");
    replica.start_again();
    let mut on_replica = replica.connect();
    assert_eq!(info(&mut on_replica, "replication", "master_link_status"), "down");
    say(&mut on_replica, "REPLICAOF NO ONE");
    assert_all_live_on(&mut on_replica, &samples);
}

#[test]
fn a_promoted_replica_goes_on_where_the_primary_stopped() {
    let (mut primary, replica, mut connection, mut on_replica) = pair();
    let samples = fill_all(&mut connection);
    wait_for_sync(&primary, &replica);
    primary.kill9();
    say(&mut on_replica, "REPLICAOF NO ONE");
    assert_all_live_on(&mut on_replica, &samples);
}

#[test]
fn a_caller_can_wait_for_a_replica() {
    let (_primary, replica, mut connection, mut on_replica) = pair();
    replica.pause();
    numbers(&mut connection, "RES.GCRA g 10 60s");
    assert_eq!(integer(&mut connection, "WAIT 1 50"), 0, "a replica that stands still has not got it");
    replica.resume();
    assert_eq!(integer(&mut connection, "WAIT 1 20000"), 1);
    assert_eq!(numbers(&mut on_replica, "EXISTS g"), [1]);
    numbers(&mut connection, "RES.GCRA g 10 60s COST 99");
    assert_eq!(integer(&mut connection, "WAIT 1 20000"), 1, "after a denial there is nothing to wait for");
}

#[test]
fn expired_limits_leave_the_replica_with_the_primary() {
    let primary = Server::fresh();
    let replica = Server::replica_of(&primary, Options::default());
    let (mut connection, mut on_replica) = (primary.connect(), replica.connect());
    for round in 0..5 {
        for number in 0..50 {
            numbers(&mut connection, &format!("RES.GCRA g:{number} 10 {}ms", 1 + number));
            numbers(&mut connection, &format!("RES.WINDOW w:{number} 10 {}ms", 1 + number + round));
        }
    }
    eventually("all is gone on both sides", SOON, || {
        integer(&mut connection, "DBSIZE") == 0 && integer(&mut on_replica, "DBSIZE") == 0
    });
    assert_eq!(info_number(&mut on_replica, "resil", "resil_gcra_keys"), 0);
    assert_eq!(text(&mut on_replica, "PING"), "PONG");
}

#[test]
fn limits_of_several_databases_arrive_in_theirs() {
    let (primary, replica, mut connection, mut on_replica) = pair();
    for database in [0, 5, 15] {
        say(&mut connection, &format!("SELECT {database}"));
        numbers(&mut connection, &format!("RES.GCRA k {} 60s", 10 + database));
        numbers(&mut connection, "RES.WINDOW w 10 60s");
    }
    wait_for_sync(&primary, &replica);
    for database in [0, 5, 15] {
        say(&mut connection, &format!("SELECT {database}"));
        say(&mut on_replica, &format!("SELECT {database}"));
        assert_same_keys(&mut connection, &mut on_replica);
        assert_eq!(integer(&mut on_replica, "DBSIZE"), 2);
    }
}
