//! The first page, limits, work in flight, health, upstreams and the audit.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use resil::health::Status;
use resil::limiter::Limit;
use resil::operator::KeyFilter;
use resil::operator::limit_key;
use serde::Deserialize;
use serde_json::{Value, json};

use super::acts::{Asked, Looker};
use super::circuits::RowsAsked;
use super::{Reply, rows};
use crate::errors::Problem;
use crate::now_ms;
use crate::run::Gateway;

/// Rows that are looked at for the numbers of the first page.
const COUNTED_MAX: usize = 20_000;
const RANKED: usize = 128;
/// Runs, and loads, that the page of what is in flight shows; `/api/runs` and `/api/loads` have filters, and more.
const IN_FLIGHT_MAX: usize = 500;
/// Runs, and loads, of a list of their own.
const IN_FLIGHT_LISTED: usize = 5_000;
const AUDIT_MAX: usize = 1_000;

fn redis(gateway: &Gateway) -> Value {
    let health = gateway.client.health();
    let status = match (&health.reason, health.overall) {
        (None, _) => "healthy",
        (Some(_), Status::Unhealthy) => "unhealthy",
        (Some(_), _) => "degraded",
    };
    json!({"status": status, "reason": health.reason, "since": health.since.map(crate::epoch_ms)})
}

pub async fn show(State(gateway): State<Arc<Gateway>>, _: Looker) -> Reply {
    let filter = KeyFilter { limit: COUNTED_MAX, ..KeyFilter::default() };
    let operator = gateway.client.operator();
    let (circuits, locks, bulkheads, policies, ledgers, denied) = tokio::try_join!(
        operator.breakers(&filter),
        operator.locks(&filter),
        operator.bulkheads(&filter),
        operator.policies(&filter),
        operator.ledgers(&filter),
        operator.denied(RANKED),
    )?;
    let in_state = |wanted: &str| circuits.iter().filter(|row| row.state == wanted).count();
    let sum = |of: fn(&resil::operator::LedgerRow) -> i64| ledgers.iter().map(of).sum::<i64>();
    Ok(Json(json!({
        "circuits": {"total": circuits.len(), "open": in_state("open") + in_state("forced-open"), "halfOpen": in_state("half-open"),
            "forced": circuits.iter().filter(|row| row.forced_by.is_some()).count()},
        "locks": {"held": locks.len(), "contended": locks.iter().filter(|row| row.state == "contended").count(),
            "waiters": locks.iter().map(|row| row.waiters).sum::<i64>()},
        "bulkheads": {"total": bulkheads.len(), "full": bulkheads.iter().filter(|row| row.state == "full").count()},
        "policies": {"live": policies.iter().filter(|row| row.state == "live").count()},
        "deadLetters": {"ledgers": ledgers.len(), "dead": sum(|row| row.dead), "casesOpen": sum(|row| row.cases_open),
            "alertsUnseen": sum(|row| row.alerts_unseen)},
        "denied": {"topEstimate": denied.iter().map(|row| row.estimate).sum::<i64>()},
        "health": {"status": gateway.health.overall(), "services": gateway.health.views().len()},
        "redis": redis(&gateway),
        "calls": {"inFlight": gateway.drain.in_flight(), "total": gateway.calls.total.load(Relaxed),
            "failed": gateway.calls.failed.load(Relaxed), "refused": gateway.calls.refused.load(Relaxed)},
        "serverNow": now_ms(),
    })))
}

#[derive(Deserialize)]
pub struct RankAsked {
    #[serde(default)]
    limit: Option<usize>,
}

pub async fn limits(State(gateway): State<Arc<Gateway>>, _: Looker, Asked(asked): Asked<RankAsked>) -> Reply {
    let denied = gateway.client.operator().denied(asked.limit.unwrap_or(50).clamp(1, RANKED)).await?;
    let policies = gateway.client.policies().list().await?;
    let limits: Vec<Value> = policies
        .iter()
        .filter_map(|policy| {
            let document: Value = serde_json::from_str(&policy.policy).ok()?;
            let limit = document.get("rateLimit").filter(|limit| !limit.is_null())?;
            Some(json!({"policy": policy.name, "version": policy.version, "rateLimit": limit}))
        })
        .collect();
    Ok(Json(json!({ "denied": rows(&denied), "limits": limits })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeekAsked {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    subject: Option<String>,
    #[serde(default)]
    key: Option<String>,
    limit: u32,
    period_ms: u64,
    #[serde(default)]
    burst: Option<String>,
    #[serde(default)]
    window: Option<String>,
}

pub async fn peek(State(gateway): State<Arc<Gateway>>, _: Looker, Asked(asked): Asked<PeekAsked>) -> Reply {
    let key = match (&asked.key, &asked.name, &asked.subject) {
        (Some(key), _, _) if !key.is_empty() => key.as_bytes().to_vec(),
        (_, Some(name), Some(subject)) => limit_key(name, subject.as_bytes())?,
        _ => return Err(Problem::wrong("key, or name and subject, are needed")),
    };
    let period = Duration::from_millis(asked.period_ms);
    let is_window = asked.window.as_deref().is_some_and(|text| matches!(text, "1" | "true" | "yes"));
    let mut limit = if is_window { Limit::window(asked.limit, period) } else { Limit::new(asked.limit, period) };
    if let Some(burst) = asked.burst.as_deref().filter(|text| !text.is_empty()) {
        limit = limit.burst(burst.parse().map_err(|_| Problem::wrong_field("burst", "must be a number"))?);
    }
    let verdict = gateway.client.operator().limit(&key, &limit).await?;
    let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Ok(Json(json!({"allowed": verdict.granted > 0, "limit": verdict.limit, "remaining": verdict.remaining,
        "retryAfterMs": verdict.retry_after.map(ms), "resetAfterMs": ms(verdict.reset_after)})))
}

/// At most so many rows, and whether there are others.
fn cut<T>(mut rows: Vec<T>, most: usize) -> (Vec<T>, bool) {
    let more = rows.len() > most;
    rows.truncate(most);
    (rows, more)
}

pub async fn work(State(gateway): State<Arc<Gateway>>, _: Looker) -> Reply {
    let operator = gateway.client.operator();
    let all = KeyFilter { limit: IN_FLIGHT_MAX + 1, ..KeyFilter::default() };
    let (waiting, held, runs, loads) =
        tokio::try_join!(operator.waiting(RANKED), operator.held(RANKED), operator.runs(&all), operator.loads(&all))?;
    let ((runs, more_runs), (loads, more_loads)) = (cut(runs, IN_FLIGHT_MAX), cut(loads, IN_FLIGHT_MAX));
    Ok(Json(
        json!({"waiting": rows(&waiting), "held": rows(&held), "runs": rows(&runs), "moreRuns": more_runs, "loads": rows(&loads),
            "moreLoads": more_loads, "calls": gateway.calls.json(), "callsInFlight": gateway.calls.count()}),
    ))
}

/// Idempotency keys that were begun and not committed.
pub async fn runs(State(gateway): State<Arc<Gateway>>, _: Looker, Asked(asked): Asked<RowsAsked>) -> Reply {
    let filter = asked.filter_of(IN_FLIGHT_LISTED + 1);
    let (found, more) = cut(gateway.client.operator().runs(&filter).await?, IN_FLIGHT_LISTED);
    Ok(Json(json!({"runs": rows(&found), "more": more})))
}

/// What somebody loads for all who ask.
pub async fn loads(State(gateway): State<Arc<Gateway>>, _: Looker, Asked(asked): Asked<RowsAsked>) -> Reply {
    let filter = asked.filter_of(IN_FLIGHT_LISTED + 1);
    let (found, more) = cut(gateway.client.operator().loads(&filter).await?, IN_FLIGHT_LISTED);
    Ok(Json(json!({"loads": rows(&found), "more": more})))
}

pub async fn health(State(gateway): State<Arc<Gateway>>, _: Looker) -> Reply {
    Ok(Json(gateway.health.json(gateway.reporter.is_reporter())))
}

pub async fn upstreams(State(gateway): State<Arc<Gateway>>, _: Looker) -> Reply {
    let mut all = Vec::new();
    for upstream in gateway.upstreams.iter() {
        let key = gateway.policies.circuit_key(&upstream.policy)?;
        let snapshot = gateway.client.operator().breaker(key.as_bytes()).await.ok();
        let kind = match upstream.config.kind {
            crate::config::UpstreamKind::Grpc => "grpc",
            crate::config::UpstreamKind::Http => "http",
        };
        all.push(json!({"name": upstream.name, "kind": kind, "policy": upstream.policy, "circuitKey": key,
            "state": snapshot.map(|snapshot| snapshot.state.text()), "calls": upstream.counts.calls.load(Relaxed),
            "failed": upstream.counts.failed.load(Relaxed), "refused": upstream.counts.refused.load(Relaxed),
            "inFlight": upstream.counts.in_flight.load(Relaxed)}));
    }
    Ok(Json(json!({ "upstreams": all })))
}

pub async fn audit(State(gateway): State<Arc<Gateway>>, _: Looker, Asked(asked): Asked<RankAsked>) -> Reply {
    let limit = asked.limit.unwrap_or(200).clamp(1, AUDIT_MAX);
    let own = gateway.audit.latest(limit);
    let mut all: Vec<Value> = own.iter().filter_map(|event| serde_json::to_value(&**event).ok()).collect();
    // What ledgers store is shown beside it; without the server only our own.
    all.extend(super::ledgers::stored_audit(&gateway).await.unwrap_or_default());
    all.sort_by_key(|event| std::cmp::Reverse(event["at"].as_u64()));
    all.truncate(limit);
    Ok(Json(json!({ "audit": all })))
}
