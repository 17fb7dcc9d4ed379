//! Bad input: refused whole, with the option named, and nothing half-applied.

use redis::Connection;
use resil_harness::error_text;

use crate::asked::Breaker;
use crate::driven::{START_US, Say, start_driven};

/// Options of ADMIT and CONFIG with what the error must name.
const BAD_OPTIONS: &[(&str, &str)] = &[
    ("WINDOW", "missing WINDOW"),
    ("WINDOW COUNT", "missing WINDOW COUNT"),
    ("WINDOW COUNT 0", "WINDOW COUNT"),
    ("WINDOW COUNT 10001", "WINDOW COUNT"),
    ("WINDOW COUNT ten", "WINDOW COUNT"),
    ("WINDOW TIME 0", "WINDOW TIME"),
    ("WINDOW TIME 99ms", "WINDOW TIME"),
    ("WINDOW TIME 25h", "WINDOW TIME"),
    ("WINDOW SLIDING 5", "WINDOW must be COUNT n or TIME d, got 'SLIDING'"),
    ("WINDOW 100", "WINDOW must be"),
    ("RATE 101", "RATE"),
    ("RATE -1", "RATE"),
    ("RATE 50%", "RATE"),
    ("RATE NaN", "RATE"),
    ("RATE 1e1", "RATE"),
    ("RATE", "missing RATE"),
    ("SLOW 0", "SLOW"),
    ("SLOW 25h", "SLOW"),
    ("SLOWRATE 101", "SLOWRATE"),
    ("SLOWRATE 0.5", "SLOWRATE"),
    ("CONSECUTIVE -1", "CONSECUTIVE"),
    ("CONSECUTIVE 10001", "CONSECUTIVE"),
    ("MINCALLS 0", "MINCALLS"),
    ("MINCALLS 1000001", "MINCALLS"),
    ("OPEN 0", "OPEN"),
    ("OPEN 999us", "OPEN"),
    ("OPEN 25h", "OPEN"),
    ("OPEN 5parsecs", "OPEN"),
    ("FACTOR 0.5", "FACTOR"),
    ("FACTOR 101", "FACTOR"),
    ("FACTOR 1.0001", "FACTOR"),
    ("FACTOR x", "FACTOR"),
    ("FACTOR 2", "FACTOR needs a MAX above OPEN"),
    ("OPEN 1m FACTOR 1.5 MAX 1m", "FACTOR needs a MAX above OPEN"),
    ("MAX 0", "MAX"),
    ("OPEN 10s MAX 5s", "MAX must not be shorter than OPEN"),
    ("PROBES 0", "PROBES"),
    ("PROBES 101", "PROBES"),
    ("SUCCESSES 0", "SUCCESSES"),
    ("SUCCESSES 1001", "SUCCESSES"),
    ("LEASE 9ms", "LEASE"),
    ("LEASE 25h", "LEASE"),
    ("QUORUM 0", "QUORUM"),
    ("QUORUM 65", "QUORUM"),
    ("RAMP -1", "RAMP"),
    ("RAMP 25h", "RAMP"),
    ("IDLE 999ms", "IDLE"),
    ("IDLE 31d", "IDLE"),
    ("VERSION 0", "VERSION"),
    ("VERSION 9223372036854775808", "VERSION"),
    ("RATE 0 CONSECUTIVE 0", "nothing could trip it"),
    ("RATE 0 CONSECUTIVE 0 SLOW 1s SLOWRATE 0", "nothing could trip it"),
    ("LEASE 5s LEASE 5s", "LEASE is given twice"),
    ("WINDOW COUNT 5 WINDOW TIME 5s", "WINDOW is given twice"),
    ("TRESHOLD 5", "'TRESHOLD'"),
    ("5", "'5'"),
];

/// The rest of a call on the key `#`, and what the error must name; `{permit}` is a good one.
const BAD_CALLS: &[(&str, &str)] = &[
    ("ADMIT", "missing key"),
    ("ADMIT # CALLER", "missing CALLER"),
    ("ADMIT # CALLER a CALLER b", "CALLER is given twice"),
    ("ADMIT # surplus", "'surplus'"),
    ("REPORT", "missing key"),
    ("REPORT #", "missing permit"),
    ("REPORT # {permit}", "missing outcome"),
    ("REPORT # {permit} MAYBE", "outcome must be OK, FAIL, IGNORE or CANCEL, got 'MAYBE'"),
    ("REPORT # {permit} FAIL DURATION -1", "DURATION"),
    ("REPORT # {permit} FAIL DURATION", "missing DURATION"),
    ("REPORT # {permit} FAIL DURATION 367d", "DURATION"),
    ("REPORT # {permit} FAIL DURATION 1 DURATION 1", "DURATION is given twice"),
    ("REPORT # {permit} FAIL CORRELATION", "missing CORRELATION"),
    ("REPORT # {permit} FAIL OK", "'OK'"),
    ("TALLY", "missing key"),
    ("TALLY #", "missing generation"),
    ("TALLY # 0", "missing caller"),
    ("TALLY # 0 me", "missing seq"),
    ("TALLY # 0 me 9", "missing OK"),
    ("TALLY # 0 me 9 OK 1", "missing FAIL"),
    ("TALLY # 0 me 9 FAIL 1", "missing OK"),
    ("TALLY # -1 me 9 OK 1 FAIL 1", "generation"),
    ("TALLY # 0 me nine OK 1 FAIL 1", "seq"),
    ("TALLY # 0 me 9 OK 10001 FAIL 1", "OK"),
    ("TALLY # 0 me 9 OK 1 FAIL -1", "FAIL"),
    ("TALLY # 0 me 9 OK 1 FAIL 1 SLOW 3", "SLOW can be at most OK + FAIL = 2"),
    ("TALLY # 0 me 9 OK 1 FAIL 1 RUN 2", "RUN can be at most FAIL = 1"),
    ("TALLY # 0 me 9 OK 1 FAIL 1 FAIL 1", "FAIL is given twice"),
    ("TALLY # 0 me 9 OK 1 FAIL 1 LATE 1", "'LATE'"),
    ("STATE", "missing key"),
    ("STATE # surplus", "'surplus'"),
    ("FORCE", "missing key"),
    ("FORCE #", "missing state"),
    ("FORCE # AJAR", "state must be OPEN, CLOSED, DISABLED, METRICS or AUTO, got 'AJAR'"),
    ("FORCE # HALF-OPEN", "state must be"),
    ("FORCE # OPEN FOR 0", "FOR"),
    ("FORCE # OPEN FOR ever", "FOR"),
    ("FORCE # OPEN FOR 367d", "FOR"),
    ("FORCE # AUTO FOR 1s", "FOR cannot be used with AUTO"),
    ("FORCE # OPEN ACTOR", "missing ACTOR"),
    ("FORCE # OPEN ACTOR a ACTOR a", "ACTOR is given twice"),
    ("FORCE # OPEN BECAUSE", "'BECAUSE'"),
    ("RESET", "missing key"),
    ("RESET # surplus", "'surplus'"),
    ("CONFIG", "missing key"),
    ("CONFIG #", "missing options"),
    ("CONFIG # CALLER me", "'CALLER'"),
];

/// `line` on `key` is refused with an error that names `named`, and the key is what it was.
#[track_caller]
fn assert_refused(connection: &mut Connection, line: &str, key: &str, named: &str) {
    let before = connection.digest(key);
    let error = connection.refusal(&format!("RES.BREAKER {line}"));
    assert!(error.starts_with("ERR ") && error.contains(named), "{line}: {error}");
    assert_eq!(connection.digest(key), before, "{line} was half applied");
}

#[test]
fn bad_options_are_refused_whole_wherever_they_may_be_given() {
    let (_server, mut connection) = start_driven();
    connection.config("lasting VERSION 3 RATE 20");
    connection.admit("brought VERSION 3 RATE 20");
    connection.trip("open");
    for (bad, named) in BAD_OPTIONS {
        // Good options on both sides: none of them may stick. The version is above the stored one, so all would apply.
        let newer = if bad.contains("VERSION") { "" } else { " VERSION 9" };
        let window = if bad.contains("SUCCESSES") { " PROBES 3" } else { " SUCCESSES 7" };
        for key in ["none", "lasting", "brought", "open"] {
            assert_refused(&mut connection, &format!("ADMIT {key}{newer}{window} {bad}"), key, named);
            assert_refused(&mut connection, &format!("CONFIG {key}{newer}{window} {bad}"), key, named);
        }
    }
    assert_eq!(connection.integer("EXISTS none"), 0);
    let look = connection.look("lasting");
    assert_eq!(["version", "config.rate", "config.successes"].map(|field| look.number(field)), [3, 20, 3]);
}

#[test]
fn bad_calls_of_every_subcommand_are_refused_and_change_nothing() {
    let (_server, mut connection) = start_driven();
    let permit = format!("0.{START_US:x}.0");
    connection.call("k", "FAIL");
    connection.config("forced RATE 7");
    connection.force("forced METRICS ACTOR me");
    for (call, named) in BAD_CALLS {
        for key in ["none", "k", "forced"] {
            let line = call.replace('#', key).replace("{permit}", &permit);
            assert_refused(&mut connection, &line, key, named);
        }
    }
    assert_eq!(connection.integer("EXISTS none"), 0);
    assert_eq!(connection.look("k").number("failures"), 1);
    assert_eq!(connection.info_number("resil", "internal_errors"), 0);
}

#[test]
fn bad_options_that_would_not_apply_are_refused_too() {
    let (_server, mut connection) = start_driven();
    connection.config("k VERSION 3 MAX 1h OPEN 1h");
    for (bad, named) in BAD_OPTIONS {
        assert_refused(&mut connection, &format!("ADMIT k {bad}"), "k", named);
    }
    assert!(connection.admit("k OPEN 30s MAX 40s").admitted, "good ones are not held against the stored ones");
}

#[test]
fn texts_beyond_the_limit_are_refused_by_name() {
    let (_server, mut connection) = start_driven();
    for (line, named) in [
        ("ADMIT k CALLER #", "CALLER"),
        ("REPORT k # OK", "permit"),
        ("REPORT k permit OK CORRELATION #", "CORRELATION"),
        ("TALLY k 0 # 1 OK 1 FAIL 0", "caller"),
        ("FORCE k OPEN ACTOR #", "ACTOR"),
        ("FORCE k OPEN REASON #", "REASON"),
    ] {
        let (longest, too_long) = ("x".repeat(512), "x".repeat(513));
        connection.say(&format!("RES.BREAKER {}", line.replace('#', &longest)));
        assert_refused(&mut connection, &line.replace('#', &too_long), "k", named);
    }
}

#[test]
fn errors_show_what_was_given_in_one_printable_line() {
    let (_server, mut connection) = start_driven();
    for given in [b"\r\nOK\r\n".as_slice(), b"\0\xff\x1b[31m", &[b'9'; 5_000]] {
        let error = error_text(&mut connection, &[b"RES.BREAKER".as_slice(), b"CONFIG", b"k", b"RATE", given]);
        assert!(error.contains("RATE") && error.len() < 200, "{error}");
        assert!(error.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{error:?}");
    }
}

const FOREIGN: &[&str] = &[
    "SET # text",
    "RPUSH # a",
    "HSET # a 1",
    "SADD # a",
    "ZADD # 1 a",
    "XADD # * a 1",
    "RES.GCRA # 10 1h",
    "RES.WINDOW # 10 1h",
];

#[test]
fn every_subcommand_replies_wrongtype_on_a_key_of_another_type() {
    let (_server, mut connection) = start_driven();
    for (index, fill) in FOREIGN.iter().enumerate() {
        let key = format!("foreign:{index}");
        connection.say(&fill.replace('#', &key));
        let before = connection.digest(&key);
        for call in [
            "ADMIT #",
            "ADMIT # RATE 10",
            "REPORT # 0.0.0 FAIL",
            "TALLY # 0 me 1 OK 1 FAIL 0",
            "STATE #",
            "FORCE # OPEN",
            "FORCE # AUTO",
            "RESET #",
            "CONFIG # RATE 10",
        ] {
            let error = connection.refusal(&format!("RES.BREAKER {}", call.replace('#', &key)));
            assert!(error.starts_with("WRONGTYPE "), "{fill}, {call}: {error}");
        }
        assert_eq!(connection.digest(&key), before, "{fill}");
    }
}

#[test]
fn every_other_command_replies_wrongtype_on_a_breaker() {
    let (_server, mut connection) = start_driven();
    connection.call("k", "FAIL");
    let before = connection.digest("k");
    for line in [
        "RES.GCRA k 10 1h",
        "RES.GCRA k 10 1h REFUND 1",
        "RES.GCRA.PEEK k 10 1h",
        "RES.MGCRA 1 other 10 1h 10 k 10 1h 10",
        "RES.WINDOW k 10 1h",
        "RES.WINDOW.PEEK k 10 1h",
        "CL.THROTTLE k 9 10 60",
        "GET k",
        "LPUSH k a",
        "HGETALL k",
        "INCR k",
    ] {
        let error = connection.refusal(line);
        assert!(error.starts_with("WRONGTYPE "), "{line}: {error}");
    }
    assert_eq!((connection.digest("k"), connection.integer("DBSIZE")), (before, 1));
}
