//! The same calls to redis-cell and to us, at the same time: the same replies.

use std::time::{Duration, Instant};

use fastrand::Rng;
use resil_harness::{Options, Server};

use crate::engine::resp::Client;
use crate::engine::seed::{say, seeded};
use crate::engine::server_state::must;
use crate::redis_cell::{self, now_us, throttle};

/// Limits whose cells are at least two seconds apart: while one key is being asked, less than a second, no cell comes
/// free and no shown second passes, so that what is left to differ is how seconds are rounded.
const RATES: [(i64, i64); 8] =
    [(30, 60), (1, 2), (7, 60), (1, 60), (100, 3_600), (7, 3_600), (1, 86_400), (11, 86_400)];
const KEYS: usize = 250;
const KEY_BOUND: Duration = Duration::from_millis(900);

#[test]
fn every_reply_is_redis_cells_but_for_rounding() {
    let Some(theirs) = redis_cell::options() else { return };
    // It logs every step when built for debugging.
    let their_server = Server::start(theirs.config("loglevel", "warning"));
    let server = Server::fresh();
    let (mut cell, mut ours) = (Client::new(&their_server), Client::new(&server));
    let mut rng = seeded("redis-cell");
    let mut compared = 0;
    for index in 0..KEYS {
        let calls = calls_of_a_key(index, &mut rng);
        let began = Instant::now();
        let replies: Vec<_> =
            calls.iter().map(|line| (line, throttle(&mut cell, line), throttle(&mut ours, line))).collect();
        if began.elapsed() > KEY_BOUND {
            // The machine paused us: a second may have passed between the two.
            continue;
        }
        for (line, theirs, ours) in replies {
            assert_eq!(ours[..3], theirs[..3], "CL.THROTTLE {line}: ours {ours:?}, redis-cell's {theirs:?}");
            for (ours_s, theirs_s) in [(ours[3], theirs[3]), (ours[4], theirs[4])] {
                // 0.2.2 cuts seconds off; 0.5 and we add one if a millisecond or more is left.
                let same = ours_s == theirs_s || (theirs_s >= 0 && ours_s == theirs_s + 1);
                assert!(same, "CL.THROTTLE {line}: ours {ours:?}, redis-cell's {theirs:?}");
            }
            compared += 1;
        }
    }
    say(&format!("redis-cell: {compared} replies compared"));
    assert!(compared > KEYS * 4, "only {compared} replies could be compared");
}

/// Takes, peeks and refunds of one key; it gives back only what it took, because more is an error in redis-cell.
fn calls_of_a_key(index: usize, rng: &mut Rng) -> Vec<String> {
    let (count, period_s) = RATES[rng.usize(..RATES.len())];
    let max_burst = if rng.bool() { rng.i64(0..10) } else { rng.i64(0..200) };
    let mut owed = 0;
    let mut calls = Vec::new();
    for call in 0..rng.usize(3..15) {
        let quantity = match rng.u32(0..10) {
            // A fresh key is asked without harm, but redis-cell would store it.
            0 if call > 0 && owed > 0 => 0,
            1 if owed > 1 => -rng.i64(1..owed),
            2..6 => 1,
            _ => rng.i64(1..=max_burst + 2),
        };
        if (0..=max_burst + 1).contains(&(owed + quantity)) {
            owed += quantity;
        }
        let last = if quantity == 1 && rng.bool() { String::new() } else { format!(" {quantity}") };
        calls.push(format!("key:{index} {max_burst} {count} {period_s}{last}"));
    }
    calls
}

#[test]
fn seconds_are_rounded_up_if_a_whole_millisecond_is_left() {
    let server = Server::start(Options::default().module_args(["test-clock", "yes"]));
    let mut client = Client::new(&server);
    // Ahead of the real clock, by which the server expires keys.
    let start_us = now_us() + 3_600_000_000;
    let at = |client: &mut Client, us: u64| must(client, &format!("RES._CLOCK {}", start_us + us));
    at(&mut client, 0);
    assert_eq!(throttle(&mut client, "key 0 1 7"), [0, 1, 0, -1, 7]);
    // Microseconds later, and the seconds shown.
    let cases = [
        (0, 7),
        (1, 7),
        (999_000, 7),
        (999_001, 6),
        (1_000_000, 6),
        (1_000_001, 6),
        (1_999_001, 5),
        (6_000_000, 1),
        (6_999_000, 1),
        // Limited, and nothing is left to wait: redis-cell says so too.
        (6_999_001, 0),
        (6_999_999, 0),
    ];
    for (us, seconds) in cases {
        at(&mut client, us);
        assert_eq!(throttle(&mut client, "key 0 1 7"), [1, 1, 0, seconds, seconds], "{us} us later");
        assert_eq!(throttle(&mut client, "key 0 1 7 0"), [0, 1, 0, -1, seconds], "{us} us later");
    }
    at(&mut client, 7_000_000);
    assert_eq!(throttle(&mut client, "key 0 1 7"), [0, 1, 0, -1, 7]);
}

#[test]
fn minus_one_means_no_wait_or_never() {
    let server = Server::fresh();
    let mut client = Client::new(&server);
    assert_eq!(throttle(&mut client, "key 4 1 3600 5"), [0, 5, 0, -1, 18_000]);
    assert_eq!(throttle(&mut client, "key 4 1 3600 6")[..4], [1, 5, 0, -1]);
    assert_eq!(throttle(&mut client, "key 4 1 3600")[..4], [1, 5, 0, 3_600]);
}
