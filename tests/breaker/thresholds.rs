//! A closed breaker trips when a threshold is met, and not one call earlier.

use redis::Connection;

use crate::asked::Breaker;
use crate::driven::{START_US, Say, start_driven};

/// Outcomes in this order, each of its own call; the states after each.
#[track_caller]
fn states_after(connection: &mut Connection, line: &str, outcomes: &[&str]) -> Vec<String> {
    outcomes.iter().map(|outcome| connection.call(line, outcome).state).collect()
}

/// Every outcome leaves it closed but the last, which opens it.
#[track_caller]
fn assert_the_last_one_trips(connection: &mut Connection, line: &str, outcomes: &[&str]) {
    let states = states_after(connection, line, outcomes);
    let (last, earlier) = states.split_last().expect("some outcomes");
    assert!(earlier.iter().all(|state| state == "closed"), "{line}: {states:?}");
    assert_eq!(last, "open", "{line}");
}

#[test]
fn five_failures_in_a_row_trip_unconfigured_breakers() {
    let (_server, mut connection) = start_driven();
    assert_the_last_one_trips(&mut connection, "k", &["FAIL"; 5]);
    let look = connection.look("k");
    assert_eq!((look.number("generation"), look.number("trips")), (START_US, 1));
    assert_eq!(look.number("opened_at_ms"), START_US / 1_000);
    connection.admit("k").assert_denied("open", 30_000);
    connection.clock_at_us(29_999_999);
    connection.admit("k").assert_denied("open", 1);
    connection.clock_at_us(30_000_000);
    assert!(connection.admit("k").admitted);
}

#[test]
fn a_success_starts_the_run_of_failures_over() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 3 RATE 0");
    let outcomes = ["FAIL", "FAIL", "OK", "FAIL", "FAIL", "OK", "FAIL", "FAIL", "FAIL"];
    assert_the_last_one_trips(&mut connection, "k", &outcomes);
}

#[test]
fn ignored_and_cancelled_calls_neither_break_nor_lengthen_a_run() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 3 RATE 0");
    assert_the_last_one_trips(&mut connection, "k", &["FAIL", "IGNORE", "FAIL", "CANCEL", "IGNORE", "FAIL"]);
    connection.say("RES.BREAKER RESET k");
    connection.call("k", "CANCEL");
    assert_eq!(connection.look("k").number("calls"), 0);
}

#[test]
fn the_failure_rate_trips_given_enough_calls() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 0 RATE 50 MINCALLS 6 WINDOW COUNT 10");
    // Five failures of five are too few calls; the sixth call is enough of them.
    assert_the_last_one_trips(&mut connection, "k", &["FAIL", "FAIL", "FAIL", "FAIL", "FAIL", "OK"]);
    connection.config("exact CONSECUTIVE 0 RATE 50 MINCALLS 4 WINDOW COUNT 10");
    assert_the_last_one_trips(&mut connection, "exact", &["OK", "OK", "OK", "FAIL", "FAIL", "FAIL"]);
    let look = connection.look("exact");
    assert_eq!((look.number("calls"), look.number("failures")), (0, 0), "a trip empties the window");
}

#[test]
fn a_count_window_holds_the_last_calls_and_no_others() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 0 RATE 100 MINCALLS 1 WINDOW COUNT 4");
    assert_the_last_one_trips(&mut connection, "k", &["OK", "FAIL", "FAIL", "FAIL", "FAIL"]);
    connection.config("late CONSECUTIVE 0 RATE 75 MINCALLS 4 WINDOW COUNT 4");
    // Three of the last four, though it began with two of two.
    let mixed = ["FAIL", "FAIL", "OK", "OK", "FAIL", "OK", "FAIL", "FAIL"];
    assert_the_last_one_trips(&mut connection, "late", &mixed);
}

#[test]
fn a_window_smaller_than_the_minimum_trips_when_full() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 0 RATE 50 MINCALLS 1000 WINDOW COUNT 3");
    assert_the_last_one_trips(&mut connection, "k", &["FAIL", "FAIL", "FAIL"]);
}

#[test]
fn slow_calls_trip_at_their_own_rate_though_none_fails() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 0 RATE 0 SLOW 100ms SLOWRATE 50 MINCALLS 4");
    let quick = "OK DURATION 99999us";
    assert_the_last_one_trips(&mut connection, "k", &[quick, "OK DURATION 100", quick, "OK DURATION 1h"]);
    connection.say("RES.BREAKER RESET k");
    let states = states_after(&mut connection, "k", &[quick, quick, quick, "OK", "OK DURATION 1s", "FAIL"]);
    assert!(states.iter().all(|state| state == "closed"), "{states:?}");
    let look = connection.look("k");
    assert_eq!((look.number("slow"), look.number("slow_rate_pct"), look.number("calls")), (1, 16, 6));
}

#[test]
fn one_callers_failures_never_make_a_quorum() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 5 RATE 50 MINCALLS 1 QUORUM 3");
    for caller in ["one", "two"] {
        let states = states_after(&mut connection, &format!("k CALLER {caller}"), &["FAIL"; 40]);
        assert!(states.iter().all(|state| state == "closed"), "{caller} alone tripped it");
    }
    assert_eq!(connection.call("k CALLER two", "FAIL").state, "closed");
    assert_eq!(connection.call("k CALLER three", "OK").state, "closed", "a success is no evidence");
    assert_eq!(connection.call("k CALLER three", "FAIL").state, "open");
}

#[test]
fn a_made_up_permit_adds_no_caller() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 2 RATE 1 MINCALLS 1 QUORUM 2");
    let issued = connection.admit("k CALLER a").permit.expect("it is closed");
    assert_eq!(connection.report("k", &issued, "FAIL").said(), ("counted", "closed"));
    let (numbers, seal) = issued.split_once('-').expect("a permit is sealed");
    let fields: Vec<&str> = numbers.split('.').collect();
    let (generation, at) = (fields[0], fields[1]);
    for caller in 1..100 {
        for forged in [
            format!("{generation}.{at}.{caller:x}"),
            format!("{generation}.{at}.{caller:x}-{seal}"),
            format!("{generation}.{at}.{caller:x}-1"),
            numbers.to_owned(),
        ] {
            assert_eq!(connection.report("k", &forged, "FAIL").said(), ("counted", "closed"), "{forged}");
        }
    }
    // The same permit again counts as an outcome, and as the same caller.
    assert_eq!(connection.report("k", &issued, "FAIL").said(), ("counted", "closed"));
    // A permit for another key is as good as none.
    let elsewhere = connection.admit("other CALLER b").permit.expect("it is closed");
    assert_eq!(connection.report("k", &elsewhere, "FAIL").said(), ("counted", "closed"));
    let second = connection.admit("k CALLER b").permit.expect("it is closed");
    assert_eq!(connection.report("k", &second, "FAIL").said(), ("counted", "open"));
}

#[test]
fn callers_without_a_name_are_one_caller_for_the_quorum() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 2 QUORUM 2");
    assert!(states_after(&mut connection, "k", &["FAIL"; 9]).iter().all(|state| state == "closed"));
    assert_eq!(connection.call("k CALLER somebody", "FAIL").state, "open");
}

#[test]
fn evidence_outside_the_window_adds_nothing_to_the_quorum() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 0 RATE 1 MINCALLS 1 WINDOW TIME 10s QUORUM 2");
    assert_eq!(connection.call("k CALLER one", "FAIL").state, "closed");
    connection.clock_at_ms(10_001);
    assert_eq!(connection.call("k CALLER two", "FAIL").state, "closed", "the other failed before the window");
    connection.clock_at_ms(11_000);
    assert_eq!(connection.call("k CALLER one", "FAIL").state, "open");
}

#[test]
fn a_time_window_forgets_only_what_is_older() {
    let (_server, mut connection) = start_driven();
    for key in ["old", "young"] {
        connection.clock_at_ms(0);
        connection.config(&format!("{key} CONSECUTIVE 0 RATE 50 MINCALLS 4 WINDOW TIME 10s"));
        states_after(&mut connection, key, &["FAIL"; 3]);
        assert_eq!(connection.look(key).number("failures"), 3);
    }
    // A slice is a twentieth of the window: nineteen of them are held for certain.
    connection.clock_at_ms(9_499);
    assert_eq!(connection.look("young").number("failures"), 3);
    assert_eq!(connection.call("young", "FAIL").state, "open");
    connection.clock_at_us(10_000_001);
    assert_eq!(connection.look("old").number("calls"), 0);
    let states = states_after(&mut connection, "old", &["FAIL"; 4]);
    assert_eq!(states, ["closed", "closed", "closed", "open"]);
}

#[test]
fn a_time_window_rolls_over_idle_minutes_at_once() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 0 RATE 50 MINCALLS 4 WINDOW TIME 10s IDLE 30d");
    for round in 0..20 {
        connection.clock_at_ms(round * 3_000_000 + round * 777);
        let states = states_after(&mut connection, "k", &["FAIL"; 3]);
        assert!(states.iter().all(|state| state == "closed"), "round {round}: {states:?}");
    }
}

#[test]
fn counts_are_forgotten_after_idle_and_not_before() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 3 IDLE 10s");
    states_after(&mut connection, "k", &["FAIL", "FAIL"]);
    connection.clock_at_us(10_000_000);
    assert_eq!(connection.look("k").number("failures_in_a_row"), 2);
    connection.clock_at_us(10_000_001);
    assert_eq!(connection.look("k").number("failures_in_a_row"), 0);
    assert_the_last_one_trips(&mut connection, "k", &["FAIL"; 3]);
}

#[test]
fn a_batch_counts_as_its_calls_and_once() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 5 RATE 0");
    assert_eq!(connection.tally("k 0 me 1 OK 7 FAIL 4 RUN 3").said(), ("counted", "closed"));
    assert_eq!(connection.tally("k 0 me 1 OK 7 FAIL 4 RUN 3").said(), ("duplicate", "closed"));
    let look = connection.look("k");
    let counts = ["calls", "failures", "failures_in_a_row"].map(|field| look.number(field));
    assert_eq!(counts, [11, 4, 3]);
    assert_eq!(connection.tally("k 0 you 1 OK 0 FAIL 2").said(), ("counted", "open"), "the run went on");
    assert_eq!(connection.tally("k 0 you 1 OK 0 FAIL 2").said(), ("duplicate", "open"));
    assert_eq!(connection.tally("k 0 you 2 OK 0 FAIL 2").said(), ("stale", "open"));
}

#[test]
fn no_batch_outweighs_the_window() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 0 RATE 50 MINCALLS 10 WINDOW COUNT 10");
    connection.tally("k 0 me 1 OK 10000 FAIL 1");
    let look = connection.look("k");
    assert_eq!((look.number("calls"), look.number("failures")), (10, 1), "rounded towards failure");
    // Ten thousand successes weigh ten calls: five failures are half of the window again.
    let states = states_after(&mut connection, "k", &["FAIL"; 5]);
    assert_eq!(states.last().expect("five"), "open", "{states:?}");
}
