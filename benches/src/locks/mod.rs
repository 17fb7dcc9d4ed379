//! What only locks have, measured beside those who poll: contenders ([`contention`], [`peers`]), a long queue ([`crowd`])
//! and the memory of a held lock ([`weight`]). Their uncontended pairs are rows like any other ([`pairs`]).

mod contention;
mod crowd;
pub mod pairs;
mod peers;
mod weight;

use std::time::Duration;

use contention::{CONTENDERS, Contention, HOLD};
use crowd::{Crowd, HandOver};
use peers::{Found, Kind, LANGUAGES, Language};
use resil_harness::{Options, Server};
use weight::Weight;

use crate::bars::{Bar, Verdict};
use crate::figures::median;

/// What selects them, as a row's name would.
pub const NAME: &str = "lock: contended";

/// How long each peer contends. Ours does so for shorter, and several times before each language: a moment in which
/// the machine does something else spoils the waits of a run, not its median.
const TIME: Duration = Duration::from_secs(5);
const TIME_QUICK: Duration = Duration::from_secs(1);
const RUNS: u32 = 5;

/// Hand-overs of a slice, and slices: few waiters and many in turn.
const HAND_OVERS: usize = 2_000;
const HAND_OVERS_QUICK: usize = 200;
const SLICES: usize = 7;

const OURS: &str = "RES.LOCK";
const SDK: &str = "Rust SDK, `lock.acquire`";
const CONTROL: &str = "control: a queue without a server";
const POLLED: &str = "SET NX PX every ms";

pub struct Locks {
    round_trip: Duration,
    ours: Contention,
    sdk: Contention,
    /// How many times as long its p99 is as that of the raw command: the median of runs side by side.
    sdk_beside_ours: f64,
    control: Contention,
    polled: Contention,
    peers: Vec<(&'static Language, Result<Found, String>)>,
    crowds: Result<Crowds, String>,
    weight: Weight,
    weight_set_nx: Weight,
}

/// Hand-overs with few waiting and with many.
struct Crowds {
    few: HandOver,
    many: HandOver,
    /// How many times as much many cost: medians of slices side by side.
    by_cpu: f64,
    by_latency: f64,
}

pub fn measure(quick: bool) -> Locks {
    let time = if quick { TIME_QUICK } else { TIME };
    let server = Server::fresh();
    let (mut ours, mut sdk, mut control) = (Vec::new(), Vec::new(), Vec::new());
    let (mut peers, mut round_trips) = (Vec::new(), Vec::new());
    for language in &LANGUAGES {
        eprintln!("locks: {CONTENDERS} contenders, {OURS} and its control");
        round_trips.push(contention::round_trip(&server).as_secs_f64());
        for _ in 0..RUNS {
            ours.push(contention::ours(&server, time / RUNS));
            sdk.push(contention::sdk(&server, time / RUNS));
            control.push(contention::without_a_server(&server, time / RUNS));
        }
        peers.push((language, language.measure(&server, time)));
    }
    let plain = Server::start(Options::default().without_module());
    let polled = contention::polled(&plain, time);
    eprintln!("locks: {} and {} waiters, memory", crowd::FEW, crowd::MANY);
    Locks {
        round_trip: Duration::from_secs_f64(median(round_trips.into_iter())),
        ours: Contention::median(&ours),
        sdk: Contention::median(&sdk),
        sdk_beside_ours: median(ours.iter().zip(&sdk).map(|(ours, sdk)| sdk.wait_p99_ms / ours.wait_p99_ms)),
        control: Contention::median(&control),
        polled,
        peers,
        crowds: crowd::raise_open_files().map(|()| crowds(if quick { HAND_OVERS_QUICK } else { HAND_OVERS })),
        weight: weight::ours(&server),
        weight_set_nx: weight::set_nx(&plain),
    }
}

fn crowds(times: usize) -> Crowds {
    let (mut few, mut many) = (Crowd::of(crowd::FEW), Crowd::of(crowd::MANY));
    let slices: Vec<(HandOver, HandOver)> =
        (0..SLICES).map(|_| (few.hand_over(times), many.hand_over(times))).collect();
    let of = |number: fn(&(HandOver, HandOver)) -> f64| median(slices.iter().map(number));
    Crowds {
        few: HandOver { cpu_us: of(|slice| slice.0.cpu_us), latency_us: of(|slice| slice.0.latency_us) },
        many: HandOver { cpu_us: of(|slice| slice.1.cpu_us), latency_us: of(|slice| slice.1.latency_us) },
        by_cpu: of(|slice| slice.1.cpu_us / slice.0.cpu_us),
        by_latency: of(|slice| slice.1.latency_us / slice.0.latency_us),
    }
}

impl Locks {
    /// The longest p99 of a wait we allow ourselves.
    fn fair_wait_ms(&self) -> f64 {
        1.5 * CONTENDERS as f64 * (HOLD + self.round_trip).as_secs_f64() * 1e3
    }

    fn contentions(&self) -> impl Iterator<Item = &(&'static str, Kind, Contention)> {
        self.peers.iter().filter_map(|(_, found)| found.as_ref().ok()).flat_map(|found| &found.contentions)
    }

    fn best_peer_p99_ms(&self) -> Option<f64> {
        let polling = self.contentions().filter(|(_, kind, _)| *kind == Kind::Peer);
        polling.map(|(_, _, found)| found.wait_p99_ms).min_by(f64::total_cmp)
    }

    pub fn bars(&self) -> Vec<Bar> {
        let bar = |promise, measured: Option<(String, f64)>, most| Bar {
            promise,
            verdict: measured.as_ref().map_or(Verdict::NotMeasured, |(_, number)| Verdict::at_most(*number, most)),
            measured: measured.map(|(text, _)| text),
        };
        let p99_ms = self.ours.wait_p99_ms;
        let waited = |beside: f64, what: &str| (format!("{p99_ms:.1} ms, {what} {beside:.1} ms"), p99_ms / beside);
        let crowds = self.crowds.as_ref().ok();
        vec![
            bar(
                "RES.LOCK, 16 contenders: p99 wait at most 1.5 x contenders x (hold + round trip)",
                Some(waited(self.fair_wait_ms(), "allowed are")),
                1.0,
            ),
            bar(
                "RES.LOCK, 16 contenders: p99 wait at most a tenth of the best polling peer's",
                self.best_peer_p99_ms().map(|best| waited(best, "the peer's is")),
                0.1,
            ),
            bar(
                "Rust SDK, 16 contenders: p99 wait at most 1.2x that of the raw command",
                Some((format!("{:.2}x, {:.1} ms", self.sdk_beside_ours, self.sdk.wait_p99_ms), self.sdk_beside_ours)),
                1.2,
            ),
            bar(
                "Rust SDK, 16 contenders: p99 wait at most a tenth of redsync's",
                self.contentions().find(|(name, kind, _)| *kind == Kind::Peer && name.starts_with("redsync")).map(
                    |(_, _, peer)| {
                        let (sdk_ms, peer_ms) = (self.sdk.wait_p99_ms, peer.wait_p99_ms);
                        (format!("{sdk_ms:.1} ms, redsync's is {peer_ms:.1} ms"), sdk_ms / peer_ms)
                    },
                ),
                0.1,
            ),
            bar(
                "RES.LOCK, 16 contenders: most served at most 1.1x least served",
                Some((format!("{:.3}x", self.ours.unfairness()), self.ours.unfairness())),
                1.1,
            ),
            bar(
                "RES.LOCK: a hand-over with 10,000 waiters costs at most 2x one with 10",
                crowds
                    .map(|found| (format!("{:.2}x CPU, {:.2}x latency", found.by_cpu, found.by_latency), found.by_cpu)),
                2.0,
            ),
            bar(
                "a held lock takes at most 250 bytes beyond key and owner",
                Some((format!("{:.0} bytes", self.weight.beyond_names()), self.weight.beyond_names())),
                250.0,
            ),
        ]
    }

    pub fn print(&self) {
        println!("\n| pairs a second, one by one | peer | RES.LOCK from there | x |\n| --- | ---: | ---: | ---: |");
        for (language, found) in &self.peers {
            if let Ok(Found { pairs, .. }) = found {
                let (peer, from) = (language.peer, language.from);
                println!("| {peer}, {from} | {:.0} | {:.0} | {:.2} |", pairs.peer_per_s, pairs.ours_per_s, pairs.ratio);
            }
        }
        for (language, found) in &self.peers {
            if let Err(reason) = found {
                println!("\n{} was left out: {reason}", language.peer);
            }
        }
        let round_trip_us = self.round_trip.as_secs_f64() * 1e6;
        println!("\n### Locks: {CONTENDERS} contenders holding {} ms\n", HOLD.as_millis());
        println!("A PING takes {round_trip_us:.0} µs there and back.\n");
        println!("| | hand-overs/s | wait p50, ms | wait p99, ms | served, most | least | most/least | CPU µs |");
        println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
        print_contention(CONTROL, &self.control);
        print_contention(OURS, &self.ours);
        print_contention(SDK, &self.sdk);
        for (name, _, found) in self.contentions() {
            print_contention(name, found);
        }
        print_contention(POLLED, &self.polled);
        println!("\n### Locks: handing over a lock many wait for\n");
        match &self.crowds {
            Ok(found) => {
                println!("| waiters | release to grant, µs | CPU µs |\n| ---: | ---: | ---: |");
                for (waiters, cost) in [(crowd::FEW, found.few), (crowd::MANY, found.many)] {
                    println!("| {waiters} | {:.1} | {:.2} |", cost.latency_us, cost.cpu_us);
                }
            }
            Err(reason) => println!("It was left out: {reason}."),
        }
        println!("\n### Locks: bytes of one of {} held\n", weight::LOCKS);
        println!("| | beyond key and owner | MEMORY USAGE |\n| --- | ---: | ---: |");
        for (name, found) in [(OURS, &self.weight), ("SET NX PX", &self.weight_set_nx)] {
            println!("| {name} | {:.0} | {:.0} |", found.beyond_names(), found.memory_usage);
        }
    }
}

fn print_contention(name: &str, found: &Contention) {
    let unfairness = if found.least == 0 { "∞".to_owned() } else { format!("{:.2}", found.unfairness()) };
    println!(
        "| {name} | {:.0} | {:.2} | {:.2} | {} | {} | {unfairness} | {:.1} |",
        found.hand_overs_per_s, found.wait_p50_ms, found.wait_p99_ms, found.most, found.least, found.cpu_us
    );
}
