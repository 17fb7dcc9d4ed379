//! Durations in documents: text with its unit, `"250ms"`, `"90s"`, `"1h"`.
//!
//! A bare number is refused, but for 0: in one language it would be seconds, in another milliseconds. A duration is written in the
//! coarsest unit that says it exactly, so what was written once is written the same way again.

use alloc::format;
use alloc::string::{String, ToString};

use core::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::time::Span;

/// Coarsest first.
const UNITS: [(&str, i64); 6] =
    [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];

/// `None` for anything that is not a duration, or longer than fits. `"0"` needs no unit.
pub(super) fn parse(text: &str) -> Option<Span> {
    if text == "0" {
        return Some(Span::ZERO);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() || number.len() > 1 && number.starts_with('0') {
        return None;
    }
    let unit_us = UNITS.iter().find(|(name, _)| *name == unit)?.1;
    number.parse::<i64>().ok()?.checked_mul(unit_us).map(Span::from_us)
}

pub(super) fn shown(span: Span) -> String {
    let us = span.as_us();
    if us == 0 {
        return "0".to_string();
    }
    let (name, unit_us) = UNITS.iter().copied().find(|(_, unit_us)| us % unit_us == 0).unwrap_or(("us", 1));
    format!("{}{name}", us / unit_us)
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&shown(*self))
    }
}

/// What a duration is called to serde: formats look through it, and other languages' settings know by it what is a duration.
pub const SPAN: &str = "resil::Span";

struct Text;

impl<'de> Visitor<'de> for Text {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as \"250ms\" (units: us, ms, s, m, h, d)")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inside: D) -> Result<Span, D::Error> {
        inside.deserialize_str(self)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
        parse(text).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_newtype_struct(SPAN, Text)
    }
}
