//! `compare`: Resil beside its peers, on real servers, in one run.
//!
//! # What is measured
//! Every row of [`catalogue`] once per round. A row starts from an empty server that it fills itself, then sends a fixed
//! number of calls in pipelines, in slices; beside each slice runs one of `SET k v PX` on a server of its own, so that
//! both meet the same weather. Taken are calls per second and the CPU time of the server's main thread per call. The
//! second is the steadier: a machine with other guests slows the clock on the wall more than that of the thread. Bars
//! judge medians of ratios.
//!
//! # Where is what
//! [`load`] what is sent; [`affinity`] on which core; [`catalogue`] the rows; [`client`] sends and checks; [`stage`] a server and one run on it;
//! [`limit`] the same calls to a module that does nothing; [`count`] instructions instead of times; [`cell`] builds redis-cell, [`foreign`] installs peers of other languages, [`pybreaker`] runs one; [`python`] and [`node_sdk`] run the SDKs of those languages beside their peers; [`locks`] what only locks have: contenders, waiters, and their
//! peers in other languages; [`flights`] what only single flights and idempotency keys have: followers; [`ledger`] dead letters beside streams and BullMQ, and a million of them; [`guard`] a call under a stored policy; [`line`] a connection that waits; [`weight`] bytes of a key; [`figures`] medians and ratios; [`bars`] the promises; [`report`] the tables.
//!
//! Arguments: parts of rows' names, to run only those. Environment: `ROUNDS` (default 7, or fewer if they would take too
//! long), `BENCH_QUICK=1` (a smoke run: few keys, two rounds), and the harness's `RESIL_SERVER` and `RESIL_MODULE`;
//! `RESIL_ALLOCATOR=plain` (as `make bench` sets it) leaves freed memory unfilled;
//! `RESIL_CELL` names a redis-cell built elsewhere.

mod affinity;
mod bars;
mod catalogue;
mod cell;
mod client;
mod count;
mod figures;
mod flights;
mod foreign;
mod guard;
mod ledger;
mod limit;
mod line;
mod load;
mod locks;
mod node_sdk;
mod pybreaker;
mod python;
mod report;
mod stage;
mod weight;

use std::env;
use std::time::{Duration, Instant};

use catalogue::Given;
use figures::Figures;
use flights::rows::Scripts;
use load::{Load, Place};
use report::{Bytes, Setting};
use resil_harness::Options;
use stage::{Size, Stage};

const FULL: Size = Size { keys: 100_000, calls: 200_000, pipeline: 50 };
const QUICK: Size = Size { keys: 20_000, calls: 40_000, pipeline: 50 };
/// A busy machine gets fewer rounds, but no fewer than [`ROUNDS_LEAST`].
const BOUND: Duration = Duration::from_secs(310);
const ROUNDS: usize = 7;
const ROUNDS_LEAST: usize = 5;
const ROUNDS_QUICK: usize = 2;
/// Rows whose keys are weighed.
const WEIGHED: [&str; 3] = [catalogue::SET_PX, catalogue::GRANTED, catalogue::CELL];

struct Stages {
    /// Runs `SET k v PX` beside every row, without the module.
    reference: Stage,
    alone: Stage,
    plain: Stage,
    cell: Result<Stage, String>,
    replicated: Stage,
    plain_replicated: Stage,
    append_only: Stage,
    plain_append_only: Stage,
    noop: Result<Stage, String>,
}

impl Stages {
    fn start() -> Self {
        // A rewrite of the file in the middle of a run would be charged to whatever runs.
        let append_only = Options::default()
            .config("appendonly", "yes")
            .config("appendfsync", "everysec")
            .config("auto-aof-rewrite-percentage", "0");
        Self {
            reference: Stage::alone(Options::default().without_module()),
            alone: Stage::alone(Options::default()),
            plain: Stage::alone(Options::default().without_module()),
            cell: cell::module().map(|path| Stage::alone(Options::default().module_path(path))),
            replicated: Stage::with_replica(Options::default()),
            plain_replicated: Stage::with_replica(Options::default().without_module()),
            plain_append_only: Stage::alone(append_only.clone().without_module()),
            append_only: Stage::alone(append_only),
            noop: limit::module().map(|path| Stage::alone(Options::default().module_path(path))),
        }
    }

    /// Where `load` runs, and the reference; `None` where its module is missing.
    fn of(&mut self, load: &Load) -> Option<(&mut Stage, &mut Stage)> {
        let stage = match load.place {
            Place::Alone => &mut self.alone,
            Place::Plain => &mut self.plain,
            Place::Cell => self.cell.as_mut().ok()?,
            Place::Noop => self.noop.as_mut().ok()?,
            Place::Replicated => &mut self.replicated,
            Place::AppendOnly => &mut self.append_only,
            Place::PlainReplicated => &mut self.plain_replicated,
            Place::PlainAppendOnly => &mut self.plain_append_only,
        };
        Some((stage, &mut self.reference))
    }
}

fn main() {
    let quick = env::var_os("BENCH_QUICK").is_some_and(|value| value != "0");
    let size = if quick { QUICK } else { FULL };
    let rounds = env::var("ROUNDS").ok().map(|given| {
        let rounds = given.parse().ok().filter(|rounds| *rounds > 0);
        rounds.unwrap_or_else(|| panic!("ROUNDS={given} is not a number"))
    });
    let rounds = match rounds {
        Some(rounds) => Rounds { most: rounds, least: rounds },
        None if quick => Rounds { most: ROUNDS_QUICK, least: ROUNDS_QUICK },
        None => Rounds { most: ROUNDS, least: ROUNDS_LEAST },
    };
    let wanted: Vec<String> = env::args().skip(1).collect();

    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    if let Ok(beside) = env::var("COUNT") {
        return count::print(&beside, is_wanted);
    }

    let mut stages = Stages::start();
    if let Err(reason) = &stages.cell {
        eprintln!("redis-cell is left out: {reason}");
    }
    if let Err(reason) = &stages.noop {
        eprintln!("the no-ops are left out: {reason}");
    }
    let mut loads = catalogue::loads(&Given {
        lua_sha: stages.plain.load_script(catalogue::LUA_SCRIPT),
        lua_admit_sha: stages.plain.load_script(catalogue::LUA_ADMIT),
        lua_report_sha: stages.plain.load_script(catalogue::LUA_REPORT),
        lua_unlock_sha: stages.plain.load_script(locks::pairs::LUA_UNLOCK),
        flights: Scripts::load(|script| stages.plain.load_script(script)),
        permit: stages.alone.permit(),
    });
    loads.extend(limit::loads(&loads));
    loads.retain(|load| is_wanted(load.name));
    let others = [locks::NAME, flights::NAME, guard::NAME, pybreaker::NAME, python::NAME, node_sdk::NAME]
        .into_iter()
        .chain(ledger::NAMES);
    let names_something = !loads.is_empty() || { others }.any(is_wanted);
    assert!(names_something, "no row is named like {wanted:?}");
    let (figures, rounds) = measure_rounds(&mut stages, &loads, rounds, size);
    let bytes = weigh(&mut stages, &loads, size);
    let locks = is_wanted(locks::NAME).then(|| locks::measure(quick));
    let flights = is_wanted(flights::NAME).then(|| flights::measure(quick));
    let ledger = ledger::measure(quick, is_wanted);
    let guarded = is_wanted(guard::NAME).then(|| guard::measure(quick));

    let flavor = stages.alone.server().flavor();
    let (major, minor, patch) = flavor.version();
    let setting = Setting {
        server: format!("{} {major}.{minor}.{patch}", if flavor.is_valkey() { "Valkey" } else { "Redis" }),
        rounds,
        size,
        cell_missing: stages.cell.as_ref().err().cloned(),
    };
    report::print(&setting, &figures, &bytes, locks.as_ref(), flights.as_ref(), (ledger.as_ref(), guarded.as_ref()));
    if is_wanted(pybreaker::NAME) {
        pybreaker::print(quick);
    }
    if is_wanted(python::NAME) {
        python::print(quick);
    }
    if is_wanted(node_sdk::NAME) {
        node_sdk::print(quick);
    }
}

/// How often every row is measured.
#[derive(Clone, Copy)]
struct Rounds {
    most: usize,
    least: usize,
}

/// The figures, and the number of rounds they are from.
fn measure_rounds(stages: &mut Stages, loads: &[Load], rounds: Rounds, size: Size) -> (Figures, usize) {
    let mut figures = Figures::default();
    let started = Instant::now();
    for round in 0..rounds.most {
        let time_after_one_more = started.elapsed() * (round as u32 + 1) / (round as u32).max(1);
        if round >= rounds.least && time_after_one_more > BOUND {
            eprintln!("the machine is busy: {round} rounds instead of {}", rounds.most);
            return (figures, round);
        }
        for turn in 0..loads.len() {
            // Each round starts elsewhere, so that no row always follows the same one.
            let load = &loads[(turn + round * 5) % loads.len()];
            let Some((stage, reference)) = stages.of(load) else { continue };
            let beside = catalogue::reference(load);
            stage.prepare(load, size);
            reference.prepare(&beside, size);
            let sample = stage.measure(load, reference, &beside, size, round as u64 + 1);
            eprintln!(
                "round {}/{}  {:<44} {:>6.0} k/s {:>7.2} us of CPU {:>6.2} x SET PX",
                round + 1,
                rounds.most,
                load.name,
                sample.calls_per_s / 1_000.0,
                sample.cpu_us,
                sample.cpu_ratio
            );
            figures.add(load.name, sample);
        }
    }
    (figures, rounds.most)
}

fn weigh(stages: &mut Stages, loads: &[Load], size: Size) -> Bytes {
    let mut bytes = Bytes::new();
    for load in loads.iter().filter(|load| WEIGHED.contains(&load.name)) {
        if let Some((stage, _)) = stages.of(load) {
            bytes.insert(load.name, stage.bytes_per_key(load, size));
        }
    }
    for load in loads.iter().filter(|load| load.name == catalogue::BREAKER_PAIR_TIME) {
        bytes.insert(load.name, stages.alone.memory_usage(load, size));
    }
    bytes
}
