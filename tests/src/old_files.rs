//! One key of every kind and shape, how each is made and looked at, and what files of a version contain: shared by the writer
//! (`old_files`) and the test (`upgrade`).

use std::collections::BTreeMap;

use redis::{Connection, Value};
use resil_harness::{Options, Server, error_line, ok, reply};
use serde::{Deserialize, Serialize};

/// The year 2090, so that no server ever finds a key expired.
pub const CLOCK_US: i64 = 3_787_000_000_000_000;

/// What is done, and how it is looked at. `$permit` is the third element of the reply before; `+ms` moves the clock on.
pub const KEYS: &[(&[&str], &str)] = &[
    (&["RES.GCRA gcra 10 1m COST 3"], "RES.GCRA.PEEK gcra 10 1m"),
    (&["RES.GCRA burst 7 1s BURST 1000 COST 999"], "RES.GCRA.PEEK burst 7 1s BURST 1000"),
    (&["RES.GCRA tiers 10 1m AND 100 1h AND 1000 1d COST 4"], "RES.GCRA.PEEK tiers 10 1m AND 100 1h AND 1000 1d"),
    (&["RES.GCRA reserved 1 1m", "RES.GCRA reserved 1 1m RESERVE 10m"], "RES.GCRA.PEEK reserved 1 1m"),
    (&["RES.MGCRA 2 {m}1 10 1m 10 {m}2 20 1h 30"], "RES.GCRA.PEEK {m}2 20 1h BURST 30"),
    (&["CL.THROTTLE throttled 15 30 60 2"], "RES.GCRA.PEEK throttled 30 1m BURST 16"),
    (&["RES.WINDOW window 5 1h", "RES.WINDOW window 5 1h COST 2"], "RES.WINDOW.PEEK window 5 1h"),
    (&["RES.BREAKER ADMIT counted", "RES.BREAKER REPORT counted $permit FAIL"], "RES.BREAKER STATE counted"),
    (
        &[
            "RES.BREAKER ADMIT timed WINDOW TIME 1m SLOW 100ms SLOWRATE 50",
            "RES.BREAKER TALLY timed 0 c 1 OK 4 FAIL 1 SLOW 2",
        ],
        "RES.BREAKER STATE timed",
    ),
    (&["RES.BREAKER TALLY open 0 c 1 OK 0 FAIL 5 RUN 5"], "RES.BREAKER STATE open"),
    (
        &[
            "RES.BREAKER CONFIG probing CONSECUTIVE 2 OPEN 1s FACTOR 2 MAX 1m PROBES 2 SUCCESSES 2 LEASE 1h RAMP 10s",
            "RES.BREAKER TALLY probing 0 c 1 OK 0 FAIL 2 RUN 2",
            "+2000",
            "RES.BREAKER ADMIT probing CALLER me",
        ],
        "RES.BREAKER STATE probing",
    ),
    (
        &[
            "RES.BREAKER CONFIG letting CONSECUTIVE 2 OPEN 1s PROBES 2 SUCCESSES 2 LEASE 1h",
            "RES.BREAKER TALLY letting 0 c 1 OK 0 FAIL 2 RUN 2",
            "+2000",
            "RES.BREAKER ADMIT letting",
        ],
        "RES.BREAKER STATE letting",
    ),
    (&["RES.BREAKER FORCE forced OPEN FOR 1d ACTOR ann REASON why"], "RES.BREAKER STATE forced"),
    (&["RES.BREAKER CONFIG configured VERSION 3 RATE 20 MINCALLS 50 QUORUM 2"], "RES.BREAKER STATE configured"),
    (&["RES.LOCK ACQUIRE held a 10d META deploy"], "RES.LOCK INFO held"),
    (
        &[
            "RES.LOCK ACQUIRE shared a 1d SHARED",
            "RES.LOCK ACQUIRE shared b 2d SHARED META b",
            "RES.LOCK ACQUIRE shared c 3d SHARED",
        ],
        "RES.LOCK INFO shared",
    ),
    (&["RES.LOCK ACQUIRE released a 1d", "RES.LOCK RELEASE released a"], "RES.LOCK INFO released"),
    (&["RES.LOCK ACQUIRE broken a 1d", "RES.LOCK BREAK broken ACTOR ann"], "RES.LOCK INFO broken"),
    (
        &["RES.LOCK ACQUIRE again a 1d", "RES.LOCK RELEASE again a", "RES.LOCK ACQUIRE again b 1d"],
        "RES.LOCK CHECK again b",
    ),
    (&["RES.BULKHEAD ENTER bulkhead a 3 1d", "RES.BULKHEAD ENTER bulkhead b 3 2d"], "RES.BULKHEAD INFO bulkhead"),
    (&["RES.BULKHEAD ENTER left a 3 1d", "RES.BULKHEAD LEAVE left a"], "RES.BULKHEAD INFO left"),
    (&["RES.IDEMP BEGIN running t 1d FINGERPRINT f KEEP 2d ONLAPSE HOLD"], "RES.IDEMP INFO running"),
    (
        &["RES.IDEMP BEGIN done t 1m FINGERPRINT f", "RES.IDEMP COMMIT done t 10d result"],
        "RES.IDEMP GET done FINGERPRINT f",
    ),
    (&["RES.IDEMP BEGIN failed t 1m", "RES.IDEMP COMMIT failed t 10d why ERROR"], "RES.IDEMP GET failed"),
    (&["RES.IDEMP BEGIN aborted t 1m FINGERPRINT f", "RES.IDEMP ABORT aborted t"], "RES.IDEMP GET aborted"),
    (&["RES.IDEMP ONCE once 10d TOKEN t"], "RES.IDEMP INFO once"),
    (&["RES.SFLIGHT JOIN leading t 1d"], "RES.SFLIGHT INFO leading"),
    (&["RES.SFLIGHT JOIN value t 1m", "RES.SFLIGHT PUBLISH value t 10d VALUE bytes STALE 1d"], "RES.SFLIGHT GET value"),
    (&["RES.SFLIGHT JOIN empty t 1m", "RES.SFLIGHT PUBLISH empty t 10d EMPTY"], "RES.SFLIGHT GET empty"),
    (&["RES.SFLIGHT JOIN error t 1m", "RES.SFLIGHT PUBLISH error t 1d ERROR down"], "RES.SFLIGHT GET error"),
    (
        &[
            "RES.SFLIGHT JOIN soft t 1m",
            "RES.SFLIGHT PUBLISH soft t 1d VALUE v STALE 2d",
            "RES.SFLIGHT INVALIDATE soft SOFT",
        ],
        "RES.SFLIGHT INFO soft",
    ),
    (
        &[
            "RES.DLQ CONFIG ledger CLASS business RETRIES 2 BASE 1s CAP 10s JITTER none ACTOR ann",
            "RES.DLQ FAIL ledger taken ERROR late PAYLOAD p2 TYPE order AFTER 1ms",
            "RES.DLQ FAIL ledger retried ERROR late PAYLOAD p1 TYPE order AGGREGATE a1 SOURCE s SCHEMA 3 HEADERS h",
            "RES.DLQ FAIL ledger dead ERROR no-such-7 PAYLOAD p3 TYPE order AGGREGATE a2 FINAL",
            "RES.DLQ FAIL ledger elsewhere ERROR late REF s3://p4 CLASS business PRIOR 1",
            "RES.DLQ PARK ledger parked AGGREGATE a2 PAYLOAD p5",
            "RES.DLQ HOLD ledger dead ON REASON audit ACTOR ann",
            "RES.DLQ FAIL ledger poison ERROR broken PAYLOAD p6 TYPE other FINAL",
            "RES.DLQ DIAGNOSE ledger other/broken CATEGORY poison CAUSE c FIX none ACTOR ann",
            "RES.DLQ CLOSE ledger 1 DISCARD ACTOR ann",
            "RES.DLQ FAIL ledger again ERROR down PAYLOAD p7 TYPE late FINAL",
            "RES.DLQ DIAGNOSE ledger late/down CATEGORY infrastructure CAUSE c FIX f ACTOR ann",
            "+500",
            "RES.DLQ TAKE ledger token 1d META worker",
        ],
        "RES.DLQ LIST ledger",
    ),
    (&[], "RES.DLQ GET ledger retried"),
    (&[], "RES.DLQ GET ledger dead"),
    (&[], "RES.DLQ GET ledger elsewhere"),
    (&[], "RES.DLQ GET ledger parked"),
    (&[], "RES.DLQ GET ledger poison"),
    (&[], "RES.DLQ INFO ledger GROUPS"),
    (&[], "RES.DLQ INFO ledger CASES"),
    (&[], "RES.DLQ INFO ledger AUDIT"),
    (&[], "RES.DLQ INFO ledger CONFIG"),
    (
        &[
            r#"RES.POLICY SET policy {"breaker":{}} ACTOR ann REASON first"#,
            r#"RES.POLICY SET policy {"timeout":{"attempt":"5m"},"retry":{"maxAttempts":3},"breaker":{},"rateLimit":{"limit":10,"period":"1m"},"sharedBulkhead":{"maxConcurrentCalls":5}} IF 1"#,
            "RES.GUARD ENTER policy me",
            "RES.GUARD ENTER policy you COST 2",
            "RES.BREAKER TALLY policy 0 c 1 OK 4 FAIL 1",
        ],
        "RES.GUARD STATE policy",
    ),
    (&[], "RES.POLICY GET policy"),
    (&[], "RES.POLICY GET policy VERSION 1"),
    (&[], "RES.POLICY HISTORY policy"),
    (
        &[r#"RES.POLICY SET deleted {"breaker":{}}"#, "RES.POLICY DELETE deleted ACTOR ann"],
        "RES.POLICY HISTORY deleted",
    ),
    (&[r#"RES.POLICY SET {s} {"rateLimit":{"limit":10,"period":"1m"}}"#], "RES.POLICY GET {s}"),
    (&["RES.GUARD ENTER {s} me SUBJECT {s}1 COST 3"], "RES.GCRA.PEEK {s}1 10 1m"),
    (&["RES.BREAKER FORCE tripped OPEN FOR 1d THEN PROBE ACTOR ann"], "RES.BREAKER STATE tripped"),
    (
        &[
            "RES.SFLIGHT SET {n}kept 10d UNDER {n} TAG blue VALUE v",
            "RES.SFLIGHT SET {n}cleared 10d UNDER {n} TAG red VALUE v",
            "RES.SFLIGHT CLEAR {n} TAG red",
        ],
        "RES.SFLIGHT GET {n}kept UNDER {n}",
    ),
    (&[], "RES.SFLIGHT GET {n}cleared UNDER {n}"),
    (
        &["RES.LOCK ACQUIRE raised a 1d", "RES.LOCK RENEW raised a 1d RAISE 3787000050000000"],
        "RES.LOCK CHECK raised a FENCE 3787000050000000",
    ),
];

/// How a server is started whose keys are these.
pub fn options() -> Options {
    Options::default().module_args(["test-clock", "yes", "max-lease", "2592000000"])
}

/// Makes keys on a server, and looks at them, by a clock that it drives.
pub struct Player {
    pub connection: Connection,
    clock_us: i64,
    /// The third element of the last reply.
    pub permit: String,
}

impl Player {
    pub fn on(server: &Server) -> Self {
        let mut player = Self { connection: server.connect_resp3(), clock_us: 0, permit: String::new() };
        player.set_clock(CLOCK_US);
        player
    }

    pub fn clock_us(&self) -> i64 {
        self.clock_us
    }

    pub fn set_clock(&mut self, us: i64) {
        self.clock_us = us;
        ok(&mut self.connection, &["RES._CLOCK", &us.to_string()]);
    }

    /// Does what `commands` say, up to the first that is refused, and gives that refusal.
    pub fn play(&mut self, commands: &[&str]) -> Result<(), String> {
        for command in commands {
            if let Some(ms) = command.strip_prefix('+') {
                self.set_clock(self.clock_us + ms.parse::<i64>().expect("milliseconds") * 1_000);
                continue;
            }
            let reply = self.ask(&command.replace("$permit", &self.permit))?;
            self.permit = reply.get(2).and_then(|permit| permit.as_str()).unwrap_or_default().to_owned();
        }
        Ok(())
    }

    pub fn ask(&mut self, line: &str) -> Result<serde_json::Value, String> {
        let words: Vec<&str> = line.split(' ').collect();
        reply(&mut self.connection, &words).map(shown).map_err(|error| error_line(&error))
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Seen {
    pub clock_us: i64,
    pub keys: i64,
    pub replies: BTreeMap<String, serde_json::Value>,
}

/// A reply as JSON. Maps become objects, so that further fields can be distinguished from changed ones.
pub fn shown(value: Value) -> serde_json::Value {
    match value {
        Value::Nil => serde_json::Value::Null,
        Value::Int(number) => number.into(),
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
        Value::SimpleString(text) => text.into(),
        Value::Array(items) => items.into_iter().map(shown).collect(),
        Value::Map(pairs) => {
            let name = |value| match shown(value) {
                serde_json::Value::String(text) => text,
                other => other.to_string(),
            };
            pairs.into_iter().map(|(field, value)| (name(field), shown(value))).collect()
        }
        other => format!("{other:?}").into(),
    }
}

/// Everything that was said then is said now.
pub fn says_the_same(then: &serde_json::Value, now: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Object};
    match (then, now) {
        (Object(then), Object(now)) => {
            then.iter().all(|(field, value)| now.get(field).is_some_and(|now| says_the_same(value, now)))
        }
        (Array(then), Array(now)) => {
            then.len() == now.len() && then.iter().zip(now).all(|(then, now)| says_the_same(then, now))
        }
        (then, now) => then == now,
    }
}
