//! What the primary publishes: one JSON message per transition or loss, and a keyspace notification.
//!
//! | channel | what it carries | who subscribes |
//! | --- | --- | --- |
//! | `resil:events` | every transition and every loss, every change of a policy | dashboards |
//! | `resil:events:<key>` | of one breaker: its transitions, and what an operator did that changed no state; of one policy: its changes | who uses it |
//! | `resil:lost:<owner>` | the losses of one owner | that owner |
//! | `resil:lost:<client>` | the losses of all owners named `<client>:<anything without a colon>` | a client with many |
//!
//! So one exact subscription is enough for whatever a process has in use. Texts that are not UTF-8 are written as
//! `{"b64": "..."}`.
//!
//! Every message has an `event_id`, a `correlation`, the ACL `user` whose command caused it (null: the server did it by itself), and a
//! `trace_id` if the correlation that was given is one of W3C trace context: [`publish`] adds what is missing. docs/events.md lists the fields.

use std::cell::Cell;
use std::ffi::CString;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use resil_core::Instant;
use resil_core::circuit_breaker::{StateName, Transition};
use resil_core::waited::Reason;
use resil_wire::trace::of_correlation;
use serde_json::{Value, json};
use smallvec::SmallVec;

use crate::call::Call;
use crate::clients;
use crate::edge::replication::notify;
use crate::key::Key;
use crate::queues::KeyName;
use crate::server;

const CHANNEL: &[u8] = b"resil:events";

/// The key's name follows.
const KEY_PREFIX: &[u8] = b"resil:events:";

/// The owner's name follows, or that of its client.
const LOST_PREFIX: &[u8] = b"resil:lost:";

/// Announces a breaker's transition. `details` are further fields of the message.
pub fn transition(call: &Call<'_>, key: &Key<'_>, transition: &Transition, now: Instant, details: &[(&str, &[u8])]) {
    publish_transition(call, key.name(), transition, now, details);
    if let Ok(event) = CString::new(format!("res.breaker.{}", transition.new.text())) {
        notify(call, key, &event);
    }
}

/// The message of a breaker's transition, without a keyspace notification.
pub fn publish_transition(
    call: &Call<'_>,
    name: &[u8],
    transition: &Transition,
    now: Instant,
    details: &[(&str, &[u8])],
) {
    let Transition { previous, new, previous_generation, generation, reason } = *transition;
    let mut message = of_breaker(name, (previous, new, generation), reason.text(), now, details);
    message["previous_generation"] = Value::from(previous_generation);
    publish_for_key(call, name, message);
}

/// Announces that an operator changed something about a breaker that stays in its state: how long it is forced, what it
/// has counted, its options. Only those who use this breaker hear it: they may know something that is no longer true.
pub fn operator_action(
    call: &Call<'_>,
    name: &[u8],
    (state, generation): (StateName, u64),
    action: &str,
    now: Instant,
    details: &[(&str, &[u8])],
) {
    let message = of_breaker(name, (state, state, generation), action, now, details);
    publish(call, message, caused_by_caller(call), &[&[KEY_PREFIX, name].concat()]);
}

fn of_breaker(
    name: &[u8],
    (previous, new, generation): (StateName, StateName, u64),
    reason: &str,
    now: Instant,
    details: &[(&str, &[u8])],
) -> Value {
    let mut message = json!({
        "event": "breaker",
        "service": text(name),
        "previous": previous.text(),
        "new": new.text(),
        "generation": generation,
        "time_ms": now.as_us() / 1_000,
        "reason": reason,
    });
    for (field, value) in details {
        message[*field] = text(value);
    }
    message
}

/// Announces that a holder lost what it held: to everybody, to its owner, and to the client the owner belongs to.
pub fn lost(
    call: &Call<'_>,
    name: &KeyName,
    owner: &[u8],
    fence: u64,
    reason: Reason,
    now: Instant,
    details: &[(&str, &[u8])],
) {
    let mut message = json!({
        "event": "lost",
        "kind": name.kind.text(),
        "key": text(&name.key),
        "owner": text(owner),
        "fence": fence,
        "reason": reason.text(),
        "time_ms": now.as_us() / 1_000,
    });
    for (field, value) in details {
        message[*field] = text(value);
    }
    let to_owner = [LOST_PREFIX, owner].concat();
    let client = owner.iter().rposition(|byte| *byte == b':').filter(|length| *length > 0);
    let to_client = client.map(|length| &to_owner[..LOST_PREFIX.len() + length]);
    let channels = [Some(CHANNEL), Some(&to_owner), to_client];
    // A lease that ran out, or a connection that closed, is nobody's command, also if one was running when it was noticed.
    let is_commanded = matches!(reason, Reason::Broken | Reason::Invalidated | Reason::Taken);
    let user = if is_commanded { caused_by_caller(call) } else { None };
    publish(call, message, user, &channels.into_iter().flatten().collect::<SmallVec<[&[u8]; 3]>>());
}

/// Publishes a message to everybody, and to those who use the key.
pub fn publish_for_key(call: &Call<'_>, key: &[u8], message: Value) {
    publish(call, message, caused_by_caller(call), &[CHANNEL, &[KEY_PREFIX, key].concat()]);
}

/// The user whose command runs; `None` for a timer.
pub fn caused_by_caller(call: &Call<'_>) -> Option<Vec<u8>> {
    if call.is_timers() { None } else { clients::caller_name(call) }
}

/// Adds what every message has, where it is not said yet, and publishes it.
fn publish(call: &Call<'_>, mut message: Value, user: Option<Vec<u8>>, channels: &[&[u8]]) {
    let id = next_event_id();
    if let Some(fields) = message.as_object_mut() {
        fields.entry("user").or_insert_with(|| user.as_deref().map_or(Value::Null, text));
        match fields.get("correlation") {
            None | Some(Value::Null) => {
                fields.insert("correlation".to_owned(), Value::from(id.as_str()));
            }
            Some(Value::String(given)) if given.is_empty() => {
                fields.insert("correlation".to_owned(), Value::from(id.as_str()));
            }
            Some(given) => {
                if let Some(trace) = given.as_str().and_then(of_correlation).map(Value::from) {
                    fields.insert("trace_id".to_owned(), trace);
                }
            }
        }
        fields.insert("event_id".to_owned(), Value::from(id));
    }
    server::publish(call.ctx, message.to_string().as_bytes(), channels);
}

/// 32 hex digits: 16 that this process drew, and 16 that count up.
fn next_event_id() -> String {
    thread_local! {
        static RUN: u64 = server::random_seed();
        static LAST: Cell<u64> = const { Cell::new(0) };
    }
    let number = LAST.get().wrapping_add(1);
    LAST.set(number);
    format!("{:016x}{number:016x}", RUN.with(|run| *run))
}

pub fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => json!({ "b64": BASE64_STANDARD.encode(bytes) }),
    }
}
