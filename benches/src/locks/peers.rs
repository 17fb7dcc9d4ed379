//! Locks of other languages, which poll, beside ours from the same language and client: the programs of `peers/`.

use std::thread::sleep;
use std::time::Duration;

use resil_harness::Server;
use serde_json::Value;

use super::contention::{CONTENDERS, Contention, HOLD};
use crate::figures::median;
use crate::foreign::{self, Program};
use crate::stage::{SETTLE, cpu_us};

/// A language: how its program is come by, and what it can measure.
pub struct Language {
    /// What runs uncontended beside ours, and from where.
    pub peer: &'static str,
    pub from: &'static str,
    program: fn() -> Result<Program, String>,
    /// The name of a row, what the program calls it, and whether it is a peer as one gets it without tuning.
    ways: &'static [(&'static str, &'static str, Kind)],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ours,
    /// A peer that polls as often as its defaults say.
    Peer,
    /// One that was asked to ask more often.
    Eager,
}

pub const LANGUAGES: [Language; 3] = [
    Language {
        peer: "redis-py Lock",
        from: "Python",
        program: || foreign::python("lock_bench.py"),
        ways: &[
            ("redis-py 8.1.0 Lock", "peer", Kind::Peer),
            ("redis-py 8.1.0 Lock, sleep=0.01", "eager", Kind::Eager),
            ("RES.LOCK by redis-py", "ours", Kind::Ours),
        ],
    },
    Language {
        peer: "node-redlock",
        from: "Node.js",
        program: || foreign::node("redlock", "lock_bench.js"),
        ways: &[("node-redlock 4.2.0", "peer", Kind::Peer), ("RES.LOCK by ioredis", "ours", Kind::Ours)],
    },
    Language {
        peer: "redsync",
        from: "Go",
        program: || foreign::go("redsync"),
        ways: &[("redsync 4.13.0", "peer", Kind::Peer), ("RES.LOCK by go-redis", "ours", Kind::Ours)],
    },
];

/// What a language gave.
pub struct Found {
    pub contentions: Vec<(&'static str, Kind, Contention)>,
    pub pairs: Pairs,
}

/// Uncontended pairs on one connection, one command after the other.
pub struct Pairs {
    pub peer_per_s: f64,
    pub ours_per_s: f64,
    /// How many times faster ours is: the median of slices side by side.
    pub ratio: f64,
}

impl Language {
    pub fn measure(&self, server: &Server, time: Duration) -> Result<Found, String> {
        let program = (self.program)()?;
        let seconds = time.as_secs_f64();
        let say = |way: &str| -> Result<Value, String> {
            let numbers = [seconds, CONTENDERS as f64, HOLD.as_secs_f64() * 1e3].map(|number| number.to_string());
            let arguments: Vec<String> =
                [server.port().to_string(), way.to_owned()].into_iter().chain(numbers).collect();
            let said = program.run(&arguments)?;
            serde_json::from_str(&said).map_err(|error| format!("{}: {error}", self.peer))
        };
        let mut contentions = Vec::new();
        for (name, way, kind) in self.ways {
            eprintln!("locks: {CONTENDERS} contenders, {name}");
            let cpu_before_us = cpu_us(server);
            let found = say(way)?;
            sleep(SETTLE);
            let spent_us = cpu_us(server) - cpu_before_us;
            let served: Vec<u64> = numbers(&found["served"]).map(|number| number as u64).collect();
            let waits_us: Vec<f64> = numbers(&found["waits_us"]).collect();
            if waits_us.is_empty() {
                return Err(format!("{name}: nobody was served"));
            }
            contentions.push((*name, *kind, Contention::new(&served, waits_us, seconds, spent_us)));
        }
        eprintln!("locks: uncontended from {}", self.from);
        let found = say("pairs")?;
        let both = || numbers(&found["ours"]).zip(numbers(&found["peer"]));
        let pairs = Pairs {
            peer_per_s: median(both().map(|(_, peer)| peer)),
            ours_per_s: median(both().map(|(ours, _)| ours)),
            ratio: median(both().map(|(ours, peer)| ours / peer)),
        };
        Ok(Found { contentions, pairs })
    }
}

fn numbers(list: &Value) -> impl Iterator<Item = f64> {
    list.as_array().into_iter().flatten().filter_map(Value::as_f64)
}
