//! `resil policy`: stored policies, from files and back.
//!
//! A file is YAML or JSON: `{version, defaults, policies: {name: …}}`, as the SDKs read it, or one policy with `--name`. `apply` is all or
//! nothing: every document is checked by the server before anything is stored, each change expects the version that was compared, and if
//! one is refused after all, those before it are taken back. `diff` and `apply --dry-run` say what would change.

mod documents;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use resil::operator::KeyKind;
use resil::policies::{Policies, StoredPolicy};
use serde_json::{Value, json};

use self::documents::{Planned, apply, plan, read_files};
use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::output::{Cell, Output, Table, Tone, confirm, escaped, word};
use crate::overview::{ListArgs, OverviewRow, all_nodes, list};
use crate::spans;
use crate::target::ChangeArgs;

#[derive(Subcommand)]
pub enum PolicyVerb {
    /// All stored policies; deleted ones with --state deleted
    List(ListArgs),
    /// The document of one, and who stored it
    Show {
        name: String,
        /// One of its last 20 versions
        #[arg(long)]
        version: Option<u64>,
    },
    /// Checks files: what is wrong is named by its path
    Check(FilesArgs),
    /// What `apply` would change
    Diff(FilesArgs),
    /// Stores the policies of files: all or none
    Apply(ApplyArgs),
    /// The last 20 versions of one, and who stored them
    History { name: String },
    /// Stores an earlier version again, as a new one
    Rollback(RollbackArgs),
}

#[derive(Args)]
pub struct FilesArgs {
    /// YAML or JSON; - is standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The files hold one policy, of this name, instead of a map of policies
    #[arg(long)]
    name: Option<String>,
}

#[derive(Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    files: FilesArgs,
    /// Says what would change, and stores nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Args)]
pub struct RollbackArgs {
    name: String,
    /// The version to go back to
    #[arg(long)]
    to: u64,
    #[command(flatten)]
    change: ChangeArgs,
}

pub async fn run(connect: &ConnectArgs, output: &Output, verb: &PolicyVerb) -> Result<(), Failure> {
    match verb {
        PolicyVerb::List(args) => {
            // Deleted ones are remembered for a while; they are shown when they are asked for.
            let state = args.state.clone().or_else(|| Some("live".to_owned()));
            let args = ListArgs { state, r#match: args.r#match.clone(), limit: args.limit };
            let (rows, operator) = list(&connect.client().await?, output, KeyKind::Policy, &args).await?;
            output.table(|| rows.iter().map(OverviewRow::json).collect(), &table(&rows), "no policies")?;
            all_nodes(&operator)
        }
        PolicyVerb::Show { name, version } => show(connect, output, name, *version).await,
        PolicyVerb::Check(args) => {
            let documents = read_files(&args.files, args.name.as_deref())?;
            let policies = connect.client().await?.policies();
            let planned = plan(&policies, documents).await?;
            let names: Vec<&str> = planned.iter().map(|planned| planned.name.as_str()).collect();
            let sentence = format!("valid: {}", escaped(names.join(", ").as_bytes()));
            output.done(|| json!({ "valid": true, "policies": names }), &sentence)
        }
        PolicyVerb::Diff(args) => {
            let documents = read_files(&args.files, args.name.as_deref())?;
            let planned = plan(&connect.client().await?.policies(), documents).await?;
            show_plan(output, &planned, false)?;
            // As `diff` does: 1 says that there is a difference.
            if planned.iter().any(Planned::is_change) { Err(Failure::Said) } else { Ok(()) }
        }
        PolicyVerb::Apply(args) => {
            let documents = read_files(&args.files.files, args.files.name.as_deref())?;
            let policies = connect.client().await?.policies();
            let planned = plan(&policies, documents).await?;
            let is_anything_new = planned.iter().any(Planned::is_change);
            if args.dry_run || !is_anything_new {
                return show_plan(output, &planned, false);
            }
            if !output.is_json {
                show_plan(output, &planned, false)?;
            }
            confirm("store these policies", args.change.yes)?;
            let stored = apply(&policies, planned, &args.change.by.actor(), &args.change.reason).await?;
            if output.is_json { show_plan(output, &stored, true) } else { output.lines([summary(&stored)]) }
        }
        PolicyVerb::History { name } => history(connect, output, name).await,
        PolicyVerb::Rollback(args) => {
            let policies = connect.client().await?.policies();
            read(&policies, &args.name, Some(args.to)).await?;
            confirm(&format!("go back to version {} of {}", args.to, escaped(args.name.as_bytes())), args.change.yes)?;
            let change = policies.rollback(&args.name, args.to);
            let changed = change.actor(args.change.by.actor()).reason(args.change.reason.as_str()).await?;
            let value =
                || json!({ "name": args.name, "from": args.to, "version": changed.version, "action": changed.action });
            let what = escaped(args.name.as_bytes());
            output.done(
                value,
                &format!("{what} is as in version {}: {}, version {}", args.to, word(&changed.action), changed.version),
            )
        }
    }
}

fn table(rows: &[OverviewRow]) -> Table {
    let mut table = Table::new(&["policy", "state", "version", "since", "breaker", "inside", "actor", "reason"]);
    for row in rows {
        let breaker = row.text("breaker");
        table.row([
            Cell::new(row.label()),
            Cell::new(row.text("state")),
            Cell::new(row.count("version")),
            Cell::new(row.since()),
            Cell::toned(&breaker, crate::breaker::tone(&breaker)),
            Cell::new(row.count("active")),
            Cell::new(row.bytes("actor")),
            Cell::new(row.bytes("reason")),
        ]);
    }
    table
}

async fn read(policies: &Policies, name: &str, version: Option<u64>) -> Result<StoredPolicy, Failure> {
    let found = match version {
        Some(version) => policies.get_version(name, version).await?,
        None => policies.get(name).await?,
    };
    found.ok_or_else(|| {
        let which = version.map(|version| format!(" with version {version}")).unwrap_or_default();
        Failure::NotThere(format!("there is no policy {name:?}{which}"))
    })
}

fn document(policy: &StoredPolicy) -> Value {
    serde_json::from_str(&policy.policy).unwrap_or_else(|_| json!(policy.policy))
}

async fn show(connect: &ConnectArgs, output: &Output, name: &str, version: Option<u64>) -> Result<(), Failure> {
    let policy = read(&connect.client().await?.policies(), name, version).await?;
    let value = json!({ "name": policy.name, "version": policy.version, "atMs": spans::ms(policy.at), "actor": policy.actor,
        "reason": policy.reason, "policy": document(&policy) });
    if output.is_json {
        return output.json(&value);
    }
    let mut lines = output.properties(&[
        ("policy", Cell::new(&policy.name)),
        ("version", Cell::new(policy.version.to_string())),
        (
            "stored",
            Cell::new(format!("{} ago by {}: {}", spans::ago(spans::moment(policy.at)), policy.actor, policy.reason)),
        ),
    ]);
    let text = serde_json::to_string_pretty(&document(&policy)).unwrap_or_default();
    lines.extend(text.lines().map(|line| Cell::new(line).text));
    output.lines(lines)
}

async fn history(connect: &ConnectArgs, output: &Output, name: &str) -> Result<(), Failure> {
    let records = connect.client().await?.policies().history(name).await?;
    let mut table = Table::new(&["version", "when", "what", "actor", "reason"]);
    let mut rows = Vec::new();
    for record in &records {
        table.row([
            Cell::new(record.version.to_string()),
            Cell::new(format!("{} ago", spans::ago(spans::moment(record.at)))),
            Cell::new(if record.is_deleted { "deleted" } else { "stored" }),
            Cell::new(&record.actor),
            Cell::new(&record.reason),
        ]);
        rows.push(json!({ "version": record.version, "isDeleted": record.is_deleted, "atMs": spans::ms(record.at),
            "actor": record.actor, "reason": record.reason }));
    }
    if records.is_empty() {
        return Err(Failure::NotThere(format!("there is no policy {name:?}")));
    }
    output.table(|| Value::Array(rows), &table, "")
}

fn summary(planned: &[Planned]) -> String {
    let changed = planned.iter().filter(|planned| planned.is_change()).count();
    format!("stored {changed}, unchanged {}", planned.len() - changed)
}

fn show_plan(output: &Output, planned: &[Planned], is_applied: bool) -> Result<(), Failure> {
    if output.is_json {
        let policies: Vec<Value> = planned.iter().map(Planned::json).collect();
        return output.json(&json!({ "applied": is_applied, "policies": policies }));
    }
    let mut lines = Vec::new();
    for planned in planned {
        let mut line = String::new();
        let tone = if planned.is_change() { Tone::Warn } else { Tone::Dim };
        crate::output::paint(
            &mut line,
            &format!("{} {}", planned.action(), escaped(planned.name.as_bytes())),
            tone,
            output.has_colors,
        );
        lines.push(line);
        for change in planned.changes() {
            let tone = if change.starts_with('+') { Tone::Good } else { Tone::Bad };
            let mut line = "  ".to_owned();
            crate::output::paint(&mut line, &escaped(change.as_bytes()), tone, output.has_colors);
            lines.push(line);
        }
    }
    output.lines(lines)
}
