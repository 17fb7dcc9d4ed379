//! Entries of a stream, as the server sends them and as messages.

use std::collections::HashSet;

use bytes::Bytes;
use redis::Value;

use super::super::headers::Headers;
use super::super::source::IncomingMessage;

/// What the server calls an entry: milliseconds, and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct EntryId(u64, u64);

impl EntryId {
    fn read(text: &[u8]) -> Option<Self> {
        let (ms, number) = std::str::from_utf8(text).ok()?.split_once('-')?;
        Some(Self(ms.parse().ok()?, number.parse().ok()?))
    }
}

impl std::fmt::Display for EntryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

impl redis::ToRedisArgs for EntryId {
    fn write_redis_args<W: ?Sized + redis::RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(self);
    }
}

/// An entry: its id and its fields.
#[derive(Debug)]
pub(super) struct StreamEntry {
    pub id: EntryId,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

fn rows(value: Value) -> Vec<Value> {
    match value {
        Value::Array(rows) => rows,
        _ => Vec::new(),
    }
}

fn entry(value: Value) -> Option<StreamEntry> {
    let mut parts = rows(value).into_iter();
    let id = match parts.next()? {
        Value::BulkString(bytes) => EntryId::read(&bytes)?,
        _ => return None,
    };
    let pairs: Vec<(Value, Value)> = match parts.next()? {
        Value::Map(pairs) => pairs,
        // Deleted meanwhile.
        Value::Nil => return None,
        other => {
            let mut values = rows(other).into_iter();
            std::iter::from_fn(|| Some((values.next()?, values.next()?))).collect()
        }
    };
    let field = |(name, value): (Value, Value)| match value {
        Value::BulkString(bytes) => match name {
            Value::BulkString(name) => Some((name, bytes)),
            _ => None,
        },
        _ => None,
    };
    Some(StreamEntry { id, fields: pairs.into_iter().filter_map(field).collect() })
}

/// The reply of XREADGROUP on one stream.
pub(super) fn read_read(reply: Value) -> Vec<StreamEntry> {
    let streams: Vec<Value> = match reply {
        Value::Map(pairs) => pairs.into_iter().map(|(_, entries)| entries).collect(),
        other => rows(other).into_iter().filter_map(|stream| rows(stream).into_iter().nth(1)).collect(),
    };
    streams.into_iter().flat_map(rows).filter_map(entry).collect()
}

/// The reply of XAUTOCLAIM: where to go on, and what was claimed.
pub(super) fn read_claimed(reply: Value) -> (String, Vec<StreamEntry>) {
    let mut parts = rows(reply).into_iter();
    let next = parts.next().as_ref().and_then(text).unwrap_or_else(|| "0-0".to_owned());
    (next, parts.next().map(rows).unwrap_or_default().into_iter().filter_map(entry).collect())
}

/// How often an entry was delivered, by XPENDING.
pub(super) fn read_pending(reply: Value) -> Option<u32> {
    match rows(rows(reply).into_iter().next()?).into_iter().nth(3)? {
        Value::Int(times) => u32::try_from(times).ok(),
        _ => None,
    }
}

/// The entries that XPENDING lists.
pub(super) fn read_all_pending(reply: Value) -> HashSet<EntryId> {
    let id = |row: Value| match rows(row).into_iter().next()? {
        Value::BulkString(bytes) => EntryId::read(&bytes),
        _ => None,
    };
    rows(reply).into_iter().filter_map(id).collect()
}

/// Text as it came, without a copy where it is one.
fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into_owned())
}

impl StreamEntry {
    pub fn message(self, stream: &str, deliveries: u32) -> IncomingMessage {
        let Self { id, mut fields } = self;
        let mut take = |name: &str| {
            let at = fields.iter().position(|(known, _)| known == name.as_bytes())?;
            Some(fields.swap_remove(at).1)
        };
        let words = |bytes: Option<Vec<u8>>| bytes.map(lossy);
        let payload = take("payload");
        let (own_id, kind, aggregate, schema, headers) = match payload {
            Some(_) => (
                words(take("id")),
                words(take("type")),
                words(take("aggregate")),
                words(take("schema")),
                take("headers"),
            ),
            None => Default::default(),
        };
        let payload = payload.map(Bytes::from).unwrap_or_else(|| {
            let all = fields.iter().map(|(name, value)| (lossy(name.clone()), lossy(value.clone()).into()));
            serde_json::Value::Object(all.collect()).to_string().into()
        });
        let own_id = own_id.filter(|id| !id.is_empty()).unwrap_or_else(|| id.to_string());
        IncomingMessage {
            id: [stream, &own_id].join("/"),
            has_own_id: true,
            payload,
            headers: headers.map(|bytes| Headers::from_bytes(&bytes)).unwrap_or_default(),
            kind,
            source: Some(stream.to_owned()),
            aggregate,
            schema: schema.and_then(|text| text.parse().ok()),
            attempt: 0,
            deliveries,
            is_redelivered: deliveries > 1,
            given_up: None,
            is_suspect: false,
        }
    }
}
