//! `RES._APPLY` over a real replication link: good, malformed and from the future, by the thousand. What should have come
//! of it is kept beside, with the core's own `apply`.

use std::collections::BTreeMap;

use fastrand::Rng;

use resil_core::circuit_breaker::{
    Batch, Breaker, Caller, Edit, Force, Tally, admit, decode_breaker, encode_breaker, encode_edits, force, tally,
};
use resil_core::codec::{self, Change};
use resil_core::{Instant, Sent};
use resil_harness::{Options, Server};

use super::fake_primary::FakePrimary;
use super::resp::{Client, Words, words};
use super::server_state::{assert_no_internal_errors, counter};
use super::states::{self, TierParts};
use super::waited_states::{self, after};

const KEYS: usize = 40;
/// Half a century ahead: no server expires what is written there while the test runs.
const FAR_US: u64 = 3_400_000_000_000_000;
const HOUR_US: u64 = 3_600_000_000;

pub struct Streaming {
    pub replica: Server,
    primary: FakePrimary,
    rng: Rng,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    pub expected: Expected,
}

/// What the replica's counters must say.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    pub applied: i64,
    pub apply_refused: i64,
    pub apply_unknown_version: i64,
}

impl Streaming {
    pub fn start(rng: Rng) -> Self {
        // A dump is searched for the bytes that were sent: they must not be compressed.
        // A fake primary sends no heartbeat: a long pause between two runs must not end the link.
        let options = Options::default().config("rdbcompression", "no").config("repl-timeout", "3600");
        let replica = Server::start(options);
        let primary = FakePrimary::of(&replica);
        Self { replica, primary, rng, model: BTreeMap::new(), expected: Expected::default() }
    }

    /// Streams `count` commands of every kind.
    pub fn run(&mut self, count: usize) {
        for sent in (0..count).step_by(1_000) {
            let calls: Vec<Words> = (0..(count - sent).min(1_000)).flat_map(|_| self.next_calls()).collect();
            self.primary.send(&calls);
        }
        self.primary.wait_until_applied(&self.replica);
    }

    /// The replica holds what was good, counted what was not, and nothing else happened.
    pub fn audit(&mut self) {
        let mut client = Client::new(&self.replica);
        assert_no_internal_errors(&mut client);
        let counted = Expected {
            applied: counter(&mut client, "applied"),
            apply_refused: counter(&mut client, "apply_refused"),
            apply_unknown_version: counter(&mut client, "apply_unknown_version"),
        };
        assert_eq!(counted, self.expected, "the replica counts what it applied, refused and did not know");
        for (key, state) in &self.model {
            let dump = client.call(&words([b"DUMP".as_slice(), key])).bytes();
            assert!(
                dump.windows(state.len()).any(|part| part == state),
                "{} should hold {}, but its dump is {}",
                key.escape_ascii(),
                state.escape_ascii(),
                dump.escape_ascii()
            );
        }
        let keys = client.typed("DBSIZE");
        assert_eq!(keys, super::resp::Reply::Integer(self.model.len() as i64), "no other key came to be");
    }

    fn next_calls(&mut self) -> Vec<Words> {
        match self.rng.u32(0..10) {
            0..5 => vec![self.good()],
            5..8 => vec![self.malformed()],
            8 => vec![self.of_a_later_version()],
            // As a primary sends several effects of one transaction.
            _ => vec![words(["MULTI"]), self.good(), self.malformed(), self.good(), words(["EXEC"])],
        }
    }

    /// One to three changes that must be applied.
    fn good(&mut self) -> Words {
        let mut call = words(["RES._APPLY"]);
        for _ in 0..self.rng.usize(1..=3) {
            let (key, bytes) = self.good_change();
            call.extend([key, b"1".to_vec(), bytes]);
            self.expected.applied += 1;
        }
        call
    }

    fn good_change(&mut self) -> (Vec<u8>, Vec<u8>) {
        let index = self.rng.usize(..KEYS);
        let key = format!("key:{index}").into_bytes();
        // As many keys hold tiers as windows, breakers, locks, and so on; a whole state may replace one of another type.
        let bytes = match (index % 7, self.rng.u32(0..10)) {
            (0, 0..8) | (_, 8) => self.tiers(),
            (kind @ 3.., 0..8) => {
                let kind = waited_states::KINDS[kind - 3];
                let edits = self.rng.bool() && self.model.get(&key).is_some_and(|state| state[0] == kind);
                let at_us = FAR_US + self.rng.u64(..HOUR_US);
                if edits {
                    waited_states::edits(kind, at_us, &mut self.rng)
                } else {
                    waited_states::whole(kind, at_us, &mut self.rng)
                }
            }
            (1, 0..6) if self.holds_or_nothing(&key, b'W') => self.log_change(),
            (2, 0..8) => self.breaker_change(&key),
            _ => self.log(),
        };
        self.model_change(&key, &bytes);
        (key, bytes)
    }

    fn holds_or_nothing(&self, key: &[u8], tag: u8) -> bool {
        self.model.get(key).is_none_or(|state| state[0] == tag)
    }

    /// What a step really does to the breaker at `key`: its edits, or now and then, and over another type, the whole.
    fn breaker_change(&mut self, key: &[u8]) -> Vec<u8> {
        let fits = self.holds_or_nothing(key, b'B');
        let stored = self.model.get(key).filter(|_| fits);
        let mut breaker = stored.map_or_else(Breaker::default, |state| decode_breaker(state).expect("a breaker"));
        let now = Instant::from_us((FAR_US + self.rng.u64(..HOUR_US)) as i64);
        let edits = match self.rng.u32(0..4) {
            0 => force(&mut breaker, Some(Force::Metrics), None, (b"actor", b"\xff\0"), now).edits,
            1 => admit(&mut breaker, Caller::named(b"a"), None, 0, now).expect("no options").edits,
            _ => {
                let failures = self.rng.u32(0..4);
                let batch = Batch { ok: 1, failures, slow: 0, run: failures };
                let caller = Caller::named(&[self.rng.u8(..)]);
                tally(&mut breaker, Tally { generation: 0, caller, seq: self.rng.u64(..1_000), batch }, now).edits
            }
        };
        if edits.is_empty() || !fits || self.rng.u32(0..5) == 0 {
            // A breaker that was never seen would be collected at once.
            breaker.apply(&Edit::Heard { caller: Caller::default(), seq: 1 });
            breaker.apply(&Edit::Record { at_us: now.as_us(), caller: Caller::default(), batch: Batch::default() });
            return codec::to_vec(|out| encode_breaker(&breaker, out));
        }
        codec::to_vec(|out| encode_edits(&edits, out))
    }

    fn model_change(&mut self, key: &[u8], bytes: &[u8]) {
        let state = match codec::decode(bytes).expect("a good change") {
            Change::Window(Sent::Edits(change)) => {
                let stored = self.model.get(key).map(|state| codec::decode_log(state).expect("a log"));
                let mut window = stored.unwrap_or_default();
                window.apply(&change);
                codec::to_vec(|out| codec::encode_log(&window, out))
            }
            Change::Breaker(Sent::Edits(edits)) => {
                let stored = self.model.get(key).map(|state| decode_breaker(state).expect("a breaker"));
                let mut breaker = stored.unwrap_or_default();
                edits.iter().for_each(|edit| breaker.apply(edit));
                codec::to_vec(|out| encode_breaker(&breaker, out))
            }
            change => after(self.model.get(key).map(Vec::as_slice), change).unwrap_or_else(|| bytes.to_vec()),
        };
        self.model.insert(key.to_vec(), state);
    }

    fn tiers(&mut self) -> Vec<u8> {
        let count = self.rng.u64(1..=4);
        let tiers: Vec<TierParts> = (1..=count)
            .map(|tier| {
                let limit = self.rng.u64(1..1_000_000);
                TierParts {
                    period_us: tier * HOUR_US,
                    limit,
                    capacity: self.rng.u64(1..limit * 2),
                    tat_us: FAR_US + self.rng.u64(..1_000_000_000),
                    frac: self.rng.u64(0..limit),
                    overhang_ms: if self.rng.bool() { 0 } else { self.rng.u64(0..=86_400_000) },
                }
            })
            .collect();
        states::tiers(&tiers)
    }

    fn log(&mut self) -> Vec<u8> {
        let entries: Vec<(u64, u64)> = (0..self.rng.u64(1..20))
            .map(|index| {
                let distance_us = self.rng.u64(1..1_000_000);
                (if index == 0 { FAR_US + distance_us } else { distance_us }, self.rng.u64(1..100))
            })
            .collect();
        states::log(HOUR_US, &entries)
    }

    fn log_change(&mut self) -> Vec<u8> {
        states::log_change(HOUR_US, 1 << 53, FAR_US + self.rng.u64(..HOUR_US), self.rng.u64(1..100))
    }

    /// A command no replica may obey, in part either: it is refused as a whole.
    fn malformed(&mut self) -> Words {
        self.expected.apply_refused += 1;
        let good = match self.rng.u32(0..5) {
            3 => waited_states::whole(waited_states::KINDS[self.rng.usize(..4)], FAR_US, &mut self.rng),
            4 => waited_states::edits(waited_states::KINDS[self.rng.usize(..4)], FAR_US, &mut self.rng),
            0 => self.tiers(),
            1 => self.log(),
            _ => self.breaker_change(b"no such key"),
        };
        let key = format!("key:{}", self.rng.usize(..KEYS)).into_bytes();
        let call = |words_after: &[&[u8]]| {
            let mut call = words(["RES._APPLY"]);
            call.extend(words_after.iter().map(|word| word.to_vec()));
            call
        };
        match self.rng.u32(0..11) {
            0 => call(&[]),
            1 => call(&[&key]),
            2 => call(&[&key, b"1"]),
            3 => call(&[&key, b"1", b""]),
            4 => {
                // Without its last byte; edits may end with one that is a byte long.
                let cut = &good[..good.len() - 1];
                call(&[&key, b"1", if codec::decode(cut).is_ok() { b"" } else { cut }])
            }
            5 => call(&[&key, b"1", &[good.as_slice(), b"\0"].concat()]),
            6 => {
                let version = [b"0".as_slice(), b"-1", b"", b"one", b"1.0", b"\xff", b"9223372036854775808"];
                call(&[&key, version[self.rng.usize(..version.len())], &good])
            }
            // A good change before a bad one in the same command: neither.
            7 => call(&[&key, b"1", &good, b"other", b"1", b"G\x01"]),
            8 => call(&[&key, b"1", &good, b"other"]),
            9 => {
                let tier = TierParts { period_us: 0, limit: 1, capacity: 1, tat_us: FAR_US, frac: 0, overhang_ms: 0 };
                call(&[&key, b"1", &states::tiers(&[tier])])
            }
            _ => {
                let noise: Vec<u8> = (0..self.rng.usize(1..60)).map(|_| self.rng.u8(..)).collect();
                call(&[&key, b"1", if codec::decode(&noise).is_ok() { b"" } else { &noise }])
            }
        }
    }

    /// What a newer primary might send: not understood, counted, and nothing else.
    fn of_a_later_version(&mut self) -> Words {
        self.expected.apply_unknown_version += 1;
        let version = self.rng.i64(2..1_000).to_string();
        let key = format!("future:{}", self.rng.usize(..KEYS));
        words([b"RES._APPLY".as_slice(), key.as_bytes(), version.as_bytes(), b"bytes of a later version"])
    }
}
