//! The tables, as Markdown on standard output.

use std::collections::HashMap;
use std::fs;
use std::process::Command;

use crate::bars::bars;
use crate::catalogue as row;
use crate::figures::{Figures, REFERENCE};
use crate::flights::{Flights, rows};
use crate::guard::Guarded;
use crate::ledger::Ledger;
use crate::limit;
use crate::load::FEW;
use crate::locks::{Locks, pairs};
use crate::stage::Size;

/// Bytes per key, by row.
pub type Bytes = HashMap<&'static str, f64>;

/// What the figures were taken on.
pub struct Setting {
    pub server: String,
    pub rounds: usize,
    pub size: Size,
    /// Why redis-cell is not in the tables.
    pub cell_missing: Option<String>,
}

pub fn print(
    setting: &Setting,
    figures: &Figures,
    bytes: &Bytes,
    locks: Option<&Locks>,
    flights: Option<&Flights>,
    (ledger, guarded): (Option<&Ledger>, Option<&Guarded>),
) {
    let Size { keys, calls, pipeline } = setting.size;
    println!("Measured {} on {}, {} cores, against {}.", today(), cpu_model(), cores(), setting.server);
    println!(
        "{} rounds, pipelines of {pipeline}, {keys} keys of 14 characters, {calls} calls a run (slow rows fewer).\n",
        setting.rounds
    );
    if let Some(reason) = &setting.cell_missing {
        println!("redis-cell was left out: {reason}\n");
    }
    println!("### Bars\n\n| promise | measured | |\n| --- | --- | --- |");
    for bar in bars(figures, bytes, locks, ledger).into_iter().chain(guarded.map(Guarded::bar)) {
        println!("| {} | {} | {} |", bar.promise, bar.measured.as_deref().unwrap_or("-"), bar.verdict.text());
    }
    println!("\n### {keys} random keys\n");
    print_rows(figures, &row::RANDOM_ROWS);
    println!("\n### One hot key\n");
    print_rows(figures, &row::HOT_ROWS);
    println!("\n### Circuit breaker, {FEW} random keys and one hot key\n");
    print_rows(figures, &row::BREAKER_ROWS);
    print_beside(figures, &row::BREAKER_PEERS);
    println!("\n### Locks: a pair of acquire and release, uncontended\n");
    print_rows(figures, &pairs::ROWS);
    print_beside(figures, &pairs::PEERS);
    if let Some(locks) = locks {
        locks.print();
    }
    println!("\n### Idempotency keys and single flights, {FEW} random keys or new ones\n");
    print_rows(figures, &rows::ROWS);
    print_beside(figures, &rows::PEERS);
    if let Some(flights) = flights {
        flights.print();
    }
    if let Some(ledger) = ledger {
        ledger.print();
    }
    if let Some(guarded) = guarded {
        guarded.print();
    }
    println!("\n### The true limit: the same calls to a module that does nothing\n");
    print_rows(figures, &limit::ROWS.map(|(_, noop)| noop));
    print_beside(figures, &limit::ROWS);
    println!("\n### What replication and persistence add\n");
    println!("| | CPU µs per call | CPU, x alone | rate, x alone | CPU, x SET PX with the same |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    for (set, ours) in
        [(row::REPLICATED_SET_PX, row::REPLICATED_GRANTED), (row::APPEND_ONLY_SET_PX, row::APPEND_ONLY_GRANTED)]
    {
        print_slowdown(figures, set, REFERENCE, set);
        print_slowdown(figures, ours, row::GRANTED, set);
    }
    println!("\n### Bytes per key\n\n| | bytes |\n| --- | ---: |");
    for name in row::RANDOM_ROWS.iter().chain(&row::BREAKER_ROWS) {
        if let Some(size) = bytes.get(name) {
            println!("| {name} | {size:.0} |");
        }
    }
}

fn print_rows(figures: &Figures, names: &[&str]) {
    println!("| | calls/s | CPU µs per call | CPU, x SET PX | rounds | rate, x SET PX |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    for name in names {
        let (Some(sample), Some((from, to))) = (figures.median_of(name), figures.cpu_ratio_range(name)) else {
            continue;
        };
        println!(
            "| {name} | {:.0} k | {:.2} | {:.2} | {:.2} to {:.2} | {:.2} |",
            sample.calls_per_s / 1_000.0,
            sample.cpu_us,
            sample.cpu_ratio,
            from,
            to,
            sample.rate_ratio,
        );
    }
}

fn print_beside(figures: &Figures, peers: &[(&str, &str)]) {
    println!("\n| | beside | CPU, x | rate, x |\n| --- | --- | ---: | ---: |");
    for (ours, peer) in peers {
        if let Some(ratio) = figures.faster(ours, peer) {
            println!("| {ours} | {peer} | {:.2} | {:.2} |", ratio.by_cpu, ratio.by_rate);
        }
    }
}

fn print_slowdown(figures: &Figures, name: &str, alone: &str, peer: &str) {
    let (Some(sample), Some(ratio)) = (figures.median_of(name), figures.faster(name, alone)) else { return };
    let Some(beside) = figures.faster(name, peer) else { return };
    println!(
        "| {name} | {:.2} | {:.2} | {:.2} | {:.2} |",
        sample.cpu_us,
        1.0 / ratio.by_cpu,
        ratio.by_rate,
        beside.by_cpu
    );
}

fn today() -> String {
    let output = Command::new("date").arg("+%F").output();
    output
        .map_or_else(|_| "on a day unknown".to_owned(), |said| String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, model)| model));
    model.unwrap_or("a processor unknown").to_owned()
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
