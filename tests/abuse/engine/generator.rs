//! Calls by chance: well-formed ones against keys of every type, bent ones, and the server's own commands in between.

use std::collections::VecDeque;

use fastrand::Rng;
use resil_core::limits::{CELLS_MAX, FILL_MAX, INSTANT_MAX_US, PERIOD_MAX, WINDOW_LIMIT_DEFAULT};

use super::asked::{Ask, Asked};
use super::guard_calls::DOCUMENTS;
use super::resp::{Words, typed, words};

/// A call and what its reply is held against.
#[derive(Debug, Clone)]
pub struct Call {
    pub words: Words,
    pub asked: Asked,
}

/// Names per type: few, so that calls meet each other's state.
const KEYS_PER_TYPE: usize = 12;
const TYPES: [&str; 16] = [
    "gcr", "win", "brk", "lck", "blk", "idm", "sfl", "dlq", "pol", "cell", "str", "list", "hash", "set", "zset",
    "stream",
];
pub(super) const DAY_US: i64 = 86_400_000_000;

/// What every argument is replaced by now and then.
const JUNK: [&[u8]; 30] = [
    b"",
    b"0",
    b"1",
    b"-1",
    b"-0",
    b"+1",
    b"01",
    b" 1",
    b"1 ",
    b"1.5",
    b"1e9",
    b"0x10",
    b"NaN",
    b"inf",
    b"abc",
    b"2147483648",
    b"4294967296",
    b"1000000001",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"99999999999999999999999999",
    b"1s",
    b"0us",
    b"367d",
    b"\0",
    b"1\0",
    b"\xff\xfe",
    b"\r\n-ERR x\r\n",
    b"%s%n",
];
const WORDS: [&str; 8] = ["BURST", "AND", "COST", "UPTO", "RESERVE", "REFUND", "burst", "and"];

pub struct Generator {
    pub rng: Rng,
    /// Where the driven clock starts: near the real one, so that the server does not expire what is written.
    epoch_us: i64,
    /// The instant last sent with RES._CLOCK.
    pub(super) now_us: i64,
    /// The latest of them.
    latest_us: i64,
    /// Permits that breakers gave lately, with their keys.
    pub(super) permits: VecDeque<(Vec<u8>, Vec<u8>)>,
    /// Fences that were granted lately.
    pub(super) fences: VecDeque<i64>,
    /// Keys that lately were given to somebody to work on, with the tokens.
    pub(super) works: VecDeque<(Vec<u8>, Vec<u8>)>,
    /// Entries that lately were given out: ledger, id and fence.
    pub(super) entries: Vec<(Vec<u8>, Vec<u8>, i64)>,
    /// Tickets of calls that were admitted lately, with the keys of their policies.
    pub(super) tickets: Vec<(Vec<u8>, Vec<u8>)>,
    /// Other connections, by their ids.
    pub others: Vec<i64>,
    /// What comes next whatever chance says: the rest of a transaction.
    pending: VecDeque<Call>,
}

impl Generator {
    pub fn new(rng: Rng, epoch_us: i64) -> Self {
        let (permits, fences, works, pending) = Default::default();
        Self {
            rng,
            epoch_us,
            now_us: epoch_us,
            latest_us: epoch_us,
            permits,
            fences,
            works,
            entries: Vec::new(),
            tickets: Vec::new(),
            others: Vec::new(),
            pending,
        }
    }

    /// Calls that make keys of every type.
    pub fn keyspace(&mut self) -> Vec<Words> {
        let clock = vec![words(["RES._CLOCK", &self.now_us.to_string()])];
        let natives = TYPES.iter().flat_map(|kind| (0..KEYS_PER_TYPE).map(move |index| (*kind, index)));
        clock.into_iter().chain(natives.map(|(kind, index)| self.creation(kind, index))).collect()
    }

    fn creation(&mut self, kind: &str, index: usize) -> Words {
        let key = format!("{kind}:{index}");
        match kind {
            "gcr" => typed(&format!("RES.GCRA {key} 10 1h")),
            "win" => typed(&format!("RES.WINDOW {key} 100 1h")),
            "brk" => typed(&format!("RES.BREAKER CONFIG {key} OPEN 1m")),
            "lck" => typed(&format!("RES.LOCK ACQUIRE {key} owner-0 1m")),
            "blk" => typed(&format!("RES.BULKHEAD ENTER {key} owner-0 5 1m")),
            "idm" => typed(&format!("RES.IDEMP BEGIN {key} owner-0 1m")),
            "sfl" => typed(&format!("RES.SFLIGHT JOIN {key} owner-0 1m")),
            "dlq" => typed(&format!("RES.DLQ FAIL {key} m0 ERROR e PAYLOAD p")),
            "pol" => typed(&format!("RES.POLICY SET {key} {}", DOCUMENTS[index % DOCUMENTS.len()])),
            // What redis-cell leaves behind: a TAT in nanoseconds. Some are absurd.
            "cell" => {
                let ahead_ns = self.rng.i64(0..3_600_000_000_000);
                let tat_ns = if index == 0 { i64::MAX } else { self.now_us * 1_000 + ahead_ns };
                typed(&format!("SET {key} {tat_ns}"))
            }
            "str" => typed(&format!("SET {key} text")),
            "list" => typed(&format!("RPUSH {key} a")),
            "hash" => typed(&format!("HSET {key} f v")),
            "set" => typed(&format!("SADD {key} a")),
            "zset" => typed(&format!("ZADD {key} 1 a")),
            _ => typed(&format!("XADD {key} * f v")),
        }
    }

    /// The next call: six in ten well-formed, three in ten bent, the rest the server's own.
    pub fn next_call(&mut self) -> Call {
        if let Some(call) = self.pending.pop_front() {
            return call;
        }
        match self.rng.u32(0..100) {
            0..58 => self.well_formed(),
            58..61 => self.scripted(),
            61..63 => self.transaction(),
            63..90 => self.bent(),
            90..93 => self.clock(),
            _ => self.native(),
        }
    }

    /// A call that only the state can refuse.
    pub fn well_formed(&mut self) -> Call {
        match self.rng.u32(0..150) {
            0..28 => self.gcra(),
            28..38 => self.gcra_peek(),
            38..46 => self.mgcra(),
            46..58 => self.window(),
            58..63 => self.window_peek(),
            63..75 => self.throttle(),
            75..100 => self.breaker(),
            _ => self.without_waiting(),
        }
    }

    /// True in the middle of a transaction.
    pub fn owes(&self) -> bool {
        !self.pending.is_empty()
    }

    /// A call of a machine that can be waited for, which does not wait.
    pub fn without_waiting(&mut self) -> Call {
        self.waited(false)
    }

    /// Where nobody can wait, asking to wait is harmless.
    fn where_nobody_waits(&mut self) -> Call {
        if self.rng.bool() { self.waited(true) } else { self.well_formed() }
    }

    /// MULTI, some calls, EXEC.
    fn transaction(&mut self) -> Call {
        let calls: Vec<Call> = (0..self.rng.usize(1..6)).map(|_| self.where_nobody_waits()).collect();
        let asked = calls.iter().map(|call| call.asked.clone()).collect();
        self.pending.extend(calls.into_iter().map(|call| Call { asked: Asked::Native, ..call }));
        self.pending.push_back(Call { words: words(["EXEC"]), asked: Asked::Exec(asked) });
        Call { words: words(["MULTI"]), asked: Asked::Native }
    }

    fn gcra(&mut self) -> Call {
        let (mut call, capacities) = self.tiers("RES.GCRA");
        let cells = self.cells();
        let (option, ask) = match self.rng.u32(0..10) {
            0..3 => (None, Ask::Cost(1)),
            3..5 => (Some(("COST", cells.to_string())), Ask::Cost(cells)),
            5..7 => (Some(("UPTO", cells.to_string())), Ask::UpTo(cells)),
            7..9 => (Some(("REFUND", cells.to_string())), Ask::Refund(cells)),
            _ => {
                let within_us = self.spread(DAY_US);
                let text = self.duration(within_us);
                let cells = if self.rng.bool() { 1 } else { cells };
                let within_ms = within_us.div_euclid(1_000) + 1;
                if cells > 1 {
                    call.extend([self.cased("COST"), cells.to_string().into_bytes()]);
                }
                (Some(("RESERVE", text)), Ask::Reserve { cells, within_ms })
            }
        };
        if let Some((word, value)) = option {
            call.extend([self.cased(word), value.into_bytes()]);
        }
        Call { words: call, asked: Asked::Gcra { capacities, ask } }
    }

    fn gcra_peek(&mut self) -> Call {
        let (words, capacities) = self.tiers("RES.GCRA.PEEK");
        Call { words, asked: Asked::Gcra { capacities, ask: Ask::Peek } }
    }

    /// The name, a key and one to eight tiers of different periods, with their capacities.
    fn tiers(&mut self, name: &str) -> (Words, Vec<i64>) {
        let mut call = vec![self.cased(name), self.key("gcr")];
        let count = if self.rng.u32(0..4) > 0 { 1 } else { self.rng.usize(2..=8) };
        let mut periods = Vec::new();
        let mut capacities = Vec::new();
        for _ in 0..count {
            let (limit, period_us, capacity) = self.quota();
            if periods.contains(&period_us) {
                continue;
            }
            if !periods.is_empty() {
                call.push(self.cased("AND"));
            }
            call.extend([limit.to_string().into_bytes(), self.duration(period_us).into_bytes()]);
            if capacity != limit || self.rng.bool() {
                call.extend([self.cased("BURST"), capacity.to_string().into_bytes()]);
            }
            periods.push(period_us);
            capacities.push(capacity);
        }
        (call, capacities)
    }

    fn mgcra(&mut self) -> Call {
        let cost = self.cells();
        let mut call = vec![self.cased("RES.MGCRA"), cost.to_string().into_bytes()];
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut capacities = Vec::new();
        let most = if self.rng.u32(0..50) == 0 { 128 } else { 6 };
        for _ in 0..self.rng.usize(1..=most) {
            let key = if most == 128 { format!("gcr:{}", self.rng.u32(..)).into_bytes() } else { self.key("gcr") };
            if keys.contains(&key) {
                continue;
            }
            let (limit, period_us, capacity) = self.quota();
            let numbers = [limit.to_string(), self.duration(period_us), capacity.to_string()];
            call.push(key.clone());
            call.extend(numbers.map(String::into_bytes));
            keys.push(key);
            capacities.push(capacity);
        }
        Call { words: call, asked: Asked::Mgcra { capacities, cost } }
    }

    fn window(&mut self) -> Call {
        let (mut call, limit, period_us) = self.rule("RES.WINDOW");
        let cells = self.cells();
        let (option, ask) = match self.rng.u32(0..3) {
            0 => (None, Ask::Cost(1)),
            1 => (Some("COST"), Ask::Cost(cells)),
            _ => (Some("UPTO"), Ask::UpTo(cells)),
        };
        if let Some(word) = option {
            call.extend([self.cased(word), cells.to_string().into_bytes()]);
        }
        Call { words: call, asked: Asked::Window { limit, period_ms: period_us / 1_000 + 1, ask } }
    }

    fn window_peek(&mut self) -> Call {
        let (words, limit, period_us) = self.rule("RES.WINDOW.PEEK");
        Call { words, asked: Asked::Window { limit, period_ms: period_us / 1_000 + 1, ask: Ask::Peek } }
    }

    fn rule(&mut self, name: &str) -> (Words, i64, i64) {
        let limit = self.spread(WINDOW_LIMIT_DEFAULT as i64);
        let period_us = self.spread(PERIOD_MAX.as_us());
        let call =
            [self.cased(name), self.key("win"), limit.to_string().into_bytes(), self.duration(period_us).into_bytes()];
        (call.to_vec(), limit, period_us)
    }

    fn throttle(&mut self) -> Call {
        let count = self.spread(CELLS_MAX as i64);
        let period_s = self.spread(PERIOD_MAX.as_us() / 1_000_000);
        let capacity = self.fillable(count, period_s * 1_000_000);
        let kind = if self.rng.bool() { "cell" } else { "gcr" };
        let mut call = vec![self.cased("CL.THROTTLE"), self.key(kind)];
        call.extend([capacity - 1, count, period_s].map(|number| number.to_string().into_bytes()));
        let quantity = match self.rng.u32(0..4) {
            0 => 0,
            1 => -self.cells(),
            2 => 1,
            _ => self.cells(),
        };
        if quantity != 1 || self.rng.bool() {
            call.push(quantity.to_string().into_bytes());
        }
        Call { words: call, asked: Asked::Throttle { capacity, quantity } }
    }

    /// A well-formed call from inside a script.
    fn scripted(&mut self) -> Call {
        let Call { words: call, asked } = self.where_nobody_waits();
        let mut script = words(["EVAL", "return redis.call(unpack(ARGV))", "0"]);
        script.extend(call);
        Call { words: script, asked }
    }

    /// One of ours with one to three things wrong, or right by accident.
    fn bent(&mut self) -> Call {
        let mut call = self.well_formed().words;
        for _ in 0..self.rng.usize(1..=3) {
            let at = self.rng.usize(1..=call.len());
            let from = self.rng.usize(1..=call.len());
            match (self.rng.u32(0..7), at < call.len()) {
                (0, true) => drop(call.remove(at)),
                (1, true) => call[at] = self.junk(),
                (2, true) if from < call.len() => call.swap(at, from),
                (3, true) => call.truncate(at.max(1)),
                (4, _) if from < call.len() => call.insert(at, call[from].clone()),
                (5, _) => call.insert(at, self.rng.choice(WORDS).map(|w| w.as_bytes().to_vec()).unwrap_or_default()),
                _ => call.insert(at, self.junk()),
            }
        }
        // It might hang on the link to the replica, which stays.
        if call.iter().any(|word| word.eq_ignore_ascii_case(b"BOUNDTO")) {
            return self.bent();
        }
        Call { words: call, asked: Asked::Bent }
    }

    fn junk(&mut self) -> Vec<u8> {
        match self.rng.u32(0..2_000) {
            0 => vec![b'9'; 1 << 20],
            1 => vec![0xff; 1 << 20],
            2..200 => (0..self.rng.usize(0..40)).map(|_| self.rng.u8(..)).collect(),
            _ => JUNK[self.rng.usize(..JUNK.len())].to_vec(),
        }
    }

    /// Time goes on; now and then it jumps, backwards too.
    fn clock(&mut self) -> Call {
        let latest_us = INSTANT_MAX_US - FILL_MAX.as_us() - 1_000 * DAY_US;
        self.now_us = match self.rng.u32(0..20) {
            0 => self.epoch_us + self.spread(3_650 * DAY_US),
            1 => self.epoch_us - self.spread(365 * DAY_US),
            2 => *self.rng.choice(&[1, 1_000, latest_us, latest_us - 1]).unwrap_or(&1),
            3..6 => self.epoch_us,
            _ => self.now_us.saturating_add(self.spread(10_000_000)).clamp(1, latest_us),
        };
        self.latest_us = self.latest_us.max(self.now_us);
        Call { words: words(["RES._CLOCK", &self.now_us.to_string()]), asked: Asked::Native }
    }

    /// Later than it ever was: nothing lies ahead of this clock, and no lease outlives it.
    pub fn end_of_time(&mut self) -> Words {
        self.now_us = self.latest_us.max(self.now_us) + 400 * DAY_US;
        words(["RES._CLOCK", &self.now_us.to_string()])
    }

    /// What other clients do to the same keys.
    fn native(&mut self) -> Call {
        let kind = TYPES[self.rng.usize(..TYPES.len())];
        let index = self.rng.usize(..KEYS_PER_TYPE);
        let key = format!("{kind}:{index}");
        // Mostly within a type, or every key would soon be a list.
        let other_kind = if self.rng.u32(0..20) == 0 { "gcr" } else { kind };
        let other = format!("{other_kind}:{}", self.rng.usize(..KEYS_PER_TYPE));
        let line = match self.rng.u32(0..16) {
            0..4 => return Call { words: self.creation(kind, index), asked: Asked::Native },
            4 => format!("DEL {key}"),
            5 => format!("RENAME {key} {other}"),
            6 => format!("COPY {key} {other} REPLACE"),
            7 => format!("PEXPIRE {key} {}", self.rng.u32(1..100_000)),
            8 => format!("PERSIST {key}"),
            9 => format!("DEBUG DIGEST-VALUE {key} {other}"),
            10 => format!("MEMORY USAGE {key}"),
            11 => format!("DUMP {key}"),
            12 => format!("OBJECT ENCODING {key}"),
            13 => format!("UNLINK {key}"),
            14 => format!("TYPE {key}"),
            _ => {
                let mut asking = words(["COMMAND", "GETKEYS"]);
                asking.extend(self.bent().words);
                return Call { words: asking, asked: Asked::Native };
            }
        };
        Call { words: typed(&line), asked: Asked::Native }
    }

    /// A key of the kind that fits, or now and then of another.
    pub(super) fn key(&mut self, fitting: &str) -> Vec<u8> {
        match self.rng.u32(0..20) {
            0 => [b"\xff\0\r\n ".as_slice(), &[self.rng.u8(0..4)]].concat(),
            1..5 => {
                let kind = TYPES[self.rng.usize(..TYPES.len())];
                format!("{kind}:{}", self.rng.usize(..KEYS_PER_TYPE)).into_bytes()
            }
            _ => format!("{fitting}:{}", self.rng.usize(..KEYS_PER_TYPE)).into_bytes(),
        }
    }

    /// `(limit, period_us, capacity)` that can be filled in time.
    fn quota(&mut self) -> (i64, i64, i64) {
        let (limit, period_us) = match self.rng.u32(0..4) {
            // Usual ones, often the same, so that tiers meet.
            0 | 1 => (self.rng.i64(1..=20), [1_000_000, 60_000_000, 3_600_000_000][self.rng.usize(..3)]),
            2 => (self.spread(1_000), self.spread(DAY_US)),
            _ => (self.spread(CELLS_MAX as i64), self.spread(PERIOD_MAX.as_us())),
        };
        (limit, period_us, self.fillable(limit, period_us))
    }

    fn fillable(&mut self, limit: i64, period_us: i64) -> i64 {
        let most = FILL_MAX.as_us() as i128 * limit as i128 / period_us as i128;
        let most = most.min(CELLS_MAX as i128) as i64;
        match self.rng.u32(0..8) {
            0 => most,
            1 | 2 => self.spread(most),
            _ => limit.min(most),
        }
    }

    pub(super) fn cells(&mut self) -> i64 {
        if self.rng.u32(0..5) > 0 { self.rng.i64(1..=15) } else { self.spread(CELLS_MAX as i64) }
    }

    /// From 1 to `most`, every order of magnitude alike, the ends more often.
    pub(super) fn spread(&mut self, most: i64) -> i64 {
        let bits = 64 - most.leading_zeros();
        let below = 1 << self.rng.u32(0..bits).min(62);
        match self.rng.u32(0..12) {
            0 => most,
            1 => 1,
            _ => self.rng.i64(0..below).clamp(1, most),
        }
    }

    /// A duration in any unit that can say it.
    pub(super) fn duration(&mut self, us: i64) -> String {
        let units =
            [("d", DAY_US), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("MS", 1_000), ("", 1_000)];
        let fitting: Vec<_> = units.iter().filter(|(_, unit_us)| us % unit_us == 0).collect();
        match self.rng.choice(fitting) {
            Some((name, unit_us)) => format!("{}{name}", us / unit_us),
            None => format!("{us}us"),
        }
    }

    pub(super) fn cased(&mut self, word: &str) -> Vec<u8> {
        if self.rng.u32(0..8) == 0 { word.to_ascii_lowercase().into_bytes() } else { word.as_bytes().to_vec() }
    }
}
