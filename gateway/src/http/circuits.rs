//! Circuits: what there is, one in full, and forcing one.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use resil::breaker::{Force, Snapshot};
use resil::operator::ForceOrder;
use resil::operator::KeyFilter;
use serde::Deserialize;
use serde_json::{Value, json};

use super::acts::{Actor, Asked, Because, Body, Looker, Segments};
use super::{Reply, rows};
use crate::epoch_ms;
use crate::errors::Problem;
use crate::feed::circuit_name;
use crate::roles::Role;
use crate::run::Gateway;

/// Which rows a list shows.
#[derive(Debug, Default, Deserialize)]
pub struct RowsAsked {
    #[serde(default)]
    pub state: Option<String>,
    #[serde(default, rename = "match")]
    pub pattern: Option<String>,
}

/// Rows of one list; more would be of no use on a screen.
const ROWS_MAX: usize = 5_000;

impl RowsAsked {
    pub fn filter(self) -> KeyFilter {
        self.filter_of(ROWS_MAX)
    }

    pub fn filter_of(self, limit: usize) -> KeyFilter {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        KeyFilter { state: given(self.state), pattern: given(self.pattern), limit }
    }
}

pub async fn list(State(gateway): State<Arc<Gateway>>, _: Looker, Asked(asked): Asked<RowsAsked>) -> Reply {
    let found = gateway.client.operator().breakers(&asked.filter()).await?;
    Ok(Json(json!({ "circuits": rows(&found) })))
}

fn circuit(key: &str, snapshot: &Snapshot) -> Value {
    let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let forced = snapshot.forced.as_ref().map(|forced| {
        json!({"by": forced.by, "reason": forced.reason, "since": epoch_ms(forced.since), "until": forced.until.map(epoch_ms),
            "endsIn": forced.ends_in.map(|state| state.text())})
    });
    let config: serde_json::Map<String, Value> =
        snapshot.config.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
    json!({
        "name": circuit_name(key),
        "key": key,
        "exists": snapshot.exists,
        "state": snapshot.state.text(),
        "admits": snapshot.admits,
        "retryAfterMs": snapshot.retry_after.map(ms),
        "generation": snapshot.generation,
        "calls": snapshot.calls,
        "failures": snapshot.failures,
        "slow": snapshot.slow,
        "failureRatePercent": snapshot.failure_rate_percent,
        "slowRatePercent": snapshot.slow_rate_percent,
        "failuresInARow": snapshot.failures_in_a_row,
        "trips": snapshot.trips,
        "probesOut": snapshot.probes_out,
        "successes": snapshot.successes,
        "openedAt": snapshot.opened_at.map(epoch_ms),
        "forced": forced,
        "version": snapshot.version,
        "config": config,
    })
}

pub async fn show(State(gateway): State<Arc<Gateway>>, _: Looker, Segments(key): Segments<String>) -> Reply {
    let snapshot = gateway.client.operator().breaker(key.as_bytes()).await?;
    let mut shown = circuit(&key, &snapshot);
    shown["transitions"] = gateway.feed.moves(&key).iter().map(|moved| moved.json()).collect();
    Ok(Json(shown))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForceAsked {
    state: Force,
    #[serde(default)]
    for_ms: Option<u64>,
    #[serde(flatten)]
    because: Because,
}

pub async fn force(
    State(gateway): State<Arc<Gateway>>,
    actor: Actor,
    Segments(key): Segments<String>,
    Body(asked): Body<ForceAsked>,
) -> Reply {
    actor.must(&gateway, Role::Operate, "circuit.force", &key)?;
    asked.because.check()?;
    if asked.state == Force::OpenThenProbe && asked.for_ms.is_none() {
        return Err(Problem::wrong_field("forMs", "is needed for open-then-probe"));
    }
    let mut order = ForceOrder::new(asked.state).actor(&asked.because.actor).reason(&asked.because.reason);
    if let Some(ms) = asked.for_ms {
        order = order.duration(Duration::from_millis(ms));
    }
    let state = gateway.client.operator().force(key.as_bytes(), &order).await?;
    let action = format!("forced, now {}: {}", state.text(), asked.because.reason);
    actor.done(&gateway, "circuit.force", &key, &action, &asked.because.actor);
    Ok(Json(json!({ "state": state.text() })))
}

pub async fn reset(
    State(gateway): State<Arc<Gateway>>,
    actor: Actor,
    Segments(key): Segments<String>,
    Body(because): Body<Because>,
) -> Reply {
    actor.must(&gateway, Role::Operate, "circuit.reset", &key)?;
    because.check()?;
    let reset = gateway.client.operator().reset_breaker(key.as_bytes()).await?;
    actor.done(&gateway, "circuit.reset", &key, &format!("reset: {}", because.reason), &because.actor);
    Ok(Json(json!({ "reset": reset })))
}
