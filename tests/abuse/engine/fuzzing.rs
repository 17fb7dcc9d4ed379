//! One server, one replica, calls by the thousand.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use resil_harness::{Options, Server, eventually, wait_for_sync};

use super::asked::{Asked, check};
use super::crowd::Crowd;
use super::generator::{Call, Generator};
use super::resp::{Client, Reply, shown, words};
use super::server_state::{
    assert_no_internal_errors, assert_nothing_is_left_after_a_flush, contents, counter, info_field, must, persist_all,
};

/// Calls per round trip.
const BATCH: usize = 1_000;
/// Kills and unblocks among them, about.
const MOST_DISTURBANCES: usize = 8;

/// A server under fire and the replica that follows it.
pub struct Fuzz {
    primary: Server,
    replica: Server,
    client: Client,
    generator: Generator,
    pub crowd: Crowd,
    pub tally: Tally,
}

#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    pub calls: usize,
    pub well_formed: usize,
    pub verdicts: usize,
    pub wrong_types: usize,
    pub refusals: usize,
    pub slowest_batch_ms: u128,
}

impl Fuzz {
    pub fn start(rng: Rng) -> Self {
        Self::start_with(rng, Options::default())
    }

    pub fn start_with(rng: Rng, options: Options) -> Self {
        let options = options.module_args(["test-clock", "yes"]);
        let primary = Server::start(options.clone());
        let replica = Server::replica_of(&primary, options);
        let client = Client::new(&primary);
        let (generator, crowd) = (Generator::new(rng, real_us()), Crowd::default());
        let mut fuzz = Self { primary, replica, client, generator, crowd, tally: Tally::default() };
        let keyspace = fuzz.generator.keyspace();
        fuzz.client.pipeline(keyspace.iter().map(Vec::as_slice));
        fuzz
    }

    /// Sends `count` calls; every reply must obey what its call promises.
    pub fn run(&mut self, count: usize) {
        for sent in (0..count).step_by(BATCH) {
            self.crowd.ask(&self.primary, &mut self.generator);
            let calls = self.batch(BATCH.min(count - sent));
            let began = Instant::now();
            let replies = self.client.pipeline(calls.iter().map(|call| call.words.as_slice()));
            for (call, reply) in calls.iter().zip(&replies) {
                if let Err(broken) = check(&call.asked, reply) {
                    panic!("{broken}\n  call: {}\n  asked: {:?}\n  reply: {reply:?}", shown(&call.words), call.asked);
                }
                self.tally.add(&call.asked, reply);
                self.generator.learn(call, reply);
            }
            self.tally.slowest_batch_ms = self.tally.slowest_batch_ms.max(began.elapsed().as_millis());
            self.crowd.hear(&mut self.client, &mut self.generator);
        }
    }

    /// Calls by chance, in whole transactions, and what is done to those who wait in between.
    fn batch(&mut self, count: usize) -> Vec<Call> {
        let mut disturbances = self.crowd.disturbances(&mut self.generator);
        let mut calls: Vec<Call> = Vec::with_capacity(count);
        while calls.len() < count || self.generator.owes() {
            calls.push(self.generator.next_call());
            if !self.generator.owes() && self.generator.rng.usize(..count) < 4 * MOST_DISTURBANCES {
                calls.extend(disturbances.pop().map(|words| Call { words, asked: Asked::Native }));
            }
        }
        calls.extend(disturbances.into_iter().map(|words| Call { words, asked: Asked::Native }));
        calls
    }

    /// Every connection closes: nothing waits, and nothing hangs on anybody any more.
    pub fn everybody_leaves(&mut self) {
        self.crowd.leave();
        self.generator.others.clear();
        self.client = Client::new(&self.primary);
        let client = &mut self.client;
        let began = Instant::now();
        loop {
            let left = ["blocked_waiters", "sessions", "bound"].map(|gauge| counter(client, gauge));
            if left == [0; 3] {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(10), "waiters, sessions, bound: {left:?}");
        }
    }

    /// What must hold whenever one looks: nothing went wrong inside, and the replica has the same.
    pub fn audit(&mut self) {
        persist_all(&mut self.client);
        wait_for_sync(&self.primary, &self.replica);
        let mut follower = Client::new(&self.replica);
        assert_eq!(counter(&mut follower, "apply_refused"), 0, "the replica accepts whatever its primary sends");
        let (here, there) = (contents(&mut self.client), contents(&mut follower));
        let differ: Vec<String> = here
            .keys()
            .chain(there.keys())
            .filter(|key| here.get(*key) != there.get(*key))
            .map(|key| {
                let name = String::from_utf8_lossy(key);
                format!(
                    "{name} ({:?}): {:?}, {:?}",
                    self.client.typed(&format!("TYPE {name}")),
                    here.get(key),
                    there.get(key)
                )
            })
            .collect();
        assert!(differ.is_empty(), "primary and replica hold the same values: {differ:#?}");
        for client in [&mut self.client, &mut follower] {
            assert_no_internal_errors(client);
        }
    }

    /// The slowest command since the last time, by the server's own clock: milliseconds, and what it was.
    pub fn slowest_command(&mut self) -> Option<(i64, String)> {
        let Reply::Array(entries) = must(&mut self.client, "SLOWLOG GET 128") else { panic!("SLOWLOG is a list") };
        must(&mut self.client, "SLOWLOG RESET");
        let slowest = entries.iter().filter_map(|entry| match entry {
            Reply::Array(fields) => match (&fields[2], &fields[3]) {
                (Reply::Integer(us), command) => Some((us / 1_000, format!("{command:?}"))),
                _ => None,
            },
            _ => None,
        });
        slowest.max()
    }

    /// A counter of the primary's `INFO resil`.
    pub fn counter(&mut self, name: &str) -> i64 {
        counter(&mut self.client, name)
    }

    /// A reload finds every value again. The replica knows nothing of it, so this comes last.
    ///
    /// A reload looks at every key, so whatever a clock set back left unmended would be mended by it: time goes on first.
    pub fn reload(mut self) {
        let set = self.client.call(&self.generator.end_of_time());
        assert!(!set.is_error(), "{set:?}");
        let mut before = BTreeMap::new();
        eventually("nothing changes any more", Duration::from_secs(10), || {
            persist_all(&mut self.client);
            std::mem::replace(&mut before, contents(&mut self.client)) == before
        });
        let dump = |client: &mut Client, key: &[u8]| format!("{:?}", client.call(&words([b"DUMP".as_slice(), key])));
        let dumps: BTreeMap<_, _> = before.keys().map(|key| (key.clone(), dump(&mut self.client, key))).collect();
        must(&mut self.client, "DEBUG RELOAD");
        let after = contents(&mut self.client);
        let differs = before.keys().filter(|key| after.get(*key) != before.get(*key));
        let differ: Vec<_> = differs
            .map(|key| format!("{}: {} became {}", key.escape_ascii(), dumps[key], dump(&mut self.client, key)))
            .collect();
        assert!(before.len() == after.len() && differ.is_empty(), "a reload finds the same values: {differ:?}");
        assert_no_internal_errors(&mut self.client);
    }

    /// Empties the server, furnishes it again, and says how many bytes were in use in between: a leak would raise it.
    pub fn bytes_when_empty(&mut self) -> u64 {
        assert_nothing_is_left_after_a_flush(&mut self.client);
        let used = info_field(&mut self.client, "memory", "used_memory");
        let keyspace = self.generator.keyspace();
        self.client.pipeline(keyspace.iter().map(Vec::as_slice));
        used.parse().expect("a number of bytes")
    }
}

impl Tally {
    fn add(&mut self, asked: &Asked, reply: &Reply) {
        self.calls += 1;
        self.well_formed += !matches!(asked, Asked::Bent | Asked::Native) as usize;
        match reply {
            Reply::Error(line) if line.starts_with(b"WRONGTYPE") => self.wrong_types += 1,
            Reply::Error(_) => self.refusals += 1,
            _ => self.verdicts += 1,
        }
    }
}

fn real_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_micros() as i64
}
