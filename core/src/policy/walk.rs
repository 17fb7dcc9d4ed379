//! The walk over a document with the rows of the schema: every field is known, spelled once, and within its bounds, or it is named.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::backoff::JitterKind;
use super::document::{Document, FILE, POLICY, PolicyFile};
use super::fields::{FieldKind, FieldRow, Meaning, Presence, Shape};
use super::{Invalid, WHOLE, check, duration, moment};
use crate::time::Span;

/// The longest part of a document that an error repeats.
const SHOWN_MAX: usize = 60;

/// Reads a policy from a tree of values: what [`read`](super::read) does after it read the text. For formats other than JSON.
pub fn read_value(tree: Value) -> Result<Document, Invalid> {
    let whole = typed::<Document>(&POLICY, tree)?;
    check::whole(&whole)?;
    Ok(whole)
}

/// Checks one part of a policy by itself, with paths inside of it. What needs other parts is left to the whole.
pub fn read_part(part: &str, tree: Value) -> Result<(), Invalid> {
    let whole = Map::from_iter([(part.to_string(), tree)]);
    let checked = read_parts(Value::Object(whole)).map(drop);
    checked.map_err(|mut wrong| {
        if let Some(inside) = wrong.path.strip_prefix(part).and_then(|rest| rest.strip_prefix('.')) {
            wrong.path = inside.to_string();
        }
        wrong
    })
}

/// The same for a policy of which some parts come from elsewhere: what needs the whole is left out.
pub fn read_parts(tree: Value) -> Result<Document, Invalid> {
    let document = typed::<Document>(&POLICY, tree)?;
    check::parts(&document)?;
    Ok(document)
}

/// The same for a file of policies.
pub fn read_file_value(tree: Value) -> Result<PolicyFile, Invalid> {
    let file = typed::<PolicyFile>(&FILE, tree)?;
    if let Some(defaults) = &file.defaults {
        if defaults.name.is_some() {
            return Err(Invalid::new("defaults.name", "must not be there: each policy has its own"));
        }
        check::parts(defaults).map_err(|wrong| wrong.inside("defaults"))?;
    }
    for (name, document) in file.policies.iter().flatten() {
        check::parts(document).map_err(|wrong| wrong.inside(&format!("policies.{name}")))?;
    }
    Ok(file)
}

fn typed<T: DeserializeOwned>(shape: &Shape, tree: Value) -> Result<T, Invalid> {
    let Value::Object(entries) = tree else {
        return Err(Invalid::new(WHOLE, format!("must be an object, got {}", shown(&tree))));
    };
    let known = object(shape, entries, "")?;
    // The rows and the types stand side by side: what the walk lets through has its type.
    serde_json::from_value(Value::Object(known)).map_err(|error| Invalid::new(WHOLE, format!("is not valid: {error}")))
}

/// The same object with our names.
fn object(shape: &Shape, entries: Map<String, Value>, path: &str) -> Result<Map<String, Value>, Invalid> {
    let mut known = Map::new();
    let mut spellings: Vec<(&str, String)> = Vec::new();
    for (key, value) in entries {
        let (field, value) = ours(shape, &key, value, path)?;
        let inside = below(path, field.name);
        if let Some((_, before)) = spellings.iter().find(|(name, _)| *name == field.name) {
            return Err(Invalid::new(inside, format!("is there twice: as {before} and as {key}")));
        }
        spellings.push((field.name, key));
        let is_omitted = value.is_null() && !matches!(field.presence, Presence::DefaultOrNull(_));
        if is_omitted {
            continue;
        }
        let value = if value.is_null() { value } else { one(field.kind, value, &inside)? };
        known.insert(field.name.to_string(), value);
    }
    let is_missing =
        |field: &&FieldRow| matches!(field.presence, Presence::Required) && !known.contains_key(field.name);
    match shape.fields.iter().find(is_missing) {
        Some(field) => Err(Invalid::new(below(path, field.name), "must be there")),
        None => Ok(known),
    }
}

/// The field that `key` names, and the value as we write it.
fn ours<'s>(shape: &'s Shape, key: &str, value: Value, path: &str) -> Result<(&'s FieldRow, Value), Invalid> {
    let named = |name: &str| name == key || snake(name) == key;
    if let Some(field) = shape.fields.iter().find(|field| named(field.name)) {
        return Ok((field, value));
    }
    let other = shape.others.iter().find(|other| other.name == key || camel(other.name) == key);
    let field = other.and_then(|other| shape.fields.iter().find(|field| field.name == other.field));
    match (other.map(|other| other.meaning), field) {
        (Some(Meaning::Same), Some(field)) => Ok((field, value)),
        (Some(Meaning::Fraction), Some(field)) => match value.as_f64().filter(|part| (0.0..=1.0).contains(part)) {
            Some(part) => Ok((field, Value::String(format!("{}%", (part * 100.0 + 0.5) as u8)))),
            None => {
                let text = format!("must be from 0 to 1 as {key}, got {}", shown(&value));
                Err(Invalid::new(below(path, field.name), text))
            }
        },
        (Some(Meaning::Words(words)), Some(field)) => {
            let word = words.iter().find(|(theirs, _)| value.as_str() == Some(*theirs));
            Ok((field, word.map_or(value, |(_, ours)| Value::String(ours.to_string()))))
        }
        (Some(Meaning::Refused(why)), _) => Err(Invalid::new(below(path, &camel(key)), why)),
        _ => Err(unknown(shape, key, path)),
    }
}

fn unknown(shape: &Shape, key: &str, path: &str) -> Invalid {
    let names = || shape.fields.iter().map(|field| field.name);
    let spelled = camel(key);
    let nearest = names().map(|name| (distance(name, &spelled), name)).min();
    let text = match nearest.filter(|(edits, name)| *edits * 3 <= name.len().max(3)) {
        Some((_, name)) => format!("is not known; did you mean {name}?"),
        None => format!("is not known; known are {}", names().collect::<Vec<_>>().join(", ")),
    };
    Invalid::new(below(path, &cut(&spelled)), text)
}

/// The value of a field, within its bounds.
fn one(kind: FieldKind, value: Value, path: &str) -> Result<Value, Invalid> {
    let refused = |expected: String| Err(Invalid::new(path, format!("must be {expected}, got {}", shown(&value))));
    match kind {
        FieldKind::Flag if value.is_boolean() => Ok(value),
        FieldKind::Flag => refused("true or false".into()),
        FieldKind::Whole { least, most } => match whole(&value) {
            Some(number) if (least..=most).contains(&number) => Ok(number.into()),
            _ if value.as_f64().is_some_and(|number| number % 1.0 == 0.0) => refused(format!("from {least} to {most}")),
            _ => refused(format!("a whole number from {least} to {most}")),
        },
        FieldKind::Number { least, most } => match value.as_f64() {
            // A zero is written in one way, whatever its sign.
            Some(number) if (least..=most).contains(&number) => Ok((number + 0.0).into()),
            Some(_) => refused(format!("from {least} to {most}")),
            None => refused(format!("a number from {least} to {most}")),
        },
        FieldKind::Duration { least, most } => span(value, least, most, path),
        FieldKind::Moment => match value.as_str().and_then(moment::parse) {
            Some(at) => Ok(Value::String(moment::shown(at))),
            None => refused("a moment in UTC such as \"2026-11-18T12:00:00Z\"".into()),
        },
        FieldKind::Text { most } => match value.as_str() {
            Some(text) if !text.is_empty() && text.len() <= most => Ok(value),
            Some("") => Err(Invalid::new(path, "must not be empty")),
            _ => refused(format!("a text of at most {most} bytes")),
        },
        FieldKind::Name => match value.as_str() {
            Some(text) if text.contains(['{', '}']) => {
                refused("a name without { and }: the key stands between them".into())
            }
            _ => one(FieldKind::Text { most: crate::limits::POLICY_NAME_MAX }, value, path),
        },
        FieldKind::OneOf(words) => match value.as_str() {
            Some(word) if words.contains(&word) => Ok(value),
            _ => refused(format!("one of {}", words.join(", "))),
        },
        FieldKind::Jitter => jitter(value, path),
        FieldKind::Words(words) => {
            list(value, words.len(), path, |item, path| one(FieldKind::OneOf(words), item, path))
        }
        FieldKind::Texts { most, bytes } => {
            list(value, most, path, |item, path| one(FieldKind::Text { most: bytes }, item, path))
        }
        FieldKind::Object(shape) => match value {
            Value::Object(entries) => object(shape, entries, path).map(Value::Object),
            _ => refused("an object".into()),
        },
        FieldKind::List { of, most } => list(value, most, path, |item, path| one(FieldKind::Object(of), item, path)),
        FieldKind::Named(shape) => match value {
            Value::Object(entries) => {
                let mut named = Map::new();
                for (name, item) in entries {
                    if name.is_empty() || name.len() > crate::limits::POLICY_NAME_MAX {
                        let most = crate::limits::POLICY_NAME_MAX;
                        return Err(Invalid::new(path, format!("must have names of 1 to {most} bytes")));
                    }
                    let inside = below(path, &cut(&name));
                    named.insert(name, one(FieldKind::Object(shape), item, &inside)?);
                }
                Ok(Value::Object(named))
            }
            _ => refused("an object".into()),
        },
    }
}

fn list(
    value: Value,
    most: usize,
    path: &str,
    item: impl Fn(Value, &str) -> Result<Value, Invalid>,
) -> Result<Value, Invalid> {
    match value {
        Value::Array(items) if items.len() <= most => {
            let read = items.into_iter().enumerate().map(|(index, given)| item(given, &format!("{path}[{index}]")));
            read.collect::<Result<_, _>>().map(Value::Array)
        }
        Value::Array(items) => {
            Err(Invalid::new(path, format!("must have at most {most} entries, got {}", items.len())))
        }
        _ => Err(Invalid::new(path, format!("must be a list, got {}", shown(&value)))),
    }
}

fn span(value: Value, least: Span, most: Span, path: &str) -> Result<Value, Invalid> {
    let given = match &value {
        Value::String(text) => duration::parse(text),
        Value::Number(number) if number.as_f64() == Some(0.0) => Some(Span::ZERO),
        _ => None,
    };
    let has_no_unit = value.is_number() || value.as_str().is_some_and(|text| text.parse::<f64>().is_ok());
    match given {
        Some(given) if (least..=most).contains(&given) => Ok(Value::String(duration::shown(given))),
        Some(given) => {
            let [least, most, given] = [least, most, given].map(duration::shown);
            Err(Invalid::new(path, format!("must be from {least} to {most}, got {given}")))
        }
        None if has_no_unit => {
            Err(Invalid::new(path, format!("must have a unit: say \"2s\" or \"200ms\", got {}", shown(&value))))
        }
        None => Err(Invalid::new(
            path,
            format!("must be a duration such as \"250ms\" (units: us, ms, s, m, h, d), got {}", shown(&value)),
        )),
    }
}

fn jitter(value: Value, path: &str) -> Result<Value, Invalid> {
    let parsed = match &value {
        Value::String(text) => JitterKind::parse(text),
        Value::Object(entries) if entries.len() == 1 => {
            let percent = entries.get("plusMinus").or_else(|| entries.get("plus_minus")).and_then(whole);
            percent.filter(|percent| *percent <= 100).map(|percent| JitterKind::PlusMinus(percent as u8))
        }
        _ => None,
    };
    match parsed {
        Some(jitter) => Ok(Value::String(jitter.text())),
        None => {
            let text = "must be none, full, equal, decorrelated or a percentage from 0% to 100%";
            Err(Invalid::new(path, format!("{text}, got {}", shown(&value))))
        }
    }
}

/// A language may have no other numbers than floats.
fn whole(value: &Value) -> Option<u64> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let float = || value.as_f64().filter(|number| (0.0..=EXACT_MAX).contains(number) && number % 1.0 == 0.0);
    value.as_u64().or_else(|| float().map(|number| number as u64))
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}.{name}") }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_string(),
        Value::Array(_) => "a list".to_string(),
        other => cut(&other.to_string()),
    }
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(SHOWN_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let rest = if end < text.len() { "…" } else { "" };
    format!("{}{rest}", &text[..end])
}

/// `when_away`
pub fn snake(name: &str) -> String {
    let mut spelled = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            spelled.push('_');
        }
        spelled.push(letter.to_ascii_lowercase());
    }
    spelled
}

/// `whenAway`
pub fn camel(name: &str) -> String {
    if name.starts_with('_') {
        return name.to_string();
    }
    let (mut spelled, mut is_first) = (String::with_capacity(name.len()), false);
    for letter in name.chars() {
        match letter {
            '_' => is_first = true,
            letter => {
                spelled.push(if is_first { letter.to_ascii_uppercase() } else { letter });
                is_first = false;
            }
        }
    }
    spelled
}

/// How many letters differ between two names.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().take(SHOWN_MAX).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut corner = core::mem::replace(&mut row[0], index + 1);
        for (at, theirs) in other.iter().enumerate() {
            let changed = corner + usize::from(letter != *theirs);
            corner = row[at + 1];
            row[at + 1] = changed.min(corner + 1).min(row[at] + 1);
        }
    }
    row[other.len()]
}
