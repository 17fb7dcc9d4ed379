//! `resil run` and `resil load`: what somebody does at the moment for all who ask.

use clap::Subcommand;
use resil::operator::KeyRow;

use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::output::{Cell, Output, Table, Tone};
use crate::overview::{ListArgs, OverviewRow, all_nodes, shorten};

#[derive(Subcommand)]
pub enum RunVerb {
    /// All idempotency keys that were begun and not committed, and who runs
    List(ListArgs),
}

#[derive(Subcommand)]
pub enum LoadVerb {
    /// All values that somebody loads for others, and who
    List(ListArgs),
}

pub async fn run_runs(connect: &ConnectArgs, output: &Output, verb: &RunVerb) -> Result<(), Failure> {
    let RunVerb::List(args) = verb;
    let operator = connect.client().await?.operator().without_lost_nodes();
    let rows = operator.runs(&args.filter()).await?;
    show(output, args, &rows, "run", "running_ms", "nobody runs anything under an idempotency key")?;
    all_nodes(&operator)
}

pub async fn run_loads(connect: &ConnectArgs, output: &Output, verb: &LoadVerb) -> Result<(), Failure> {
    let LoadVerb::List(args) = verb;
    let operator = connect.client().await?.operator().without_lost_nodes();
    let rows = operator.loads(&args.filter()).await?;
    show(output, args, &rows, "load", "loading_ms", "nobody loads anything")?;
    all_nodes(&operator)
}

fn show(
    output: &Output,
    args: &ListArgs,
    rows: &[impl KeyRow],
    what: &'static str,
    for_ms: &str,
    nothing: &str,
) -> Result<(), Failure> {
    let rows = shorten(output, args, OverviewRow::all(rows));
    let mut table = Table::new(&[what, "state", "for", "lease left", "attempt", "waiters", "longest wait", "owner"]);
    for row in &rows {
        let state = row.text("state");
        let tone = if ["contended", "held"].contains(&&*state) { Tone::Warn } else { Tone::Good };
        table.row([
            Cell::new(row.shown()),
            Cell::toned(state, tone),
            Cell::new(if row.number(for_ms) == Some(0) { row.since() } else { row.span(for_ms) }),
            Cell::new(row.span("lease_left_ms")),
            Cell::new(row.count("attempt")),
            Cell::new(row.count("waiters")),
            Cell::new(row.span("oldest_wait_ms")),
            Cell::new(row.bytes("owner")),
        ]);
    }
    output.table(|| rows.iter().map(OverviewRow::json).collect(), &table, nothing)
}
