//! STATE says what ADMIT will do.

use fastrand::Rng;
use redis::Connection;

use crate::asked::{Breaker, Look};
use crate::driven::{Say, start_driven};
use crate::seed::seeded;

const STEPS: usize = 600;

/// One random thing that may befall a breaker.
fn befall(connection: &mut Connection, rng: &mut Rng, permits: &[String], seq: usize) -> String {
    let options = ["CONSECUTIVE 2", "PROBES 2", "SUCCESSES 1", "RAMP 5s", "RAMP 9s", "LEASE 2s", "OPEN 3s", "RATE 10"];
    let line = match rng.usize(..24) {
        0..=9 if !permits.is_empty() => {
            let outcome = ["OK", "OK", "FAIL", "FAIL", "CANCEL"][rng.usize(..5)];
            format!("REPORT k {} {outcome}", permits[permits.len() - 1 - rng.usize(..permits.len().min(4))])
        }
        10..=15 => format!("TALLY k 0 me {seq} OK {} FAIL {}", rng.u32(..3), rng.u32(..6)),
        16 => format!(
            "FORCE k {}",
            ["OPEN", "CLOSED", "METRICS FOR 2s", "OPEN FOR 3s", "OPEN FOR 2s THEN PROBE", "DISABLED"][rng.usize(..6)]
        ),
        17..=18 => "FORCE k AUTO".to_owned(),
        19 => format!("CONFIG k {}", options[rng.usize(..options.len())]),
        20 => "RESET k".to_owned(),
        _ => "STATE k".to_owned(),
    };
    connection.say(&format!("RES.BREAKER {line}"));
    line
}

/// The state ADMIT replies with: the time of an open circuit is over when somebody is let in.
fn state_after_admit(look: &Look) -> &str {
    if look.state() == "open" && look.number("admits") == 1 { "half-open" } else { look.state() }
}

#[test]
fn state_equals_what_admit_does_next() {
    let mut rng = seeded("walk");
    let (_server, mut connection) = start_driven();
    connection.config("k OPEN 5s LEASE 3s SUCCESSES 2 PROBES 2 RAMP 6s");
    let (mut now_us, mut permits, mut met) = (0, Vec::new(), std::collections::BTreeMap::new());
    for step in 0..STEPS {
        now_us += match rng.u32(..20) {
            0 => -(rng.i64(0..30_000_000)),
            1..=8 => rng.i64(0..4_000_000),
            9 => rng.i64(0..20_000_000),
            _ => 0,
        };
        connection.clock_at_us(now_us);
        let line = befall(&mut connection, &mut rng, &permits, step);
        let before = connection.digest("k");
        let look = connection.look("k");
        assert_eq!(connection.digest("k"), before, "looking changes nothing");
        let admission = connection.admit("k");
        let shown = format!("step {step} ({line}) at {now_us} us: {look:?} but {admission:?}");
        assert_eq!(admission.state, state_after_admit(&look), "{shown}");
        if look.state() == "ramping" {
            // By chance; STATE says whether it may be.
            assert_eq!(look.number("admits"), 1, "{shown}");
        } else {
            assert_eq!(admission.admitted as i64, look.number("admits"), "{shown}");
            assert_eq!(admission.retry_after_ms, look.number("retry_after_ms"), "{shown}");
        }
        if admission.state == look.state() {
            assert_eq!(admission.generation, look.number("generation"), "{shown}");
        }
        *met.entry((admission.state.clone(), admission.admitted)).or_insert(0) += 1;
        permits.extend(admission.permit);
    }
    println!("{met:?}");
    for state in ["closed", "open", "half-open"] {
        assert!(met.keys().any(|(met, _)| met == state), "{state} was never met: {met:?}");
    }
}

#[test]
fn state_of_a_missing_key_is_the_closed_default() {
    let (_server, mut connection) = start_driven();
    let look = connection.look("none");
    let numbers = ["generation", "admits", "retry_after_ms", "calls", "trips", "probes_out", "opened_at_ms", "version"];
    assert_eq!(numbers.map(|field| look.number(field)), [0, 1, 0, 0, 0, 0, 0, 0]);
    let config = ["window", "rate", "slow", "slowrate", "consecutive", "mincalls", "open", "factor", "max", "probes"];
    let config = config.map(|option| look.text(&format!("config.{option}")));
    assert_eq!(config, ["count 100", "50", "0", "100", "5", "10", "30s", "1", "30s", "3"]);
    let config = ["successes", "lease", "quorum", "ramp", "idle"].map(|option| look.text(&format!("config.{option}")));
    assert_eq!(config, ["3", "30s", "1", "0", "1h"]);
    assert_eq!(look.state(), "closed");
    let admission = connection.admit("none");
    assert_eq!((admission.admitted, admission.generation, admission.state.as_str()), (true, 0, "closed"));
    assert_eq!(connection.integer("EXISTS none"), 0, "neither creates anything");
}
