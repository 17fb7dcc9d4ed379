//! The way back: open times that grow, a ramp, states put by hand.

use redis::Connection;
use resil_harness::Server;

use crate::asked::{Admission, Breaker};
use crate::driven::{START_US, Say, start_driven};

/// Admissions asked for in one round trip.
fn admit_many(connection: &mut Connection, key: &str, count: usize) -> Vec<Admission> {
    let mut pipeline = redis::pipe();
    for _ in 0..count {
        pipeline.cmd("RES.BREAKER").arg("ADMIT").arg(key);
    }
    let replies: Vec<redis::Value> = pipeline.query(connection).expect("all are answered");
    replies.into_iter().map(Admission::of).collect()
}

#[test]
fn the_open_time_grows_per_trip_to_its_maximum() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 1 OPEN 1s FACTOR 2.5 MAX 10s SUCCESSES 1");
    let mut now_ms = 0;
    connection.trip("k");
    for (trips, open_ms) in [(1, 1_000), (2, 2_500), (3, 6_250), (4, 10_000), (5, 10_000)] {
        let look = connection.look("k");
        assert_eq!((look.number("trips"), look.number("retry_after_ms")), (trips, open_ms));
        now_ms += open_ms;
        connection.clock_at_ms(now_ms - 1);
        connection.admit("k").assert_denied("open", 1);
        connection.clock_at_ms(now_ms);
        assert_eq!(connection.call("k", "FAIL").state, "open", "the probe fails");
    }
}

#[test]
fn growth_survives_short_recoveries_and_ends_after_long_ones() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 1 OPEN 1s FACTOR 3 MAX 20s SUCCESSES 1");
    connection.trip("k");
    connection.clock_at_ms(1_000);
    assert_eq!(connection.call("k", "OK").state, "closed");
    connection.clock_at_ms(20_999);
    assert_eq!(connection.call("k", "FAIL").retry_after_ms, 3_000, "closed for less than MAX");
    connection.clock_at_ms(23_999);
    assert_eq!(connection.call("k", "OK").state, "closed");
    connection.clock_at_ms(43_999);
    assert_eq!(connection.call("k", "FAIL").retry_after_ms, 1_000, "closed for MAX");
}

#[test]
fn growth_is_forgotten_after_idle() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 1 OPEN 1s FACTOR 3 MAX 1h SUCCESSES 1 IDLE 10s");
    connection.trip("k");
    connection.clock_at_ms(1_000);
    assert_eq!(connection.call("k", "OK").state, "closed");
    connection.clock_at_ms(11_000);
    assert_eq!(connection.look("k").number("trips"), 1, "not before");
    connection.clock_at_us(11_000_001);
    assert_eq!(connection.look("k").number("trips"), 0);
    assert_eq!(connection.call("k", "FAIL").retry_after_ms, 1_000, "closed for much less than MAX");
}

#[test]
fn a_clock_set_back_costs_one_open_time() {
    for back_ms in [1, 500, 999, 1_500, 3_600_000] {
        let (_server, mut connection) = start_driven();
        connection.config("open CONSECUTIVE 1 OPEN 10s");
        connection.config("probed CONSECUTIVE 1 OPEN 1ms LEASE 20s PROBES 1");
        connection.trip("probed");
        connection.clock_at_ms(1);
        connection.admit("probed");
        connection.trip("open");
        connection.clock_at_ms(1 - back_ms);
        connection.admit("open").assert_denied("open", 10_000);
        connection.admit("probed").assert_denied("half-open", 20_000);
        connection.clock_at_ms(1 - back_ms + 10_000);
        assert!(connection.admit("open").admitted, "{back_ms} ms back");
        connection.clock_at_ms(1 - back_ms + 20_000);
        assert!(connection.admit("probed").admitted, "{back_ms} ms back");
    }
}

#[test]
fn without_a_factor_every_open_time_is_equal() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 1 OPEN 2s MAX 1h");
    connection.trip("k");
    for round in 1..30 {
        connection.clock_at_ms(round * 2_000);
        assert_eq!(connection.call("k", "FAIL").retry_after_ms, 2_000);
    }
}

/// A breaker that has just left half-open for a ramp of 30 s; the clock stands at 30 s.
fn ramping() -> (Server, Connection) {
    let (server, mut connection) = start_driven();
    connection.config("k OPEN 30s SUCCESSES 1 RAMP 30s");
    connection.trip("k");
    connection.clock_at_ms(30_000);
    assert_eq!(connection.call("k", "OK").said(), ("counted", "ramping"));
    (server, connection)
}

/// Six standard deviations of a coin thrown `calls` times: by chance beyond it once in a hundred million runs.
fn expected(calls: usize, percent: usize) -> std::ops::RangeInclusive<usize> {
    let mean = calls * percent / 100;
    let slack = (6.0 * ((mean * (100 - percent)) as f64 / 100.0).sqrt()).ceil() as usize;
    mean - slack..=mean + slack
}

#[test]
fn a_ramp_admits_a_tenth_a_quarter_half_everybody() {
    const CALLS: usize = 4_000;
    let (_server, mut connection) = ramping();
    for (at_ms, percent, next_ms) in [
        (30_000, 10, 40_000),
        (39_999, 10, 40_000),
        (40_000, 25, 50_000),
        (49_999, 25, 50_000),
        (50_000, 50, 60_000),
        (59_999, 50, 60_000),
    ] {
        connection.clock_at_ms(at_ms);
        let look = connection.look("k");
        assert_eq!((look.state(), look.number("admits"), look.number("retry_after_ms")), ("ramping", 1, 0));
        let admissions = admit_many(&mut connection, "k", CALLS);
        let admitted = admissions.iter().filter(|admission| admission.admitted).count();
        println!("{admitted} of {CALLS} admitted at {at_ms} ms");
        assert!(expected(CALLS, percent).contains(&admitted), "{admitted} of {CALLS} are not {percent} %");
        for denied in admissions.iter().filter(|admission| !admission.admitted) {
            denied.assert_denied("ramping", next_ms - at_ms);
        }
    }
    connection.clock_at_ms(60_000);
    let admissions = admit_many(&mut connection, "k", CALLS);
    assert!(admissions.iter().all(|admission| admission.admitted && admission.state == "closed"));
}

#[test]
fn a_failure_while_ramping_opens_it_again() {
    let (_server, mut connection) = ramping();
    connection.clock_at_ms(55_000);
    let permits: Vec<String> =
        admit_many(&mut connection, "k", 200).into_iter().filter_map(|admission| admission.permit).collect();
    for permit in &permits[1..] {
        assert_eq!(connection.report("k", permit, "OK").said(), ("counted", "ramping"));
    }
    assert_eq!(connection.report("k", &permits[0], "CANCEL").said(), ("ignored", "ramping"));
    let failed = connection.report("k", &permits[0], "FAIL");
    assert_eq!((failed.said(), failed.retry_after_ms), (("counted", "open"), 30_000));
}

#[test]
fn a_forced_state_holds_whatever_is_reported() {
    let (_server, mut connection) = start_driven();
    assert_eq!(connection.force("k OPEN ACTOR me REASON tests").0, "forced-open");
    connection.admit("k").assert_denied("forced-open", -1);
    let look = connection.look("k");
    assert_eq!(["forced_by", "forced_reason", "forced_until_ms"].map(|field| look.text(field)), ["me", "tests", "-1"]);
    for (force, state, why) in
        [("CLOSED", "forced-closed", "counted"), ("METRICS", "metrics", "counted"), ("DISABLED", "disabled", "ignored")]
    {
        assert_eq!(connection.force(&format!("k {force}")).0, state);
        for _ in 0..20 {
            assert_eq!(connection.call("k", "FAIL").said(), (why, state));
        }
        assert!(connection.admit("k").admitted);
    }
    assert_eq!(connection.force("k AUTO").0, "closed");
    assert_eq!(connection.look("k").number("failures"), 0, "it starts with nothing counted");
}

#[test]
fn a_state_forced_for_a_time_ends_closed() {
    let (_server, mut connection) = start_driven();
    let (_, generation) = connection.force("k OPEN FOR 10s");
    connection.clock_at_us(9_999_999);
    connection.admit("k").assert_denied("forced-open", 1);
    connection.clock_at_us(10_000_000);
    assert_eq!(connection.look("k").state(), "closed");
    let admission = connection.admit("k");
    assert!(admission.admitted && admission.state == "closed" && admission.generation > generation);
}

#[test]
fn a_trip_by_hand_ends_in_half_open() {
    let (_server, mut connection) = start_driven();
    connection.admit("k PROBES 1 SUCCESSES 1 OPEN 30s");
    let (_, generation) = connection.force("k OPEN FOR 10s THEN PROBE ACTOR ann");
    assert_eq!(connection.look("k").text("forced_ends_in"), "half-open");
    connection.clock_at_us(9_999_999);
    connection.admit("k").assert_denied("forced-open", 1);
    connection.clock_at_us(10_000_000);
    assert_eq!(connection.look("k").state(), "half-open");
    let probe = connection.admit("k");
    assert!(probe.admitted && probe.state == "half-open" && probe.generation > generation);
    assert!(!connection.admit("k").admitted, "one probe at a time");
}

#[test]
fn forcing_the_same_state_keeps_generation_and_counts() {
    let (_server, mut connection) = start_driven();
    let first = connection.force("k METRICS FOR 10s ACTOR one");
    connection.call("k", "FAIL");
    connection.clock_at_ms(5_000);
    assert_eq!(connection.force("k METRICS FOR 1m ACTOR two"), first);
    let look = connection.look("k");
    assert_eq!((look.number("failures"), look.text("forced_by")), (1, "two"));
    connection.clock_at_ms(64_999);
    assert_eq!(connection.look("k").state(), "metrics");
}

#[test]
fn generations_are_the_time_and_never_repeat() {
    let (_server, mut connection) = start_driven();
    let mut last = 0;
    for round in 0..40 {
        // The clock stands still for half of them, and once it is set back by an hour.
        connection.clock_at_ms(if round < 20 { 0 } else { -3_600_000 + round });
        let (_, generation) = connection.force(if round % 2 == 0 { "k OPEN" } else { "k AUTO" });
        assert!(generation > last, "{generation} after {last}");
        last = generation;
    }
    connection.clock_at_ms(10_000);
    assert_eq!(connection.force("k OPEN").1, START_US + 10_000_000);
}
