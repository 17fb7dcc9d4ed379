//! What the primary tells the world: one JSON message per transition on `resil:events`, and a keyspace notification.
//!
//! Texts that are not UTF-8 are written as `{"b64": "..."}`.

use std::ffi::CString;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use resil_core::Instant;
use resil_core::circuit_breaker::Transition;
use serde_json::{Value, json};

use crate::apply::notify;
use crate::call::Call;
use crate::edge::{api, bytes_of};
use crate::key::Key;

const CHANNEL: &str = "resil:events";

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
    publish(call, &message);
    if let Ok(event) = CString::new(format!("res.breaker.{}", transition.new.text())) {
        notify(call, key, &event);
    }
}

fn publish(call: &Call<'_>, message: &Value) {
    let message = message.to_string();
    // SAFETY: the server copies the bytes of both strings, which are freed here.
    unsafe {
        let string = |text: &str| api!(RedisModule_CreateString)(call.ctx, text.as_ptr().cast(), text.len());
        let (channel, message) = (string(CHANNEL), string(&message));
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
