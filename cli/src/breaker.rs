//! `resil breaker`: the state of circuits, and overriding it for the whole fleet.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use resil::breaker::{Force, Snapshot};
use resil::operator::{ForceOrder, KeyKind, Operator};
use serde_json::{Value, json};

use crate::connect::ConnectArgs;
use crate::failure::{Failure, is_away};
use crate::output::{Cell, Output, Table, Tone, as_json, json_bytes};
use crate::overview::{ListArgs, OverviewRow, all_nodes, list};
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
    /// Open for a time, then half-open: probes decide
    OpenThenProbe,
    Closed,
    Disabled,
    Metrics,
    Auto,
}

impl From<ForceTo> for Force {
    fn from(to: ForceTo) -> Self {
        match to {
            ForceTo::Open => Self::Open,
            ForceTo::OpenThenProbe => Self::OpenThenProbe,
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
    /// Also where nothing was counted yet: without it a name without a breaker is taken for a mistyped one
    #[arg(long)]
    new: bool,
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
            let (rows, operator) = list(&client, output, KeyKind::Breaker, args).await?;
            output.table(|| rows.iter().map(OverviewRow::json).collect(), &table(&rows), "no breakers")?;
            all_nodes(&operator)
        }
        BreakerVerb::Show(target) => {
            let found = FoundBreaker::find(&connect.client().await?.operator(), target).await?;
            if let Some(other) = &found.other {
                let text = "the policy of this name has a breaker, too: resil breaker show --key";
                output.notice(&format!("{text} {}", quoted(&other.key)));
            }
            let FoundBreaker { named, state, .. } = &found;
            output.thing(|| shape(named, state), &properties(named, state))?;
            is_there(state.exists, "breaker", named)
        }
        BreakerVerb::Force(args) => force(connect, output, args).await,
        BreakerVerb::Reset(args) => {
            let operator = connect.client().await?.operator();
            let named = FoundBreaker::find(&operator, &args.target).await?.only("reset", false)?;
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
    if matches!(args.to, ForceTo::OpenThenProbe) && args.length.is_none() {
        return Err(Failure::Usage(
            "--to open-then-probe needs --for: how long it is open before it probes".to_owned(),
        ));
    }
    let operator = connect.client().await?.operator();
    let found = FoundBreaker::find(&operator, &args.target).await?;
    let is_new = !found.state.exists;
    let named = found.only("forced", args.new)?;
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
            "reason": args.change.reason, "forMs": span_ms, "isNew": is_new })
    };
    let new = if is_new { "; there was no such breaker before" } else { "" };
    output.done(value, &format!("{} is {}{until}{new}", quoted(&named.shown()), state.text()))
}

/// The breaker that a name stands for: the SDKs' own of this name, else the one of the stored policy of this name.
struct FoundBreaker {
    named: Named,
    state: Snapshot,
    /// The policy's, if there are both.
    other: Option<Named>,
    /// Why it is not known whether there is one of a policy, too.
    unseen: Option<resil::Error>,
}

impl FoundBreaker {
    async fn find(operator: &Operator, target: &Target) -> Result<Self, Failure> {
        let named = target.named(KeyKind::Breaker)?;
        let state = operator.breaker(&named.key).await?;
        let Some(policy) = target.policy()? else { return Ok(Self { named, state, other: None, unseen: None }) };
        match operator.breaker(&policy.key).await {
            Ok(of_policy) if of_policy.exists && state.exists => {
                Ok(Self { named, state, other: Some(policy), unseen: None })
            }
            Ok(of_policy) if of_policy.exists => {
                Ok(Self { named: policy, state: of_policy, other: None, unseen: None })
            }
            Err(error) if !state.exists && is_away(&error) => Err(error.into()),
            Err(error) if is_away(&error) => Ok(Self { named, state, other: None, unseen: Some(error) }),
            // There is no policy, or it has no breaker, or this user may not see it.
            Ok(_) | Err(_) => Ok(Self { named, state, other: None, unseen: None }),
        }
    }

    /// For a change: exactly one is meant, and it is there unless a new one is wanted.
    fn only(self, what: &str, is_new_allowed: bool) -> Result<Named, Failure> {
        if let Some(other) = &self.other {
            return Err(Failure::Refused(format!(
                "two breakers have this name, and none was {what}: --key {} is the SDKs' own, --key {} is the policy's",
                quoted(&self.named.key),
                quoted(&other.key)
            )));
        }
        if let Some(error) = self.unseen {
            return Err(error.into());
        }
        if !is_new_allowed {
            is_there(self.state.exists, "breaker", &self.named)?;
        }
        Ok(self.named)
    }
}

/// A look at what is not there succeeds for programs, and is said on standard error for people.
pub fn is_there(exists: bool, kind: &str, named: &Named) -> Result<(), Failure> {
    match exists {
        true => Ok(()),
        false => Err(Failure::NotThere(format!(
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
            Cell::new(row.label()),
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
