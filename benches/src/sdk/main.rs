//! `sdk`: what the Rust SDK adds to a call, beside crates that do the same.
//!
//! # What is measured
//! [`patterns`]: one policy at a time in this process, ours on `memory://`, in turns with its peers around the same call.
//! [`server`]: the SDK over a real server beside plain redis-rs.
//!
//! # Where is what
//! [`contest`] runs rows in turns and takes times; [`allocations`] counts them; [`instructions`] asks valgrind; [`table`] prints.
//!
//! Arguments: parts of tables' names, to run only those (`server` for the server's). Environment: `ROUNDS`, `BENCH_QUICK=1`
//! (a smoke run), `INSTRUCTIONS=1` (count instructions too, where valgrind is installed: a few minutes).

#![recursion_limit = "256"] // policies and layers nest their futures deeply

mod allocations;
mod contest;
mod instructions;
mod patterns;
mod server;
mod table;

use std::env;

/// Rounds in which every row of a table runs once.
const ROUNDS: usize = 400;
const ROUNDS_QUICK: usize = 20;

fn main() {
    if let Some(wanted) = instructions::Wanted::from_env() {
        return wanted.run(patterns::all());
    }
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| value != "0");
    let quick = is_set("BENCH_QUICK");
    let rounds = match env::var("ROUNDS") {
        Ok(given) => given.parse().unwrap_or_else(|_| panic!("ROUNDS={given} is not a number")),
        Err(_) if quick => ROUNDS_QUICK,
        Err(_) => ROUNDS,
    };
    let wanted: Vec<String> = env::args().skip(1).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let mut tables = Vec::new();
    for contest in patterns::all().into_iter().filter(|contest| is_wanted(contest.name)) {
        eprintln!("{}", contest.name);
        let mut measured = contest.measure(rounds);
        if is_set("INSTRUCTIONS") {
            instructions::count(&mut measured);
        }
        tables.push(measured);
    }
    table::print(&tables);
    if is_wanted(server::NAME) {
        server::print(quick);
    }
}
