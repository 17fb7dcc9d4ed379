//! What changes the fate of dead letters. The server keeps an audit of it; reasons that a command has no place for are asked for all the
//! same, and go along as the correlation of the call.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::{Args, ValueEnum};
use resil::Error;
use resil::dead_letters::{
    CauseCategory, DeadLetters, Diagnosis, LedgerChange, LetterState, RedriveProgress, RedriveRate, RedriveSettings,
};
use serde_json::json;

use super::{LedgerArgs, ledger, properties, read_state};
use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::output::{Output, as_json, confirm, word};
use crate::spans;
use crate::target::{ActorArgs, ChangeArgs};

/// How often the progress of a redrive is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, ValueEnum)]
pub enum Category {
    Infrastructure,
    Contract,
    Business,
    Poison,
}

impl From<Category> for CauseCategory {
    fn from(category: Category) -> Self {
        match category {
            Category::Infrastructure => Self::Infrastructure,
            Category::Contract => Self::Contract,
            Category::Business => Self::Business,
            Category::Poison => Self::Poison,
        }
    }
}

#[derive(Args)]
pub struct DiagnoseArgs {
    #[command(flatten)]
    ledger: LedgerArgs,
    /// A group of `resil dlq groups`; may be given several times
    #[arg(long = "group", required = true)]
    groups: Vec<String>,
    #[arg(long)]
    category: Category,
    /// Why the messages died
    #[arg(long)]
    cause: String,
    /// What was done about it
    #[arg(long)]
    fix: String,
    /// What the business decided; the category business needs it
    #[arg(long)]
    decision: Option<String>,
    /// For so long what dies in these groups is redriven by itself; infrastructure only
    #[arg(long, value_parser = spans::read)]
    auto: Option<Duration>,
    #[command(flatten)]
    by: ActorArgs,
}

#[derive(Args)]
pub struct RedriveArgs {
    #[command(flatten)]
    ledger: LedgerArgs,
    #[arg(long)]
    case: u32,
    /// Only this message
    #[arg(long)]
    id: Option<String>,
    /// At most so many
    #[arg(long)]
    count: Option<u32>,
    /// How fast, such as 100/1m, which is the default
    #[arg(long, value_parser = read_rate)]
    rate: Option<RedriveRate>,
    /// How many are given out first; the rest follows when half of them are resolved
    #[arg(long)]
    first: Option<u32>,
    /// Says what would be redriven, and changes nothing
    #[arg(long)]
    dry_run: bool,
    /// Does not wait for its end
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

fn read_rate(text: &str) -> Result<RedriveRate, String> {
    let wrong = || format!("{text:?} is no rate: a number, a slash and a period, such as 100/1m");
    let (count, period) = text.split_once('/').ok_or_else(wrong)?;
    Ok(RedriveRate { count: count.parse().map_err(|_| wrong())?, period: spans::read(period)? })
}

#[derive(Args)]
pub struct StopArgs {
    #[command(flatten)]
    ledger: LedgerArgs,
    #[arg(long)]
    case: u32,
    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Args)]
pub struct CloseArgs {
    #[command(flatten)]
    ledger: LedgerArgs,
    #[arg(long)]
    case: u32,
    /// Its messages are poison: they are archived, and never come back
    #[arg(long)]
    discard: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Args)]
pub struct HoldArgs {
    #[command(flatten)]
    ledger: LedgerArgs,
    /// The message
    #[arg(long, required_unless_present = "aggregate", conflicts_with = "aggregate")]
    id: Option<String>,
    /// Everything of an aggregate, also what will come
    #[arg(long)]
    aggregate: Option<String>,
    /// Takes the hold back
    #[arg(long)]
    release: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Args)]
pub struct PurgeArgs {
    #[command(flatten)]
    ledger: LedgerArgs,
    /// What ended longer ago than this, 90d at least
    #[arg(long, value_parser = spans::read)]
    older: Duration,
    /// dead, resolved or archived; all three by default
    #[arg(long, value_parser = read_state)]
    state: Option<LetterState>,
    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Args)]
pub struct SeenArgs {
    #[command(flatten)]
    ledger: LedgerArgs,
    #[arg(long)]
    alert: u64,
    #[command(flatten)]
    by: ActorArgs,
}

#[derive(Args)]
pub struct ConfigArgs {
    #[command(flatten)]
    ledger: LedgerArgs,
    /// A change as JSON, such as {"transient":{"retries":3}}; without one the numbers are shown
    #[arg(long, value_name = "JSON")]
    set: Option<String>,
    /// Nobody takes anything, until --resume
    #[arg(long, conflicts_with = "resume")]
    pause: bool,
    #[arg(long)]
    resume: bool,
    /// Also where there is no ledger yet: without it a name without a ledger is taken for a mistyped one
    #[arg(long)]
    new: bool,
    #[command(flatten)]
    by: ActorArgs,
    /// Does not ask
    #[arg(long, short)]
    yes: bool,
}

async fn open(connect: &ConnectArgs, args: &LedgerArgs, by: &ActorArgs) -> Result<DeadLetters, Failure> {
    ledger(&connect.client().await?, &args.target, &by.actor(), false).await
}

/// A number of a case or a name of a group that the ledger does not have: mistyped, as other names are.
fn not_there(error: Error) -> Failure {
    match &error {
        Error::RedriveRefused { reason: "case", .. } => Failure::NotThere("the ledger has no such case".to_owned()),
        Error::InvalidArgument(text) => match text.split_once("; INFO ") {
            Some((missing, _)) => Failure::NotThere(missing.to_owned()),
            None if text.ends_with("was never redriven") => Failure::Refused(text.clone()),
            None => error.into(),
        },
        _ => error.into(),
    }
}

pub async fn diagnose(connect: &ConnectArgs, output: &Output, args: &DiagnoseArgs) -> Result<(), Failure> {
    let ledger = open(connect, &args.ledger, &args.by).await?;
    let groups = args.groups.iter().cloned();
    let mut diagnosis = Diagnosis::new(groups, args.category.into(), args.cause.as_str(), args.fix.as_str());
    (diagnosis.decision, diagnosis.auto) = (args.decision.clone(), args.auto);
    let case = ledger.diagnose(&diagnosis).await.map_err(not_there)?;
    output.done(
        || json!({ "case": case }),
        &format!("case {case}; resil dlq redrive … --case {case} brings its messages back"),
    )
}

pub async fn redrive(connect: &ConnectArgs, output: &Output, args: &RedriveArgs) -> Result<(), Failure> {
    let ledger = open(connect, &args.ledger, &args.change.by).await?;
    let mut settings = RedriveSettings::new();
    (settings.id, settings.count, settings.rate, settings.first) = (args.id.clone(), args.count, args.rate, args.first);
    let matched = ledger.dry_run(args.case, &settings).await.map_err(not_there)?;
    let more = if matched.complete { "" } else { " or more" };
    if args.dry_run {
        let sentence = format!("{}{more} messages would be redriven; nothing was changed", matched.matched);
        return output.done(|| as_json(&matched), &sentence);
    }
    confirm(&format!("redrive {}{more} messages of case {}", matched.matched, args.case), args.change.yes)?;
    let reason = args.change.reason.clone();
    let run = resil::correlation::correlated(reason, ledger.redrive(args.case, &settings)).await?;
    if args.no_wait {
        let sentence = format!("{}{more} messages are being redriven", run.matched().matched);
        return output.done(|| as_json(run.matched()), &sentence);
    }
    let progress = follow(&run, output).await?;
    let sentence = format!(
        "{}: {} given out, {} resolved, {} died again",
        word(&progress.phase),
        progress.given,
        progress.resolved,
        progress.died
    );
    output.done(|| as_json(&progress), &sentence)?;
    if word(&progress.phase) == "finished" { Ok(()) } else { Err(Failure::Said) }
}

/// Waits for the end of a redrive, with its progress on standard error.
async fn follow(run: &resil::dead_letters::RedriveRun, output: &Output) -> Result<RedriveProgress, Failure> {
    let mut err = std::io::stderr();
    let is_live = err.is_terminal() && !output.is_json;
    loop {
        match run.progress().await {
            Ok(progress) => {
                let RedriveProgress { given, resolved, died, active, .. } = &progress;
                let line = format!(
                    "{}: {given} given out, {active} under way, {resolved} resolved, {died} died",
                    word(&progress.phase)
                );
                if is_live {
                    let _ = write!(err, "\r\x1b[K{line}");
                }
                if progress.phase.is_over() {
                    if is_live {
                        let _ = writeln!(err);
                    }
                    return Ok(progress);
                }
            }
            Err(error) if crate::failure::is_away(&error) => {}
            Err(error) => return Err(error.into()),
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = tokio::signal::ctrl_c() => {
                return Err(Failure::Refused("not waited for any more; the redrive goes on: resil dlq stop ends it".to_owned()));
            }
        }
    }
}

pub async fn stop(connect: &ConnectArgs, output: &Output, args: &StopArgs) -> Result<(), Failure> {
    let ledger = open(connect, &args.ledger, &args.change.by).await?;
    confirm(&format!("stop the redrive of case {}", args.case), args.change.yes)?;
    let stopping = resil::correlation::correlated(args.change.reason.clone(), ledger.stop(args.case));
    let progress = stopping.await.map_err(not_there)?;
    let sentence = format!(
        "{}: {} given out, {} resolved, {} died",
        word(&progress.phase),
        progress.given,
        progress.resolved,
        progress.died
    );
    output.done(|| as_json(&progress), &sentence)
}

pub async fn close(connect: &ConnectArgs, output: &Output, args: &CloseArgs) -> Result<(), Failure> {
    let ledger = open(connect, &args.ledger, &args.change.by).await?;
    let verb = if args.discard { "discard the messages of" } else { "close" };
    confirm(&format!("{verb} case {}", args.case), args.change.yes)?;
    let closing = async { if args.discard { ledger.discard(args.case).await } else { ledger.close(args.case).await } };
    let unresolved = resil::correlation::correlated(args.change.reason.clone(), closing).await.map_err(not_there)?;
    let value = || json!({ "case": args.case, "closed": unresolved == 0, "unresolved": unresolved });
    match unresolved {
        0 => output.done(value, &format!("case {} is closed", args.case)),
        unresolved => {
            output.done(value, &format!("case {} stays open: {unresolved} messages are not resolved", args.case))?;
            Err(Failure::Said)
        }
    }
}

pub async fn hold(connect: &ConnectArgs, output: &Output, args: &HoldArgs) -> Result<(), Failure> {
    let ledger = open(connect, &args.ledger, &args.change.by).await?;
    let reason = &args.change.reason;
    let what = args.id.as_deref().or(args.aggregate.as_deref()).unwrap_or_default();
    let verb = if args.release { "release" } else { "hold" };
    confirm(&format!("{verb} {}", crate::output::escaped(what.as_bytes())), args.change.yes)?;
    let count = match (&args.id, &args.aggregate, args.release) {
        (Some(id), _, false) => ledger.hold(id, reason).await?,
        (Some(id), _, true) => ledger.release(id, reason).await?,
        (None, Some(aggregate), false) => ledger.hold_aggregate(aggregate, reason).await?,
        (None, Some(aggregate), true) => ledger.release_aggregate(aggregate, reason).await?,
        (None, None, _) => return Err(Failure::Usage("--id or --aggregate is needed".to_owned())),
    };
    let is_nothing = args.id.is_some() && count == 0;
    output.done(|| json!({ "held": !args.release, "count": count }), &format!("{verb}: {count} messages"))?;
    if is_nothing { Err(Failure::NotThere("the ledger has no such message".to_owned())) } else { Ok(()) }
}

pub async fn purge(connect: &ConnectArgs, output: &Output, args: &PurgeArgs) -> Result<(), Failure> {
    let ledger = open(connect, &args.ledger, &args.change.by).await?;
    confirm(&format!("remove for ever what ended more than {} ago", spans::shown(args.older)), args.change.yes)?;
    let mut purged = 0;
    loop {
        let asked = ledger.purge(args.older, args.state, None);
        let part = resil::correlation::correlated(args.change.reason.clone(), asked).await?;
        purged += part.purged;
        if part.left == 0 || part.purged == 0 {
            break;
        }
    }
    output.done(|| json!({ "purged": purged }), &format!("{purged} messages are gone"))
}

pub async fn seen(connect: &ConnectArgs, output: &Output, args: &SeenArgs) -> Result<(), Failure> {
    let is_seen = open(connect, &args.ledger, &args.by).await?.seen(args.alert).await?;
    if !is_seen {
        return Err(Failure::Refused(format!("there is no alert {}, or it was seen before", args.alert)));
    }
    output.done(|| json!({ "alert": args.alert, "seen": true }), &format!("alert {} is seen", args.alert))
}

pub async fn config(connect: &ConnectArgs, output: &Output, args: &ConfigArgs) -> Result<(), Failure> {
    let mut change = match &args.set {
        Some(text) => serde_json::from_str(text).map_err(|error| Failure::Usage(format!("--set: {error}")))?,
        None => LedgerChange::new(),
    };
    if args.pause || args.resume {
        change.paused = Some(args.pause);
    }
    let ledger = ledger(&connect.client().await?, &args.ledger.target, &args.by.actor(), args.new).await?;
    if change != LedgerChange::new() {
        confirm("change the ledger, for everybody who uses it", args.yes)?;
        ledger.configure(&change).await?;
    }
    let value = as_json(&ledger.config().await?);
    output.thing(|| value.clone(), &properties(&value))
}
