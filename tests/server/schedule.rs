//! A long random schedule over keys of all kinds: primary, replica and the replica's file end equal.

use redis::Connection;
use resil_harness::{Server, wait_for_sync};

use crate::dice::Dice;
use crate::driven::{SECOND_US, START_US, driven, info_number, integer, outcome, say, set_clock, wait_for_rewrite};
use crate::replication::assert_same_keys;

const COMMANDS: usize = 2_000;
const KEYS_OF_A_KIND: u64 = 12;

fn number(dice: &mut Dice, most: u64) -> u64 {
    1 + dice.below(most)
}

/// A quota: sometimes usual, sometimes odd, sometimes huge.
fn quota(dice: &mut Dice) -> String {
    let (limit, period) = (number(dice, 20), ["1s", "7s", "60s", "1h"][dice.below(4) as usize]);
    match dice.below(6) {
        0 => format!("{limit} {period} BURST {}", number(dice, 40)),
        1 => format!("{} {period}", limit * 1_000_003),
        2 => format!("{limit} {}us", number(dice, 90_000_000)),
        _ => format!("{limit} {period}"),
    }
}

fn ask(dice: &mut Dice) -> String {
    let (word, most) = *dice.pick(&[("COST", 6), ("UPTO", 9), ("REFUND", 9), ("RESERVE", 30_000), ("COST", 1)]);
    let cost =
        if word == "RESERVE" && dice.below(2) == 0 { format!(" COST {}", number(dice, 4)) } else { String::new() };
    format!("{word} {}{cost}", number(dice, most))
}

fn gcra(dice: &mut Dice, key: &str) -> String {
    let tiers: Vec<String> = match dice.below(3) {
        // Periods of one call must differ.
        0 => ["2s", "3m", "5h"].iter().map(|period| format!("{} {period}", number(dice, 30))).collect(),
        _ => vec![quota(dice)],
    };
    format!("RES.GCRA {key} {} {}", tiers.join(" AND "), ask(dice))
}

fn throttle(dice: &mut Dice, key: &str) -> String {
    let (burst, count, period_s) = (number(dice, 15), number(dice, 30), number(dice, 60));
    format!("CL.THROTTLE {key} {burst} {count} {period_s} {}", number(dice, 9) as i64 - 4)
}

fn window(dice: &mut Dice, key: &str) -> String {
    let period = *dice.pick(&["1s", "10s", "60s", "1h"]);
    format!("RES.WINDOW {key} {} {period} {} {}", number(dice, 20), dice.pick(&["COST", "UPTO"]), number(dice, 5))
}

fn breaker(dice: &mut Dice, key: &str) -> String {
    let (ok, failed) = (dice.below(6), dice.below(6));
    match dice.below(12) {
        0..=5 => format!("RES.BREAKER TALLY {key} 0 me {} OK {ok} FAIL {failed} RUN {failed}", dice.below(1 << 40)),
        6..=8 => format!("RES.BREAKER ADMIT {key}"),
        9 => format!(
            "RES.BREAKER FORCE {key} {}",
            dice.pick(&["OPEN FOR 9s", "OPEN FOR 5s THEN PROBE", "CLOSED", "METRICS", "AUTO"])
        ),
        10 => format!("RES.BREAKER CONFIG {key} RATE {} OPEN {}s", number(dice, 100), number(dice, 60)),
        _ => format!("RES.BREAKER RESET {key}"),
    }
}

fn several(dice: &mut Dice) -> String {
    let first = dice.below(KEYS_OF_A_KIND);
    let limits: Vec<String> = (0..number(dice, 4))
        .map(|next| {
            let key = (first + next) % KEYS_OF_A_KIND;
            format!("g:{key} {} {} {}", number(dice, 20), dice.pick(&["1s", "60s", "1h"]), number(dice, 20))
        })
        .collect();
    format!("RES.MGCRA {} {}", number(dice, 3), limits.join(" "))
}

/// What users do to keys behind the limits' back.
fn meddling(dice: &mut Dice) -> String {
    let kind = *dice.pick(&["g", "w", "c", "t", "b"]);
    let (key, other) = (dice.below(KEYS_OF_A_KIND), dice.below(KEYS_OF_A_KIND));
    let (key, other) = (format!("{kind}:{key}"), format!("{kind}:{other}"));
    match dice.below(7) {
        0 => format!("DEL {key}"),
        1 => format!("PERSIST {key}"),
        2 => format!("EXPIRE {key} 100000"),
        3 => format!("RENAME {key} {other}"),
        4 => format!("COPY {key} {other} REPLACE"),
        5 => format!("SET {key} text"),
        _ => format!("UNLINK {key} {other}"),
    }
}

/// One random command; the driven clock may have moved before it, mostly on, sometimes back.
fn play(dice: &mut Dice, connection: &mut Connection, now_us: &mut i64) -> String {
    match dice.below(100) {
        0 => *now_us -= dice.below(3_600) as i64 * SECOND_US,
        1..=5 => *now_us += dice.below(600) as i64 * SECOND_US,
        6..=60 => *now_us += dice.below(900_000) as i64,
        _ => {}
    }
    set_clock(connection, *now_us);
    let key = dice.below(KEYS_OF_A_KIND);
    let line = match dice.below(20) {
        0..=3 => gcra(dice, &format!("g:{key}")),
        4..=6 => gcra(dice, &format!("t:{key}")),
        7..=12 => window(dice, &format!("w:{key}")),
        13..=15 => throttle(dice, &format!("c:{key}")),
        16 => breaker(dice, &format!("b:{key}")),
        17..=18 => several(dice),
        _ => meddling(dice),
    };
    // Whatever comes: some are denied, some find a wrong type, some are refused.
    outcome(connection, &line);
    line
}

#[test]
fn after_random_schedules_all_copies_are_equal() {
    let mut dice = Dice::thrown();
    let mut primary = Server::start(driven());
    let mut connection = primary.connect();
    let with_file = driven().config("appendonly", "yes").config("appendfsync", "always");
    let mut replica = Server::replica_of(&primary, with_file);
    wait_for_rewrite(&mut replica.connect());
    // An hour off: nothing may depend on it.
    set_clock(&mut replica.connect(), START_US - 3_600 * SECOND_US);
    let mut now_us = START_US;
    for played in 0..COMMANDS {
        let line = play(&mut dice, &mut connection, &mut now_us);
        if played % 250 == 0 {
            println!("{played}: {line}");
            wait_for_sync(&primary, &replica);
            assert_same_keys(&mut connection, &mut replica.connect());
        }
    }
    wait_for_sync(&primary, &replica);
    assert_same_keys(&mut connection, &mut replica.connect());
    assert!(integer(&mut connection, "DBSIZE") > 20);
    assert_eq!(info_number(&mut replica.connect(), "resil", "resil_apply_refused"), 0);
    assert_eq!(info_number(&mut connection, "resil", "resil_internal_errors"), 0);

    // The same from the replica's file, from the file rewritten as commands, and from a snapshot.
    say(&mut connection, "CONFIG SET requirepass alone");
    replica.restart_after_kill();
    let mut on_replica = replica.connect();
    assert_same_keys(&mut connection, &mut on_replica);
    say(&mut on_replica, "REPLICAOF NO ONE");
    give_all_an_expiry(&mut connection);
    give_all_an_expiry(&mut on_replica);
    say(&mut on_replica, "CONFIG SET aof-use-rdb-preamble no");
    say(&mut on_replica, "BGREWRITEAOF");
    wait_for_rewrite(&mut on_replica);
    replica.restart_after_kill();
    let mut on_replica = replica.connect();
    assert_same_keys(&mut connection, &mut on_replica);
    say(&mut on_replica, "REPLICAOF NO ONE");
    say(&mut on_replica, "DEBUG RELOAD");
    assert_same_keys(&mut connection, &mut on_replica);
    primary.kill9();
}

/// A file of commands cannot say that a limit has no expiry: whatever builds a limit gives it one.
fn give_all_an_expiry(connection: &mut Connection) {
    let keys: Vec<String> = redis::from_redis_value(say(connection, "KEYS *")).expect("keys are text");
    for key in keys {
        if integer(connection, &format!("PEXPIRETIME {key}")) == -1 {
            say(connection, &format!("PEXPIREAT {key} 5000000000000"));
        }
    }
}
