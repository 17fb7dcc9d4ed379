//! How another language writes settings, and reads results.
//!
//! Two things differ between languages: how names of fields are spelled, and what a bare number means where a duration is
//! asked for. All else is the same everywhere, also the words of an error; its field is named as the caller wrote it.
//!
//! Only names of fields are respelled. Values (`half-open`) are the same in every language, and what the caller named itself (a
//! partition, a policy) stays as it is.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::reading::{GivenValue, Wrong};
use super::{Settings, showing};
use crate::error::Error;

/// A way to say settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    pub spelling: Spelling,
    pub numbers: Numbers,
}

/// How names are spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// `when_away`
    Snake,
    /// `whenAway`
    Camel,
}

/// What a number means where a duration is asked for. Text such as `"250ms"` means the same in all dialects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    Seconds,
    Milliseconds,
}

/// After these comes a name that the caller chose.
pub(super) const NAMED_BY_THE_CALLER: [&str; 3] = ["partitions", "policies", "config"];

impl Dialect {
    /// What was said, checked. Null is what is not there.
    pub fn read<T: Settings>(&self, said: Value) -> Result<T, Error> {
        let read = |said| serde_path_to_error::deserialize::<_, T>(GivenValue { value: said, dialect: *self });
        let settings = match read(said.clone()) {
            Ok(settings) => settings,
            Err(error) => {
                let (mut nearest, path) = (said, error.path().clone());
                let wrong = self.wrong_at(&field_of(&path), error.into_inner());
                // A number that no field of this kind has is as far out of its bounds as one that it has: the bounds are the same.
                let given = self.at(&mut nearest, &path).and_then(bring_near);
                let settings = given.as_ref().and_then(|_| read(nearest).ok());
                let bounds =
                    settings.and_then(|settings| settings.validate().err()).map(|error| self.spell_error(error));
                return Err(given
                    .zip(bounds)
                    .and_then(|(given, bounds)| given_as(bounds, &wrong, &given))
                    .unwrap_or(wrong));
            }
        };
        settings.validate().map_err(|error| self.spell_error(error))?;
        Ok(settings)
    }

    /// What was said at `path`, which names fields as we do.
    fn at<'v>(&self, said: &'v mut Value, path: &Path) -> Option<&'v mut Value> {
        path.iter().try_fold(said, |said, segment| match segment {
            Segment::Seq { index } => said.get_mut(*index),
            Segment::Map { key } => {
                let spelled = self.spelling.spell(key);
                let name = if said.get(key).is_some() { key } else { &spelled };
                said.get_mut(name)
            }
            Segment::Enum { .. } | Segment::Unknown => None,
        })
    }

    /// A value as plain objects, lists, texts and numbers: names in this spelling, durations and moments in these numbers.
    pub fn show(&self, value: &(impl Serialize + ?Sized)) -> Result<Value, Error> {
        showing::show(*self, value).map_err(|error| Error::Internal(error.to_string()))
    }

    /// The same error, with the names of fields in this spelling: for what was found to be wrong when something was made.
    pub fn spell_error(&self, error: Error) -> Error {
        match error {
            Error::InvalidPolicy { field, reason } => {
                Error::InvalidPolicy { field: self.spell_field(&field), reason: self.spell_words(&reason) }
            }
            other => other,
        }
    }

    fn wrong_at(&self, path: &str, wrong: Wrong) -> Error {
        let mut field = self.spell_field(path);
        let reason = match wrong {
            Wrong::Missing(name) => {
                below(&mut field, &self.spelling.spell(name));
                "must be there".to_owned()
            }
            Wrong::Unknown { name, known } => {
                // As it was said: there is no other spelling of it.
                below(&mut field, &name);
                format!("is not known; known: {}", self.spell_words(&known.join(", ")))
            }
            Wrong::Because(reason) => {
                let last = path.rsplit('.').next().unwrap_or_default();
                let own = reason.strip_prefix(last).and_then(|rest| rest.strip_prefix(' '));
                self.spell_words(own.unwrap_or(&reason))
            }
        };
        if field.is_empty() {
            field.push_str("settings");
        }
        Error::invalid(field, reason)
    }

    fn spell_field(&self, field: &str) -> String {
        let mut before = "";
        let respelled = field.split('.').map(|part| {
            let is_theirs = NAMED_BY_THE_CALLER.contains(&before);
            before = part;
            if is_theirs { part.to_owned() } else { self.spelling.spell(part) }
        });
        respelled.collect::<Vec<_>>().join(".")
    }

    /// The names of fields in a sentence. What stands in quotes is somebody else's.
    fn spell_words(&self, text: &str) -> String {
        let mut spoken = String::with_capacity(text.len());
        for (index, part) in text.split('"').enumerate() {
            if index > 0 {
                spoken.push('"');
            }
            let is_quoted = index % 2 == 1;
            if is_quoted {
                spoken.push_str(part);
                continue;
            }
            for word in part.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_') {
                let is_name = word.chars().next().is_some_and(char::is_lowercase);
                if is_name { spoken.push_str(&self.spelling.spell(word)) } else { spoken.push_str(word) }
            }
        }
        spoken
    }
}

impl Spelling {
    /// A name of ours in this spelling, from either one.
    pub fn spell(self, name: &str) -> String {
        let mut spelled = String::with_capacity(name.len() + 4);
        match self {
            Self::Snake => {
                for letter in name.chars() {
                    if letter.is_ascii_uppercase() {
                        spelled.push('_');
                    }
                    spelled.push(letter.to_ascii_lowercase());
                }
            }
            Self::Camel => {
                let mut is_first = false;
                for letter in name.chars() {
                    match letter {
                        '_' => is_first = true,
                        letter => {
                            spelled.push(if is_first { letter.to_ascii_uppercase() } else { letter });
                            is_first = false;
                        }
                    }
                }
            }
        }
        spelled
    }
}

impl Numbers {
    /// `None` if it is negative, not finite, or too long to be a duration.
    pub(super) fn duration(self, number: f64) -> Option<Duration> {
        let seconds = match self {
            Self::Seconds => number,
            Self::Milliseconds => number / 1e3,
        };
        // To whole microseconds: 0.1 is a hundred milliseconds and not a hair more.
        let us = (seconds * 1e6).round();
        (0.0..i64::MAX as f64).contains(&us).then(|| Duration::from_micros(us as u64))
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
        }
    }

    pub(crate) fn shown(self, duration: Duration) -> Value {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        match self {
            Self::Seconds => Value::from(us as f64 / 1e6),
            Self::Milliseconds if us % 1_000 == 0 => Value::from(us / 1_000),
            Self::Milliseconds => Value::from(us as f64 / 1e3),
        }
    }
}

/// A number below or above all that its field can be becomes the nearest that it can; what it was, if it is one.
fn bring_near(said: &mut Value) -> Option<String> {
    let number = said.as_f64()?;
    let nearest = if number < 0.0 { 0 } else { u32::MAX };
    Some(std::mem::replace(said, Value::from(nearest)).to_string())
}

/// The bounds that `error` states, of what was `given`, if they are those of the field that is `wrong`.
fn given_as(error: Error, wrong: &Error, given: &str) -> Option<Error> {
    let Error::InvalidPolicy { field: wrong_field, reason: why } = wrong else { return None };
    match error {
        Error::InvalidPolicy { field, reason } if field == *wrong_field => {
            let (bounds, _) = reason.strip_prefix("must be ")?.rsplit_once(", got ")?;
            let whole = if why.contains("a whole number") && given.contains('.') { "a whole number " } else { "" };
            Some(Error::invalid(field, format!("must be {whole}{bounds}, got {given}")))
        }
        _ => None,
    }
}

fn field_of(path: &Path) -> String {
    let mut field = String::new();
    for segment in path.iter() {
        match segment {
            Segment::Seq { index } => field.push_str(&format!("[{index}]")),
            Segment::Map { key } => below(&mut field, key),
            Segment::Enum { variant } => below(&mut field, variant),
            Segment::Unknown => {}
        }
    }
    field
}

fn below(field: &mut String, name: &str) {
    if !field.is_empty() {
        field.push('.');
    }
    field.push_str(name);
}
