//! One key of every form a value can take, and what each must still be and do after whatever befell it.
//!
//! The future of a key is read off a twin: a key filled in the same way at the same driven instants, and then asked
//! ahead of time. A value that keeps the digest and replies like the twin has lost nothing.

use redis::{Connection, Value};

use crate::driven::{SECOND_US, START_US, digest, integer, say, set_clock};

/// How a key comes to be, how it is asked later and how it is looked at; `{}` stands for the key.
pub struct Kind {
    pub name: &'static str,
    pub fill: &'static [&'static str],
    pub ask: &'static str,
    pub look: &'static str,
}

const RESERVE: &str = "RES.GCRA {} 2 10s RESERVE 1m";

pub const KINDS: &[Kind] = &[
    // Sixteen bytes.
    Kind {
        name: "packed",
        fill: &["RES.GCRA {} 100 60s COST 40", "RES.GCRA {} 100 60s UPTO 7"],
        ask: "RES.GCRA {} 100 60s COST 30",
        look: "RES.GCRA.PEEK {} 100 60s",
    },
    // A limit that does not fit the packed form.
    Kind {
        name: "large",
        fill: &["RES.GCRA {} 1000000 60s COST 999999"],
        ask: "RES.GCRA {} 1000000 60s COST 200000",
        look: "RES.GCRA.PEEK {} 1000000 60s",
    },
    // A fraction of a microsecond is owed.
    Kind {
        name: "fraction",
        fill: &["RES.GCRA {} 7 1s BURST 70 COST 69"],
        ask: "RES.GCRA {} 7 1s BURST 70 COST 11",
        look: "RES.GCRA.PEEK {} 7 1s BURST 70",
    },
    // More is owed than the bucket holds, still when it is asked.
    Kind {
        name: "reserved",
        fill: &["RES.GCRA {} 2 10s COST 2", RESERVE, RESERVE, RESERVE, RESERVE, RESERVE, RESERVE],
        ask: "RES.GCRA {} 2 10s RESERVE 40s",
        look: "RES.GCRA.PEEK {} 2 10s",
    },
    Kind {
        name: "tiers",
        fill: &["RES.GCRA {} 10 1s AND 100 60s AND 1000 1h COST 9", "RES.GCRA {} 10 1s AND 100 60s AND 1000 1h"],
        ask: "RES.GCRA {} 10 1s AND 100 60s AND 1000 1h COST 8",
        look: "RES.GCRA.PEEK {} 10 1s AND 100 60s AND 1000 1h",
    },
    Kind {
        name: "window",
        fill: &["RES.WINDOW {} 10 30s COST 3", "RES.WINDOW {} 10 30s COST 4", "RES.WINDOW {} 10 30s UPTO 9"],
        ask: "RES.WINDOW {} 10 30s COST 4",
        look: "RES.WINDOW.PEEK {} 10 30s",
    },
    Kind {
        name: "cell",
        fill: &["CL.THROTTLE {} 15 30 60 10", "CL.THROTTLE {} 15 30 60 -2"],
        ask: "CL.THROTTLE {} 15 30 60 9",
        look: "CL.THROTTLE {} 15 30 60 0",
    },
    Kind {
        name: "breaker",
        fill: &["RES.BREAKER ADMIT {} MINCALLS 20 CONSECUTIVE 9", "RES.BREAKER TALLY {} 0 me 1 OK 5 FAIL 2 RUN 2"],
        ask: "RES.BREAKER TALLY {} 0 you 7 OK 1 FAIL 3 RUN 3",
        look: "RES.BREAKER STATE {}",
    },
    Kind {
        name: "tripped",
        fill: &["RES.BREAKER TALLY {} 0 me 1 OK 1 FAIL 5 RUN 5"],
        ask: "RES.BREAKER ADMIT {}",
        look: "RES.BREAKER STATE {}",
    },
];

/// A filled key and its future.
pub struct Sample {
    pub kind: &'static Kind,
    pub key: String,
    digest: String,
    expires_at_ms: i64,
    future: Vec<Value>,
}

/// Seconds after the filling at which the future is asked.
const ASKED_AFTER_S: &[i64] = &[1, 2, 9, 20, 31, 55, 59, 120];

/// Driven time when all samples are filled.
pub const FILLED_US: i64 = START_US + 10 * SECOND_US;

/// Fills a key of every kind; the clock then stands at `FILLED_US`.
#[track_caller]
pub fn fill_all(connection: &mut Connection) -> Vec<Sample> {
    fill_all_under(connection, "sample:")
}

/// The same with another beginning of the keys: a hash tag, say.
#[track_caller]
pub fn fill_all_under(connection: &mut Connection, prefix: &str) -> Vec<Sample> {
    KINDS.iter().map(|kind| fill_one(connection, kind, prefix)).collect()
}

#[track_caller]
fn fill_one(connection: &mut Connection, kind: &'static Kind, prefix: &str) -> Sample {
    let (key, twin) = (format!("{prefix}{}", kind.name), format!("{prefix}twin:{}", kind.name));
    for (step, line) in kind.fill.iter().enumerate() {
        // Odd instants, so that debts are not whole cells.
        set_clock(connection, START_US + step as i64 * 777_777);
        let granted = unsealed(say(connection, &line.replace("{}", &key)));
        assert_eq!(unsealed(say(connection, &line.replace("{}", &twin))), granted, "{line}");
    }
    set_clock(connection, FILLED_US);
    let (digest_now, expires_at_ms) = (digest(connection, &key), integer(connection, &format!("PEXPIRETIME {key}")));
    assert_ne!(digest_now, "0".repeat(40), "{} was not filled", kind.name);
    let future = ask_ahead(connection, kind, &twin);
    say(connection, &format!("DEL {twin}"));
    set_clock(connection, FILLED_US);
    Sample { kind, key, digest: digest_now, expires_at_ms, future }
}

/// A reply without the seals of its permits, which are the key's and the process' own.
pub fn unsealed(reply: Value) -> Value {
    match reply {
        Value::Array(items) => Value::Array(items.into_iter().map(unsealed).collect()),
        Value::BulkString(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let permit = text
                .rsplit_once('-')
                .filter(|(permit, seal)| permit.matches('.').count() >= 2 && u32::from_str_radix(seal, 16).is_ok());
            Value::BulkString(permit.map_or(bytes.clone(), |(permit, _)| permit.as_bytes().to_vec()))
        }
        other => other,
    }
}

#[track_caller]
fn ask_ahead(connection: &mut Connection, kind: &Kind, key: &str) -> Vec<Value> {
    let asked = ASKED_AFTER_S.iter().map(|after_s| {
        set_clock(connection, FILLED_US + after_s * SECOND_US);
        unsealed(say(connection, &kind.ask.replace("{}", key)))
    });
    asked.collect()
}

impl Sample {
    /// The value and its expiry are what they were; `key` is where it is now.
    #[track_caller]
    pub fn assert_same_at(&self, connection: &mut Connection, key: &str) {
        let name = self.kind.name;
        assert_eq!(digest(connection, key), self.digest, "the digest of {name} changed");
        let expires_at_ms = integer(connection, &format!("PEXPIRETIME {key}"));
        assert_eq!(expires_at_ms, self.expires_at_ms, "the expiry of {name} changed");
    }

    /// The same, and every later reply is the one the twin gave. The key is used up by it.
    #[track_caller]
    pub fn assert_lives_on_at(&self, connection: &mut Connection, key: &str) {
        self.assert_same_at(connection, key);
        self.assert_replies_like_twin_at(connection, key);
    }

    /// Every later reply is the one the twin gave. The key is used up by it.
    #[track_caller]
    pub fn assert_replies_like_twin_at(&self, connection: &mut Connection, key: &str) {
        let future = ask_ahead(connection, self.kind, key);
        assert_eq!(future, self.future, "{} replies differently", self.kind.name);
        set_clock(connection, FILLED_US);
    }
}

/// Every sample is where it was and lives on.
#[track_caller]
pub fn assert_all_live_on(connection: &mut Connection, samples: &[Sample]) {
    set_clock(connection, FILLED_US);
    for sample in samples {
        sample.assert_lives_on_at(connection, &sample.key);
    }
}
