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

use std::ffi::CString;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use resil_core::Instant;
use resil_core::circuit_breaker::{StateName, Transition};
use resil_core::waited::Reason;
use serde_json::{Value, json};
use smallvec::SmallVec;

use crate::call::Call;
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
    // No caller gave one: an operator can still quote it.
    if message["correlation"].is_null() {
        message["correlation"] = Value::from(format!("{:016x}{:016x}", server::random_seed(), server::random_seed()));
    }
    server::publish(call.ctx, message.to_string().as_bytes(), &[CHANNEL, &[KEY_PREFIX, name].concat()]);
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
    server::publish(call.ctx, message.to_string().as_bytes(), &[&[KEY_PREFIX, name].concat()]);
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
    server::publish(
        call.ctx,
        message.to_string().as_bytes(),
        &channels.into_iter().flatten().collect::<SmallVec<[&[u8]; 3]>>(),
    );
}

/// Publishes a message to everybody, and to those who use the key.
pub fn publish_for_key(call: &Call<'_>, key: &[u8], message: &Value) {
    server::publish(call.ctx, message.to_string().as_bytes(), &[CHANNEL, &[KEY_PREFIX, key].concat()]);
}

pub fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => json!({ "b64": BASE64_STANDARD.encode(bytes) }),
    }
}
