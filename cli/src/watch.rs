//! `resil watch`: events as they happen, one on each line. When the connection is lost it is opened again, and a line on standard error
//! says that events may have been missed.

use std::cell::Cell;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use resil::operator::ServerMessage;
use serde_json::{Map, Value};

use crate::connect::ConnectArgs;
use crate::failure::{Failure, SERVER};
use crate::output::{Output, escaped};

/// What docs/events.md has a heading for.
const EVENTS: [&str; 6] = ["breaker", "lost", "dlq.dead", "dlq.alert", "dlq.audit", "policy"];

#[derive(Args)]
pub struct WatchArgs {
    /// Only events of this kind, such as breaker, lost, policy or dlq.dead
    #[arg(long, value_parser = PossibleValuesParser::new(EVENTS))]
    event: Option<String>,
    /// Ends after so many events
    #[arg(long)]
    count: Option<u64>,
    /// Ends after so long
    #[arg(long = "for", value_name = "DURATION", value_parser = crate::spans::read)]
    length: Option<Duration>,
}

pub async fn run(connect: &ConnectArgs, output: &Output, args: &WatchArgs) -> Result<(), Failure> {
    let client = connect.patient_client().await?;
    if let Some(reason) = client.health().reason {
        output.notice(&format!(
            "the server {} is away ({}); it is tried again",
            escaped(SERVER.get().map_or("", String::as_str).as_bytes()),
            escaped(reason.as_bytes())
        ));
    }
    let has_listened = Cell::new(false);
    let watching = listen(&client, output, args, &has_listened);
    let end = async {
        match args.length {
            Some(length) => tokio::time::sleep(length).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        done = watching => done,
        () = end => match (has_listened.get(), client.health().reason) {
            (false, reason) => Err(Failure::Unreachable(reason.unwrap_or_else(|| "nothing was heard".to_owned()))),
            (true, _) => Ok(()),
        },
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

async fn listen(
    client: &resil::Client,
    output: &Output,
    args: &WatchArgs,
    has_listened: &Cell<bool>,
) -> Result<(), Failure> {
    let mut feed = client.operator().events()?;
    let (mut heard, mut was_lost) = (0, false);
    while args.count.is_none_or(|count| heard < count) {
        let message = feed.next().await?;
        has_listened.set(has_listened.get() || message == Some(ServerMessage::Listening));
        match message {
            None => break,
            Some(ServerMessage::Listening) if was_lost => {
                output.notice("listening again; events in between were missed")
            }
            Some(ServerMessage::Listening) => output.notice("listening"),
            Some(ServerMessage::Lost) => {
                was_lost = true;
                output.notice("the connection was lost; another one is opened");
            }
            Some(ServerMessage::Event(payload)) => {
                let Ok(Value::Object(event)) = serde_json::from_slice(&payload) else { continue };
                let kind = event.get("event").and_then(Value::as_str).unwrap_or_default();
                if args.event.as_ref().is_some_and(|wanted| wanted != kind) {
                    continue;
                }
                heard += 1;
                match output.is_json {
                    true => output.json_line(&Value::Object(event))?,
                    false => output.lines([line(&event)])?,
                }
            }
        }
    }
    Ok(())
}

/// `12:00:07.250 breaker service=resil:breaker:{payments} previous=closed new=open …`, in UTC.
fn line(event: &Map<String, Value>) -> String {
    let ms = event.get("time_ms").and_then(Value::as_u64).unwrap_or_default();
    let second = ms / 1_000 % 86_400;
    let time = format!("{:02}:{:02}:{:02}.{:03}", second / 3_600, second % 3_600 / 60, second % 60, ms % 1_000);
    let kind = event.get("event").and_then(Value::as_str).unwrap_or_default();
    let mut line = format!("{time} {}", escaped(kind.as_bytes()));
    let id = event.get("event_id");
    let is_shown = |name: &str, value: &Value| match name {
        "event" | "time_ms" | "event_id" => false,
        // Nobody gave one.
        "correlation" => Some(value) != id,
        _ => !value.is_null(),
    };
    for (name, value) in event.iter().filter(|(name, value)| is_shown(name, value)) {
        let text = match value {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let text = escaped(text.as_bytes());
        let text = if text.contains(' ') || text.is_empty() { format!("\"{text}\"") } else { text };
        line.push_str(&format!(" {}={text}", escaped(name.as_bytes())));
    }
    line
}
