//! `resil limit show`: what is left of a limit, taking nothing. The server stores what was taken and not the limit itself, so the limit
//! that the service uses has to be named.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand};
use resil::limiter::Limit;
use resil::operator::limit_key;
use serde_json::json;

use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::output::{Cell, Output, Tone, as_json, json_bytes};
use crate::spans;
use crate::target::read_key;

#[derive(Subcommand)]
pub enum LimitVerb {
    /// What is left: `resil limit show api user:42 --limit 10 --period 1s`
    Show(LimitArgs),
}

#[derive(Args)]
pub struct LimitArgs {
    /// The name of the limiter, as the SDKs use it
    #[arg(required_unless_present = "raw_key", requires = "subject")]
    name: Option<String>,
    /// What is limited: a user, a tenant
    subject: Option<String>,
    /// The key itself, in place of name and subject: \xHH stands for a byte
    #[arg(long = "key", id = "raw_key", value_name = "KEY", conflicts_with = "name")]
    key: Option<OsString>,
    /// Cells in a period
    #[arg(long)]
    limit: u32,
    #[arg(long, value_parser = spans::read)]
    period: Duration,
    /// What the bucket holds; the limit by default
    #[arg(long)]
    burst: Option<u32>,
    /// It is an exact window, not a bucket
    #[arg(long, conflicts_with = "burst")]
    window: bool,
}

pub async fn run(connect: &ConnectArgs, output: &Output, LimitVerb::Show(args): &LimitVerb) -> Result<(), Failure> {
    let key = match (&args.name, &args.subject, &args.key) {
        (_, _, Some(key)) => read_key(key)?,
        (Some(name), Some(subject), _) => limit_key(name, subject.as_bytes())?,
        _ => return Err(Failure::Usage("a name and a subject, or --key, are needed".to_owned())),
    };
    let limit = if args.window { Limit::window(args.limit, args.period) } else { Limit::new(args.limit, args.period) };
    let limit = args.burst.map_or(limit.clone(), |burst| limit.burst(burst));
    let verdict = connect.client().await?.operator().limit(&key, &limit).await?;
    // A limit is a key only while something was taken.
    let is_untouched = verdict.remaining == verdict.capacity && verdict.reset_after.is_zero();
    let value = || {
        let mut value = as_json(&verdict);
        value["key"] = json_bytes(&key);
        value["name"] = json!(args.name);
        value["subject"] = json!(args.subject);
        value["isUntouched"] = json!(is_untouched);
        value
    };
    let tone = if verdict.remaining == 0 { Tone::Bad } else { Tone::Good };
    let mut lines = vec![
        ("key", Cell::new(&key)),
        (
            "limit",
            Cell::new(format!(
                "{} in {}, at most {} at once",
                verdict.limit,
                spans::shown(verdict.period),
                verdict.capacity
            )),
        ),
        ("remaining", Cell::toned(verdict.remaining.to_string(), tone)),
        ("full again in", Cell::new(spans::shown(verdict.reset_after))),
    ];
    if let Some(retry_after) = verdict.retry_after.filter(|wait| !wait.is_zero()) {
        lines.push(("next one in", Cell::new(spans::shown(retry_after))));
    }
    if is_untouched {
        lines.push(("taken", Cell::new("nothing: a mistyped name or subject looks like this, too")));
    }
    output.thing(value, &lines)
}
