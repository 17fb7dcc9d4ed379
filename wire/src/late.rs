//! The verdict of an asynchronous wait, which comes later than the reply.
//!
//! A call with `WAIT d ASYNC` is answered at once: with its final verdict, or with `["QUEUED", position]`. In the second case
//! the final verdict is published once, on the channel of the connection that asked:
//!
//! | server | channel | subscribe with |
//! | --- | --- | --- |
//! | alone, or with replicas | `resil:wait:<client-id>` | SUBSCRIBE |
//! | a cluster | `resil:wait:<client-id>:{<hash tag of the key>}` | SSUBSCRIBE |
//!
//! The message is JSON. `reply` is what a blocked call would have got; `error` is there instead if that would have been an
//! error. Texts that are not UTF-8 are `{"b64": "..."}`.
//! ```json
//! {"event":"wait","kind":"lock","key":"orders","owner":"worker-7","reply":["GRANTED",1789,30000,12]}
//! ```

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value as Json, json};

use crate::reply::{Sink, Unexpected, Value};

/// The client id follows.
pub const CHANNEL: &str = "resil:wait:";

/// Where a connection hears the verdicts of its waits, on a server that is not part of a cluster.
pub fn channel(client: u64) -> String {
    format!("{CHANNEL}{client}")
}

/// The same in a cluster: the channel has the slot of the key. `None` if no hash tag leads to that slot, because the key has
/// a `}` and no tag of its own.
pub fn channel_in_cluster(client: u64, key: &[u8]) -> Option<Vec<u8>> {
    let tag = hash_tag(key).or_else(|| (!key.is_empty() && !key.contains(&b'}')).then_some(key))?;
    Some([channel(client).as_bytes(), b":{", tag, b"}"].concat())
}

/// The part of a key that alone says its slot.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let rest = &key[key.iter().position(|byte| *byte == b'{')? + 1..];
    let tag = &rest[..rest.iter().position(|byte| *byte == b'}')?];
    (!tag.is_empty()).then_some(tag)
}

/// What is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateVerdict {
    /// `lock`, `bulkhead`, `idempotency` or `flight`.
    pub kind: String,
    pub key: Vec<u8>,
    /// The owner, or the token, that the call named.
    pub owner: Vec<u8>,
    /// The reply, or the text of the error, its code first.
    pub verdict: Result<Value, String>,
}

impl LateVerdict {
    pub fn to_json(&self) -> String {
        let (field, verdict) = match &self.verdict {
            Ok(reply) => ("reply", to_json(reply)),
            Err(error) => ("error", Json::from(error.as_str())),
        };
        let Self { kind, key, owner, .. } = self;
        json!({ "event": "wait", "kind": kind, "key": text(key), "owner": text(owner), field: verdict }).to_string()
    }

    pub fn from_json(message: &[u8]) -> Result<Self, Unexpected> {
        let mut message: Json = serde_json::from_slice(message).map_err(|_| Unexpected("JSON"))?;
        let mut field = |name: &str| message.get_mut(name).map(Json::take);
        if field("event") != Some(Json::from("wait")) {
            return Err(Unexpected("the verdict of a wait"));
        }
        let Some(Json::String(kind)) = field("kind") else { return Err(Unexpected("a kind")) };
        let mut bytes = |name: &str| field(name).ok_or(Unexpected("a text")).and_then(from_json)?.into_text();
        let (key, owner) = (bytes("key")?, bytes("owner")?);
        let verdict = match (field("reply"), field("error")) {
            (Some(reply), None) => Ok(from_json(reply)?),
            (None, Some(Json::String(error))) => Err(error),
            _ => return Err(Unexpected("a reply or an error")),
        };
        Ok(Self { kind, key, owner, verdict })
    }
}

/// A text as messages have it.
pub fn text(bytes: &[u8]) -> Json {
    match std::str::from_utf8(bytes) {
        Ok(text) => Json::from(text),
        Err(_) => json!({ "b64": BASE64_STANDARD.encode(bytes) }),
    }
}

fn to_json(value: &Value) -> Json {
    match value {
        Value::Integer(number) => Json::from(*number),
        Value::Text(bytes) => text(bytes),
        Value::Null => Json::Null,
        Value::Array(elements) => Json::Array(elements.iter().map(to_json).collect()),
        // No reply to a wait has one; as RESP2 has it.
        Value::Map(pairs) => {
            Json::Array(pairs.iter().flat_map(|(key, value)| [to_json(key), to_json(value)]).collect())
        }
    }
}

fn from_json(json: Json) -> Result<Value, Unexpected> {
    Ok(match json {
        Json::Null => Value::Null,
        Json::Number(number) => Value::Integer(number.as_i64().ok_or(Unexpected("an integer"))?),
        Json::String(text) => Value::Text(text.into_bytes()),
        Json::Array(elements) => Value::Array(elements.into_iter().map(from_json).collect::<Result<_, _>>()?),
        Json::Object(fields) => {
            let encoded = fields.get("b64").and_then(Json::as_str).ok_or(Unexpected("b64"))?;
            Value::Text(BASE64_STANDARD.decode(encoded).map_err(|_| Unexpected("base64"))?)
        }
        Json::Bool(_) => return Err(Unexpected("a text, a number or an array")),
    })
}

/// `["QUEUED", position]`: 1 is the head of the queue.
pub fn write_queued(position: u64, sink: &mut (impl Sink + ?Sized)) {
    sink.verdict("QUEUED", &[position.cast_signed()]);
}

pub(crate) fn read_queued(value: &Value) -> Option<u64> {
    match value {
        Value::Array(elements) => match elements.as_slice() {
            [Value::Text(word), Value::Integer(position)] if word == b"QUEUED" => u64::try_from(*position).ok(),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::Integer),
            prop::collection::vec(any::<u8>(), 0..8).prop_map(Value::Text),
            ".{0,4}".prop_map(|text| Value::Text(text.into_bytes())),
            Just(Value::Null),
        ];
        leaf.prop_recursive(2, 12, 6, |inner| prop::collection::vec(inner, 0..6).prop_map(Value::Array))
    }

    proptest! {
        #[test]
        fn what_is_published_is_what_is_read(
            key in prop::collection::vec(any::<u8>(), 0..12),
            owner in prop::collection::vec(any::<u8>(), 0..12),
            verdict in prop_oneof![value().prop_map(Ok), ".{1,20}".prop_map(Err)],
        ) {
            let late = LateVerdict { kind: "lock".into(), key, owner, verdict };
            prop_assert_eq!(LateVerdict::from_json(late.to_json().as_bytes()), Ok(late));
        }

        #[test]
        fn nothing_others_publish_is_taken_for_a_verdict(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert!(LateVerdict::from_json(&bytes).is_err());
        }
    }

    #[test]
    fn a_clusters_channel_has_the_keys_slot() {
        let channel =
            |key: &str| channel_in_cluster(7, key.as_bytes()).map(|name| String::from_utf8(name).expect("UTF-8"));
        assert_eq!(channel("orders").as_deref(), Some("resil:wait:7:{orders}"));
        assert_eq!(channel("a{orders}b{c}").as_deref(), Some("resil:wait:7:{orders}"));
        assert_eq!(channel("a{}b"), None);
        assert_eq!(channel("{a").as_deref(), Some("resil:wait:7:{{a}"));
        assert_eq!(channel("a}b"), None);
        assert_eq!(channel(""), None);
    }
}
