//! What the primary publishes of its policies: every version, and every transition of a policy's breaker, is a message on
//! `resil:events` and on `resil:events:<key>`.

use std::cell::RefCell;

use resil_core::Instant;
use resil_core::circuit_breaker::StateName;
use resil_core::guard::{Guard, GuardEdit, PolicyVersion};
use serde_json::{Value, json};

use crate::announce::{publish_for_key, publish_transition, text};
use crate::call::Call;
use crate::info::counters;

thread_local! {
    /// Further fields of the messages of the step that is being taken.
    static DETAILS: RefCell<Vec<(&'static str, Vec<u8>)>> = const { RefCell::new(Vec::new()) };
}

/// Takes a step whose messages have these fields, too.
pub fn with_details<V>(details: &[(&'static str, &[u8])], step: impl FnOnce() -> V) -> V {
    let owned = details.iter().map(|(name, value)| (*name, value.to_vec())).collect();
    DETAILS.with(|cell| *cell.borrow_mut() = owned);
    let verdict = step();
    DETAILS.with(|cell| cell.borrow_mut().clear());
    verdict
}

/// What one step did to the policy in `key`.
pub fn announce(call: &Call<'_>, key: &[u8], guard: &Guard, edits: &[GuardEdit], now: Instant) {
    for edit in edits {
        match edit {
            GuardEdit::Published(publication) => {
                publish_for_key(call, key, published(call.db(), key, guard, &publication.version));
            }
            GuardEdit::Moved(transition) => {
                counters().breaker.transitions.add(1);
                counters().breaker.trips.add(u64::from(transition.new == StateName::Open));
                DETAILS.with(|cell| {
                    let details = cell.borrow();
                    let details: Vec<(&str, &[u8])> =
                        details.iter().map(|(name, value)| (*name, value.as_slice())).collect();
                    publish_transition(call, key, transition, now, &details);
                });
            }
            _ => {}
        }
    }
}

fn published(db: i32, key: &[u8], guard: &Guard, version: &PolicyVersion) -> Value {
    let before = guard.versions.iter().find(|before| before.version < version.version);
    let action = match (&version.document, before.and_then(|before| before.document.as_ref())) {
        (None, _) => "deleted",
        (Some(_), Some(_)) => "changed",
        (Some(_), None) => "created",
    };
    json!({
        "event": "policy",
        "db": db,
        "key": text(key),
        "action": action,
        "version": version.version,
        "actor": text(&version.actor),
        "reason": text(&version.reason),
        // As GET and LIST say it.
        "time_ms": version.at.as_us() / 1_000,
    })
}
