//! What a row of the schema says of a field: its name, what it may be, what it is if it is omitted, and what it means.
//!
//! The rows themselves stand in [`document`](super::document), each beside the typed field it is about. The walk that reads a
//! document, the JSON Schema and the reference page use nothing but these rows.

use alloc::string::String;

use crate::time::Span;

/// What an object may contain.
#[derive(Debug)]
pub struct Shape {
    /// What the object is called in the reference page.
    pub title: &'static str,
    pub about: &'static str,
    pub fields: &'static [FieldRow],
    /// Names from other layouts.
    pub others: &'static [Other],
}

#[derive(Debug)]
pub struct FieldRow {
    /// In camelCase. The same name in snake_case is read, too.
    pub name: &'static str,
    pub kind: FieldKind,
    pub presence: Presence,
    pub about: &'static str,
}

/// What holds if a field is omitted.
#[derive(Debug, Clone, Copy)]
pub enum Presence {
    /// It has to be there.
    Required,
    /// There is none.
    Absent,
    /// This value, as JSON.
    Default(fn() -> String),
    /// This value, as JSON; `null` says that there is none.
    DefaultOrNull(fn() -> String),
}

/// What a field may be.
#[derive(Debug, Clone, Copy)]
pub enum FieldKind {
    Flag,
    Whole {
        least: u64,
        most: u64,
    },
    Number {
        least: f64,
        most: f64,
    },
    Duration {
        least: Span,
        most: Span,
    },
    /// RFC 3339 in UTC.
    Moment,
    /// Not empty, and at most so many bytes.
    Text {
        most: usize,
    },
    /// A text that is put between braces in a key.
    Name,
    OneOf(&'static [&'static str]),
    /// `none`, `full`, `equal`, `decorrelated` or a percentage.
    Jitter,
    /// Texts of one list, none of them twice.
    Words(&'static [&'static str]),
    /// Any texts.
    Texts {
        most: usize,
        bytes: usize,
    },
    Object(&'static Shape),
    List {
        of: &'static Shape,
        most: usize,
    },
    /// Objects by names that the author chooses.
    Named(&'static Shape),
}

impl FieldKind {
    pub const fn whole(least: u64, most: u64) -> Self {
        Self::Whole { least, most }
    }

    pub const fn number(least: f64, most: f64) -> Self {
        Self::Number { least, most }
    }

    pub const fn duration(least: Span, most: Span) -> Self {
        Self::Duration { least, most }
    }
}

/// A name that another layout has for a field.
#[derive(Debug)]
pub struct Other {
    /// In snake_case, as it is written there; camelCase is read, too.
    pub name: &'static str,
    /// Ours.
    pub field: &'static str,
    pub meaning: Meaning,
}

/// How the value of such a field is understood.
#[derive(Debug, Clone, Copy)]
pub enum Meaning {
    /// As ours.
    Same,
    /// A fraction from 0 to 1, which we write as a percentage: `0.1` is `"10%"`.
    Fraction,
    /// One of these words, which are ours by other names.
    Words(&'static [(&'static str, &'static str)]),
    /// There is nothing like it; this is what to do instead.
    Refused(&'static str),
}
