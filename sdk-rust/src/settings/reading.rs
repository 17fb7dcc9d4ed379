//! Settings as they were said in a dialect, for serde to read.
//!
//! serde tells which structure it expects and which fields that has: so a key is known to be a field's name, and not a
//! name that the caller chose, and is matched in the dialect's spelling and in no other.

use std::time::Duration;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Number, Value};

use super::dialect::Dialect;
use crate::settings::span_text::{self, SPAN};

/// Whole numbers up to this are exact as floats too.
const WHOLE_FLOAT_MAX: f64 = 9_007_199_254_740_992.0;

/// Of these fields null says that there is none, and leaving them out that there is the usual one.
const NULL_IS_NONE: [&str; 1] = ["budget"];

/// A value of a dialect.
pub(super) struct GivenValue {
    pub value: Value,
    pub dialect: Dialect,
}

/// What is wrong with it. The caller knows the path.
#[derive(Debug)]
pub(super) enum Wrong {
    Because(String),
    Missing(&'static str),
    Unknown { name: String, known: &'static [&'static str] },
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Because(reason) => f.write_str(reason),
            Self::Missing(name) => write!(f, "{name} must be there"),
            Self::Unknown { name, .. } => write!(f, "{name} is not known"),
        }
    }
}

impl std::error::Error for Wrong {}

impl de::Error for Wrong {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::Because(message.to_string())
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }

    fn invalid_type(seen: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = expected.to_string();
        // What Rust calls its numbers says nothing to others.
        let whole = |most: u64| format!("a whole number from 0 to {most}");
        let expected = match expected.as_str() {
            "u8" => whole(u64::from(u8::MAX)),
            "u16" => whole(u64::from(u16::MAX)),
            "u32" => whole(u64::from(u32::MAX)),
            "u64" | "usize" => whole(u64::MAX),
            "f64" => "a number".to_owned(),
            other if other.starts_with("struct ") => "an object".to_owned(),
            other => other.to_owned(),
        };
        Self::Because(format!("must be {expected}, got {}", shown(&seen)))
    }

    fn invalid_value(seen: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(seen, expected)
    }
}

/// What was given, without the words of one language.
fn shown(seen: &Unexpected<'_>) -> String {
    match seen {
        Unexpected::Bool(truth) => truth.to_string(),
        Unexpected::Unsigned(number) => number.to_string(),
        Unexpected::Signed(number) => number.to_string(),
        Unexpected::Float(number) => number.to_string(),
        Unexpected::Str(text) => format!("{text:?}"),
        Unexpected::Unit | Unexpected::Option => "null".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "an object".to_owned(),
        other => other.to_string(),
    }
}

impl GivenValue {
    fn like(&self, value: Value) -> Self {
        Self { value, dialect: self.dialect }
    }

    fn seen(&self) -> Unexpected<'_> {
        match &self.value {
            Value::Null => Unexpected::Unit,
            Value::Bool(truth) => Unexpected::Bool(*truth),
            Value::Number(number) => Unexpected::Float(number.as_f64().unwrap_or(f64::NAN)),
            Value::String(text) => Unexpected::Str(text),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        }
    }

    /// As text that every reader of durations understands.
    fn duration(&self) -> Result<String, Wrong> {
        let numbers = self.dialect.numbers;
        let duration = match &self.value {
            // Nothing is nothing in every unit.
            Value::String(text) => super::duration(text).or_else(|| span_text::read(text).filter(Duration::is_zero)),
            Value::Number(number) => number.as_f64().and_then(|number| numbers.duration(number)),
            _ => None,
        };
        duration.map(span_text::shown).ok_or_else(|| {
            let unit = numbers.text();
            let expected =
                format!("a duration: a number of {unit}, or text such as \"250ms\" (units: us, ms, s, m, h, d)");
            de::Error::invalid_value(self.seen(), &expected.as_str())
        })
    }
}

fn number<'de, V: Visitor<'de>>(number: &Number, visitor: V) -> Result<V::Value, Wrong> {
    if let Some(whole) = number.as_u64() {
        return visitor.visit_u64(whole);
    }
    if let Some(whole) = number.as_i64() {
        return visitor.visit_i64(whole);
    }
    match number.as_f64().unwrap_or(f64::NAN) {
        // A language may have no other numbers.
        float if float.fract() == 0.0 && (0.0..=WHOLE_FLOAT_MAX).contains(&float) => visitor.visit_u64(float as u64),
        float => visitor.visit_f64(float),
    }
}

impl<'de> IntoDeserializer<'de, Wrong> for GivenValue {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for GivenValue {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let Self { value, dialect } = self;
        let said = |value| Self { value, dialect };
        match value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(truth) => visitor.visit_bool(truth),
            Value::Number(given) => number(&given, visitor),
            Value::String(text) => visitor.visit_string(text),
            Value::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.into_iter().map(said))),
            Value::Object(entries) => {
                visitor.visit_map(MapDeserializer::new(entries.into_iter().map(|(key, value)| (key, said(value)))))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let Value::Object(entries) = self.value else { return Err(de::Error::invalid_type(self.seen(), &"an object")) };
        let (dialect, mut known) = (self.dialect, Vec::with_capacity(entries.len()));
        for (key, value) in entries {
            match fields.iter().find(|field| dialect.spelling.spell(field) == key) {
                // Null is an omitted field, but where it says something else than the default.
                Some(field) if value.is_null() && !NULL_IS_NONE.contains(field) => {}
                Some(field) => known.push((*field, Self { value, dialect })),
                None => return Err(Wrong::Unknown { name: key, known: fields }),
            }
        }
        visitor.visit_map(MapDeserializer::new(known.into_iter()))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Wrong> {
        match name {
            SPAN => {
                let duration = self.duration()?;
                visitor.visit_newtype_struct(self.like(Value::String(duration)))
            }
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let chosen = self.value.as_str().and_then(|text| variants.iter().find(|known| **known == text));
        match chosen {
            Some(variant) => visitor.visit_enum((*variant).into_deserializer()),
            None => {
                let expected = format!("one of {}", variants.join(", "));
                Err(de::Error::invalid_value(self.seen(), &expected.as_str()))
            }
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}
