//! Who may configure a breaker, and what a configuration changes.

use std::collections::BTreeMap;

use redis::Connection;

use crate::asked::{Breaker, Look};
use crate::driven::{Say, start_driven};

/// The fields of the configuration alone.
fn config_of(look: &Look) -> BTreeMap<&str, &str> {
    look.0.iter().filter_map(|(name, value)| Some((name.strip_prefix("config.")?, value.as_str()))).collect()
}

/// The fields that differ, with what they are now.
fn changed<'a>(before: &'a Look, after: &'a Look) -> Vec<(&'a str, &'a str)> {
    let before = config_of(before);
    config_of(after).into_iter().filter(|(name, value)| before.get(name) != Some(value)).collect()
}

/// An option, and the fields it changes in a configuration of defaults.
const OPTIONS: &[(&str, &[(&str, &str)])] = &[
    ("WINDOW COUNT 7", &[("window", "count 7")]),
    ("WINDOW TIME 90s", &[("window", "time 90s")]),
    ("RATE 1", &[("rate", "1")]),
    ("SLOW 250ms", &[("slow", "250ms")]),
    ("SLOWRATE 30", &[("slowrate", "30")]),
    ("CONSECUTIVE 0", &[("consecutive", "0")]),
    ("MINCALLS 1000000", &[("mincalls", "1000000")]),
    ("OPEN 5s", &[("open", "5s")]),
    // The maximum rises with the open time.
    ("OPEN 90s", &[("max", "90s"), ("open", "90s")]),
    ("FACTOR 1.05 MAX 1h", &[("factor", "1.05"), ("max", "1h")]),
    ("MAX 1h", &[("max", "1h")]),
    ("PROBES 100", &[("probes", "100")]),
    ("SUCCESSES 1000", &[("successes", "1000")]),
    ("LEASE 10ms", &[("lease", "10ms")]),
    ("QUORUM 64", &[("quorum", "64")]),
    ("RAMP 1d", &[("ramp", "1d")]),
    ("IDLE 30d", &[("idle", "30d")]),
];

#[test]
fn config_changes_what_it_names_and_nothing_else() {
    let (_server, mut connection) = start_driven();
    let defaults = connection.look("none");
    for (option, fields) in OPTIONS {
        connection.say("DEL k");
        assert_eq!(connection.config(&format!("k {option}")), 1, "{option}");
        assert_eq!(changed(&defaults, &connection.look("k")), *fields, "{option}");
        assert_eq!(connection.config(&format!("k {option}")), 0, "{option}: the same again changes nothing");
        connection.config("k VERSION 4");
        assert_eq!(changed(&defaults, &connection.look("k")), *fields, "a version is no option");
        assert_eq!(connection.look("k").number("version"), 4);
    }
}

#[test]
fn config_of_several_options_adds_to_what_was_configured() {
    let (_server, mut connection) = start_driven();
    connection.admit("k RATE 10 PROBES 9");
    connection.config("k OPEN 5s RATE 20");
    connection.config("k LEASE 7s");
    let defaults = connection.look("none");
    let look = connection.look("k");
    let expected = [("lease", "7s"), ("open", "5s"), ("probes", "9"), ("rate", "20")];
    assert_eq!(changed(&defaults, &look), expected);
}

#[test]
fn options_of_admit_apply_only_to_unconfigured_keys() {
    let (_server, mut connection) = start_driven();
    connection.call("k", "OK");
    connection.admit("k CONSECUTIVE 2");
    assert_eq!(connection.look("k").number("config.consecutive"), 2, "counts are no configuration");
    connection.admit("k CONSECUTIVE 3");
    assert_eq!(connection.look("k").number("config.consecutive"), 2, "somebody else was first");
    connection.config("k CONSECUTIVE 4");
    connection.admit("k CONSECUTIVE 5");
    assert_eq!(connection.look("k").number("config.consecutive"), 4, "CONFIG wins");
    connection.admit("k VERSION 1 CONSECUTIVE 6");
    assert_eq!(connection.look("k").number("config.consecutive"), 6, "unless a later version comes");
    connection.config("k CONSECUTIVE 7");
    assert_eq!(connection.look("k").number("config.consecutive"), 7);
}

#[test]
fn options_of_admit_are_used_by_that_call() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 1 SUCCESSES 1 RAMP 1h OPEN 1s");
    connection.trip("k");
    connection.clock_at_ms(1_000);
    assert_eq!(connection.call("k", "OK").state, "ramping");
    let admission = connection.admit("k VERSION 1 RAMP 0");
    assert!(admission.admitted && admission.state == "closed", "a ramp of no length is over: {admission:?}");
}

#[test]
fn a_rolling_deploy_with_two_versions_never_flips_back() {
    let (_server, mut connection) = start_driven();
    let old = "k VERSION 1 CONSECUTIVE 3 OPEN 5s WINDOW COUNT 20";
    let new = "k VERSION 2 CONSECUTIVE 4 OPEN 7s WINDOW TIME 60s";
    connection.admit(old);
    let mut digest = None;
    for round in 0..40 {
        // Half of the fleet has the new version; each instance sends its own with every call.
        connection.admit(if round % 2 == 0 { new } else { old });
        let look = connection.look("k");
        let seen = ["config.consecutive", "config.open", "config.window", "version"].map(|field| look.text(field));
        assert_eq!(seen, ["4", "7s", "time 1m", "2"], "round {round}");
        let now = connection.digest("k");
        assert_eq!(*digest.get_or_insert(now.clone()), now, "nothing changes any more");
    }
    for round in 0..4 {
        let reply = connection.call(if round % 2 == 0 { old } else { new }, "FAIL");
        assert_eq!(reply.state == "open", round == 3, "the fourth failure trips it, by either version: {round}");
    }
    connection.admit(old).assert_denied("open", 7_000);
}

#[test]
fn unversioned_options_of_later_instances_are_ignored() {
    let (_server, mut connection) = start_driven();
    connection.admit("k CONSECUTIVE 2");
    let before = connection.digest("k");
    for _ in 0..10 {
        connection.admit("k CONSECUTIVE 9 WINDOW TIME 5s");
        connection.admit("k CONSECUTIVE 2");
        assert_eq!(connection.digest("k"), before);
    }
}

#[test]
fn admit_options_go_with_the_counts_configured_ones_stay() {
    let (_server, mut connection) = start_driven();
    connection.admit("brought CONSECUTIVE 3 IDLE 10s VERSION 5");
    connection.config("lasting CONSECUTIVE 3 IDLE 10s VERSION 5");
    for key in ["brought", "lasting"] {
        connection.call(key, "FAIL");
    }
    connection.clock_at_us(10_000_001);
    let fields = |look: &Look| ["config.consecutive", "version", "failures"].map(|field| look.number(field));
    assert_eq!(fields(&connection.look("brought")), [5, 0, 0]);
    assert_eq!(fields(&connection.look("lasting")), [3, 5, 0]);
    connection.admit("brought CONSECUTIVE 8");
    assert_eq!(connection.look("brought").number("config.consecutive"), 8, "anybody may configure it again");
}

/// Ten calls, four of them failures, the last two in a row.
fn with_counts(connection: &mut Connection, options: &str) {
    connection.say("DEL k");
    connection.config(&format!("k CONSECUTIVE 100 RATE 100 {options}"));
    connection.tally("k 0 me 1 OK 6 FAIL 4 RUN 2");
    assert_eq!(connection.look("k").number("calls"), 10);
}

#[test]
fn only_a_change_of_window_kind_empties_the_window() {
    let (_server, mut connection) = start_driven();
    for (before, after) in [("WINDOW COUNT 50", "WINDOW TIME 50s"), ("WINDOW TIME 50s", "WINDOW COUNT 50")] {
        with_counts(&mut connection, before);
        connection.config(&format!("k {after}"));
        let look = connection.look("k");
        assert_eq!((look.number("calls"), look.number("failures")), (0, 0), "{before} to {after}");
        assert_eq!(look.number("failures_in_a_row"), 2, "a run of failures is of no window");
        for kept in [before, "RATE 90", "PROBES 1", "SLOW 1s", "QUORUM 3", "IDLE 2h", "VERSION 3"] {
            with_counts(&mut connection, before);
            connection.config(&format!("k {kept}"));
            let look = connection.look("k");
            assert_eq!((look.number("calls"), look.number("failures")), (10, 4), "{kept}");
        }
    }
}

#[test]
fn reset_clears_all_but_the_configuration() {
    let (_server, mut connection) = start_driven();
    connection.config("k VERSION 3 CONSECUTIVE 1 OPEN 1s FACTOR 3 MAX 1h");
    let before = connection.look("k");
    connection.trip("k");
    connection.clock_at_ms(1_000);
    connection.call("k", "FAIL");
    for forced in [false, true] {
        if forced {
            connection.force("k OPEN ACTOR me");
        }
        let generation = connection.look("k").number("generation");
        assert_eq!(connection.integer("RES.BREAKER RESET k"), 1);
        let look = connection.look("k");
        assert_eq!(config_of(&look), config_of(&before));
        let counts = ["version", "calls", "failures", "failures_in_a_row", "trips"].map(|field| look.number(field));
        assert_eq!((look.state(), counts), ("closed", [3, 0, 0, 0, 0]));
        assert!(look.number("generation") > generation, "permits from before are stale");
    }
    assert_eq!(connection.call("k", "FAIL").retry_after_ms, 1_000, "the growth starts over");
    assert_eq!(connection.integer("RES.BREAKER RESET none"), 0);
    assert_eq!(connection.integer("EXISTS none"), 0);
}
