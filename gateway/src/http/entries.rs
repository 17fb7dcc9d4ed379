//! Messages of a ledger: lists, and one with its payload and what happened to it.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use resil::dead_letters::{FailureClass, LetterFilter, LetterState, LetterView};
use serde::Deserialize;
use serde_json::{Value, json};

use super::acts::{Asked, Looker, Segments};
use super::ledgers::ledger;
use super::{Reply, shown};
use crate::errors::Problem;
use crate::run::Gateway;
use crate::{epoch_ms, now_ms};

/// What is shown of a payload.
const PAYLOAD_SHOWN: usize = 64 << 10;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub struct EntriesAsked {
    state: Option<String>,
    kind: Option<String>,
    failure_class: Option<String>,
    group: Option<String>,
    aggregate: Option<String>,
    case: Option<String>,
    since: Option<String>,
    until: Option<String>,
    cursor: Option<String>,
    limit: Option<String>,
}

fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// An empty field of a form is a field that is not there.
fn number<N: std::str::FromStr>(field: &str, text: Option<String>) -> Result<Option<N>, Problem> {
    given(text).map(|text| text.parse().map_err(|_| Problem::wrong_field(field, "must be a number"))).transpose()
}

fn word<T: serde::de::DeserializeOwned>(field: &str, text: Option<String>) -> Result<Option<T>, Problem> {
    let read = |text: String| {
        serde_json::from_value(Value::from(text))
            .map_err(|_| Problem::wrong_field(field, "is not one of the known words"))
    };
    given(text).map(read).transpose()
}

impl EntriesAsked {
    fn filter(self) -> Result<LetterFilter, Problem> {
        let limit: Option<u32> = number("limit", self.limit)?;
        Ok(LetterFilter {
            state: word::<LetterState>("state", self.state)?,
            kind: given(self.kind),
            failure_class: word::<FailureClass>("failureClass", self.failure_class)?,
            group: given(self.group),
            aggregate: given(self.aggregate),
            case: number("case", self.case)?,
            since: number("since", self.since)?.map(Duration::from_millis),
            until: number("until", self.until)?.map(Duration::from_millis),
            cursor: number("cursor", self.cursor)?.unwrap_or(0),
            limit: Some(limit.unwrap_or(100).clamp(1, 1_000)),
        })
    }
}

fn entry(letter: &LetterView) -> Result<Value, Problem> {
    let mut value = shown(letter)?;
    let attempts: Vec<Value> = letter
        .attempts
        .iter()
        .map(|attempt| {
            let delay = u64::try_from(attempt.delay.as_millis()).unwrap_or(u64::MAX);
            json!({"at": epoch_ms(attempt.at), "failureClass": attempt.failure_class, "delayMs": delay})
        })
        .collect();
    value["attempts"] = attempts.into();
    Ok(value)
}

pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    _: Looker,
    Segments(key): Segments<String>,
    Asked(asked): Asked<EntriesAsked>,
) -> Reply {
    let page = ledger(&gateway, &key)?.list(&asked.filter()?).await?;
    let entries = page.letters.iter().map(entry).collect::<Result<Vec<_>, _>>()?;
    // A text: numbers of this size are not exact in JavaScript.
    Ok(Json(json!({ "entries": entries, "cursor": page.cursor.map(|cursor| cursor.to_string()) })))
}

/// Bytes as text where they are text.
fn bytes_shown(bytes: Option<&bytes::Bytes>) -> Value {
    let Some(bytes) = bytes else { return Value::Null };
    let part = &bytes[..bytes.len().min(PAYLOAD_SHOWN)];
    let text = std::str::from_utf8(part).ok();
    let base64 = text.is_none().then(|| BASE64_STANDARD.encode(part));
    json!({"text": text, "base64": base64, "bytes": bytes.len(), "truncated": part.len() < bytes.len()})
}

/// What happened to a message, the oldest first.
fn timeline(letter: &LetterView) -> Vec<Value> {
    let mut all = vec![
        json!({"at": epoch_ms(letter.first_at), "what": "failed", "text": "it failed for the first time", "case": null}),
    ];
    for attempt in &letter.attempts {
        let class =
            shown(&attempt.failure_class).ok().and_then(|class| class.as_str().map(str::to_owned)).unwrap_or_default();
        let then = match attempt.delay.is_zero() {
            true => "and was not tried again".to_owned(),
            false => format!("and waited {:?}", attempt.delay),
        };
        all.push(json!({"at": epoch_ms(attempt.at), "what": "failed", "text": format!("an attempt failed ({class}) {then}"), "case": null}));
    }
    if let Some(died_at) = letter.died_at {
        let reason =
            letter.reason.and_then(|reason| shown(&reason).ok()).and_then(|reason| reason.as_str().map(str::to_owned));
        all.push(json!({"at": epoch_ms(died_at), "what": "died", "text": format!("it died: {}", reason.unwrap_or_default()), "case": null}));
    }
    for case in &letter.cases {
        all.push(json!({"at": epoch_ms(letter.last_at), "what": "redriven", "text": format!("case {case} redrove it"), "case": case}));
    }
    if let Some(due_at) = letter.due_at {
        all.push(json!({"at": epoch_ms(due_at), "what": "due", "text": "it is due", "case": null}));
    }
    if letter.state == LetterState::Resolved {
        all.push(json!({"at": epoch_ms(letter.last_at), "what": "resolved", "text": "it is resolved", "case": null}));
    }
    let state = shown(&letter.state).ok().and_then(|state| state.as_str().map(str::to_owned)).unwrap_or_default();
    all.push(json!({"at": now_ms(), "what": "now", "text": format!("it is {state}"), "case": null}));
    all.sort_by_key(|event| event["at"].as_u64());
    all
}

pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    _: Looker,
    Segments((key, id)): Segments<(String, String)>,
) -> Reply {
    let letter = ledger(&gateway, &key)?.get(&id).await?.ok_or_else(|| Problem::not_found("entry"))?;
    let mut value = entry(&letter)?;
    value["payload"] = bytes_shown(letter.payload.as_ref());
    value["headers"] = bytes_shown(letter.headers.as_ref());
    value["timeline"] = timeline(&letter).into();
    Ok(Json(value))
}
