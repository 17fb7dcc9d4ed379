//! Words of commands and their replies as JSON. Bytes that are not UTF-8 are `{"base64":"…"}`, both ways.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use redis::Value;
use serde::Deserialize;
use serde_json::{Map, json};

/// One word of a command.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a word is a text, a number or {\"base64\": \"…\"}")]
pub enum Word {
    Text(String),
    Integer(i64),
    Float(f64),
    Bytes { base64: String },
}

impl Word {
    pub fn into_bytes(self) -> Result<Vec<u8>, String> {
        match self {
            Self::Text(text) => Ok(text.into_bytes()),
            Self::Integer(number) => Ok(number.to_string().into_bytes()),
            Self::Float(number) => Ok(number.to_string().into_bytes()),
            Self::Bytes { base64 } => STANDARD.decode(base64).map_err(|error| format!("not base64: {error}")),
        }
    }
}

/// Errors within an array are `{"error":"…"}`; a map whose keys are not all text is a list of pairs.
pub fn json_of(value: &Value) -> serde_json::Value {
    match value {
        Value::Nil => serde_json::Value::Null,
        Value::Int(number) => json!(number),
        Value::Double(number) => json!(number),
        Value::Boolean(is_true) => json!(is_true),
        Value::Okay => json!("OK"),
        Value::SimpleString(text) => json!(text),
        Value::BulkString(bytes) => json_of_bytes(bytes),
        Value::VerbatimString { text, .. } => json!(text),
        Value::Array(elements) | Value::Set(elements) => elements.iter().map(json_of).collect(),
        Value::Map(pairs) => json_of_map(pairs),
        Value::ServerError(error) => {
            json!({ "error": format!("{} {}", error.code(), error.details().unwrap_or_default()) })
        }
        other => json!({ "other": format!("{other:?}") }),
    }
}

fn json_of_bytes(bytes: &[u8]) -> serde_json::Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "base64": STANDARD.encode(bytes) }),
    }
}

fn json_of_map(pairs: &[(Value, Value)]) -> serde_json::Value {
    let mut object = Map::new();
    for (key, value) in pairs {
        let serde_json::Value::String(name) = json_of(key) else {
            return pairs.iter().map(|(key, value)| json!([json_of(key), json_of(value)])).collect();
        };
        object.insert(name, json_of(value));
    }
    object.into()
}
