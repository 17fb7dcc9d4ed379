//! Holders and waiters, as INFO shows them.

use std::time::Duration;

use resil_wire::command::Reply;
use resil_wire::reply::{Unexpected, Value};
use serde::Serialize;

use super::{from_ms, unexpected};
use crate::error::Error;
use crate::settings::span_text;

/// A lock or a shared bulkhead, as the server sees it: the first hundred of each list, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Info {
    /// Whether there is such a key: somebody holds it, or did a minute ago.
    pub exists: bool,
    pub holders: Vec<Holder>,
    pub holders_total: u64,
    /// In the order they will be served. Of the tasks of one process, the one whose turn it is.
    pub waiters: Vec<Waiter>,
    pub waiters_total: u64,
    /// The highest fence ever given for it; 0 if there was none.
    pub last_fence: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    pub owner: String,
    pub fence: u64,
    #[serde(with = "span_text")]
    pub held: Duration,
    #[serde(with = "span_text")]
    pub remaining: Duration,
    pub mode: Mode,
    pub meta: Option<String>,
    /// It ends when the connection of its owner closes.
    pub is_bound: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiter {
    pub owner: String,
    /// `None` in a bulkhead.
    pub mode: Option<Mode>,
    /// `None` in a lock.
    pub priority: Option<u8>,
    #[serde(with = "span_text")]
    pub waited: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    Exclusive,
    Shared,
}

impl Info {
    pub(crate) fn read(reply: Reply) -> Result<Self, Error> {
        let Reply::Map(value) = reply else { return Err(unexpected(&reply)) };
        Self::from_value(&value).map_err(|error| Error::Internal(error.to_string()))
    }

    fn from_value(value: &Value) -> Result<Self, Unexpected> {
        let list = |name| match field(value, name) {
            Some(list) => list.array(),
            None => Ok(Default::default()),
        };
        Ok(Self {
            exists: number(value, "exists")? != 0,
            holders: list("holders")?.iter().map(Holder::from_value).collect::<Result<_, _>>()?,
            holders_total: number(value, "holders_total")?.unsigned_abs(),
            waiters: list("waiters")?.iter().map(Waiter::from_value).collect::<Result<_, _>>()?,
            waiters_total: number(value, "waiters_total")?.unsigned_abs(),
            last_fence: number(value, "last_fence")?.unsigned_abs(),
        })
    }
}

impl Holder {
    fn from_value(value: &Value) -> Result<Self, Unexpected> {
        Ok(Self {
            owner: text(value, "owner")?.ok_or(Unexpected("an owner"))?,
            fence: number(value, "fence")?.unsigned_abs(),
            held: from_ms(number(value, "held_ms")?),
            remaining: from_ms(number(value, "remaining_ms")?),
            mode: mode(value)?.ok_or(Unexpected("a mode"))?,
            meta: text(value, "meta")?,
            is_bound: number(value, "bound")? != 0,
        })
    }
}

impl Waiter {
    fn from_value(value: &Value) -> Result<Self, Unexpected> {
        let priority = field(value, "priority").map(Value::integer).transpose()?;
        Ok(Self {
            owner: text(value, "owner")?.ok_or(Unexpected("an owner"))?,
            mode: mode(value)?,
            priority: priority.and_then(|priority| u8::try_from(priority).ok()),
            waited: from_ms(number(value, "waited_ms")?),
        })
    }
}

fn mode(value: &Value) -> Result<Option<Mode>, Unexpected> {
    Ok(match field(value, "mode").map(Value::text).transpose()? {
        None => None,
        Some(b"exclusive") => Some(Mode::Exclusive),
        Some(b"shared") => Some(Mode::Shared),
        Some(_) => return Err(Unexpected("exclusive or shared")),
    })
}

/// The value of `name` in a map, or in an array of keys and values in turn.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let is_named = |key: &Value| key.text() == Ok(name.as_bytes());
    match value {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| is_named(key)).map(|(_, value)| value),
        Value::Array(flat) => flat.chunks_exact(2).find(|pair| is_named(&pair[0])).map(|pair| &pair[1]),
        _ => None,
    }
}

/// Zero if it is not there.
fn number(value: &Value, name: &str) -> Result<i64, Unexpected> {
    field(value, name).map_or(Ok(0), Value::integer)
}

fn text(value: &Value, name: &str) -> Result<Option<String>, Unexpected> {
    match field(value, name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.text().map(|bytes| Some(String::from_utf8_lossy(bytes).into_owned())),
    }
}
