//! Malformed calls of RES.BREAKER, subcommand by subcommand.

use crate::engine::resp::{Words, typed, words};
use crate::malformed::{NEVER_A_NUMBER, assert_each_is_refused, filled, furnished};

/// Options that are counts: their name and one more than they may be.
const COUNTS: [(&str, &str); 9] = [
    ("VERSION", "9223372036854775808"),
    ("RATE", "101"),
    ("SLOWRATE", "101"),
    ("CONSECUTIVE", "10001"),
    ("MINCALLS", "1000001"),
    ("PROBES", "101"),
    ("SUCCESSES", "1001"),
    ("QUORUM", "65"),
    ("WINDOW COUNT", "10001"),
];
/// Options that are durations: likewise, and the last of them can be zero.
const DURATIONS: [(&str, &str); 7] = [
    ("SLOW", "25h"),
    ("OPEN", "25h"),
    ("MAX", "25h"),
    ("LEASE", "25h"),
    ("IDLE", "31d"),
    ("WINDOW TIME", "25h"),
    ("RAMP", "25h"),
];
const NEVER_A_FACTOR: [&[u8]; 13] =
    [b"", b"0", b"0.9", b"-1", b"101", b"100.001", b"1.0001", b"1.", b".5", b"1,5", b"NaN", b"1e1", b"\xff"];

/// Places for a text of at most 512 bytes.
const TEXTS: [(&str, &str); 6] = [
    ("RES.BREAKER ADMIT brk CALLER #", "CALLER"),
    ("RES.BREAKER REPORT brk # OK", "permit"),
    ("RES.BREAKER REPORT brk permit OK CORRELATION #", "CORRELATION"),
    ("RES.BREAKER TALLY brk 0 # 2 OK 1 FAIL 0", "caller"),
    ("RES.BREAKER FORCE brk OPEN ACTOR #", "ACTOR"),
    ("RES.BREAKER FORCE brk OPEN REASON #", "REASON"),
];

/// Other numbers.
const NUMBERS: [(&str, &str); 8] = [
    ("RES.BREAKER TALLY brk # caller 2 OK 1 FAIL 0", "generation"),
    ("RES.BREAKER TALLY brk 0 caller # OK 1 FAIL 0", "seq"),
    ("RES.BREAKER TALLY brk 0 caller 2 OK # FAIL 0", "OK"),
    ("RES.BREAKER TALLY brk 0 caller 2 OK 1 FAIL #", "FAIL"),
    ("RES.BREAKER TALLY brk 0 caller 2 OK 1 FAIL 0 SLOW #", "SLOW"),
    ("RES.BREAKER TALLY brk 0 caller 2 OK 1 FAIL 1 RUN #", "RUN"),
    ("RES.BREAKER REPORT brk permit OK DURATION #", "DURATION"),
    ("RES.BREAKER FORCE brk OPEN FOR #", "FOR"),
];

const CASES: [(&str, &str); 39] = [
    ("RES.BREAKER ADMIT", "missing key"),
    ("RES.BREAKER ADMIT brk CALLER", "missing CALLER"),
    ("RES.BREAKER ADMIT brk surplus", "unexpected argument 'surplus'"),
    ("RES.BREAKER ADMIT brk CALLER a CALLER b", "CALLER is given twice"),
    ("RES.BREAKER ADMIT brk RATE 10 RATE 10", "RATE is given twice"),
    ("RES.BREAKER ADMIT new WINDOW", "missing WINDOW"),
    ("RES.BREAKER ADMIT new WINDOW CALLS 5", "WINDOW must be COUNT n or TIME d"),
    ("RES.BREAKER ADMIT new WINDOW COUNT", "missing WINDOW COUNT"),
    ("RES.BREAKER ADMIT new WINDOW COUNT 5 WINDOW TIME 5s", "WINDOW is given twice"),
    ("RES.BREAKER ADMIT new OPEN 10s MAX 5s", "MAX must not be shorter than OPEN"),
    ("RES.BREAKER ADMIT new FACTOR 2", "FACTOR needs a MAX above OPEN"),
    ("RES.BREAKER ADMIT new RATE 0 CONSECUTIVE 0", "nothing could trip it"),
    ("RES.BREAKER CONFIG", "missing key"),
    ("RES.BREAKER CONFIG brk", "missing options"),
    ("RES.BREAKER CONFIG brk CALLER a", "unexpected argument 'CALLER'"),
    ("RES.BREAKER CONFIG brk OPEN 10s MAX 5s", "MAX must not be shorter than OPEN"),
    ("RES.BREAKER CONFIG brk RATE 0 CONSECUTIVE 0", "nothing could trip it"),
    ("RES.BREAKER REPORT", "missing key"),
    ("RES.BREAKER REPORT brk", "missing permit"),
    ("RES.BREAKER REPORT brk permit", "missing outcome"),
    ("RES.BREAKER REPORT brk permit MAYBE", "outcome must be OK, FAIL, IGNORE or CANCEL"),
    ("RES.BREAKER REPORT brk permit OK surplus", "unexpected argument 'surplus'"),
    ("RES.BREAKER REPORT brk permit OK DURATION 1 DURATION 1", "DURATION is given twice"),
    ("RES.BREAKER TALLY", "missing key"),
    ("RES.BREAKER TALLY brk 0 caller", "missing seq"),
    ("RES.BREAKER TALLY brk 0 caller 2", "missing OK"),
    ("RES.BREAKER TALLY brk 0 caller 2 OK 1", "missing FAIL"),
    ("RES.BREAKER TALLY brk 0 caller 2 OK 1 FAIL 1 OK 1", "OK is given twice"),
    ("RES.BREAKER TALLY brk 0 caller 2 OK 1 FAIL 1 SLOW 3", "SLOW can be at most OK + FAIL = 2"),
    ("RES.BREAKER TALLY brk 0 caller 2 OK 1 FAIL 1 RUN 2", "RUN can be at most FAIL = 1"),
    ("RES.BREAKER STATE", "missing key"),
    ("RES.BREAKER STATE brk surplus", "unexpected argument 'surplus'"),
    ("RES.BREAKER RESET", "missing key"),
    ("RES.BREAKER RESET brk surplus", "unexpected argument 'surplus'"),
    ("RES.BREAKER FORCE", "missing key"),
    ("RES.BREAKER FORCE brk", "missing state"),
    ("RES.BREAKER FORCE brk AJAR", "state must be OPEN, CLOSED, DISABLED, METRICS or AUTO"),
    ("RES.BREAKER FORCE brk AUTO FOR 1s", "FOR cannot be used with AUTO"),
    ("RES.BREAKER FORCE brk OPEN FOR 367d", "FOR"),
];

/// `name value` after a call that takes options.
fn option(call: &str, name: &str, value: &[u8]) -> Words {
    filled(&format!("{call} {name} #"), value)
}

#[test]
fn a_malformed_breaker_call_names_the_argument() {
    let (_server, mut client) = furnished();
    let huge = [vec![b'9'; 1 << 20], vec![b'x'; 1 << 20], vec![0; 1 << 20]];
    let never = || NEVER_A_NUMBER.iter().copied().chain(huge.iter().map(Vec::as_slice));
    let mut calls: Vec<(Words, &str)> = Vec::new();
    for call in ["RES.BREAKER ADMIT new", "RES.BREAKER CONFIG brk"] {
        for (name, above) in COUNTS {
            let values = never().chain([b"-1".as_slice(), above.as_bytes()]);
            calls.extend(values.map(|value| (option(call, name, value), name)));
        }
        for (name, above) in DURATIONS {
            let values = never().chain([b"-1s".as_slice(), b"1w", above.as_bytes()]);
            calls.extend(values.map(|value| (option(call, name, value), name)));
        }
        calls.extend(NEVER_A_FACTOR.map(|value| (option(call, "FACTOR", value), "FACTOR")));
        calls.push((option(call, "FACTOR", &huge[0]), "FACTOR"));
    }
    for (template, name) in NUMBERS {
        calls.extend(never().chain([b"-1".as_slice()]).map(|value| (filled(template, value), name)));
    }
    for (template, name) in TEXTS {
        calls.extend([513, 1 << 20].map(|len| (filled(template, &vec![0xff; len]), name)));
    }
    calls.extend(CASES.iter().map(|(line, expected)| (typed(line), *expected)));
    calls.push((words(["RES.BREAKER", "FORCE", "brk", ""]), "state must be"));
    calls.push((words(["RES.BREAKER", "REPORT", "brk", "", "\0"]), "outcome must be"));
    assert_each_is_refused(&mut client, &calls);
}

#[test]
fn a_container_without_a_known_subcommand_is_an_error() {
    let (_server, mut client) = furnished();
    for call in [words(["RES.BREAKER"]), words(["RES.BREAKER", "NOPE", "brk"]), words(["RES.BREAKER", ""])] {
        assert!(client.call(&call).is_error(), "{call:?}");
    }
    assert!(!client.call(&typed("RES.BREAKER HELP")).is_error());
}
