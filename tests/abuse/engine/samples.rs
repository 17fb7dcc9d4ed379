//! Real state of every kind, made by the commands themselves.

use std::time::{SystemTime, UNIX_EPOCH};

use super::resp::{Client, Reply};
use super::server_state::must;
use super::waited_samples::waited;

/// Payloads of DUMP. Limits: a packed tier, large numbers, a reservation, several tiers, as many as a key can hold.
/// Windows: logs of one, some and many entries. Breakers: configured only, counting calls and counting time, open,
/// half-open, ramping, forced. Then what `waited` makes. The server must have been loaded with `test-clock yes`.
pub fn real_payloads(client: &mut Client) -> Vec<Vec<u8>> {
    let now_us = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_micros() as i64;
    must(client, "FLUSHALL");
    set_clock(client, now_us);
    let names = [limits(client), windows(client, now_us), breakers(client, now_us), waited(client, now_us)].concat();
    names.iter().map(|name| must(client, &format!("DUMP {name}")).bytes()).collect()
}

fn limits(client: &mut Client) -> Vec<&'static str> {
    must(client, "RES.GCRA packed 10 1h COST 3");
    must(client, "RES.GCRA large 1000000000 366d COST 999999999");
    for _ in 0..5 {
        must(client, "RES.GCRA reserved 4 1h BURST 2 RESERVE 1d");
    }
    must(client, "RES.GCRA three 7 1s BURST 70000 AND 100 1h AND 1000 1d COST 7");
    for offset in [0, 8] {
        let tiers: Vec<String> = (1..=8).map(|tier| format!("10 {}h", tier + offset)).collect();
        must(client, &format!("RES.GCRA sixteen {}", tiers.join(" AND ")));
    }
    vec!["packed", "large", "reserved", "three", "sixteen"]
}

fn windows(client: &mut Client, now_us: i64) -> Vec<&'static str> {
    must(client, "RES.WINDOW one 5 1h");
    for (name, entries) in [("some", 10), ("many", 700)] {
        for step in 0..entries {
            set_clock(client, now_us + step * 1_001);
            must(client, &format!("RES.WINDOW {name} 100000 1h COST {}", 1 + step % 200));
        }
    }
    vec!["one", "some", "many"]
}

fn breakers(client: &mut Client, now_us: i64) -> Vec<&'static str> {
    set_clock(client, now_us);
    must(client, "RES.BREAKER CONFIG configured VERSION 7 OPEN 1m FACTOR 2.5 MAX 1h");
    must(client, "RES.BREAKER CONFIG counting QUORUM 5 SLOW 1s CONSECUTIVE 0");
    must(client, "RES.BREAKER CONFIG timing WINDOW TIME 10m QUORUM 5 MINCALLS 1000");
    for caller in 0..9 {
        for name in ["counting", "timing"] {
            set_clock(client, now_us + caller * 10_000_000);
            must(client, &format!("RES.BREAKER TALLY {name} 0 caller-{caller} {caller} OK 9 FAIL 2 SLOW 3 RUN 1"));
        }
    }
    for name in ["open", "half-open", "ramping"] {
        must(client, &format!("RES.BREAKER CONFIG {name} CONSECUTIVE 1 SUCCESSES 2 RAMP 1h FACTOR 2 MAX 1h"));
        must(client, &format!("RES.BREAKER TALLY {name} 0 caller 1 OK 0 FAIL 1 RUN 1"));
    }
    set_clock(client, now_us + 200_000_000);
    for name in ["half-open", "ramping", "ramping"] {
        probe(client, name);
    }
    must(client, "RES.BREAKER ADMIT half-open");
    must(client, "RES.BREAKER FORCE forced OPEN FOR 1h ACTOR somebody REASON maintenance");
    must(client, "RES.BREAKER FORCE forced-for-good DISABLED");
    must(client, "RES.BREAKER FORCE tripped-by-hand OPEN FOR 1h THEN PROBE ACTOR somebody");
    let forced = ["forced", "forced-for-good", "tripped-by-hand"];
    ["configured", "counting", "timing", "open", "half-open", "ramping"].into_iter().chain(forced).collect()
}

/// Sends a probe and brings it back with success.
fn probe(client: &mut Client, name: &str) {
    let Reply::Array(admission) = must(client, &format!("RES.BREAKER ADMIT {name}")) else { panic!("an array") };
    must(client, &format!("RES.BREAKER REPORT {name} {} OK", admission[2].text()));
}

pub(super) fn set_clock(client: &mut Client, us: i64) {
    must(client, &format!("RES._CLOCK {us}"));
}
