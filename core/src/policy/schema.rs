//! The JSON Schema and the tables of the reference page, made from the rows of the schema.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Map, Value, json};

use super::document::POLICY;
use super::duration;
use super::fields::{FieldKind, FieldRow, Meaning, Presence, Shape};
use crate::time::Span;

/// Every object of the schema, the whole policy first, each once, in the order of the fields that have them.
pub fn shapes() -> Vec<&'static Shape> {
    let mut found: Vec<&'static Shape> = Vec::new();
    let mut next = 0;
    found.push(&POLICY);
    while let Some(shape) = found.get(next).copied() {
        next += 1;
        for field in shape.fields {
            let inside = match field.kind {
                FieldKind::Object(inside) | FieldKind::Named(inside) | FieldKind::List { of: inside, .. } => inside,
                _ => continue,
            };
            if !found.iter().any(|known| known.title == inside.title) {
                found.push(inside);
            }
        }
    }
    found
}

/// The JSON Schema (draft 2020-12) of a policy in camelCase.
pub fn json_schema() -> Value {
    let all = shapes();
    let inner = all.iter().skip(1).map(|shape| (shape.title.to_string(), object(shape)));
    let definitions: Map<String, Value> = inner.collect();
    let mut whole = object(&POLICY);
    whole["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    whole["title"] = json!("A policy of Resil");
    whole["$defs"] = Value::Object(definitions);
    whole
}

fn object(shape: &Shape) -> Value {
    let is_required = |field: &&FieldRow| matches!(field.presence, Presence::Required);
    let required: Vec<&str> = shape.fields.iter().filter(is_required).map(|field| field.name).collect();
    let properties: Map<String, Value> =
        shape.fields.iter().map(|field| (field.name.to_string(), property(field))).collect();
    let mut object = json!({
        "type": "object",
        "description": shape.about.trim(),
        "additionalProperties": false,
        "properties": properties,
    });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}

fn property(field: &FieldRow) -> Value {
    let mut property = value(field.kind);
    let default = match field.presence {
        Presence::Default(shown) => Some(shown()),
        Presence::DefaultOrNull(shown) => {
            property = json!({ "anyOf": [property, { "type": "null" }] });
            Some(shown())
        }
        Presence::Required | Presence::Absent => None,
    };
    if let Some(default) = default.and_then(|text| serde_json::from_str::<Value>(&text).ok()) {
        property["default"] = default;
    }
    let bounds = match field.kind {
        FieldKind::Duration { .. } => format!(" {}.", capital(&bounds(field.kind))),
        _ => String::new(),
    };
    property["description"] = json!(format!("{}{bounds}", field.about));
    property
}

fn value(kind: FieldKind) -> Value {
    let inside = |shape: &Shape| json!({ "$ref": format!("#/$defs/{}", shape.title) });
    match kind {
        FieldKind::Flag => json!({ "type": "boolean" }),
        FieldKind::Whole { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
        FieldKind::Number { least, most } => json!({ "type": "number", "minimum": least, "maximum": most }),
        FieldKind::Duration { .. } => {
            json!({ "type": "string", "pattern": "^(0|[1-9][0-9]*(us|ms|s|m|h|d)|0(us|ms|s|m|h|d))$" })
        }
        FieldKind::Moment => json!({ "type": "string", "format": "date-time" }),
        FieldKind::Text { most } => json!({ "type": "string", "minLength": 1, "maxLength": most }),
        FieldKind::Name => json!({ "type": "string", "minLength": 1, "pattern": "^[^{}]*$" }),
        FieldKind::OneOf(words) => json!({ "enum": words }),
        FieldKind::Jitter => {
            json!({ "type": "string", "pattern": "^(none|full|equal|decorrelated|(100|[1-9]?[0-9])%)$" })
        }
        FieldKind::Words(words) => json!({ "type": "array", "uniqueItems": true, "items": { "enum": words } }),
        FieldKind::Texts { most, bytes } => {
            json!({ "type": "array", "maxItems": most, "items": { "type": "string", "minLength": 1, "maxLength": bytes } })
        }
        FieldKind::Object(shape) => inside(shape),
        FieldKind::List { of, most } => json!({ "type": "array", "maxItems": most, "items": inside(of) }),
        FieldKind::Named(shape) => json!({ "type": "object", "additionalProperties": inside(shape) }),
    }
}

/// What a field may be, in words.
pub fn bounds(kind: FieldKind) -> String {
    let inside = |shape: &Shape| format!("[{}](#{})", shape.title, shape.title.to_lowercase());
    match kind {
        FieldKind::Flag => "true or false".to_string(),
        FieldKind::Whole { least, most } => format!("{} to {}", grouped(least), grouped(most)),
        FieldKind::Number { least, most } => format!("{least} to {most}"),
        FieldKind::Duration { least, most } => format!("{} to {}", duration::shown(least), duration::shown(most)),
        FieldKind::Moment => "a moment in UTC".to_string(),
        FieldKind::Text { most } => format!("text, at most {most} bytes"),
        FieldKind::Name => "text without braces".to_string(),
        FieldKind::OneOf(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        FieldKind::Jitter => "a word or `0%` to `100%`".to_string(),
        FieldKind::Words(words) => format!("a list of {}", bounds(FieldKind::OneOf(words))),
        FieldKind::Texts { most, .. } => format!("a list of at most {most} texts"),
        FieldKind::Object(shape) => inside(shape),
        FieldKind::List { of, most } => format!("a list of at most {most} × {}", inside(of)),
        FieldKind::Named(shape) => format!("by name: {}", inside(shape)),
    }
}

/// A value that the kind allows.
pub fn example(kind: FieldKind) -> Value {
    match kind {
        FieldKind::Flag => json!(true),
        FieldKind::Whole { least, most } => json!(50.clamp(least, most)),
        FieldKind::Number { least, most } => json!(1.5f64.clamp(least, most)),
        FieldKind::Duration { least, most } => json!(duration::shown(Span::from_secs(2).clamp(least, most))),
        FieldKind::Moment => json!("2026-11-18T12:00:00Z"),
        FieldKind::Text { .. } | FieldKind::Name => json!("payments"),
        FieldKind::OneOf(words) => json!(words.first()),
        FieldKind::Jitter => json!("20%"),
        FieldKind::Words(words) => json!(words),
        FieldKind::Texts { .. } => json!(["tenant-1"]),
        FieldKind::Object(shape) => required(shape),
        FieldKind::List { of, .. } => json!([required(of)]),
        FieldKind::Named(shape) => json!({ "batch": required(shape) }),
    }
}

/// An object with what it has to have.
fn required(shape: &Shape) -> Value {
    let fields = shape.fields.iter().filter(|field| matches!(field.presence, Presence::Required));
    Value::Object(fields.map(|field| (field.name.to_string(), example(field.kind))).collect())
}

/// The tables of the reference page: every field with its default and its bounds.
pub fn reference() -> String {
    let mut page = String::new();
    for shape in shapes() {
        page.push_str(&format!("## {}\n\n{}\n\n", shape.title, shape.about.trim()));
        page.push_str("| field | default | allowed | example | meaning |\n| --- | --- | --- | --- | --- |\n");
        for field in shape.fields {
            let (default, example) = match field.presence {
                Presence::Required => ("required".to_string(), example(field.kind).to_string()),
                Presence::Absent => ("–".to_string(), example(field.kind).to_string()),
                Presence::Default(shown) | Presence::DefaultOrNull(shown) => (format!("`{}`", shown()), shown()),
            };
            let allowed = bounds(field.kind);
            let example = format!("`\"{}\": {example}`", field.name);
            page.push_str(&format!("| `{}` | {default} | {allowed} | {example} | {} |\n", field.name, field.about));
        }
        page.push('\n');
    }
    page
}

/// The table of names from other layouts.
pub fn other_names() -> String {
    let mut table = "| object | name | read as |\n| --- | --- | --- |\n".to_string();
    for shape in shapes() {
        for other in shape.others {
            let meaning = match other.meaning {
                Meaning::Same => format!("`{}`", other.field),
                Meaning::Fraction => format!("`{}`: `0.1` is `\"10%\"`", other.field),
                Meaning::Words(words) => {
                    let words = words.iter().map(|(theirs, ours)| format!("`{theirs}` is `{ours}`"));
                    format!("`{}`: {}", other.field, words.collect::<Vec<_>>().join(", "))
                }
                Meaning::Refused(_) => "refused: classify errors in the SDK".to_string(),
            };
            table.push_str(&format!("| {} | `{}` | {meaning} |\n", shape.title, other.name));
        }
    }
    table
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_ascii_uppercase(), letters.as_str()))
}
