//! Words by chance, and payloads bent by chance: the server stays up and nothing inside goes wrong.

use fastrand::Rng;
use redis::Connection;
use resil_harness::Server;

use crate::driven::{START_US, Say, driven, start_with};
use crate::payload::Body;
use crate::phases::{PHASES, fill_all};
use crate::resp::{Client, Reply, Words, shown, typed, words};
use crate::seed::{say, seeded};

const CALLS: usize = 20_000;
const PAYLOADS: usize = 10_000;
/// Calls, or payloads, per round trip.
const BATCH: usize = 500;

const SUBCOMMANDS: &str = "ADMIT REPORT TALLY STATE FORCE RESET CONFIG HELP NOPE";
const KEYWORDS: &str = "CALLER VERSION WINDOW COUNT TIME RATE SLOW SLOWRATE CONSECUTIVE MINCALLS OPEN FACTOR MAX PROBES \
                        SUCCESSES LEASE QUORUM RAMP IDLE OK FAIL IGNORE CANCEL DURATION CORRELATION RUN FOR ACTOR REASON \
                        CLOSED METRICS AUTO";
const VALUES: &str = "0 1 2 5 -1 100 101 1s 10ms 1d 0s 30d 366d 1.5 2. NaN 1e9 10000 9223372036854775807 \
                      9223372036854775808 99999999999999999999 0.0.0 ffffffffffffffff.0.0.1";

/// Words that nobody would send, and a third of the time words that somebody might.
struct Chatter {
    rng: Rng,
    permits: Vec<Vec<u8>>,
}

impl Chatter {
    fn pick(&mut self, list: &str) -> Vec<u8> {
        let choices: Vec<&str> = list.split_whitespace().collect();
        choices[self.rng.usize(..choices.len())].as_bytes().to_vec()
    }

    fn key(&mut self) -> Vec<u8> {
        match self.rng.u32(..12) {
            0 => b"text".to_vec(),
            1 => b"bucket".to_vec(),
            2 => b"\xff\0key".to_vec(),
            _ => format!("b:{}", self.rng.u32(..20)).into_bytes(),
        }
    }

    fn word(&mut self) -> Vec<u8> {
        match self.rng.u32(..10) {
            0..=3 => self.pick(KEYWORDS),
            4..=7 => self.pick(VALUES),
            8 if !self.permits.is_empty() => self.permits[self.rng.usize(..self.permits.len())].clone(),
            _ => (0..self.rng.usize(0..40)).map(|_| self.rng.u8(..)).collect(),
        }
    }

    /// A keyword with a value it might have.
    fn option(&mut self) -> Words {
        let keyword = ["CONSECUTIVE #", "RATE #", "PROBES #", "SUCCESSES #", "QUORUM #", "VERSION #", "WINDOW COUNT #"];
        let timed = ["OPEN #s", "LEASE #s", "RAMP #s", "SLOW #s", "WINDOW TIME #s"];
        let all = [keyword.as_slice(), &timed].concat();
        typed(&all[self.rng.usize(..all.len())].replace('#', &self.rng.u32(..12).to_string()))
    }

    fn sensible(&mut self) -> Words {
        let key = String::from_utf8_lossy(&self.key()).into_owned();
        let permit = match self.permits.len() {
            0 => "0.0.0".to_owned(),
            len => String::from_utf8_lossy(&self.permits[self.rng.usize(..len)]).into_owned(),
        };
        let seq = self.rng.u32(..);
        let outcome = ["OK", "FAIL", "FAIL", "CANCEL"][self.rng.usize(..4)];
        let state = ["OPEN", "CLOSED", "METRICS", "DISABLED", "AUTO", "AUTO", "AUTO"][self.rng.usize(..7)];
        let mut call = match self.rng.u32(..16) {
            0..=4 => typed(&format!("RES.BREAKER ADMIT {key}")),
            5..=8 => typed(&format!("RES.BREAKER REPORT {key} {permit} {outcome}")),
            9..=10 => typed(&format!("RES.BREAKER TALLY {key} 0 me {seq} OK 1 FAIL 3 RUN 3")),
            11 => typed(&format!("RES.BREAKER FORCE {key} {state}")),
            12 => typed(&format!("RES.BREAKER STATE {key}")),
            13 => typed(&format!("RES.BREAKER CONFIG {key} MINCALLS 5")),
            14 => typed(&format!("DEL {key}")),
            _ => typed(&format!("RES._CLOCK {}", START_US + self.rng.i64(0..1_000_000_000))),
        };
        if self.rng.bool() && call.get(1).is_some_and(|word| word == b"ADMIT" || word == b"CONFIG") {
            call.extend(self.option());
        }
        call
    }

    fn call(&mut self) -> Words {
        if self.rng.u32(..3) == 0 {
            return self.sensible();
        }
        let mut call = words(["RES.BREAKER"]);
        call.push(self.pick(SUBCOMMANDS));
        if self.rng.u32(..10) > 0 {
            call.push(self.key());
        }
        for _ in 0..self.rng.usize(0..7) {
            match self.rng.bool() {
                true => call.extend(self.option()),
                false => call.push(self.word()),
            }
        }
        call
    }
}

/// The server is the one that was started, and no panic was caught at the edge.
#[track_caller]
fn assert_unharmed(connection: &mut Connection) {
    assert_eq!(connection.text("PING"), "PONG");
    assert_eq!(connection.info_number("resil", "internal_errors"), 0, "a panic was caught; the server's log has it");
}

#[test]
fn no_words_by_chance_hurt_the_server() {
    let (server, mut connection) = start_with(driven());
    let mut client = Client::new(&server);
    let mut chatter = Chatter { rng: seeded("words"), permits: Vec::new() };
    connection.say("SET text hello");
    connection.say("RES.GCRA bucket 10 1h");
    let (mut refused, mut answered) = (0, 0);
    for _ in 0..CALLS / BATCH {
        let calls: Vec<Words> = (0..BATCH).map(|_| chatter.call()).collect();
        let replies = client.pipeline(calls.iter().map(Vec::as_slice));
        for (call, reply) in calls.iter().zip(&replies) {
            if let Reply::Array(fields) = reply
                && let (Some(b"ADMIT"), Some(Reply::Bulk(permit))) = (call.get(1).map(Vec::as_slice), fields.get(2))
            {
                chatter.permits.push(permit.clone());
            }
            *if reply.is_error() { &mut refused } else { &mut answered } += 1;
            assert!(!matches!(reply, Reply::Error(line) if line.is_empty()), "{}", shown(call));
        }
        let kept = chatter.permits.len().saturating_sub(50);
        chatter.permits.drain(..kept);
    }
    let counters = ["breaker_trips", "breaker_denied", "breaker_reports_counted", "breaker_reports_stale"];
    let counters = counters.map(|name| connection.info_number("resil", name));
    say(&format!("words: {answered} calls answered, {refused} refused; trips, denials, counted, stale: {counters:?}"));
    assert!(answered > CALLS / 5 && refused > CALLS / 5, "both kinds were met");
    assert!(counters.iter().all(|count| *count > 20), "{counters:?}");
    assert_unharmed(&mut connection);
    connection.say("DEBUG RELOAD");
    connection.say("FLUSHALL SYNC");
    assert_eq!(connection.info_number("resil", "breaker_keys"), 0, "every breaker was freed once");
    assert_unharmed(&mut connection);
}

fn restore(key: &str, payload: &[u8]) -> Words {
    words([b"RESTORE".as_slice(), key.as_bytes(), b"0", payload, b"REPLACE"])
}

/// Real payloads of breakers in every phase, compressed and plain.
fn samples(server: &Server, connection: &mut Connection) -> Vec<Body> {
    let mut client = Client::new(server);
    let mut bodies = Vec::new();
    fill_all(connection);
    for compression in ["no", "yes"] {
        connection.say(&format!("CONFIG SET rdbcompression {compression}"));
        bodies.extend(PHASES.iter().map(|(key, _)| Body::of(&client.typed(&format!("DUMP {key}")).bytes())));
    }
    bodies
}

/// What is done to a restored breaker: every subcommand, up to the ends of what numbers they take.
const USES: &[&str] = &[
    "STATE #",
    "ADMIT # CALLER one",
    "ADMIT #",
    "REPORT # 0.5f5e100.1 FAIL",
    "TALLY # 0 one 1 OK 3 FAIL 2 SLOW 1",
    "FORCE # METRICS FOR 1h",
    "TALLY # 0 two 9000000000000000000 OK 0 FAIL 10000",
    "FORCE # AUTO",
    "CONFIG # CONSECUTIVE 1 PROBES 2 QUORUM 1",
    "TALLY # 0 three 9223372036854775807 OK 0 FAIL 1",
    "ADMIT #",
    "RESET #",
    "STATE #",
];

#[test]
fn no_bent_payload_of_a_breaker_hurts_the_server() {
    let mut rng = seeded("payloads");
    let (server, mut connection) = start_with(driven());
    let samples = samples(&server, &mut connection);
    let mut client = Client::new(&server);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..PAYLOADS / BATCH {
        connection.clock_at_us(rng.i64(-1_000_000_000..100_000_000_000));
        let mut bent = || {
            let (one, other) = (&samples[rng.usize(..samples.len())], &samples[rng.usize(..samples.len())]);
            one.mutated(other, &mut rng).sealed()
        };
        let payloads: Vec<Vec<u8>> = (0..BATCH).map(|_| bent()).collect();
        let calls: Vec<Words> =
            payloads.iter().enumerate().map(|(at, it)| restore(&format!("bent:{at}"), it)).collect();
        let replies = client.pipeline(calls.iter().map(Vec::as_slice));
        for (at, payload) in payloads.iter().enumerate() {
            if replies[at].is_error() {
                refused += 1;
                continue;
            }
            accepted += 1;
            put_to_use(&mut client, &format!("bent:{at}"), payload);
        }
    }
    say(&format!("payloads: {accepted} accepted, {refused} refused"));
    assert!(accepted > PAYLOADS / 20 && refused > PAYLOADS / 4, "both kinds were met");
    assert_unharmed(&mut connection);
    connection.say("DEBUG RELOAD");
    connection.say("FLUSHALL SYNC");
    assert_eq!(connection.info_number("resil", "breaker_keys"), 0, "every breaker was freed once");
    assert_unharmed(&mut connection);
}

/// A restored breaker replies everything, and what it becomes can be dumped and restored again.
fn put_to_use(client: &mut Client, key: &str, payload: &[u8]) {
    let mut calls: Vec<Words> =
        USES.iter().map(|line| typed(&format!("RES.BREAKER {}", line.replace('#', key)))).collect();
    calls.push(typed(&format!("MEMORY USAGE {key}")));
    calls.push(typed(&format!("COPY {key} copy REPLACE")));
    calls.push(typed(&format!("DUMP {key}")));
    let mut replies = client.pipeline(calls.iter().map(Vec::as_slice));
    let dumped = replies.pop().expect("a reply to DUMP");
    for (call, reply) in calls.iter().zip(&replies) {
        assert!(!reply.is_error(), "{}: {reply:?} on the restored payload {}", shown(call), payload.escape_ascii());
    }
    if let Reply::Bulk(dumped) = dumped {
        let again = client.call(&restore("again", &dumped));
        assert!(!again.is_error(), "its own DUMP was refused ({again:?}): {}", payload.escape_ascii());
    }
}
