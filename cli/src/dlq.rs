//! `resil dlq`: ledgers of dead letters. Looking is here; what governs a ledger is in [`changing`].

mod changing;

use clap::{Args, Subcommand};
use resil::dead_letters::{DeadLetters, DeadLettersSettings, LetterFilter, LetterState};
use resil::operator::{KeyFilter, KeyKind};
use resil::{Client, Error};
use serde_json::{Value, json};

pub use self::changing::{CloseArgs, ConfigArgs, DiagnoseArgs, HoldArgs, PurgeArgs, RedriveArgs, SeenArgs, StopArgs};
use crate::breaker::is_there;
use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::output::{Cell, Output, Table, Tone, as_json, word};
use crate::overview::{ListArgs, OverviewRow, all_nodes, list};
use crate::spans;
use crate::target::Target;

#[derive(Subcommand)]
pub enum DlqVerb {
    /// All ledgers
    List(ListArgs),
    /// How much is in a ledger, its messages, or one message
    Show(ShowArgs),
    /// Dead messages that belong together, by their error
    Groups(LedgerArgs),
    /// Writes down why messages died; prints the number of the case
    Diagnose(DiagnoseArgs),
    /// Lets dead messages of a case be taken again, and shows how it is getting on
    Redrive(RedriveArgs),
    /// Stops the redrive of a case
    Stop(StopArgs),
    /// Closes a case whose messages are resolved, or discards poison
    Close(CloseArgs),
    /// Keeps a message whatever happens, and out of redrives
    Hold(HoldArgs),
    /// Removes what ended long ago
    Purge(PurgeArgs),
    /// What somebody must look at
    Alerts(LedgerArgs),
    /// Marks an alert as seen
    Seen(SeenArgs),
    /// Who did what
    Audit(LedgerArgs),
    /// By which numbers a ledger retries; changes them, or pauses it
    Config(ConfigArgs),
}

/// A ledger.
#[derive(Args)]
pub struct LedgerArgs {
    #[command(flatten)]
    pub target: Target,
}

#[derive(Args)]
pub struct ShowArgs {
    #[command(flatten)]
    ledger: LedgerArgs,
    /// One message, by its id
    #[arg(long, conflicts_with = "state")]
    id: Option<String>,
    /// The messages in this state: waiting, taken, parked, dead, resolved, archived
    #[arg(long, value_parser = read_state)]
    state: Option<LetterState>,
    /// Messages of a group
    #[arg(long)]
    group: Option<String>,
    /// At most so many messages, up to 1,000
    #[arg(long, default_value_t = 100)]
    limit: u32,
}

pub fn read_state(text: &str) -> Result<LetterState, String> {
    let wrong = |_| "one of waiting, taken, parked, dead, resolved, archived".to_owned();
    serde_json::from_value(json!(text)).map_err(wrong)
}

/// The ledger that was named, for somebody who acts. One that does not exist is a mistyped name, unless a new one is wanted.
pub async fn ledger(
    client: &Client,
    target: &Target,
    actor: &str,
    is_new_allowed: bool,
) -> Result<DeadLetters, Failure> {
    let named = target.named(KeyKind::DeadLetters)?;
    if !is_new_allowed {
        is_there(has_ledger(client, &named.key).await?, "ledger", &named)?;
    }
    let settings = DeadLettersSettings::new().actor(actor);
    match named.name {
        Some(name) => Ok(client.dead_letters(&name, settings)?),
        None => {
            let key = String::from_utf8(named.key)
                .map_err(|_| Failure::Usage("the key of a ledger has to be UTF-8".to_owned()))?;
            Ok(client.operator().ledger(&key, settings)?)
        }
    }
}

/// As the list of ledgers has it. A user who may not list is believed.
async fn has_ledger(client: &Client, key: &[u8]) -> Result<bool, Failure> {
    let mut pattern = String::new();
    for c in String::from_utf8_lossy(key).chars() {
        // What is no text matches any character, and is compared below.
        match c {
            '*' | '?' | '[' | ']' | '\\' => pattern.extend(['\\', c]),
            char::REPLACEMENT_CHARACTER => pattern.push('*'),
            c => pattern.push(c),
        }
    }
    let filter = KeyFilter { pattern: Some(pattern), ..KeyFilter::default() };
    let operator = client.operator().without_lost_nodes();
    match operator.ledgers(&filter).await {
        Ok(rows) => Ok(rows.iter().any(|row| row.key == key) || !operator.lost_nodes().is_empty()),
        Err(Error::PermissionDenied(_)) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

pub async fn run(connect: &ConnectArgs, output: &Output, verb: &DlqVerb) -> Result<(), Failure> {
    match verb {
        DlqVerb::List(args) => {
            let (rows, operator) = list(&connect.client().await?, output, KeyKind::DeadLetters, args).await?;
            output.table(|| rows.iter().map(OverviewRow::json).collect(), &table(&rows), "no ledgers")?;
            all_nodes(&operator)
        }
        DlqVerb::Show(args) => show(connect, output, args).await,
        DlqVerb::Groups(args) => groups(connect, output, args).await,
        DlqVerb::Alerts(args) => alerts(connect, output, args).await,
        DlqVerb::Audit(args) => audit(connect, output, args).await,
        DlqVerb::Diagnose(args) => changing::diagnose(connect, output, args).await,
        DlqVerb::Redrive(args) => changing::redrive(connect, output, args).await,
        DlqVerb::Stop(args) => changing::stop(connect, output, args).await,
        DlqVerb::Close(args) => changing::close(connect, output, args).await,
        DlqVerb::Hold(args) => changing::hold(connect, output, args).await,
        DlqVerb::Purge(args) => changing::purge(connect, output, args).await,
        DlqVerb::Seen(args) => changing::seen(connect, output, args).await,
        DlqVerb::Config(args) => changing::config(connect, output, args).await,
    }
}

pub fn table(rows: &[OverviewRow]) -> Table {
    let mut table =
        Table::new(&["ledger", "state", "waiting", "taken", "dead", "groups", "cases", "alerts", "entries", "bytes"]);
    for row in rows {
        let is_bad = |name: &str| if row.number(name).unwrap_or(0) > 0 { Tone::Bad } else { Tone::Plain };
        table.row([
            Cell::new(row.label()),
            Cell::new(row.text("state")),
            Cell::new(row.count("waiting")),
            Cell::new(row.count("taken")),
            Cell::toned(row.count("dead"), is_bad("dead")),
            Cell::new(row.count("groups")),
            Cell::new(row.count("cases_open")),
            Cell::toned(row.count("alerts_unseen"), is_bad("alerts_unseen")),
            Cell::new(row.count("entries")),
            Cell::new(row.count("bytes")),
        ]);
    }
    table
}

/// The properties of a structure, as the SDK names them.
pub fn properties(value: &Value) -> Vec<(&str, Cell)> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        value => value.to_string(),
    };
    value.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), Cell::new(text(value)))).collect()
}

async fn show(connect: &ConnectArgs, output: &Output, args: &ShowArgs) -> Result<(), Failure> {
    let ledger = ledger(&connect.client().await?, &args.ledger.target, "resil", false).await?;
    if let Some(id) = &args.id {
        let Some(letter) = ledger.get(id).await? else {
            return Err(Failure::NotThere(format!("the ledger has no message {id:?}")));
        };
        // Payloads are the business of their service: how long it is, and never what it says.
        let mut value = as_json(&letter);
        value["payloadBytes"] = json!(letter.payload.as_ref().map(|payload| payload.len()));
        return output.thing(|| value.clone(), &properties(&value));
    }
    if args.state.is_some() || args.group.is_some() {
        let mut filter = LetterFilter::new().limit(args.limit);
        (filter.state, filter.group) = (args.state, args.group.clone());
        let mut letters = Vec::new();
        loop {
            let page = ledger.list(&filter).await?;
            letters.extend(page.letters);
            match page.cursor {
                Some(cursor) if letters.len() < args.limit as usize => filter.cursor = cursor,
                _ => break,
            }
        }
        letters.truncate(args.limit as usize);
        let mut table = Table::new(&["id", "state", "attempt", "deaths", "type", "last", "group", "error"]);
        for letter in &letters {
            table.row([
                Cell::new(&letter.id),
                Cell::new(word(&letter.state)),
                Cell::new(letter.attempt.to_string()),
                Cell::new(letter.deaths.to_string()),
                Cell::new(letter.kind.as_deref().unwrap_or_default()),
                Cell::new(format!("{} ago", spans::ago(letter.last_at))),
                Cell::new(letter.group.as_deref().unwrap_or_default()),
                Cell::new(letter.last_error.as_deref().unwrap_or_default()),
            ]);
        }
        return output.table(|| as_json(&letters), &table, "no such messages");
    }
    let value = as_json(&ledger.info().await?);
    output.thing(|| value.clone(), &properties(&value))
}

async fn groups(connect: &ConnectArgs, output: &Output, args: &LedgerArgs) -> Result<(), Failure> {
    let groups = ledger(&connect.client().await?, &args.target, "resil", false).await?.groups().await?;
    let mut table = Table::new(&["group", "dead", "deaths", "type", "last", "cases", "an error"]);
    for group in &groups {
        let cases = group.cases.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        table.row([
            Cell::new(&group.group),
            Cell::new(group.dead.to_string()),
            Cell::new(group.deaths.to_string()),
            Cell::new(group.kind.as_deref().unwrap_or_default()),
            Cell::new(format!("{} ago", spans::ago(group.last_at))),
            Cell::new(cases),
            Cell::new(group.sample.as_deref().unwrap_or_default()),
        ]);
    }
    output.table(|| as_json(&groups), &table, "nothing died")
}

async fn alerts(connect: &ConnectArgs, output: &Output, args: &LedgerArgs) -> Result<(), Failure> {
    let alerts = ledger(&connect.client().await?, &args.target, "resil", false).await?.alerts().await?;
    let mut table = Table::new(&["alert", "severity", "kind", "subject", "count", "when", "seen"]);
    for alert in &alerts {
        let tone = match (alert.seen, alert.severity) {
            (true, _) => Tone::Dim,
            (false, "critical") => Tone::Bad,
            _ => Tone::Warn,
        };
        table.row([
            Cell::new(alert.alert.to_string()),
            Cell::toned(alert.severity, tone),
            Cell::new(alert.kind),
            Cell::new(alert.subject.as_deref().unwrap_or_default()),
            Cell::new(alert.count.to_string()),
            Cell::new(format!("{} ago", spans::ago(alert.at))),
            Cell::new(crate::breaker::yes(alert.seen)),
        ]);
    }
    output.table(|| as_json(&alerts), &table, "no alerts")
}

async fn audit(connect: &ConnectArgs, output: &Output, args: &LedgerArgs) -> Result<(), Failure> {
    let audit = ledger(&connect.client().await?, &args.target, "resil", false).await?.audit().await?;
    let mut table = Table::new(&["id", "when", "user", "actor", "action"]);
    for row in &audit {
        table.row([
            Cell::new(row.id.to_string()),
            Cell::new(format!("{} ago", spans::ago(row.at))),
            Cell::new(row.user.as_deref().unwrap_or_default()),
            Cell::new(row.actor.as_deref().unwrap_or_default()),
            Cell::new(&row.action),
        ]);
    }
    output.table(|| as_json(&audit), &table, "nobody did anything")
}
