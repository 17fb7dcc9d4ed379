//! What orchestrators and scrapers ask.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use serde_json::{Map, Value, json};

use crate::errors::Problem;
use crate::health::HealthState;
use crate::identity::Peer;
use crate::run::Gateway;
use crate::{metrics as numbers, now_ms};

pub async fn live() -> &'static str {
    "ok\n"
}

pub async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    match gateway.unready() {
        None => "ready\n".into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

fn pass(state: Option<HealthState>) -> &'static str {
    match state {
        None | Some(HealthState::Healthy) => "pass",
        Some(HealthState::Degraded) => "warn",
        Some(HealthState::Unhealthy) => "fail",
    }
}

/// The health of the gateway and of what it looks at, in the form of health+json.
pub async fn health(State(gateway): State<Arc<Gateway>>) -> Response {
    let mut checks = Map::new();
    let client = gateway.client.health();
    // Without the server the gateway goes on by what the policies say.
    let redis = if client.reason.is_some() { HealthState::Degraded } else { HealthState::Healthy };
    checks
        .insert("redis".to_owned(), json!([{"status": pass(Some(redis)), "output": client.reason, "time": now_ms()}]));
    let file = gateway.policies.file_problem();
    let bad_file = file.map(|_| "the file of policies is bad; the last good one is in use".to_owned());
    // A good file can leave out what an upstream needs: then all of its calls are refused.
    let mut names = gateway.upstreams.iter().map(|upstream| &upstream.policy);
    let missing = names.find(|name| gateway.policies.choose(name).is_err());
    let output =
        bad_file.or_else(|| missing.map(|name| format!("there is no policy {name:?}, which an upstream needs")));
    let policies = if output.is_some() { HealthState::Degraded } else { HealthState::Healthy };
    checks.insert("policies".to_owned(), json!([{"status": pass(Some(policies)), "output": output, "time": now_ms()}]));
    for view in gateway.health.views() {
        let check = json!([{"componentType": "service", "status": pass(view.state), "output": view.detail, "time": view.checked_ms}]);
        checks.insert(format!("service:{}", view.service), check);
    }
    let overall = crate::health::aggregate([redis, policies, gateway.health.overall()]);
    let body: Value = json!({
        "status": pass(Some(overall)),
        "version": env!("CARGO_PKG_VERSION"),
        "serviceId": gateway.instance,
        "checks": checks,
    });
    let status = if overall == HealthState::Unhealthy { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (status, [(header::CONTENT_TYPE, "application/health+json")], body.to_string()).into_response()
}

pub async fn metrics(
    State(gateway): State<Arc<Gateway>>,
    peer: Option<axum::Extension<Peer>>,
    headers: HeaderMap,
) -> Response {
    let is_known =
        || peer.is_some_and(|axum::Extension(peer)| gateway.access.caller(&peer, &headers, now_ms()).is_some());
    if !gateway.config.metrics.open && !is_known() {
        return Problem::unauthenticated().into_response();
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], numbers::page(&gateway)).into_response()
}
