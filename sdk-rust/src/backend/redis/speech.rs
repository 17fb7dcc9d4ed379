//! Commands into the words of redis-rs, and its values into ours. Nothing is copied that can be moved.

use redis::Value as Given;
use resil_wire::command::Command;
use resil_wire::reply::Value;
use resil_wire::words::Words;

/// Most commands have fewer words and bytes than this, so that they are written without growing.
const USUAL_WORDS: usize = 12;
const USUAL_BYTES: usize = 160;

struct Packed(redis::Cmd);

impl Words for Packed {
    fn word(&mut self, word: &[u8]) {
        self.0.arg(word);
    }
}

pub(super) fn packed(command: &Command<'_>) -> redis::Cmd {
    let mut packed = Packed(redis::Cmd::with_capacity(USUAL_WORDS, USUAL_BYTES));
    command.encode(&mut packed);
    packed.0
}

/// What the older protocol cannot say (maps are arrays there) is left for the reader of the command, who knows.
pub(super) fn understood(given: Given) -> Value {
    match given {
        Given::Int(number) => Value::Integer(number),
        Given::BulkString(bytes) => Value::Text(bytes),
        Given::SimpleString(text) | Given::VerbatimString { text, .. } => Value::Text(text.into_bytes()),
        Given::Okay => Value::Text(b"OK".to_vec()),
        Given::Array(elements) | Given::Set(elements) | Given::Push { data: elements, .. } => {
            Value::Array(elements.into_iter().map(understood).collect())
        }
        Given::Map(pairs) => {
            Value::Map(pairs.into_iter().map(|(key, value)| (understood(key), understood(value))).collect())
        }
        Given::Attribute { data, .. } => understood(*data),
        Given::Boolean(yes) => Value::Integer(i64::from(yes)),
        // No command of ours replies with these.
        Given::Double(number) => Value::Text(number.to_string().into_bytes()),
        _ => Value::Null,
    }
}

/// A field of a map, in either protocol.
pub(super) fn field(map: &Value, name: &str) -> Option<Value> {
    let is_it = |key: &Value| matches!(key, Value::Text(text) if text == name.as_bytes());
    match map {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value.clone()),
        Value::Array(flat) => flat.chunks_exact(2).find(|pair| is_it(&pair[0])).map(|pair| pair[1].clone()),
        _ => None,
    }
}

#[cfg(test)]
#[path = "tests/speech.rs"]
mod tests;
