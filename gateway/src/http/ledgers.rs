//! Ledgers of dead letters: what is in them, root causes, redrives, holds, alerts, the audit. The module decides; here it is passed on.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use resil::Error;
use resil::dead_letters::{
    CauseCategory, DeadLetters, DeadLettersSettings, Diagnosis, LedgerChange, LetterCase, RedriveProgress, RedriveRate,
    RedriveSettings,
};
use resil::operator::KeyFilter;
use resil::operator::KeyKind;
use serde::Deserialize;
use serde_json::{Value, json};

use super::acts::{Actor, Asked, Because, Body, Looker, Segments, check_actor};
use super::{Reply, rows, shown};
use crate::epoch_ms;
use crate::errors::Problem;
use crate::roles::Role;
use crate::run::Gateway;

/// Ledgers whose alerts and audits are looked at together.
const LEDGERS_MAX: usize = 50;

pub fn ledger(gateway: &Gateway, key: &str) -> Result<DeadLetters, Error> {
    gateway.client.operator().ledger(key, DeadLettersSettings::new())
}

fn name_of(key: &str) -> Option<String> {
    KeyKind::DeadLetters.name(key.as_bytes())
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn progress_of(progress: &RedriveProgress) -> Value {
    json!({"phase": progress.phase, "startedAt": epoch_ms(progress.started_at),
        "rate": {"count": progress.rate.count, "periodMs": ms(progress.rate.period)}, "first": progress.first,
        "oneshot": progress.oneshot, "auto": progress.auto, "given": progress.given, "resolved": progress.resolved,
        "died": progress.died, "active": progress.active})
}

fn case_of(case: &LetterCase) -> Result<Value, Problem> {
    let mut value = shown(case)?;
    value["redrive"] = case.redrive.as_ref().map(progress_of).unwrap_or_default();
    Ok(value)
}

pub async fn list(State(gateway): State<Arc<Gateway>>, _: Looker) -> Reply {
    let found = gateway.client.operator().ledgers(&KeyFilter::default()).await?;
    Ok(Json(json!({ "ledgers": rows(&found) })))
}

pub async fn show(State(gateway): State<Arc<Gateway>>, _: Looker, Segments(key): Segments<String>) -> Reply {
    let ledger = ledger(&gateway, &key)?;
    let (info, config) = tokio::try_join!(ledger.info(), ledger.config())?;
    Ok(Json(json!({"key": key, "name": name_of(&key), "info": shown(&info)?, "config": shown(&config)?})))
}

pub async fn groups(State(gateway): State<Arc<Gateway>>, _: Looker, Segments(key): Segments<String>) -> Reply {
    Ok(Json(json!({ "groups": shown(&ledger(&gateway, &key)?.groups().await?)? })))
}

pub async fn cases(State(gateway): State<Arc<Gateway>>, _: Looker, Segments(key): Segments<String>) -> Reply {
    let cases = ledger(&gateway, &key)?.cases().await?;
    Ok(Json(json!({ "cases": cases.iter().map(case_of).collect::<Result<Vec<_>, _>>()? })))
}

pub async fn case(
    State(gateway): State<Arc<Gateway>>,
    _: Looker,
    Segments((key, case)): Segments<(String, u32)>,
) -> Reply {
    let found = ledger(&gateway, &key)?.case(case).await?.ok_or_else(|| Problem::not_found("case"))?;
    Ok(Json(case_of(&found)?))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiagnoseAsked {
    groups: Vec<String>,
    category: CauseCategory,
    cause: String,
    fix: String,
    #[serde(default)]
    decision: Option<String>,
    #[serde(default)]
    auto_ms: Option<u64>,
    actor: String,
}

pub async fn diagnose(
    State(gateway): State<Arc<Gateway>>,
    actor: Actor,
    Segments(key): Segments<String>,
    Body(asked): Body<DiagnoseAsked>,
) -> Reply {
    actor.must(&gateway, Role::Govern, "dlq.diagnose", &key)?;
    check_actor(&asked.actor)?;
    let mut diagnosis = Diagnosis::new(asked.groups, asked.category, asked.cause.as_str(), asked.fix);
    diagnosis.decision = asked.decision.filter(|decision| !decision.is_empty());
    diagnosis.auto = asked.auto_ms.map(Duration::from_millis);
    let case = ledger(&gateway, &key)?.by(&asked.actor).diagnose(&diagnosis).await?;
    actor.done(&gateway, "dlq.diagnose", &key, &format!("case {case}: {}", asked.cause), &asked.actor);
    Ok(Json(json!({ "case": case })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RateAsked {
    count: u32,
    period_ms: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub struct RedriveAsked {
    id: Option<String>,
    kind: Option<String>,
    aggregate: Option<String>,
    since: Option<u64>,
    until: Option<u64>,
    count: Option<u32>,
    rate: Option<RateAsked>,
    first: Option<u32>,
    oneshot: bool,
    actor: String,
}

impl RedriveAsked {
    fn settings(&self) -> RedriveSettings {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let mut settings = RedriveSettings::new();
        (settings.id, settings.kind, settings.aggregate) = (given(&self.id), given(&self.kind), given(&self.aggregate));
        (settings.since, settings.until) =
            (self.since.map(Duration::from_millis), self.until.map(Duration::from_millis));
        (settings.count, settings.first, settings.oneshot) = (self.count, self.first, self.oneshot);
        let rate = |rate: &RateAsked| RedriveRate { count: rate.count, period: Duration::from_millis(rate.period_ms) };
        settings.rate = self.rate.as_ref().map(rate);
        settings
    }
}

pub async fn dry_run(
    State(gateway): State<Arc<Gateway>>,
    _: Looker,
    Segments((key, case)): Segments<(String, u32)>,
    Body(asked): Body<RedriveAsked>,
) -> Reply {
    let ledger = ledger(&gateway, &key)?.by("dry run");
    Ok(Json(shown(&ledger.dry_run(case, &asked.settings()).await?)?))
}

pub async fn redrive(
    State(gateway): State<Arc<Gateway>>,
    actor: Actor,
    Segments((key, case)): Segments<(String, u32)>,
    Body(asked): Body<RedriveAsked>,
) -> Reply {
    actor.must(&gateway, Role::Govern, "dlq.redrive", &key)?;
    check_actor(&asked.actor)?;
    let run = ledger(&gateway, &key)?.by(&asked.actor).redrive(case, &asked.settings()).await?;
    let action = format!("redrive of case {case}: {} entries", run.matched().matched);
    actor.done(&gateway, "dlq.redrive", &key, &action, &asked.actor);
    Ok(Json(shown(run.matched())?))
}

pub async fn progress(
    State(gateway): State<Arc<Gateway>>,
    _: Looker,
    Segments((key, case)): Segments<(String, u32)>,
) -> Reply {
    let found = ledger(&gateway, &key)?.case(case).await?.ok_or_else(|| Problem::not_found("case"))?;
    let progress = found.redrive.as_ref();
    let unresolved = progress.map(|progress| u64::from(progress.died) + u64::from(progress.active));
    let is_finished = progress.is_some_and(|progress| progress.phase == resil::dead_letters::RedrivePhase::Finished);
    let is_verified = is_finished && unresolved == Some(0);
    Ok(Json(json!({"progress": progress.map(progress_of), "verified": is_verified, "unresolved": unresolved})))
}

#[derive(Deserialize)]
pub struct CaseAct {
    #[serde(default)]
    discard: bool,
    #[serde(default)]
    actor: String,
}

pub async fn stop(
    State(gateway): State<Arc<Gateway>>,
    actor: Actor,
    Segments((key, case)): Segments<(String, u32)>,
    Body(asked): Body<CaseAct>,
) -> Reply {
    actor.must(&gateway, Role::Operate, "dlq.stop", &key)?;
    check_actor(&asked.actor)?;
    let progress = ledger(&gateway, &key)?.by(&asked.actor).stop(case).await?;
    actor.done(&gateway, "dlq.stop", &key, &format!("stopped the redrive of case {case}"), &asked.actor);
    Ok(Json(json!({ "progress": progress_of(&progress) })))
}

pub async fn close(
    State(gateway): State<Arc<Gateway>>,
    actor: Actor,
    Segments((key, case)): Segments<(String, u32)>,
    Body(asked): Body<CaseAct>,
) -> Reply {
    actor.must(&gateway, Role::Govern, "dlq.close", &key)?;
    check_actor(&asked.actor)?;
    let ledger = ledger(&gateway, &key)?.by(&asked.actor);
    let unresolved = if asked.discard { ledger.discard(case).await? } else { ledger.close(case).await? };
    let how = if asked.discard { "discarded" } else { "closed" };
    if unresolved == 0 {
        actor.done(&gateway, "dlq.close", &key, &format!("{how} case {case}"), &asked.actor);
    }
    Ok(Json(json!({ "closed": unresolved == 0, "unresolved": unresolved })))
}

#[derive(Deserialize)]
pub struct HoldAsked {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    aggregate: Option<String>,
    on: bool,
    #[serde(flatten)]
    because: Because,
}

pub async fn hold(
    State(gateway): State<Arc<Gateway>>,
    actor: Actor,
    Segments(key): Segments<String>,
    Body(asked): Body<HoldAsked>,
) -> Reply {
    actor.must(&gateway, Role::Operate, "dlq.hold", &key)?;
    asked.because.check()?;
    let (ledger, reason) = (ledger(&gateway, &key)?.by(&asked.because.actor), asked.because.reason.as_str());
    let count = match (&asked.id, &asked.aggregate, asked.on) {
        (Some(id), None, true) => ledger.hold(id, reason).await?,
        (Some(id), None, false) => ledger.release(id, reason).await?,
        (None, Some(aggregate), true) => ledger.hold_aggregate(aggregate, reason).await?,
        (None, Some(aggregate), false) => ledger.release_aggregate(aggregate, reason).await?,
        _ => return Err(Problem::wrong("id or aggregate is needed, and not both")),
    };
    let action = format!("{} {count} entries: {reason}", if asked.on { "held" } else { "released" });
    actor.done(&gateway, "dlq.hold", &key, &action, &asked.because.actor);
    Ok(Json(json!({ "count": count })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PauseAsked {
    paused: bool,
    #[serde(default)]
    for_ms: Option<u64>,
    #[serde(flatten)]
    because: Because,
}

pub async fn pause(
    State(gateway): State<Arc<Gateway>>,
    actor: Actor,
    Segments(key): Segments<String>,
    Body(asked): Body<PauseAsked>,
) -> Reply {
    actor.must(&gateway, Role::Operate, "dlq.pause", &key)?;
    asked.because.check()?;
    let mut change = LedgerChange::new();
    match asked.for_ms {
        Some(ms) if asked.paused => change.paused_for = Some(Duration::from_millis(ms)),
        _ => change.paused = Some(asked.paused),
    }
    ledger(&gateway, &key)?.by(&asked.because.actor).configure(&change).await?;
    let action = format!("{}: {}", if asked.paused { "paused" } else { "resumed" }, asked.because.reason);
    actor.done(&gateway, "dlq.pause", &key, &action, &asked.because.actor);
    Ok(Json(json!({ "ok": true })))
}

pub async fn alerts(State(gateway): State<Arc<Gateway>>, _: Looker, Segments(key): Segments<String>) -> Reply {
    Ok(Json(json!({ "alerts": shown(&ledger(&gateway, &key)?.alerts().await?)? })))
}

pub async fn seen(
    State(gateway): State<Arc<Gateway>>,
    actor: Actor,
    Segments((key, alert)): Segments<(String, u64)>,
    Body(asked): Body<CaseAct>,
) -> Reply {
    actor.must(&gateway, Role::Operate, "dlq.seen", &key)?;
    check_actor(&asked.actor)?;
    let seen = ledger(&gateway, &key)?.by(&asked.actor).seen(alert).await?;
    actor.done(&gateway, "dlq.seen", &key, &format!("saw alert {alert}"), &asked.actor);
    Ok(Json(json!({ "seen": seen })))
}

pub async fn audit(State(gateway): State<Arc<Gateway>>, _: Looker, Segments(key): Segments<String>) -> Reply {
    Ok(Json(json!({ "audit": shown(&ledger(&gateway, &key)?.audit().await?)? })))
}

async fn some_ledgers(gateway: &Gateway) -> Result<Vec<String>, Error> {
    let filter = KeyFilter { limit: LEDGERS_MAX, ..KeyFilter::default() };
    Ok(gateway
        .client
        .operator()
        .ledgers(&filter)
        .await?
        .into_iter()
        .map(|row| String::from_utf8_lossy(&row.key).into_owned())
        .collect())
}

#[derive(Deserialize)]
pub struct AlertsAsked {
    #[serde(default)]
    seen: bool,
}

pub async fn all_alerts(State(gateway): State<Arc<Gateway>>, _: Looker, Asked(asked): Asked<AlertsAsked>) -> Reply {
    let mut all = Vec::new();
    for key in some_ledgers(&gateway).await? {
        for alert in ledger(&gateway, &key)?.alerts().await?.iter().filter(|alert| asked.seen || !alert.seen) {
            let mut value = shown(alert)?;
            value["ledger"] = name_of(&key).into();
            value["ledgerKey"] = key.as_str().into();
            all.push(value);
        }
    }
    all.sort_by_key(|alert| std::cmp::Reverse(alert["at"].as_u64()));
    Ok(Json(json!({ "alerts": all })))
}

/// What ledgers have written down, in the form of the gateway's own audit.
pub async fn stored_audit(gateway: &Gateway) -> Result<Vec<Value>, Error> {
    let mut all = Vec::new();
    for key in some_ledgers(gateway).await? {
        for event in ledger(gateway, &key)?.audit().await? {
            all.push(json!({"id": event.id.to_string(), "at": epoch_ms(event.at), "source": "ledger", "type": "dlq",
                "actor": event.actor, "principal": event.user, "spiffeId": null, "correlationId": event.correlation,
                "target": key, "action": event.action, "outcome": "done", "ledger": name_of(&key)}));
        }
    }
    Ok(all)
}
