//! `resil`: see and steer what a fleet shares, from a terminal.
//!
//! # What holds
//! - Standard output has what was asked for, as a table or, with `--json`, as one JSON document (of `watch`, one for each line). Errors and
//!   questions go to standard error.
//! - The exit code says how it went: 0 done, 1 refused or not so, 2 wrong arguments, 3 the server cannot be reached or used,
//!   4 there is no such thing.
//! - What changes something for the fleet has an actor and a reason, and is asked about on a terminal unless `--yes`.
//! - A password is never shown. What comes from the server is escaped before it reaches a terminal.
//!
//! # The map
//! One file for each verb. [`connect`]: where to, and with which password. [`target`]: names and keys. [`output`]: tables, JSON, escapes,
//! colours. [`failure`]: exit codes. [`overview`]: `RES.LIST` and `RES.TOP`, which `top`, the lists and `exporter` read.
#![forbid(unsafe_code)]

mod bench;
mod breaker;
mod connect;
mod dlq;
mod doctor;
mod exporter;
mod failure;
mod holding;
mod in_flight;
mod limit;
mod output;
mod overview;
mod policy;
mod spans;
mod target;
mod top;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::output::{Output, OutputArgs};

/// See and steer what a fleet shares: breakers, locks, bulkheads, limits, policies and dead letters of a server with Resil.
#[derive(Parser)]
#[command(
    name = "resil",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 refused or not so, 2 wrong arguments, 3 the server cannot be reached or used, 4 there is no such thing."
)]
struct Cli {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// What is open, who waits, who is refused most: live, or one screen
    Top(top::TopArgs),
    /// Circuit breakers: list, show, force, reset
    #[command(subcommand)]
    Breaker(breaker::BreakerVerb),
    /// Locks: list, show, break
    #[command(subcommand)]
    Lock(holding::LockVerb),
    /// Shared bulkheads: list, show
    #[command(subcommand)]
    Bulkhead(holding::BulkheadVerb),
    /// Runs under idempotency keys: list those that are not committed
    #[command(subcommand)]
    Run(in_flight::RunVerb),
    /// Loads of single flights and caches: list those that somebody leads
    #[command(subcommand)]
    Load(in_flight::LoadVerb),
    /// Rate limits: show what is left of one
    #[command(subcommand)]
    Limit(limit::LimitVerb),
    /// Stored policies: list, show, apply, check, diff, history, rollback
    #[command(subcommand)]
    Policy(policy::PolicyVerb),
    /// Dead letters: look at ledgers, diagnose, redrive
    #[command(subcommand)]
    Dlq(dlq::DlqVerb),
    /// Checks the server, its settings, and the rights of this user
    Doctor(doctor::DoctorArgs),
    /// Prints events as they happen, one on each line
    Watch(watch::WatchArgs),
    /// Loads the server with one command for a short time, and says how long it took
    Bench(bench::BenchArgs),
    /// Serves /metrics for Prometheus
    Exporter(exporter::ExporterArgs),
    /// Prints the completion script of a shell
    Completion { shell: clap_complete::Shell },
}

async fn run(cli: Cli) -> Result<(), Failure> {
    let output = Output::new(&cli.output);
    let connect = &cli.connect;
    match cli.verb {
        Verb::Top(args) => top::run(connect, &output, &args).await,
        Verb::Breaker(verb) => breaker::run(connect, &output, &verb).await,
        Verb::Lock(verb) => holding::run_lock(connect, &output, &verb).await,
        Verb::Bulkhead(verb) => holding::run_bulkhead(connect, &output, &verb).await,
        Verb::Run(verb) => in_flight::run_runs(connect, &output, &verb).await,
        Verb::Load(verb) => in_flight::run_loads(connect, &output, &verb).await,
        Verb::Limit(verb) => limit::run(connect, &output, &verb).await,
        Verb::Policy(verb) => policy::run(connect, &output, &verb).await,
        Verb::Dlq(verb) => dlq::run(connect, &output, &verb).await,
        Verb::Doctor(args) => doctor::run(connect, &output, &args).await,
        Verb::Watch(args) => watch::run(connect, &output, &args).await,
        Verb::Bench(args) => bench::run(connect, &output, &args).await,
        Verb::Exporter(args) => exporter::run(connect, &args).await,
        Verb::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "resil", &mut script);
            output.raw(&script)
        }
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // A caller that wants JSON gets it before the arguments are understood, too.
        Err(error) if error.use_stderr() && std::env::args_os().any(|word| word == "--json") => {
            let text = error.render().to_string();
            return Failure::Usage(text.trim_start_matches("error: ").trim_end().to_owned()).report(true);
        }
        Err(error) => {
            // Help and the version are no errors; a reader that is gone is none either.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let is_json = cli.output.json;
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::Refused(format!("no runtime: {error}")).report(is_json),
    };
    match runtime.block_on(run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(is_json),
    }
}
