//! What the primary publishes of its ledgers: every death, every alert and every governance action is a message on `resil:events`
//! and on `resil:events:<key>`, and deaths are in the server's log, one line for a ledger and a minute.

use std::cell::RefCell;
use std::collections::BTreeMap;

use resil_core::dead_letters::{Alert, AuditRow, EntryView, Ledger, LedgerEdit};
use resil_core::{Instant, Span};
use serde_json::{Value, json};

use crate::announce::{publish_for_key, text};
use crate::call::Call;
use crate::edge::log;
use crate::info::counters;

/// What one step did to the ledger `key`.
pub fn announce(call: &Call<'_>, key: &[u8], ledger: &Ledger, edits: &[LedgerEdit], now: Instant) {
    let mut deaths = 0;
    for entry in ledger.fresh_deaths() {
        publish_for_key(call, key, dead(key, &entry, now));
        deaths += 1;
    }
    if deaths > 0 {
        counters().ledgers.deaths.add(deaths);
        log_deaths(call, key, deaths, now);
    }
    for edit in edits {
        match edit {
            LedgerEdit::Alerted(alert) => {
                counters().ledgers.alerts.add(1);
                publish_for_key(call, key, alerted(key, alert));
            }
            LedgerEdit::Audited(row) => publish_for_key(call, key, audited(key, row)),
            _ => {}
        }
    }
}

fn dead(key: &[u8], entry: &EntryView<'_>, now: Instant) -> Value {
    json!({
        "event": "dlq.dead",
        "ledger": text(key),
        "id": text(entry.message.id()),
        "type": text(entry.message.kind()),
        "aggregate": text(entry.message.aggregate()),
        "group": text(entry.group),
        "class": entry.class.text(),
        "reason": entry.reason.map_or("", |reason| reason.text()),
        "attempt": entry.attempt,
        "deaths": entry.deaths,
        "error": text(entry.last_error),
        "time_ms": now.as_us() / 1_000,
    })
}

fn alerted(key: &[u8], alert: &Alert) -> Value {
    json!({
        "event": "dlq.alert",
        "ledger": text(key),
        "alert": alert.id,
        "kind": alert.kind.text(),
        "severity": alert.kind.severity(),
        "subject": text(&alert.subject),
        "count": alert.count,
        "time_ms": alert.at.as_us() / 1_000,
    })
}

fn audited(key: &[u8], row: &AuditRow) -> Value {
    json!({
        "event": "dlq.audit",
        "ledger": text(key),
        "id": row.id,
        "user": text(&row.user),
        "actor": text(&row.actor),
        "correlation": text(&row.correlation),
        "action": text(&row.action),
        "time_ms": row.at.as_us() / 1_000,
    })
}

/// When a ledger was last in the log, and how many have died since.
struct Logged {
    at: Instant,
    deaths: u64,
}

fn log_deaths(call: &Call<'_>, key: &[u8], deaths: u64, now: Instant) {
    const ONCE_IN: Span = Span::from_secs(60);
    const LEDGERS: usize = 1_000;
    thread_local! {
        static LOGGED: RefCell<BTreeMap<(i32, Vec<u8>), Logged>> = const { RefCell::new(BTreeMap::new()) };
    }
    LOGGED.with_borrow_mut(|logged| {
        if logged.len() >= LEDGERS {
            logged.clear();
        }
        let since = logged.entry((call.db(), key.to_vec())).or_insert(Logged { at: Instant::EPOCH, deaths: 0 });
        since.deaths += deaths;
        if since.at.until(now) >= ONCE_IN || now < since.at {
            let key = String::from_utf8_lossy(key);
            log(
                call.ctx,
                c"warning",
                &format!("dead letters in {key}: {} more (RES.DLQ LIST {key} STATE dead shows them)", since.deaths),
            );
            *since = Logged { at: now, deaths: 0 };
        }
    });
}
