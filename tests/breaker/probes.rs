//! Half-open: leased probes that decide, and that can be lost without harm.

use redis::Connection;
use resil_harness::eventually;

use crate::asked::Breaker;
use crate::driven::{SOON, START_US, Say, start_driven};

/// An open breaker whose time has just passed; the clock stands at 30 s.
fn due(connection: &mut Connection, key: &str, options: &str) {
    connection.clock_at_ms(0);
    connection.config(&format!("{key} OPEN 30s {options}"));
    connection.trip(key);
    connection.clock_at_ms(30_000);
}

#[test]
fn a_killed_prober_frees_its_place_when_its_lease_ends() {
    let (server, mut connection) = start_driven();
    due(&mut connection, "k", "PROBES 1 LEASE 5s");
    let mut prober = server.connect();
    let id = prober.integer("CLIENT ID");
    let permit = prober.admit("k").permit().to_owned();
    assert_eq!(connection.integer(&format!("CLIENT KILL ID {id}")), 1);
    eventually("the prober is gone", SOON, || !connection.text("CLIENT LIST").contains(&format!("id={id} ")));
    connection.admit("k").assert_denied("half-open", 5_000);
    connection.clock_at_us(34_999_999);
    connection.admit("k").assert_denied("half-open", 1);
    connection.clock_at_us(35_000_000);
    assert_eq!(connection.look("k").number("probes_out"), 0);
    let next = connection.admit("k");
    assert_ne!(next.permit(), permit);
    assert_eq!(connection.report("k", &permit, "FAIL").said(), ("unknown", "half-open"), "too late");
    connection.admit("k").assert_denied("half-open", 5_000);
}

#[test]
fn steady_denied_traffic_does_not_keep_a_lost_probe_alive() {
    let (_server, mut connection) = start_driven();
    due(&mut connection, "k", "PROBES 2 LEASE 1s");
    assert!(connection.admit("k").admitted);
    connection.clock_at_ms(30_250);
    assert!(connection.admit("k").admitted);
    for ms in (30_250..31_000).step_by(5) {
        connection.clock_at_ms(ms);
        connection.admit("k").assert_denied("half-open", 31_000 - ms);
    }
    connection.clock_at_ms(31_000);
    assert!(connection.admit("k").admitted, "the first place is free");
    for ms in (31_000..31_250).step_by(5) {
        connection.clock_at_ms(ms);
        connection.admit("k").assert_denied("half-open", 31_250 - ms);
    }
    connection.clock_at_ms(31_250);
    assert!(connection.admit("k").admitted, "and so is the second");
}

#[test]
fn probes_lost_again_and_again_never_wedge_it() {
    let (_server, mut connection) = start_driven();
    due(&mut connection, "k", "PROBES 3 SUCCESSES 2 LEASE 1s");
    for round in 0..50 {
        connection.clock_at_ms(30_000 + round * 1_000);
        let admitted = (0..6).filter(|_| connection.admit("k").admitted).count();
        assert_eq!(admitted, 3, "round {round}");
    }
    connection.clock_at_ms(90_000);
    assert_eq!(connection.call("k", "OK").said(), ("counted", "half-open"));
    assert_eq!(connection.call("k", "OK").said(), ("counted", "closed"));
}

#[test]
fn it_closes_exactly_at_the_last_needed_success() {
    let (_server, mut connection) = start_driven();
    due(&mut connection, "k", "PROBES 2 SUCCESSES 5");
    for success in 1..5 {
        assert_eq!(connection.call("k", "OK").said(), ("counted", "half-open"));
        assert_eq!(connection.look("k").number("successes"), success);
    }
    let before = connection.look("k").number("generation");
    let last = connection.call("k", "OK");
    assert_eq!(last.said(), ("counted", "closed"));
    assert!(last.generation > before);
    assert!((0..20).all(|_| connection.admit("k").admitted));
}

#[test]
fn any_failed_probe_opens_it_for_the_whole_time_again() {
    let (_server, mut connection) = start_driven();
    due(&mut connection, "k", "PROBES 3 SUCCESSES 3");
    let probes: Vec<String> = (0..3).map(|_| connection.admit("k").permit().to_owned()).collect();
    connection.report("k", &probes[0], "OK");
    connection.report("k", &probes[1], "OK");
    connection.clock_at_ms(31_000);
    let failed = connection.report("k", &probes[2], "FAIL");
    assert_eq!((failed.said(), failed.retry_after_ms), (("counted", "open"), 30_000));
    assert_eq!(failed.generation, START_US + 31_000_000);
    connection.admit("k").assert_denied("open", 30_000);
    assert_eq!(connection.report("k", &probes[2], "OK").said(), ("stale", "open"));
}

#[test]
fn ignored_and_cancelled_probes_free_their_place_and_decide_nothing() {
    let (_server, mut connection) = start_driven();
    due(&mut connection, "k", "PROBES 1 SUCCESSES 1");
    for outcome in ["IGNORE", "CANCEL"].repeat(10) {
        assert_eq!(connection.call("k", outcome).said(), ("ignored", "half-open"));
    }
    assert_eq!(connection.look("k").number("successes"), 0);
    assert_eq!(connection.call("k", "OK").said(), ("counted", "closed"));
}

#[test]
fn a_probe_counts_once() {
    let (_server, mut connection) = start_driven();
    due(&mut connection, "k", "PROBES 2 SUCCESSES 3");
    let (one, two) = (connection.admit("k").permit().to_owned(), connection.admit("k").permit().to_owned());
    assert_eq!(connection.report("k", &one, "OK").said(), ("counted", "half-open"));
    for outcome in ["OK", "FAIL", "IGNORE", "CANCEL"] {
        assert_eq!(connection.report("k", &one, outcome).said(), ("duplicate", "half-open"), "{outcome}");
    }
    assert_eq!(connection.report("k", &two, "CANCEL").said(), ("ignored", "half-open"));
    assert_eq!(connection.report("k", &two, "FAIL").said(), ("duplicate", "half-open"));
    assert_eq!(connection.look("k").number("successes"), 1);
}

#[test]
fn a_slow_probe_fails_only_where_slowness_trips() {
    let (_server, mut connection) = start_driven();
    due(&mut connection, "slow", "SLOW 1s SUCCESSES 1");
    assert_eq!(connection.call("slow", "OK DURATION 1s").said(), ("counted", "open"));
    due(&mut connection, "off", "SLOW 1s SLOWRATE 0 SUCCESSES 1");
    assert_eq!(connection.call("off", "OK DURATION 1s").said(), ("counted", "closed"));
}

#[test]
fn permits_from_before_the_trip_stay_stale() {
    let (_server, mut connection) = start_driven();
    connection.config("k OPEN 30s SUCCESSES 1 RAMP 10s");
    let old = connection.admit("k").permit().to_owned();
    connection.trip("k");
    let stale = |connection: &mut Connection, state: &str| {
        let before = connection.digest("k");
        for outcome in ["OK", "FAIL", "IGNORE", "CANCEL"] {
            assert_eq!(connection.report("k", &old, outcome).said(), ("stale", state), "{outcome}");
        }
        assert_eq!(connection.digest("k"), before, "a stale report changes nothing");
    };
    stale(&mut connection, "open");
    connection.clock_at_ms(30_000);
    let probe = connection.admit("k").permit().to_owned();
    stale(&mut connection, "half-open");
    connection.report("k", &probe, "OK");
    stale(&mut connection, "ramping");
    connection.clock_at_ms(40_000);
    connection.admit("k");
    stale(&mut connection, "closed");
}

#[test]
fn a_foreign_permit_is_unknown_and_changes_nothing() {
    let (_server, mut connection) = start_driven();
    due(&mut connection, "k", "PROBES 3");
    let probe = connection.admit("k").permit().to_owned();
    let before = connection.digest("k");
    let generation = probe.split('.').next().expect("a generation").to_owned();
    let without_number = probe.rsplit_once('.').expect("a number").0.to_owned();
    let forged = [format!("{without_number}.63"), format!("{generation}.0.0.ff"), without_number];
    for permit in forged.iter().map(String::as_str).chain(["x", "....", "0x1.2.3.4", "-1.0.0", "1.2.3.4.5"]) {
        assert_eq!(connection.report("k", permit, "FAIL").said(), ("unknown", "half-open"), "{permit}");
    }
    assert_eq!(connection.report("k", "1.2.3.4", "FAIL").said(), ("stale", "half-open"), "of another generation");
    assert_eq!(connection.digest("k"), before);
    assert_eq!(connection.report("none", "rubbish", "FAIL").said(), ("unknown", "closed"));
    assert_eq!(connection.integer("EXISTS none"), 0);
}
