//! Rows of what the server shows: maps, read by the names of their fields.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use resil_wire::reply::{Unexpected, Value};

use super::letter::shown;
use crate::holding::from_ms;

/// What a row is read into.
pub(super) trait FromRow: Sized {
    fn from_row(row: &RowFields<'_>) -> Result<Self, Unexpected>;
}

/// A map. A field that is missing or nil is nothing.
pub(super) struct RowFields<'a>(&'a [(Value, Value)]);

impl<'a> RowFields<'a> {
    pub fn new(value: &'a Value) -> Result<Self, Unexpected> {
        match value {
            Value::Map(pairs) => Ok(Self(pairs)),
            _ => Err(Unexpected("a map")),
        }
    }

    pub fn field(&self, name: &str) -> Option<&'a Value> {
        let named = self.0.iter().find(|(key, _)| key.text() == Ok(name.as_bytes()));
        named.map(|(_, value)| value).filter(|value| !matches!(value, Value::Null))
    }

    pub fn bytes(&self, name: &str) -> Result<Option<Bytes>, Unexpected> {
        self.field(name).map(|value| value.text().map(Bytes::copy_from_slice)).transpose()
    }

    pub fn text(&self, name: &str) -> Result<Option<String>, Unexpected> {
        self.field(name).map(|value| value.text().map(|text| shown(text).into_owned())).transpose()
    }

    /// One of the words that `read` knows.
    pub fn word<T>(&self, name: &str, read: impl FnOnce(&[u8]) -> Option<T>) -> Result<Option<T>, Unexpected> {
        let word = self.field(name).map(Value::text).transpose()?;
        word.map(|word| read(word).ok_or(Unexpected("a known word"))).transpose()
    }

    pub fn maybe_number<N: TryFrom<i64>>(&self, name: &str) -> Result<Option<N>, Unexpected> {
        let number = self.field(name).map(Value::integer).transpose()?;
        number.map(|number| N::try_from(number).map_err(|_| Unexpected("a number within its bounds"))).transpose()
    }

    pub fn number<N: TryFrom<i64>>(&self, name: &str) -> Result<N, Unexpected> {
        self.maybe_number(name)?.ok_or(Unexpected("a number"))
    }

    pub fn flag(&self, name: &str) -> Result<bool, Unexpected> {
        Ok(self.number::<i64>(name)? != 0)
    }

    /// Unix milliseconds; below zero is never.
    pub fn moment(&self, name: &str) -> Result<Option<SystemTime>, Unexpected> {
        let ms = self.maybe_number::<i64>(name)?;
        Ok(ms.and_then(|ms| u64::try_from(ms).ok()).map(|ms| UNIX_EPOCH + Duration::from_millis(ms)))
    }

    /// One that is always there.
    pub fn moment_of(&self, name: &str) -> Result<SystemTime, Unexpected> {
        self.moment(name)?.ok_or(Unexpected("a moment"))
    }

    pub fn list<T>(&self, name: &str, read: impl Fn(&Value) -> Result<T, Unexpected>) -> Result<Vec<T>, Unexpected> {
        self.field(name).map_or(Ok(Vec::new()), |list| list.array()?.iter().map(read).collect())
    }
}

pub(super) fn read_number(value: &Value) -> Result<u32, Unexpected> {
    u32::try_from(value.integer()?).map_err(|_| Unexpected("a number within its bounds"))
}

pub(super) fn read_text(value: &Value) -> Result<String, Unexpected> {
    value.text().map(|text| shown(text).into_owned())
}

pub(super) fn read_ms(value: &Value) -> Result<Duration, Unexpected> {
    value.integer().map(from_ms)
}

pub(super) fn read_moment(value: &Value) -> Result<SystemTime, Unexpected> {
    read_ms(value).map(|since| UNIX_EPOCH + since)
}
