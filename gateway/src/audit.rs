//! Who did what: every action, and every attempt that was refused for want of a role.
//!
//! # What holds
//! Each event has an id, a time, a correlation id and a type, and the SPIFFE identity of the caller where that is known. It is logged (target
//! `resil::audit`), sent to the dashboards, and the last [`KEPT`] are shown. What the module itself audits (ledgers) is stored there.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

use crate::feed::Feed;
use crate::roles::Caller;
use crate::{now_ms, random_id};

/// Events that are shown.
pub const KEPT: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Done,
    Refused,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    pub id: String,
    pub at: u64,
    pub source: &'static str,
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// As the caller named itself.
    pub actor: Option<String>,
    /// The name of the token, or of the certificate.
    pub principal: Option<String>,
    pub spiffe_id: Option<String>,
    pub correlation_id: String,
    pub target: String,
    pub action: String,
    pub outcome: Outcome,
    pub ledger: Option<String>,
}

/// What somebody did, as far as they say it.
#[derive(Debug, Clone, Copy)]
pub struct Deed<'a> {
    /// For example `circuit.force`.
    pub kind: &'static str,
    pub target: &'a str,
    pub action: &'a str,
    pub actor: Option<&'a str>,
    /// Drawn if there is none.
    pub correlation_id: Option<&'a str>,
    pub outcome: Outcome,
}

impl AuditEvent {
    pub fn new(deed: Deed<'_>, caller: Option<&Caller>) -> Self {
        let text = |text: &Option<Arc<str>>| text.as_ref().map(|text| text.to_string());
        let correlation_id = deed.correlation_id.filter(|id| !id.is_empty());
        Self {
            id: random_id(),
            at: now_ms(),
            source: "gateway",
            kind: deed.kind,
            actor: deed.actor.map(str::to_owned),
            principal: caller.and_then(|caller| text(&caller.name)),
            spiffe_id: caller.and_then(|caller| text(&caller.spiffe_id)),
            correlation_id: correlation_id.map_or_else(random_id, str::to_owned),
            target: deed.target.to_owned(),
            action: deed.action.to_owned(),
            outcome: deed.outcome,
            ledger: None,
        }
    }
}

pub struct AuditLog {
    feed: Arc<Feed>,
    kept: Mutex<VecDeque<Arc<AuditEvent>>>,
}

impl AuditLog {
    pub fn new(feed: Arc<Feed>) -> Self {
        Self { feed, kept: Mutex::default() }
    }

    pub fn write(&self, deed: Deed<'_>, caller: Option<&Caller>) -> Arc<AuditEvent> {
        let event = Arc::new(AuditEvent::new(deed, caller));
        tracing::info!(
            target: "resil::audit",
            id = event.id,
            kind = event.kind,
            actor = event.actor,
            principal = event.principal,
            spiffe_id = event.spiffe_id,
            correlation_id = event.correlation_id,
            what = event.target,
            outcome = ?event.outcome,
            "{}",
            event.action,
        );
        if let Ok(json) = serde_json::to_value(&*event) {
            self.feed.tell("audit", &json);
        }
        let mut kept = self.kept.lock();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(Arc::clone(&event));
        event
    }

    /// The newest first.
    pub fn latest(&self, limit: usize) -> Vec<Arc<AuditEvent>> {
        self.kept.lock().iter().rev().take(limit).cloned().collect()
    }
}

/// What the module audited, in the same form.
pub fn of_ledger_event(event: &Value, ledger: Option<String>, at: u64) -> Value {
    json!({
        "id": event["id"].to_string(),
        "at": at,
        "source": "ledger",
        "type": "dlq",
        "actor": event["actor"],
        "principal": event["user"],
        "spiffeId": null,
        "correlationId": event["correlation"],
        "target": event["ledger"],
        "action": event["action"],
        "outcome": "done",
        "ledger": ledger,
    })
}
