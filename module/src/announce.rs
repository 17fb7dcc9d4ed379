//! What the primary tells the world: one JSON message per transition or loss on `resil:events`, and a keyspace
//! notification. Who loses a lock or a permit is told on a channel of its own, too.
//!
//! Texts that are not UTF-8 are written as `{"b64": "..."}`.

use std::ffi::CString;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use resil_core::Instant;
use resil_core::circuit_breaker::Transition;
use resil_core::lock::Reason;
use serde_json::{Value, json};

use crate::apply::notify;
use crate::call::Call;
use crate::edge::{api, bytes_of};
use crate::key::Key;
use crate::lines::Name;

const CHANNEL: &str = "resil:events";

/// The owner's name follows.
const LOST_PREFIX: &str = "resil:lost:";

/// Announces a breaker's transition. `details` are further fields of the message.
pub fn transition(call: &Call<'_>, key: &Key<'_>, transition: &Transition, now: Instant, details: &[(&str, &[u8])]) {
    // SAFETY: the key's name lives as long as the call.
    let name = unsafe { bytes_of(key.name) };
    let mut message = json!({
        "event": "breaker",
        "service": text(name),
        "previous": transition.previous.text(),
        "new": transition.new.text(),
        "generation": transition.generation,
        "time_ms": now.as_us() / 1_000,
        "reason": transition.reason.text(),
    });
    for (field, value) in details {
        message[*field] = text(value);
    }
    publish(call, CHANNEL.as_bytes(), &message);
    if let Ok(event) = CString::new(format!("res.breaker.{}", transition.new.text())) {
        notify(call, key, &event);
    }
}

/// Announces that a holder lost what it held, to everybody and on the owner's own channel.
pub fn lost(
    call: &Call<'_>,
    name: &Name,
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
    publish(call, CHANNEL.as_bytes(), &message);
    publish(call, &[LOST_PREFIX.as_bytes(), owner].concat(), &message);
}

fn publish(call: &Call<'_>, channel: &[u8], message: &Value) {
    let message = message.to_string();
    // SAFETY: the server copies the bytes of both strings, which are freed here.
    unsafe {
        let string = |text: &[u8]| api!(RedisModule_CreateString)(call.ctx, text.as_ptr().cast(), text.len());
        let (channel, message) = (string(channel), string(message.as_bytes()));
        api!(RedisModule_PublishMessage)(call.ctx, channel, message);
        api!(RedisModule_FreeString)(call.ctx, channel);
        api!(RedisModule_FreeString)(call.ctx, message);
    }
}

fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => json!({ "b64": BASE64_STANDARD.encode(bytes) }),
    }
}
