//! `resil breaker`: the state of circuits, and overriding it for the whole fleet.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use resil::breaker::{Force, Snapshot};
use resil::operator::{ForceOrder, KeyKind};
use serde_json::{Value, json};

use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::output::{Cell, Output, Table, Tone, as_json, json_bytes};
use crate::overview::{ListArgs, OverviewRow, list};
use crate::spans;
use crate::target::{ChangeArgs, Named, Target, quoted};

#[derive(Subcommand)]
pub enum BreakerVerb {
    /// All breakers that have counted something, or were configured
    List(ListArgs),
    /// Everything the server knows about one
    Show(Target),
    /// Opens, closes or disables one for the whole fleet, until `auto`
    Force(ForceArgs),
    /// Closes one, with nothing counted
    Reset(ResetArgs),
}

#[derive(Clone, Copy, ValueEnum)]
enum ForceTo {
    Open,
    Closed,
    Disabled,
    Metrics,
    Auto,
}

impl From<ForceTo> for Force {
    fn from(to: ForceTo) -> Self {
        match to {
            ForceTo::Open => Self::Open,
            ForceTo::Closed => Self::Closed,
            ForceTo::Disabled => Self::Disabled,
            ForceTo::Metrics => Self::Metrics,
            ForceTo::Auto => Self::Auto,
        }
    }
}

#[derive(Args)]
pub struct ForceArgs {
    #[command(flatten)]
    target: Target,
    /// What it becomes; auto: by itself again
    #[arg(long = "to", value_name = "STATE")]
    to: ForceTo,
    /// For how long; until it is forced to auto by default
    #[arg(long = "for", value_name = "DURATION", value_parser = spans::read)]
    length: Option<Duration>,
    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Args)]
pub struct ResetArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    change: ChangeArgs,
}

pub async fn run(connect: &ConnectArgs, output: &Output, verb: &BreakerVerb) -> Result<(), Failure> {
    match verb {
        BreakerVerb::List(args) => {
            let client = connect.client().await?;
            let rows = list(&client, output, KeyKind::Breaker, args).await?;
            output.table(|| rows.iter().map(OverviewRow::json).collect(), &table(&rows), "no breakers")
        }
        BreakerVerb::Show(target) => {
            let named = target.named(KeyKind::Breaker)?;
            let state = connect.client().await?.operator().breaker(&named.key).await?;
            output.thing(|| shape(&named, &state), &properties(&named, &state))?;
            is_there(state.exists, "breaker", &named)
        }
        BreakerVerb::Force(args) => force(connect, output, args).await,
        BreakerVerb::Reset(args) => {
            let named = args.target.named(KeyKind::Breaker)?;
            let operator = connect.client().await?.operator();
            args.change.confirm("reset the breaker", &named.key)?;
            let is_reset = operator.reset_breaker(&named.key).await?;
            let sentence = match is_reset {
                true => format!("{} is closed, with nothing counted", quoted(&named.shown())),
                false => format!("{} had nothing to reset", quoted(&named.shown())),
            };
            output.done(|| json!({ "key": json_bytes(&named.key), "name": named.name, "reset": is_reset }), &sentence)
        }
    }
}

async fn force(connect: &ConnectArgs, output: &Output, args: &ForceArgs) -> Result<(), Failure> {
    let named = args.target.named(KeyKind::Breaker)?;
    let operator = connect.client().await?.operator();
    let to = args.to.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    args.change.confirm(&format!("force to {to}, for the whole fleet, the breaker"), &named.key)?;
    let actor = args.change.by.actor();
    let order = ForceOrder::new(args.to.into()).actor(actor.as_str()).reason(args.change.reason.as_str());
    let order = args.length.map_or(order.clone(), |length| order.duration(length));
    let state = operator.force(&named.key, &order).await?;
    let until = match args.length {
        Some(length) => format!(" for {}", spans::shown(length)),
        None if matches!(args.to, ForceTo::Auto) => String::new(),
        None => ", until it is forced to auto".to_owned(),
    };
    let value = || {
        let span_ms = args.length.map(spans::ms);
        json!({ "key": json_bytes(&named.key), "name": named.name, "state": state.text(), "actor": actor,
            "reason": args.change.reason, "forMs": span_ms })
    };
    output.done(value, &format!("{} is {}{until}", quoted(&named.shown()), state.text()))
}

/// A look at what is not there succeeds for programs, and is said on standard error for people.
pub fn is_there(exists: bool, kind: &str, named: &Named) -> Result<(), Failure> {
    match exists {
        true => Ok(()),
        false => Err(Failure::Refused(format!(
            "there is no {kind} at the key {}: a mistyped name looks like this",
            String::from_utf8_lossy(&named.key)
        ))),
    }
}

/// The tone of a state of a breaker.
pub fn tone(state: &str) -> Tone {
    match state {
        "closed" => Tone::Good,
        "open" | "forced-open" => Tone::Bad,
        "half-open" | "ramping" => Tone::Warn,
        _ => Tone::Warn,
    }
}

pub fn table(rows: &[OverviewRow]) -> Table {
    let mut table = Table::new(&["breaker", "state", "since", "calls", "failed", "trips", "forced by", "reason"]);
    for row in rows {
        let state = row.text("state");
        table.row([
            Cell::new(row.shown()),
            Cell::toned(&state, tone(&state)),
            Cell::new(row.since()),
            Cell::new(row.count("calls")),
            Cell::new(format!("{}%", row.count("failure_rate_pct"))),
            Cell::new(row.count("trips")),
            Cell::new(row.text("forced_by")),
            Cell::new(row.text("forced_reason")),
        ]);
    }
    table
}

fn shape(named: &Named, state: &Snapshot) -> Value {
    let mut value = as_json(state);
    value["key"] = json_bytes(&named.key);
    value["name"] = json!(named.name);
    value
}

fn properties<'a>(named: &Named, state: &Snapshot) -> Vec<(&'a str, Cell)> {
    let plain = |text: String| Cell::new(text);
    let mut lines = vec![
        ("key", Cell::new(&named.key)),
        ("state", Cell::toned(state.state.text(), tone(state.state.text()))),
        ("exists", plain(yes(state.exists))),
        ("admits", plain(yes(state.admits))),
        ("generation", plain(state.generation.to_string())),
        ("calls", plain(state.calls.to_string())),
        (
            "failures",
            plain(format!(
                "{} ({}%), {} in a row",
                state.failures, state.failure_rate_percent, state.failures_in_a_row
            )),
        ),
        ("slow", plain(format!("{} ({}%)", state.slow, state.slow_rate_percent))),
        ("trips", plain(format!("{} in a row", state.trips))),
        ("probes", plain(format!("{} out, {} succeeded", state.probes_out, state.successes))),
    ];
    if let Some(retry_after) = state.retry_after.filter(|wait| !wait.is_zero()) {
        lines.push(("asks again in", plain(spans::shown(retry_after))));
    }
    if let Some(opened_at) = state.opened_at {
        lines.push(("opened", plain(format!("{} ago", spans::ago(opened_at)))));
    }
    if let Some(forced) = &state.forced {
        let until =
            forced.until.map_or("until auto".to_owned(), |until| format!("for another {}", spans::until(until)));
        let words = format!("{} ago by {}, {until}: {}", spans::ago(forced.since), forced.by, forced.reason);
        lines.push(("forced", plain(words)));
    }
    let config = state.config.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ");
    lines.push(("options", plain(config)));
    lines
}

pub fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}
