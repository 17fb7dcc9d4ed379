//! A replica takes over: state, generation, open time and leases are those the old primary gave.

use redis::Connection;
use resil_harness::{Server, wait_for_sync};

use crate::asked::Breaker;
use crate::driven::{START_US, Say, driven, start_driven};
use crate::phases::{assert_same, filled};

fn pair() -> (Server, Server, Connection, Connection) {
    let (primary, connection) = start_driven();
    let replica = Server::replica_of(&primary, driven());
    let on_replica = replica.connect();
    (primary, replica, connection, on_replica)
}

/// The primary is gone, the replica rules, `after_ms` later.
fn fail_over(primary: &mut Server, replica: &Server, on_replica: &mut Connection, after_ms: i64) {
    wait_for_sync(primary, replica);
    primary.kill9();
    on_replica.say("REPLICAOF NO ONE");
    on_replica.clock_at_ms(after_ms);
}

#[test]
fn a_promoted_replica_keeps_every_phase() {
    let (mut primary, replica, mut connection, mut on_replica) = pair();
    let before = filled(&mut connection);
    fail_over(&mut primary, &replica, &mut on_replica, 0);
    assert_same(&mut on_replica, &before);
}

#[test]
fn a_promoted_replica_keeps_generation_and_remaining_open_time() {
    let (mut primary, replica, mut connection, mut on_replica) = pair();
    connection.config("k OPEN 10s FACTOR 2 MAX 1h CONSECUTIVE 1");
    connection.trip("k");
    connection.clock_at_ms(10_000);
    let generation = connection.call("k", "FAIL").generation;
    fail_over(&mut primary, &replica, &mut on_replica, 22_345);
    let denied = on_replica.admit("k");
    denied.assert_denied("open", 7_655);
    // Half-open and open again in one microsecond: the second is one more.
    assert_eq!((denied.generation, generation), (generation, START_US + 10_000_001));
    on_replica.clock_at_us(29_999_999);
    on_replica.admit("k").assert_denied("open", 1);
    on_replica.clock_at_us(30_000_000);
    assert_eq!(on_replica.call("k", "FAIL").retry_after_ms, 40_000, "the growth goes on");
}

#[test]
fn the_old_primarys_permits_hold_on_the_new() {
    let (mut primary, replica, mut connection, mut on_replica) = pair();
    connection.config("k OPEN 10s CONSECUTIVE 1 PROBES 2 SUCCESSES 2 LEASE 20s");
    connection.trip("k");
    connection.clock_at_ms(10_000);
    let reported = connection.admit("k").permit().to_owned();
    let lost = connection.admit("k").permit().to_owned();
    fail_over(&mut primary, &replica, &mut on_replica, 15_000);
    on_replica.admit("k").assert_denied("half-open", 15_000);
    assert_eq!(on_replica.report("k", &reported, "OK").said(), ("counted", "half-open"));
    assert_eq!(on_replica.report("k", &reported, "OK").said(), ("duplicate", "half-open"));
    on_replica.clock_at_ms(30_000);
    assert_eq!(on_replica.report("k", &lost, "OK").said(), ("unknown", "half-open"), "its lease has ended");
    assert_eq!(on_replica.call("k", "OK").said(), ("counted", "closed"));
}

#[test]
fn a_new_primarys_late_clock_freezes_nothing() {
    let (mut primary, replica, mut connection, mut on_replica) = pair();
    connection.config("open OPEN 10s CONSECUTIVE 1");
    connection.config("probed OPEN 10s CONSECUTIVE 1 PROBES 1 LEASE 20s");
    connection.trip("open");
    connection.trip("probed");
    connection.clock_at_ms(10_000);
    connection.admit("probed");
    let generation = connection.look("open").number("generation");
    fail_over(&mut primary, &replica, &mut on_replica, -3_600_000);
    on_replica.admit("open").assert_denied("open", 10_000);
    on_replica.admit("probed").assert_denied("half-open", 20_000);
    on_replica.clock_at_ms(-3_600_000 + 10_000);
    let probe = on_replica.admit("open");
    assert!(probe.admitted && probe.generation > generation, "{probe:?}");
    on_replica.clock_at_ms(-3_600_000 + 20_000);
    assert!(on_replica.admit("probed").admitted);
}

#[test]
fn a_replica_shows_state_and_refuses_writes() {
    let (primary, replica, mut connection, mut on_replica) = pair();
    connection.config("k OPEN 10s CONSECUTIVE 1");
    connection.trip("k");
    wait_for_sync(&primary, &replica);
    on_replica.clock_at_ms(4_000);
    let look = on_replica.look("k");
    assert_eq!((look.state(), look.number("retry_after_ms"), look.number("admits")), ("open", 6_000, 0));
    on_replica.clock_at_ms(10_000);
    assert_eq!(on_replica.look("k").number("admits"), 1);
    assert_eq!(on_replica.look("none").state(), "closed");
    on_replica.say("RES.BREAKER HELP");
    let before = on_replica.digest("k");
    for line in [
        "ADMIT k",
        "ADMIT none",
        "REPORT k 0.0.0 OK",
        "TALLY k 0 me 1 OK 1 FAIL 0",
        "FORCE k OPEN",
        "FORCE k AUTO",
        "RESET k",
        "CONFIG k RATE 7",
    ] {
        let error = on_replica.refusal(&format!("RES.BREAKER {line}"));
        assert!(error.starts_with("READONLY "), "{line}: {error}");
    }
    assert_eq!(on_replica.digest("k"), before);
    on_replica.say("CONFIG SET replica-read-only no");
    assert!(on_replica.admit("k").admitted, "a writable replica decides for itself");
}
