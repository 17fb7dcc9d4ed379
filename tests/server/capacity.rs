//! What a key takes, as docs/limits.md says it.

use redis::Connection;
use resil_harness::{Options, Server};

use crate::driven::{info_number, integer};

const PAGE: &str = include_str!("../../docs/limits.md");

/// So many keys that what is allocated once does not count, and that the server's tables are nearly full.
const KEYS: usize = 16_000;

/// Rows of the table, and what makes such a key.
const KINDS: [(&str, &[&str]); 16] = [
    ("a string of 8 bytes with an expiry, to compare", &["SET KEY 8-bytes! EX 1000"]),
    ("rate limit, one tier", &["RES.GCRA KEY 10 60s"]),
    ("rate limit, three tiers", &["RES.GCRA KEY 10 1s AND 100 60s AND 1000 1h"]),
    ("window with 10 instants", &["RES.WINDOW KEY 100 1h COST 10"]),
    ("breaker with 10 outcomes", &["RES.BREAKER TALLY KEY 0 me 1 OK 10 FAIL 0"]),
    ("lock, held", &["RES.LOCK ACQUIRE KEY worker-7 30s"]),
    ("lock, released", &["RES.LOCK ACQUIRE KEY worker-7 30s", "RES.LOCK RELEASE KEY worker-7"]),
    ("bulkhead, one permit", &["RES.BULKHEAD ENTER KEY worker-7 10 30s"]),
    (
        "bulkhead, ten permits",
        &[
            "RES.BULKHEAD ENTER KEY worker-0 10 30s",
            "RES.BULKHEAD ENTER KEY worker-1 10 30s",
            "RES.BULKHEAD ENTER KEY worker-2 10 30s",
            "RES.BULKHEAD ENTER KEY worker-3 10 30s",
            "RES.BULKHEAD ENTER KEY worker-4 10 30s",
            "RES.BULKHEAD ENTER KEY worker-5 10 30s",
            "RES.BULKHEAD ENTER KEY worker-6 10 30s",
            "RES.BULKHEAD ENTER KEY worker-7 10 30s",
            "RES.BULKHEAD ENTER KEY worker-8 10 30s",
            "RES.BULKHEAD ENTER KEY worker-9 10 30s",
        ],
    ),
    ("idempotency key, running", &["RES.IDEMP BEGIN KEY worker-7 30s FINGERPRINT 0123456789abcdef0123456789abcdef"]),
    (
        "idempotency key, done, result of 100 bytes",
        &[
            "RES.IDEMP BEGIN KEY worker-7 30s FINGERPRINT 0123456789abcdef0123456789abcdef",
            "RES.IDEMP COMMIT KEY worker-7 1h HUNDRED",
        ],
    ),
    (
        "idempotency key, aborted, with a fingerprint",
        &[
            "RES.IDEMP BEGIN KEY worker-7 30s FINGERPRINT 0123456789abcdef0123456789abcdef",
            "RES.IDEMP ABORT KEY worker-7",
        ],
    ),
    ("idempotency key, aborted, without one", &["RES.IDEMP BEGIN KEY worker-7 30s", "RES.IDEMP ABORT KEY worker-7"]),
    ("event that was seen", &["RES.IDEMP ONCE KEY 1h"]),
    ("single flight, led", &["RES.SFLIGHT JOIN KEY worker-7 30s"]),
    (
        "single flight, value of 100 bytes",
        &["RES.SFLIGHT JOIN KEY worker-7 30s", "RES.SFLIGHT PUBLISH KEY worker-7 1h VALUE HUNDRED"],
    ),
];

fn name(number: usize) -> String {
    format!("tenant-7:{number:011}")
}

/// Bytes a key takes in all, and as MEMORY USAGE counts it.
fn measured(connection: &mut Connection, lines: &[&str]) -> (i64, i64) {
    let before = info_number(connection, "memory", "used_memory");
    make_keys(connection, lines, KEYS);
    let taken = info_number(connection, "memory", "used_memory") - before;
    (taken / KEYS as i64, integer(connection, &format!("MEMORY USAGE {}", name(7))))
}

fn make_keys(connection: &mut Connection, lines: &[&str], count: usize) {
    let hundred = "x".repeat(100);
    for chunk in (0..count).collect::<Vec<_>>().chunks(500) {
        let mut pipe = redis::pipe();
        for number in chunk {
            for line in lines {
                let words = line.split_whitespace().map(|word| match word {
                    "KEY" => name(*number),
                    "HUNDRED" => hundred.clone(),
                    word => word.to_owned(),
                });
                words.enumerate().for_each(|(at, word)| {
                    if at == 0 {
                        pipe.cmd(&word)
                    } else {
                        pipe.arg(word)
                    };
                });
                pipe.ignore();
            }
        }
        pipe.query::<()>(connection).expect("all succeed");
    }
}

/// The two figures of a row of the page.
fn reported(row: &str) -> Option<(i64, i64)> {
    let line = PAGE.lines().find(|line| line.starts_with(&format!("| {row} |")))?;
    let figures: Vec<i64> = line.split('|').filter_map(|cell| cell.trim().replace(',', "").parse().ok()).collect();
    Some((*figures.first()?, *figures.get(1)?))
}

#[test]
fn keys_take_what_the_page_says() {
    let mut wrong = Vec::new();
    for (row, lines) in KINDS {
        let server = Server::start(Options::default());
        let (taken, usage) = measured(&mut server.connect(), lines);
        let (reported_taken, reported_usage) = reported(row).unwrap_or_default();
        // Other servers have other tables of keys.
        let is_reference = std::env::var("RESIL_SERVER").map_or(true, |name| name == "redis-7.0");
        let near = |reported: i64, is: i64| (is - reported).abs() * 100 <= reported * 12;
        let fits = if is_reference {
            near(reported_taken, taken) && near(reported_usage, usage)
        } else {
            taken <= reported_taken * 3 / 2
        };
        if !fits {
            wrong.push(format!("| {row} | {taken} | {usage} | the page: {reported_taken}, {reported_usage}"));
        }
    }
    assert!(wrong.is_empty(), "measured:\n{}", wrong.join("\n"));
}

/// Seconds for which keys of one kind are kept, at least and at most.
fn kept(connection: &mut Connection, lines: &[&str]) -> (i64, i64) {
    make_keys(connection, lines, 300);
    let left: Vec<i64> = (0..300).map(|number| integer(connection, &format!("PTTL {}", name(number)))).collect();
    (left.iter().min().unwrap() / 1_000, left.iter().max().unwrap() / 1_000)
}

#[test]
fn what_has_ended_is_kept_as_documented() {
    const DAY: i64 = 86_400;
    let lock = ["RES.LOCK ACQUIRE KEY worker-7 30s", "RES.LOCK RELEASE KEY worker-7"];
    let blank = ["RES.IDEMP BEGIN KEY worker-7 30s", "RES.IDEMP ABORT KEY worker-7"];
    let marked = ["RES.IDEMP BEGIN KEY worker-7 30s FINGERPRINT f", "RES.IDEMP ABORT KEY worker-7"];
    let flight = ["RES.SFLIGHT JOIN KEY worker-7 30s", "RES.SFLIGHT ABANDON KEY worker-7"];
    for (lines, least, most) in [(lock, 60, 126), (blank, 60, 65), (marked, DAY, DAY + 35 * 60), (flight, 60, 77)] {
        let server = Server::start(Options::default());
        let (shortest, longest) = kept(&mut server.connect(), &lines);
        // The first were made a moment before they are looked at.
        assert!(shortest >= least - 5 && longest <= most, "{lines:?}: {shortest} to {longest} s");
    }
}
