//! A server under load, and what one run on it costs.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::Connection;
use resil_harness::{Options, Server, ok, wait_for_sync};

use crate::affinity::OneCore;
use crate::client::Client;
use crate::figures::median;
use crate::load::{Batches, Call, Load, Random, Sent};

/// How much is sent; a smoke run sends less.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub keys: u32,
    /// Calls that are measured, per run.
    pub calls: usize,
    pub pipeline: usize,
}

/// What one run gave.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub calls_per_s: f64,
    /// Time the server's main thread was on a CPU, in the kernel too, per call.
    pub cpu_us: f64,
    /// How many times faster than the reference beside it, by calls per second and by CPU time.
    pub rate_ratio: f64,
    pub cpu_ratio: f64,
}

impl Sample {
    /// The medians of the samples, each number by itself.
    pub fn median(samples: &[Self]) -> Self {
        let of = |number: fn(&Self) -> f64| median(samples.iter().map(number));
        Self {
            calls_per_s: of(|sample| sample.calls_per_s),
            cpu_us: of(|sample| sample.cpu_us),
            rate_ratio: of(|sample| sample.rate_ratio),
            cpu_ratio: of(|sample| sample.cpu_ratio),
        }
    }
}

/// A run is cut into slices, each beside a slice of the reference, and the median counts: a neighbour of the machine
/// that is busy for a while slows both, and one that is busy for a moment spoils some slices, not the run.
const SLICES: usize = 10;

/// A thread's CPU time is booked when it goes to sleep; an idle server does so at once.
pub const SETTLE: Duration = Duration::from_millis(2);

const FIRST_KEY: &str = "key:0000000000";

pub struct Stage {
    server: Server,
    replica: Option<Server>,
    control: Connection,
    client: Client,
}

/// A part of a run, ready to be sent.
struct Slice<'a> {
    batches: Batches,
    calls: usize,
    call: &'a Call,
    sent: Sent,
}

/// What a call cost in a slice.
struct Cost {
    elapsed_us: f64,
    cpu_us: f64,
}

fn slices_of(load: &Load, size: Size, seed: u64) -> Vec<Slice<'_>> {
    let mut random = Random::seeded(seed);
    let calls = size.calls / load.divisor / SLICES;
    let pipeline = if load.sent == Sent::Pipelined { size.pipeline } else { 1 };
    let mut batches = || load.call.batches((0..calls).map(|_| load.keys.draw(&mut random, size)), pipeline);
    (0..SLICES).map(|_| Slice { batches: batches(), calls, call: &load.call, sent: load.sent }).collect()
}

impl Stage {
    pub fn alone(options: Options) -> Self {
        let server = Server::start(options);
        let control = server.connect();
        let client = Client::new(|| server.raw());
        Self { server, replica: None, control, client }
    }

    pub fn with_replica(options: Options) -> Self {
        Self::beside_replica(options.clone(), options)
    }

    /// The same with other options for the replica.
    pub fn beside_replica(options: Options, replica: Options) -> Self {
        let mut stage = Self::alone(options);
        stage.replica = Some(Server::replica_of(&stage.server, replica));
        stage
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The digest by which EVALSHA knows the script.
    pub fn load_script(&mut self, script: &str) -> String {
        redis::from_redis_value(ok(&mut self.control, &["SCRIPT", "LOAD", script])).expect("a digest is text")
    }

    /// Makes the keys of `load`, on an empty server.
    pub fn prepare(&mut self, load: &Load, size: Size) {
        self.fill(load, size);
        self.catch_up();
    }

    /// Runs `load` here and `other` beside it, slice by slice, on keys that are there.
    pub fn measure(&mut self, load: &Load, reference: &mut Stage, other: &Load, size: Size, seed: u64) -> Sample {
        let (mine, theirs) = (slices_of(load, size, seed), slices_of(other, size, seed + 1_000));
        let samples: Vec<Sample> = mine
            .iter()
            .zip(&theirs)
            .enumerate()
            .map(|(index, (mine, theirs))| {
                // Now this one first, now the other: what grows or shrinks with time cancels out.
                let (cost, beside) = if index % 2 == 0 {
                    let cost = self.run(mine);
                    (cost, reference.run(theirs))
                } else {
                    let beside = reference.run(theirs);
                    (self.run(mine), beside)
                };
                Sample {
                    calls_per_s: 1e6 / cost.elapsed_us,
                    cpu_us: cost.cpu_us,
                    rate_ratio: beside.elapsed_us / cost.elapsed_us,
                    cpu_ratio: beside.cpu_us / cost.cpu_us,
                }
            })
            .collect();
        Sample::median(&samples)
    }

    fn run(&mut self, slice: &Slice<'_>) -> Cost {
        let _one_core = (slice.sent == Sent::OneByOne).then(|| OneCore::share_with(self.server.pid()));
        let cpu_before_us = cpu_us(&self.server);
        let started = Instant::now();
        match slice.sent {
            Sent::Pipelined => self.client.run(&slice.batches, slice.call),
            Sent::OneByOne => self.client.run_one_by_one(&slice.batches, slice.call),
        }
        let elapsed = started.elapsed();
        self.catch_up();
        let calls = slice.calls as f64;
        Cost { elapsed_us: elapsed.as_secs_f64() * 1e6 / calls, cpu_us: (cpu_us(&self.server) - cpu_before_us) / calls }
    }

    /// Instructions of the server for each call of the load, which `keep` says more of. The server counts them.
    pub fn instructions(&mut self, load: &Load, size: Size, keep: &Path) -> f64 {
        self.prepare(load, size);
        let mut random = Random::seeded(1);
        let calls = size.calls / load.divisor;
        let batches = load.call.batches((0..calls).map(|_| load.keys.draw(&mut random, size)), size.pipeline);
        let (instructions, dump) = self.server.count(|| self.client.run(&batches, &load.call));
        fs::copy(dump, keep).expect("what was counted can be kept");
        instructions as f64 / calls as f64
    }

    /// Bytes the server uses for each key of the load, its name and its expiry included.
    pub fn bytes_per_key(&mut self, load: &Load, size: Size) -> f64 {
        self.flush();
        let before = used_memory(&mut self.control);
        self.fill(load, size);
        sleep(SETTLE);
        (used_memory(&mut self.control) - before) / load.keys.count(size) as f64
    }

    /// What the server says it uses for the first key of the load, its name included.
    pub fn memory_usage(&mut self, load: &Load, size: Size) -> f64 {
        self.fill(load, size);
        redis::from_redis_value(ok(&mut self.control, &["MEMORY", "USAGE", FIRST_KEY])).expect("the key is there")
    }

    /// A permit of a breaker that never tripped: good for an hour, and for any breaker that never did.
    pub fn permit(&mut self) -> String {
        let admitted = ok(&mut self.control, &["RES.BREAKER", "ADMIT", FIRST_KEY]);
        let (_, _, permit, _, _): (i64, String, String, i64, i64) =
            redis::from_redis_value(admitted).expect("a closed breaker gives a permit");
        permit
    }

    /// Makes every key, then calls a quarter of them again: growing tables are moved a step with every look into them,
    /// and that is to be over before anything is measured.
    fn fill(&mut self, load: &Load, size: Size) {
        self.flush();
        let keys = load.keys.count(size);
        self.client.run(&load.fill.batches(0..keys, size.pipeline), &load.fill);
        let mut random = Random::seeded(0);
        let again = load.call.batches((0..keys.div_ceil(4)).map(|_| load.keys.draw(&mut random, size)), size.pipeline);
        self.client.run(&again, &load.call);
    }

    fn flush(&mut self) {
        ok(&mut self.control, &["FLUSHALL", "SYNC"]);
    }

    /// Waits until nothing is left to do: replies were sent, the replica has everything.
    fn catch_up(&self) {
        if let Some(replica) = &self.replica {
            wait_for_sync(&self.server, replica);
        }
        sleep(SETTLE);
    }
}

pub fn used_memory(control: &mut Connection) -> f64 {
    let info: String = redis::from_redis_value(ok(control, &["INFO", "memory"])).expect("INFO is text");
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    used.and_then(|bytes| bytes.parse().ok()).expect("INFO memory has used_memory")
}

/// Time the server's main thread has been on a CPU so far.
pub fn cpu_us(server: &Server) -> f64 {
    let path = format!("/proc/{}/schedstat", server.pid());
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let on_cpu_ns: f64 = text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds come first");
    on_cpu_ns / 1_000.0
}
