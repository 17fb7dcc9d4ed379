//! At maxmemory breakers that exist work on, and only what would create one is refused.

use redis::Connection;

use crate::asked::Breaker;
use crate::driven::{START_US, Say, start_driven};

/// From here on the server uses more than it may, and evicts nothing.
fn exhaust(connection: &mut Connection) {
    connection.say("SETRANGE filler 8000000 x");
    let used = connection.info_number("memory", "used_memory");
    connection.say(&format!("CONFIG SET maxmemory {} maxmemory-policy noeviction", used - 4_000_000));
    assert!(connection.refusal("SET plain text").starts_with("OOM "));
}

#[test]
fn breakers_that_exist_work_through_their_whole_life_at_maxmemory() {
    let (_server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 2 OPEN 1s SUCCESSES 1 RAMP 10s");
    connection.admit("brought WINDOW COUNT 10000 CONSECUTIVE 0 MINCALLS 9999");
    exhaust(&mut connection);
    assert_eq!(connection.call("k", "OK").said(), ("counted", "closed"));
    connection.trip("k");
    connection.admit("k").assert_denied("open", 1_000);
    connection.clock_at_ms(1_000);
    assert_eq!(connection.call("k", "OK").said(), ("counted", "ramping"));
    assert_eq!(connection.force("k METRICS ACTOR me").0, "metrics");
    assert_eq!(connection.tally("k 0 me 1 OK 9 FAIL 9 RUN 9").said(), ("counted", "metrics"));
    assert_eq!(connection.force("k AUTO").0, "closed");
    assert_eq!(connection.config("k WINDOW TIME 9s QUORUM 9"), 1);
    assert_eq!(connection.integer("RES.BREAKER RESET k"), 1);
    assert_eq!(connection.look("k").state(), "closed");
    assert_eq!(connection.tally("brought 0 me 1 OK 4000 FAIL 0").said(), ("counted", "closed"));
    assert_eq!(connection.look("brought").number("calls"), 4_000);
}

#[test]
fn a_new_breaker_is_refused_at_maxmemory() {
    let (_server, mut connection) = start_driven();
    exhaust(&mut connection);
    let permit = format!("0.{START_US:x}.0");
    for line in [
        "ADMIT new RATE 10".to_owned(),
        "ADMIT new VERSION 1".to_owned(),
        format!("REPORT new {permit} OK"),
        format!("REPORT new {permit} FAIL"),
        "TALLY new 0 me 1 OK 1 FAIL 0".to_owned(),
        "FORCE new OPEN".to_owned(),
        "CONFIG new RATE 10".to_owned(),
    ] {
        let error = connection.refusal(&format!("RES.BREAKER {line}"));
        assert!(error.starts_with("OOM "), "{line}: {error}");
        assert_eq!(connection.integer("EXISTS new"), 0, "{line}");
    }
    connection.say("CONFIG SET maxmemory 0");
    assert_eq!(connection.look("new").number("calls"), 0);
    assert_eq!(connection.tally("new 0 me 1 OK 1 FAIL 0").said(), ("counted", "closed"), "it was not heard before");
}

#[test]
fn what_creates_nothing_replies_at_maxmemory_even_without_a_key() {
    let (_server, mut connection) = start_driven();
    exhaust(&mut connection);
    let admission = connection.admit("new CALLER me");
    assert!(admission.admitted && admission.state == "closed");
    assert_eq!(connection.report("new", admission.permit(), "IGNORE").said(), ("ignored", "closed"));
    assert_eq!(connection.report("new", "rubbish", "FAIL").said(), ("unknown", "closed"));
    assert_eq!(connection.report("new", "1.2.3", "FAIL").said(), ("stale", "closed"));
    assert_eq!(connection.tally("new 0 me 1 OK 0 FAIL 0").said(), ("ignored", "closed"));
    assert_eq!(connection.force("new AUTO"), ("closed".to_owned(), 0));
    assert_eq!(connection.integer("RES.BREAKER RESET new"), 0);
    assert_eq!(connection.look("new").state(), "closed");
    assert_eq!(connection.integer("EXISTS new"), 0);
}

#[test]
fn a_breaker_with_a_minutes_window_takes_a_kilobyte() {
    let (_server, mut connection) = start_driven();
    for (key, window) in [("time", "WINDOW TIME 60s"), ("count", "WINDOW COUNT 100")] {
        connection.config(&format!("{key} {window} CONSECUTIVE 0 MINCALLS 1000000"));
        for seq in 0..60 {
            connection.clock_at_ms(seq * 1_000);
            connection.tally(&format!("{key} 0 me {seq} OK 50 FAIL 1"));
        }
        let bytes = connection.integer(&format!("MEMORY USAGE {key}"));
        println!("{key}: {bytes} bytes");
        assert!(bytes <= 1_024, "{key}: {bytes} bytes");
    }
}
