//! What files of a version contain, and what was replied about it: shared by the writer (`old_files`) and the test (`upgrade`).

use std::collections::BTreeMap;

use redis::Value;
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
pub struct Seen {
    pub clock_us: i64,
    pub keys: i64,
    pub replies: BTreeMap<String, serde_json::Value>,
}

/// A reply as JSON. Maps become objects, so that further fields can be distinguished from changed ones.
pub fn shown(value: Value) -> serde_json::Value {
    match value {
        Value::Nil => serde_json::Value::Null,
        Value::Int(number) => number.into(),
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
        Value::SimpleString(text) => text.into(),
        Value::Array(items) => items.into_iter().map(shown).collect(),
        Value::Map(pairs) => {
            let name = |value| match shown(value) {
                serde_json::Value::String(text) => text,
                other => other.to_string(),
            };
            pairs.into_iter().map(|(field, value)| (name(field), shown(value))).collect()
        }
        other => format!("{other:?}").into(),
    }
}

/// Everything that was said then is said now.
pub fn says_the_same(then: &serde_json::Value, now: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Object};
    match (then, now) {
        (Object(then), Object(now)) => {
            then.iter().all(|(field, value)| now.get(field).is_some_and(|now| says_the_same(value, now)))
        }
        (Array(then), Array(now)) => {
            then.len() == now.len() && then.iter().zip(now).all(|(then, now)| says_the_same(then, now))
        }
        (then, now) => then == now,
    }
}
