//! What is shown to another language: any value as plain objects in its dialect.
//!
//! serde writes the value as for a file, but durations and moments as numbers of the dialect. Then the names of fields are respelled. Names
//! that the caller chose (of partitions, of policies) and values stay as they are.

use std::cell::Cell;

use serde::Serialize;
use serde_json::{Error, Map, Value};

use super::dialect::{Dialect, NAMED_BY_THE_CALLER, Numbers, Spelling};

thread_local! {
    static NUMBERS: Cell<Option<Numbers>> = const { Cell::new(None) };
}

/// How durations and moments are written on this thread now: `None` for files, which have them as text and as whole milliseconds.
pub(crate) fn numbers() -> Option<Numbers> {
    NUMBERS.get()
}

/// Puts back what was before, also if a value's own code panics.
struct RestoreNumbers(Option<Numbers>);

impl Drop for RestoreNumbers {
    fn drop(&mut self) {
        NUMBERS.set(self.0);
    }
}

pub(super) fn show(dialect: Dialect, value: &(impl Serialize + ?Sized)) -> Result<Value, Error> {
    let reset = RestoreNumbers(NUMBERS.replace(Some(dialect.numbers)));
    let shown = serde_json::to_value(value)?;
    drop(reset);
    Ok(respelled(shown, dialect.spelling))
}

fn respelled(value: Value, spelling: Spelling) -> Value {
    let field = |(name, value): (String, Value)| {
        let value = match value {
            Value::Object(entries) if NAMED_BY_THE_CALLER.contains(&name.as_str()) => {
                entries.into_iter().map(|(theirs, value)| (theirs, respelled(value, spelling))).collect()
            }
            other => respelled(other, spelling),
        };
        (spelling.spell(&name), value)
    };
    match value {
        Value::Object(entries) => Value::Object(entries.into_iter().map(field).collect::<Map<_, _>>()),
        Value::Array(items) => items.into_iter().map(|item| respelled(item, spelling)).collect(),
        other => other,
    }
}
