//! `resil lock` and `resil bulkhead`: who holds, who waits, and taking a lock away.

use clap::{Args, Subcommand};
use resil::lock::Info;
use resil::operator::KeyKind;
use serde_json::json;

use crate::breaker::is_there;
use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::output::{Cell, Output, Table, Tone, as_json, json_bytes, word};
use crate::overview::{ListArgs, OverviewRow, all_nodes, list};
use crate::spans;
use crate::target::{ChangeArgs, Named, Target, quoted};

#[derive(Subcommand)]
pub enum LockVerb {
    /// All locks that are held or waited for
    List(ListArgs),
    /// Who holds one and who waits for it
    Show(Target),
    /// Takes one from its holders: they learn of it, the next waiter has it
    Break(BreakArgs),
}

#[derive(Subcommand)]
pub enum BulkheadVerb {
    /// All shared bulkheads that somebody is in, or waits for
    List(ListArgs),
    /// Who is inside and who waits
    Show(Target),
}

#[derive(Args)]
pub struct BreakArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    change: ChangeArgs,
}

pub async fn run_lock(connect: &ConnectArgs, output: &Output, verb: &LockVerb) -> Result<(), Failure> {
    match verb {
        LockVerb::List(args) => {
            let (rows, operator) = list(&connect.client().await?, output, KeyKind::Lock, args).await?;
            output.table(
                || rows.iter().map(OverviewRow::json).collect(),
                &locks(&rows),
                "no lock is held or waited for",
            )?;
            all_nodes(&operator)
        }
        LockVerb::Show(target) => {
            let named = target.named(KeyKind::Lock)?;
            let info = connect.client().await?.operator().lock(&named.key).await?;
            show(output, "lock", &named, &info)
        }
        LockVerb::Break(args) => {
            let named = args.target.named(KeyKind::Lock)?;
            let operator = connect.client().await?.operator();
            is_there(operator.lock(&named.key).await?.exists, "lock", &named)?;
            args.change.confirm("take from its holders the lock", &named.key)?;
            let actor = args.change.by.actor();
            let holders = operator.break_lock(&named.key, &actor, &args.change.reason).await?;
            let value = || {
                json!({ "key": json_bytes(&named.key), "name": named.name, "holders": holders, "actor": actor,
                    "reason": args.change.reason })
            };
            output.done(value, &format!("{} was taken from {holders} holders", quoted(&named.shown())))?;
            if holders == 0 { Err(Failure::Refused("nobody held the lock".to_owned())) } else { Ok(()) }
        }
    }
}

pub async fn run_bulkhead(connect: &ConnectArgs, output: &Output, verb: &BulkheadVerb) -> Result<(), Failure> {
    match verb {
        BulkheadVerb::List(args) => {
            let (rows, operator) = list(&connect.client().await?, output, KeyKind::Bulkhead, args).await?;
            let nothing = "no bulkhead is used or waited for";
            output.table(|| rows.iter().map(OverviewRow::json).collect(), &bulkheads(&rows), nothing)?;
            all_nodes(&operator)
        }
        BulkheadVerb::Show(target) => {
            let named = target.named(KeyKind::Bulkhead)?;
            let info = connect.client().await?.operator().bulkhead(&named.key).await?;
            show(output, "bulkhead", &named, &info)
        }
    }
}

pub fn locks(rows: &[OverviewRow]) -> Table {
    let mut table = Table::new(&["lock", "state", "held", "lease left", "holders", "waiters", "longest wait", "owner"]);
    for row in rows {
        table.row([
            Cell::new(row.label()),
            state_cell(row, "contended"),
            Cell::new(row.span("held_ms")),
            Cell::new(row.span("lease_left_ms")),
            Cell::new(row.count("holders")),
            Cell::new(row.count("waiters")),
            Cell::new(row.span("oldest_wait_ms")),
            Cell::new(row.bytes("owner")),
        ]);
    }
    table
}

pub fn bulkheads(rows: &[OverviewRow]) -> Table {
    let mut table = Table::new(&["bulkhead", "state", "inside", "of", "waiters", "longest wait", "longest held"]);
    for row in rows {
        table.row([
            Cell::new(row.label()),
            state_cell(row, "full"),
            Cell::new(row.count("active")),
            Cell::new(row.count("max")),
            Cell::new(row.count("waiters")),
            Cell::new(row.span("oldest_wait_ms")),
            Cell::new(row.span("held_ms")),
        ]);
    }
    table
}

fn state_cell(row: &OverviewRow, busy: &str) -> Cell {
    let state = row.text("state");
    let tone = if state == busy { Tone::Warn } else { Tone::Good };
    Cell::toned(state, tone)
}

fn show(output: &Output, kind: &str, named: &Named, info: &Info) -> Result<(), Failure> {
    if output.is_json {
        let mut value = as_json(info);
        value["key"] = json_bytes(&named.key);
        value["name"] = json!(named.name);
        output.json(&value)?;
        return is_there(info.exists, kind, named);
    }
    let mut lines = output.properties(&[
        ("key", Cell::new(&named.key)),
        ("holders", Cell::new(info.holders_total.to_string())),
        ("waiters", Cell::new(info.waiters_total.to_string())),
        ("last fence", Cell::new(info.last_fence.to_string())),
    ]);
    if !info.holders.is_empty() {
        let mut table = Table::new(&["holder", "mode", "fence", "held", "lease left", "bound", "meta"]);
        for holder in &info.holders {
            table.row([
                Cell::new(&holder.owner),
                Cell::new(word(&holder.mode)),
                Cell::new(holder.fence.to_string()),
                Cell::new(spans::shown(holder.held)),
                Cell::new(spans::shown(holder.remaining)),
                Cell::new(crate::breaker::yes(holder.is_bound)),
                Cell::new(holder.meta.as_deref().unwrap_or_default()),
            ]);
        }
        lines.push(String::new());
        lines.extend(table.lines(output.has_colors, None));
    }
    if !info.waiters.is_empty() {
        let mut table = Table::new(&["waiter", "waited", "mode", "priority"]);
        for waiter in &info.waiters {
            table.row([
                Cell::new(&waiter.owner),
                Cell::new(spans::shown(waiter.waited)),
                Cell::new(waiter.mode.as_ref().map(word).unwrap_or_default()),
                Cell::new(waiter.priority.map(|priority| priority.to_string()).unwrap_or_default()),
            ]);
        }
        lines.push(String::new());
        lines.extend(table.lines(output.has_colors, None));
    }
    output.lines(lines)?;
    is_there(info.exists, kind, named)
}
