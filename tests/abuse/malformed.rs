//! Malformed calls, command by command: each is refused with a line that names the argument, and nothing changes.

use resil_harness::{Options, Server};

use crate::engine::asked::check_error_line;
use crate::engine::resp::{Client, Reply, Words, shown, typed, words};
use crate::engine::server_state::{Fingerprint, assert_no_internal_errors, counter, must};

/// A good call for each place that takes a number, and the name its refusal must give.
const COUNTS: [(&str, &str); 18] = [
    ("RES.GCRA gcr # 1s", "limit"),
    ("RES.GCRA gcr 10 1s BURST #", "BURST"),
    ("RES.GCRA gcr 10 1s AND # 1m", "limit"),
    ("RES.GCRA gcr 10 1s AND 10 1m BURST #", "BURST"),
    ("RES.GCRA gcr 10 1s COST #", "COST"),
    ("RES.GCRA gcr 10 1s UPTO #", "UPTO"),
    ("RES.GCRA gcr 10 1s REFUND #", "REFUND"),
    ("RES.GCRA.PEEK gcr # 1s", "limit"),
    ("RES.GCRA.PEEK gcr 10 1s BURST #", "BURST"),
    ("RES.MGCRA # gcr 10 1s 10", "cost"),
    ("RES.MGCRA 1 gcr # 1s 10", "limit"),
    ("RES.MGCRA 1 gcr 10 1s #", "burst"),
    ("RES.MGCRA 1 gcr 10 1s 10 other 10 1s #", "burst"),
    ("RES.WINDOW win # 1s", "limit"),
    ("RES.WINDOW win 10 1s COST #", "COST"),
    ("RES.WINDOW win 10 1s UPTO #", "UPTO"),
    ("RES.WINDOW.PEEK win # 1s", "limit"),
    ("CL.THROTTLE gcr 15 # 60", "count"),
];

/// Likewise for durations.
const DURATIONS: [(&str, &str); 7] = [
    ("RES.GCRA gcr 10 #", "period"),
    ("RES.GCRA gcr 10 1s AND 10 #", "period"),
    ("RES.GCRA gcr 10 1s RESERVE #", "RESERVE"),
    ("RES.GCRA.PEEK gcr 10 #", "period"),
    ("RES.MGCRA 1 gcr 10 # 10", "period"),
    ("RES.WINDOW win 10 #", "period"),
    ("RES.WINDOW.PEEK win 10 #", "period"),
];

/// Numbers of CL.THROTTLE that may be zero, or negative.
const WIDER_COUNTS: [(&str, &str); 3] = [
    ("CL.THROTTLE gcr # 30 60", "max_burst"),
    ("CL.THROTTLE gcr 15 30 #", "period_seconds"),
    ("CL.THROTTLE gcr 15 30 60 #", "quantity"),
];

/// What is not a number, or not one that can be meant.
pub const NEVER_A_NUMBER: [&[u8]; 21] = [
    b"",
    b" ",
    b"-",
    b"+1",
    b" 1",
    b"1 ",
    b"01",
    b"-0",
    b"1.0",
    b"1e3",
    b"0x10",
    b"NaN",
    b"inf",
    b"one",
    b"1\0",
    b"\0",
    b"\xff\xfe",
    b"\xd9\xa1",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"1\r\n",
];
const NEVER_A_COUNT: [&[u8]; 5] = [b"0", b"-1", b"1000000001", b"9223372036854775807", b"-9223372036854775808"];
const NEVER_A_DURATION: [&[u8]; 10] =
    [b"0", b"0s", b"-1s", b"1.5s", b"1w", b"1ss", b"s", b"367d", b"99999999999999999999d", b"1 s"];

/// The rest: what is missing, surplus, given twice, or cannot be together.
const CASES: [(&str, &str); 47] = [
    ("RES.GCRA", "missing key"),
    ("RES.GCRA gcr", "missing limit"),
    ("RES.GCRA gcr 10", "missing period"),
    ("RES.GCRA gcr 10 1s BURST", "missing BURST"),
    ("RES.GCRA gcr 10 1s AND", "missing limit"),
    ("RES.GCRA gcr 10 1s AND 10", "missing period"),
    ("RES.GCRA gcr 10 1s COST", "missing COST"),
    ("RES.GCRA gcr 10 1s UPTO", "missing UPTO"),
    ("RES.GCRA gcr 10 1s RESERVE", "missing RESERVE"),
    ("RES.GCRA gcr 10 1s REFUND", "missing REFUND"),
    ("RES.GCRA gcr 10 1s 5", "unexpected argument '5'"),
    ("RES.GCRA gcr 10 1s COSTS 5", "unexpected argument 'COSTS'"),
    ("RES.GCRA gcr 10 1s COST 5 surplus", "unexpected argument 'surplus'"),
    ("RES.GCRA gcr 10 1s BURST 5 BURST 5", "BURST"),
    ("RES.GCRA gcr 10 1s COST 1 COST 1", "COST"),
    ("RES.GCRA gcr 10 1s COST 1 UPTO 1", "UPTO"),
    ("RES.GCRA gcr 10 1s REFUND 1 RESERVE 1s", "RESERVE"),
    ("RES.GCRA gcr 10 1s AND 20 1000ms", "the period 1s twice"),
    ("RES.GCRA gcr 1 366d BURST 11", "too large for this rate"),
    ("RES.GCRA gcr 10 1s AND 1 366d BURST 1000000000", "too large for this rate"),
    ("RES.GCRA gcr 1 1s AND 1 2s AND 1 3s AND 1 4s AND 1 5s AND 1 6s AND 1 7s AND 1 8s AND 1 9s", "at most 8 tiers"),
    ("RES.GCRA gcr 10 1s RESERVE 86400001", "RESERVE"),
    ("RES.GCRA.PEEK", "missing key"),
    ("RES.GCRA.PEEK gcr 10 1s COST 1", "unexpected argument 'COST'"),
    ("RES.GCRA.PEEK gcr 10 1s BURST 5 BURST 5", "BURST"),
    ("RES.GCRA.PEEK gcr 1 366d BURST 11", "too large for this rate"),
    ("RES.MGCRA", "missing cost"),
    ("RES.MGCRA 1", "missing key"),
    ("RES.MGCRA 1 gcr", "missing limit"),
    ("RES.MGCRA 1 gcr 10 1s", "missing burst"),
    ("RES.MGCRA 1 gcr 10 1s 10 other", "missing limit"),
    ("RES.MGCRA 1 gcr 10 1s 10 gcr 20 1m 20", "key 'gcr' is named twice"),
    ("RES.MGCRA 1 gcr 1 366d 11", "too large for this rate"),
    ("RES.WINDOW", "missing key"),
    ("RES.WINDOW win 10", "missing period"),
    ("RES.WINDOW win 100001 1s", "limit"),
    ("RES.WINDOW win 10 1s BURST 5", "unexpected argument 'BURST'"),
    ("RES.WINDOW win 10 1s COST 1 COST 1", "COST"),
    ("RES.WINDOW win 10 1s COST 1 UPTO 1", "UPTO"),
    ("RES.WINDOW win 10 1s REFUND 1", "unexpected argument 'REFUND'"),
    ("RES.WINDOW.PEEK win 10 1s COST 1", "unexpected argument 'COST'"),
    ("CL.THROTTLE", "missing key"),
    ("CL.THROTTLE gcr 15 30", "missing period_seconds"),
    ("CL.THROTTLE gcr 15 30 60 1 1", "unexpected argument '1'"),
    ("CL.THROTTLE gcr -1 30 60", "max_burst"),
    ("CL.THROTTLE gcr 15 30 0", "period_seconds"),
    ("CL.THROTTLE gcr 15 1 31622400 1000000001", "quantity"),
];

/// Commands against keys of other types.
const WRONG_TYPES: [&str; 14] = [
    "RES.GCRA # 10 1s",
    "RES.GCRA # 10 1s REFUND 1",
    "RES.GCRA.PEEK # 10 1s",
    "RES.MGCRA 1 # 10 1s 10",
    "RES.WINDOW # 10 1s",
    "RES.WINDOW.PEEK # 10 1s",
    "CL.THROTTLE # 15 30 60",
    "RES.BREAKER ADMIT #",
    "RES.BREAKER REPORT # permit OK",
    "RES.BREAKER TALLY # 0 caller 1 OK 1 FAIL 0",
    "RES.BREAKER STATE #",
    "RES.BREAKER FORCE # OPEN",
    "RES.BREAKER RESET #",
    "RES.BREAKER CONFIG # OPEN 1s",
];

/// A server with one key of every type, none of which expires during the test.
pub fn furnished() -> (Server, Client) {
    let server = Server::fresh();
    let mut client = Client::new(&server);
    for line in [
        "RES.GCRA gcr 10 1d COST 4",
        "RES.GCRA tiers 10 1d AND 100 2d",
        "RES.WINDOW win 10 1d COST 4",
        "RES.BREAKER CONFIG brk OPEN 1m",
        "RES.BREAKER TALLY brk 0 caller 1 OK 3 FAIL 1",
        "SET string text",
        "SET empty x",
        "SETRANGE nul 3 x",
        "RPUSH list a",
        "HSET hash f v",
        "SADD set a",
        "ZADD zset 1 a",
        "XADD stream * f v",
    ] {
        must(&mut client, line);
    }
    assert!(!client.call(&words(["SET", "empty", ""])).is_error());
    (server, client)
}

/// The call with `#` replaced.
pub fn filled(template: &str, value: &[u8]) -> Words {
    typed(template).into_iter().map(|word| if word == b"#" { value.to_vec() } else { word }).collect()
}

#[test]
fn a_malformed_call_names_the_argument_and_changes_nothing() {
    let (_server, mut client) = furnished();
    let mut calls: Vec<(Words, &str)> = Vec::new();
    let huge = [vec![b'9'; 1 << 20], vec![b'x'; 1 << 20], vec![0; 1 << 20]];
    let huge: Vec<&[u8]> = huge.iter().map(Vec::as_slice).collect();
    let mut fill = |templates: &[(&'static str, &'static str)], values: &[&[&[u8]]]| {
        for (template, name) in templates {
            calls.extend(values.iter().copied().flatten().map(|value| (filled(template, value), *name)));
        }
    };
    fill(&COUNTS, &[&NEVER_A_NUMBER, &NEVER_A_COUNT, &huge]);
    fill(&WIDER_COUNTS, &[&NEVER_A_NUMBER, &[b"1000000001", b"9223372036854775807"], &huge]);
    fill(&DURATIONS, &[&NEVER_A_NUMBER, &NEVER_A_DURATION, &huge]);
    calls.extend(CASES.iter().map(|(line, expected)| (typed(line), *expected)));
    let keys: Vec<String> = (0..129).map(|key| format!("new:{key} 10 1s 10")).collect();
    calls.push((typed(&format!("RES.MGCRA 1 {}", keys.join(" "))), "at most 128 keys"));
    let surplus = words(["RES.GCRA", "gcr", "10", "1s"].into_iter().chain(std::iter::repeat_n("surplus", 10_000)));
    calls.push((surplus, "unexpected argument 'surplus'"));

    assert_each_is_refused(&mut client, &calls);
}

/// Sends each call and holds its refusal against what it must say; afterwards everything is as before.
pub fn assert_each_is_refused(client: &mut Client, calls: &[(Words, &str)]) {
    let before = Fingerprint::of(client);
    let refused_before = counter(client, "requests_refused");
    for (call, expected) in calls {
        let Reply::Error(line) = client.call(call) else { panic!("not refused: {}", shown(call)) };
        let text = String::from_utf8_lossy(&line);
        check_error_line(&line).unwrap_or_else(|broken| panic!("{broken}: {text:?} for {}", shown(call)));
        assert!(text.starts_with("ERR "), "{text:?} for {}", shown(call));
        assert!(text.contains(expected), "{text:?} does not say {expected:?} for {}", shown(call));
    }
    assert_eq!(Fingerprint::of(client), before, "nothing changed");
    let refused = counter(client, "requests_refused") - refused_before;
    assert_eq!(refused, calls.len() as i64, "each was counted");
    assert_no_internal_errors(client);
}

#[test]
fn the_test_clock_exists_on_request_and_checks_input() {
    let (_server, mut client) = furnished();
    assert!(client.typed("RES._CLOCK 1").text().to_lowercase().contains("unknown command"));
    let server = Server::start(Options::default().module_args(["test-clock", "yes"]));
    let mut client = Client::new(&server);
    let beyond = ["-1", "9007199254740992", "9223372036854775808", "", "now", "1.5"];
    let mut calls: Vec<(Words, &str)> = beyond.map(|us| (words(["RES._CLOCK", us]), "microseconds")).to_vec();
    calls.push((typed("RES._CLOCK"), "missing microseconds"));
    calls.push((typed("RES._CLOCK 1 2"), "unexpected argument '2'"));
    assert_each_is_refused(&mut client, &calls);
}

#[test]
fn a_key_of_another_type_is_refused_and_stays() {
    let (_server, mut client) = furnished();
    let before = Fingerprint::of(&mut client);
    for template in WRONG_TYPES {
        let foreign = if template.starts_with("RES.WINDOW") || template.contains("BREAKER") { "gcr" } else { "win" };
        let other = if template.contains("BREAKER") { "win" } else { "brk" };
        for key in ["string", "empty", "nul", "list", "hash", "set", "zset", "stream", foreign, other] {
            let call = filled(template, key.as_bytes());
            let text = client.call(&call).text();
            assert!(text.starts_with("WRONGTYPE "), "{text:?} for {}", shown(&call));
        }
    }
    // One foreign key among good ones: none of them pays.
    let text = client.typed("RES.MGCRA 1 gcr 10 1d 10 list 10 1s 10 new 10 1s 10").text();
    assert!(text.starts_with("WRONGTYPE "), "{text:?}");
    assert_eq!(Fingerprint::of(&mut client), before, "nothing changed");
    assert_no_internal_errors(&mut client);
}

#[test]
fn a_key_full_of_tiers_refuses_more() {
    let (_server, mut client) = furnished();
    for first in [1, 9] {
        let tiers: Vec<String> = (first..first + 8).map(|days| format!("10 {days}d")).collect();
        must(&mut client, &format!("RES.GCRA full {}", tiers.join(" AND ")));
    }
    let before = Fingerprint::of(&mut client);
    let text = client.typed("RES.GCRA full 10 20d AND 10 21d").text();
    assert!(text.starts_with("ERR ") && text.contains("tiers") && text.contains("16"), "{text:?}");
    assert_eq!(Fingerprint::of(&mut client), before, "nothing changed");
}

#[test]
fn a_malformed_call_in_a_transaction_hurts_only_itself() {
    let (_server, mut client) = furnished();
    let transaction = ["MULTI", "RES.GCRA gcr 0 1s", "RES.GCRA other 10 1d", "EXEC"].map(typed);
    let outcomes = client.pipeline(transaction.iter().map(Vec::as_slice));
    let Reply::Array(replies) = &outcomes[3] else { panic!("EXEC replies with a list, not {outcomes:?}") };
    assert!(replies[0].text().contains("limit"), "{replies:?}");
    assert_eq!(replies[1].integers().expect("a verdict")[0], 1);
    let before = Fingerprint::of(&mut client);
    let text = client.call(&words(["EVAL", "return redis.call('RES.GCRA', KEYS[1], '0', '1s')", "1", "gcr"])).text();
    assert!(text.contains("limit") && check_error_line(text.as_bytes()).is_ok(), "{text:?}");
    let caught = "return redis.pcall('RES.GCRA', KEYS[1], '0', '1s')['err']";
    assert!(client.call(&words(["EVAL", caught, "1", "gcr"])).text().contains("limit"));
    assert_eq!(Fingerprint::of(&mut client), before, "nothing changed");
    assert_no_internal_errors(&mut client);
}
