//! The text of a document: JSON, at most 64 KB, at most 16 levels, no key twice in one object.
//!
//! Whatever is wrong here has the path `document`: there is no field yet that it could belong to. The last of two equal keys
//! would win silently otherwise, and a reviewer who reads the first would be wrong.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{Invalid, WHOLE};
use crate::limits::POLICY_DEPTH_MAX;

/// The tree of a text.
pub(super) fn tree(json: &str, most: usize) -> Result<Value, Invalid> {
    if json.len() > most {
        let text = format!("must be at most {} KB, got {} bytes", most >> 10, json.len());
        return Err(Invalid::new(WHOLE, text));
    }
    let mut reader = serde_json::Deserializer::from_str(json);
    let wrong = |error: serde_json::Error| Invalid::new(WHOLE, format!("is not valid: {error}"));
    let tree = Level(0).deserialize(&mut reader).map_err(wrong)?;
    reader.end().map_err(wrong)?;
    Ok(tree)
}

/// How many objects and lists are around a value.
#[derive(Clone, Copy)]
struct Level(usize);

impl Level {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        if self.0 >= POLICY_DEPTH_MAX {
            return Err(E::custom(format!("it nests deeper than {POLICY_DEPTH_MAX} levels")));
        }
        Ok(Self(self.0 + 1))
    }
}

impl<'de> DeserializeSeed<'de> for Level {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Number::from_f64(number).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let (inside, mut list) = (self.deeper()?, Vec::new());
        while let Some(item) = items.next_element_seed(inside)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let (inside, mut object) = (self.deeper()?, Map::new());
        while let Some(key) = entries.next_key::<Cow<'_, str>>()? {
            let value = entries.next_value_seed(inside)?;
            if object.insert(String::from(key.as_ref()), value).is_some() {
                return Err(A::Error::custom(format!("it has the key {key:?} twice in one object")));
            }
        }
        Ok(Value::Object(object))
    }
}
