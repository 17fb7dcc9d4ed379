//! Durations in settings: text such as `"250ms"` or `"90s"`. A bare number is refused, except 0: in one language it would be seconds, in
//! another milliseconds.
//!
//! They are always written as text in the coarsest unit that says them exactly, so what was written once is written the
//! same way again. Settings keep whole microseconds: what is below is cut off when they are written.
//!
//! To serde that reads they are a newtype called [`SPAN`]: formats look through it, and a [`Dialect`](crate::settings::Dialect) knows by
//! it what is a duration, so that its own numbers stand for them.

use std::time::Duration;

use resil_core::Span;
use resil_wire::duration::{Shown, parse};
use serde::de::{Unexpected, Visitor};
use serde::{Deserializer, Serialize, Serializer};

use super::showing::numbers;
use crate::error::Error;

/// What a duration is called to serde.
pub(crate) const SPAN: &str = "resil::Span";

/// What the text of a duration says.
pub(crate) fn read(text: &str) -> Option<Duration> {
    let us = parse(text.as_bytes()).and_then(|span| u64::try_from(span.as_us()).ok());
    us.map(Duration::from_micros)
}

pub(crate) fn shown(span: Duration) -> String {
    Shown(Span::from_us(i64::try_from(span.as_micros()).unwrap_or(i64::MAX))).to_string()
}

struct Text;

impl<'de> Visitor<'de> for Text {
    type Value = Duration;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a duration such as \"250ms\" (units: us, ms, s, m, h, d)")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Duration, E> {
        let has_unit = text.ends_with(|last: char| last.is_ascii_alphabetic());
        let span = read(text).filter(|span| has_unit || span.is_zero());
        span.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inside: D) -> Result<Duration, D::Error> {
        inside.deserialize_any(self)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Duration, E> {
        (number == 0).then_some(Duration::ZERO).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }
}

pub(crate) fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    match numbers() {
        Some(numbers) => numbers.shown(*span).serialize(serializer),
        None => serializer.serialize_str(&shown(*span)),
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_newtype_struct(SPAN, Text)
}

/// The same for what may be left out.
pub(crate) mod optional {
    use super::*;

    struct Maybe;

    impl<'de> Visitor<'de> for Maybe {
        type Value = Option<Duration>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            Text.expecting(f)
        }

        fn visit_none<E: serde::de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            super::deserialize(deserializer).map(Some)
        }
    }

    pub(crate) fn serialize<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => super::serialize(span, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        deserializer.deserialize_option(Maybe)
    }
}

/// Refuses what is out of bounds, by the field's name.
pub(crate) fn check_span(field: &str, span: Duration, least: Duration, most: Duration) -> Result<(), Error> {
    if span < least || span > most {
        return Err(out_of_bounds(field, shown(least), shown(most), shown(span)));
    }
    Ok(())
}

/// Refuses what is out of bounds, by the field's name.
pub(crate) fn check_number<N: PartialOrd + std::fmt::Display>(
    field: &str,
    number: N,
    least: N,
    most: N,
) -> Result<(), Error> {
    // Not `number < least || number > most`: what is not a number is not within.
    if !(number >= least && number <= most) {
        return Err(out_of_bounds(field, least, most, number));
    }
    Ok(())
}

fn out_of_bounds(
    field: &str,
    least: impl std::fmt::Display,
    most: impl std::fmt::Display,
    got: impl std::fmt::Display,
) -> Error {
    Error::invalid(field, format!("must be from {least} to {most}, got {got}"))
}
