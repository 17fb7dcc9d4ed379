//! Where redis-cell errs, and we do not.

use std::time::{Duration, Instant};

use resil_harness::{Options, Server};

use crate::engine::resp::{Client, typed, words};
use crate::engine::server_state::{assert_no_internal_errors, must};
use crate::redis_cell::{now_us, throttle};

/// Each of these takes a server with redis-cell down.
#[test]
fn the_five_calls_that_crash_redis_cell_do_no_harm() {
    let server = Server::fresh();
    let mut client = Client::new(&server);
    must(&mut client, "SET text hello");
    assert!(!client.call(&words(["SET", "empty", ""])).is_error());
    must(&mut client, "RPUSH list a");
    must(&mut client, "HSET hash f v");
    for key in ["text", "empty", "list", "hash"] {
        let text = client.typed(&format!("CL.THROTTLE {key} 1 1 1")).text();
        assert!(text.starts_with("WRONGTYPE"), "{key}: {text}");
    }
    let reply = client.call(&words([b"CL.THROTTLE".as_slice(), b"\xff\xfe", b"1", b"1", b"60"]));
    assert_eq!(reply.integers().expect("a verdict")[..3], [0, 2, 1]);
    assert_no_internal_errors(&mut client);
}

#[test]
fn numbers_that_confuse_redis_cell_are_refused_or_right() {
    let server = Server::fresh();
    let mut client = Client::new(&server);
    // There the limit is printed as a negative number, and everything limited.
    assert!(client.typed("CL.THROTTLE key 9223372036854775807 1 1").text().contains("max_burst"));
    // There a zero rate divides by zero.
    assert!(client.typed("CL.THROTTLE key 1 0 1").text().contains("count"));
    assert!(client.typed("CL.THROTTLE key 1 1 0").text().contains("period_seconds"));
    // There an interval below a microsecond makes `remaining` meaningless.
    assert_eq!(throttle(&mut client, "fast 9 10000000 1")[..3], [0, 10, 9]);
    // There giving back to a fresh key is an error.
    assert_eq!(throttle(&mut client, "fresh 9 10 60 -3"), [0, 10, 10, -1, 0]);
    assert_eq!(must(&mut client, "TYPE fresh").text(), "none");
    // There a product of quantity and interval overflows.
    assert_eq!(throttle(&mut client, "large 9 1 31622400 1000000000")[..4], [1, 10, 10, -1]);
}

/// redis-cell admits 7.6 percent too much at this rate, because its keys expire a millisecond early.
#[test]
fn six_thousand_a_second_are_six_thousand_a_second() {
    const STEPS: u64 = 20_000;
    const STEP_US: u64 = 47;
    let server = Server::start(Options::default().module_args(["test-clock", "yes"]));
    let mut client = Client::new(&server);
    // Ahead of the real clock, by which the server expires keys.
    let start_us = now_us() + 3_600_000_000;
    let calls: Vec<_> = (0..STEPS)
        .flat_map(|step| {
            let clock = format!("RES._CLOCK {}", start_us + step * STEP_US);
            [typed(&clock), typed("CL.THROTTLE key 0 6000 1")]
        })
        .collect();
    let replies = client.pipeline(calls.iter().map(Vec::as_slice));
    let admitted = replies.iter().skip(1).step_by(2).filter(|r| r.integers().is_some_and(|r| r[0] == 0)).count() as u64;
    let earned = (STEPS - 1) * STEP_US * 6_000 / 1_000_000;
    // A call comes every 47 us, so a cell that is free waits for its taker by less than that.
    let missed = admitted * STEP_US * 6_000 / 1_000_000;
    assert!(admitted <= 1 + earned, "{admitted} were admitted where {earned} were earned");
    assert!(admitted + missed >= earned, "{admitted} were admitted where {earned} were earned");
}

#[test]
fn six_thousand_a_second_hold_by_the_real_clock_too() {
    let server = Server::fresh();
    let mut client = Client::new(&server);
    let batch: Vec<_> = (0..100).map(|_| typed("CL.THROTTLE key 0 6000 1")).collect();
    let began = Instant::now();
    let mut admitted = 0;
    while began.elapsed() < Duration::from_millis(500) {
        let replies = client.pipeline(batch.iter().map(Vec::as_slice));
        admitted += replies.iter().filter(|reply| reply.integers().is_some_and(|reply| reply[0] == 0)).count();
    }
    let earned = began.elapsed().as_secs_f64() * 6_000.0;
    assert!(admitted as f64 <= 1.0 + earned, "{admitted} were admitted where {earned:.1} were earned");
    assert!(admitted > 100, "only {admitted}");
}

/// There a higher rate makes the next call fail, because debt is kept as time.
#[test]
fn raising_the_rate_never_makes_the_next_call_fail() {
    let server = Server::start(Options::default().module_args(["test-clock", "yes"]));
    let mut client = Client::new(&server);
    must(&mut client, &format!("RES._CLOCK {}", now_us() + 3_600_000_000));
    assert_eq!(throttle(&mut client, "key 9 10 3600 5")[..3], [0, 10, 5]);
    assert_eq!(throttle(&mut client, "key 99 100 3600")[..3], [0, 100, 94], "five are owed, one more is taken");
}
