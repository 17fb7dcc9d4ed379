//! A long random schedule over twenty breakers: primary and replica end equal, and so do a reload and a file.

use std::collections::BTreeSet;

use fastrand::Rng;
use redis::{Connection, Value};
use resil_harness::{Server, reply, wait_for_sync};

use crate::driven::{Say, driven, start_driven};
use crate::seed::seeded;

const COMMANDS: usize = 1_000;
const BREAKERS: u32 = 20;

/// `key expiry digest` of every key.
fn described(connection: &mut Connection) -> BTreeSet<String> {
    let keys: Vec<String> = redis::from_redis_value(connection.say("KEYS *")).expect("keys are text");
    let one = |key: String| {
        let expiry = connection.integer(&format!("PEXPIRETIME {key}"));
        format!("{key} {expiry} {}", connection.digest(&key))
    };
    keys.into_iter().map(one).collect()
}

#[track_caller]
fn assert_equal(one: &BTreeSet<String>, other: &BTreeSet<String>) {
    let only = |left: &BTreeSet<String>, right| left.difference(right).cloned().collect::<Vec<_>>();
    assert!(one == other, "differ: {:#?} against {:#?}", only(one, other), only(other, one));
}

struct Game {
    rng: Rng,
    now_us: i64,
    /// `(key, permit)`, the newest last.
    permits: Vec<(String, String)>,
    states_met: BTreeSet<String>,
}

impl Game {
    fn key(&mut self) -> String {
        format!("b:{}", self.rng.u32(..BREAKERS))
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.rng.usize(..choices.len())]
    }

    fn options(&mut self) -> String {
        const FOR_TRIPS: &[&str] =
            &["CONSECUTIVE 2", "CONSECUTIVE 3", "RATE 30 MINCALLS 3", "QUORUM 2", "SLOW 50ms SLOWRATE 40"];
        const FOR_TIME: &[&str] = &["WINDOW COUNT 7", "WINDOW TIME 20s", "IDLE 1m", "IDLE 3h"];
        const FOR_RECOVERY: &[&str] =
            &["OPEN 2s", "OPEN 1s FACTOR 2 MAX 9s", "PROBES 1", "SUCCESSES 2", "LEASE 3s", "RAMP 4s", "RAMP 0"];
        let version = if self.rng.u32(..3) == 0 { format!("VERSION {} ", self.rng.u32(1..9)) } else { String::new() };
        version + self.pick(&[FOR_TRIPS, FOR_TIME, FOR_RECOVERY].concat())
    }

    fn breaker_line(&mut self) -> String {
        let key = self.key();
        match self.rng.u32(..20) {
            0..=5 => format!("ADMIT {key} CALLER c{}", self.rng.u32(..4)),
            6 => format!("ADMIT {key} {}", self.options()),
            7..=11 if !self.permits.is_empty() => {
                let back = 1 + self.rng.usize(..self.permits.len().min(12));
                let (key, permit) = self.permits[self.permits.len() - back].clone();
                let outcome = self.pick(&["OK", "OK", "FAIL", "FAIL", "CANCEL", "OK DURATION 60", "FAIL DURATION 1s"]);
                format!("REPORT {key} {permit} {outcome}")
            }
            12..=15 => {
                let (ok, failed) = (self.rng.u32(..5), self.rng.u32(..5));
                let (caller, seq) = (self.rng.u32(..5), self.rng.u32(..1_000));
                format!("TALLY {key} 0 t{caller} {seq} OK {ok} FAIL {failed} SLOW {ok} RUN {failed}")
            }
            16 => {
                format!(
                    "FORCE {key} {}",
                    self.pick(&[
                        "OPEN FOR 5s",
                        "OPEN FOR 3s THEN PROBE",
                        "CLOSED ACTOR me",
                        "METRICS",
                        "DISABLED FOR 1h"
                    ])
                )
            }
            17 => format!("FORCE {key} AUTO"),
            18 => format!("CONFIG {key} {}", self.options()),
            _ => format!("RESET {key}"),
        }
    }

    /// What users do to keys behind a breaker's back.
    fn meddling(&mut self) -> String {
        let (key, other) = (self.key(), self.key());
        match self.rng.u32(..6) {
            0 => format!("DEL {key}"),
            1 => format!("PERSIST {key}"),
            2 => format!("EXPIRE {key} 100000"),
            3 => format!("RENAME {key} {other}"),
            4 => format!("COPY {key} {other} REPLACE"),
            _ => "DEBUG SLEEP 0".to_owned(),
        }
    }

    /// One random command; the clock may have moved before it, mostly on, sometimes back.
    fn play(&mut self, connection: &mut Connection) -> String {
        self.now_us += match self.rng.u32(..100) {
            0 => -self.rng.i64(0..3_600_000_000),
            1..=3 => self.rng.i64(0..7_200_000_000),
            4..=60 => self.rng.i64(0..2_000_000),
            _ => 0,
        };
        connection.clock_at_us(self.now_us);
        let line =
            if self.rng.u32(..12) == 0 { self.meddling() } else { format!("RES.BREAKER {}", self.breaker_line()) };
        let words: Vec<&str> = line.split_whitespace().collect();
        // Whatever comes: contradicting options are refused.
        if let Ok(Value::Array(fields)) = reply(connection, &words) {
            self.learn(&words, &fields);
        }
        line
    }

    fn learn(&mut self, words: &[&str], fields: &[Value]) {
        if let Some(Value::BulkString(state)) = fields.get(1) {
            self.states_met.insert(String::from_utf8_lossy(state).into_owned());
        }
        if let (Some(&"ADMIT"), Some(Value::BulkString(permit))) = (words.get(1), fields.get(2)) {
            self.permits.push((words[2].to_owned(), String::from_utf8_lossy(permit).into_owned()));
        }
    }
}

#[test]
fn after_random_schedules_all_copies_are_equal() {
    let (primary, mut connection) = start_driven();
    let replica = Server::replica_of(&primary, driven());
    let mut on_replica = replica.connect();
    // An hour off: nothing may depend on it.
    on_replica.clock_at_ms(-3_600_000);
    let mut game = Game { rng: seeded("schedule"), now_us: 0, permits: Vec::new(), states_met: BTreeSet::new() };
    for played in 0..COMMANDS {
        let line = game.play(&mut connection);
        if played % 100 == 99 {
            println!("{played}: {line}");
            wait_for_sync(&primary, &replica);
            assert_equal(&described(&mut connection), &described(&mut on_replica));
        }
    }
    for state in ["closed", "open", "half-open"] {
        assert!(game.states_met.contains(state), "{:?}", game.states_met);
    }
    assert!(connection.integer("DBSIZE") > BREAKERS as i64 / 2);
    assert_eq!(on_replica.info_number("resil", "apply_refused"), 0);
    assert_eq!(connection.info_number("resil", "internal_errors"), 0);
    let before = described(&mut connection);
    connection.say("DEBUG RELOAD");
    assert_equal(&described(&mut connection), &before);
    on_replica.say("REPLICAOF NO ONE");
    assert_equal(&described(&mut on_replica), &before);
}
