//! What a function of JavaScript threw, as far as Rust has to know it: which attempt it was, and what it means.
//!
//! The error itself stays in JavaScript, under the number of its attempt (or, of a load that several calls share, under
//! one that lives as long as somebody here may ask for it).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use resil::policy::Class;
use smallvec::SmallVec;

use crate::executor::queue::Queue;

#[derive(Debug, Clone)]
pub struct Thrown {
    pub id: u32,
    /// What it means to each layer, outermost first.
    pub classes: SmallVec<[Class; 2]>,
    /// Its words, for those who only get words.
    pub message: Box<str>,
    /// How it is recorded if it is final; of one that was recorded, what was.
    pub recorded: Option<Bytes>,
    /// Under which number JavaScript keeps it, if it is shared.
    pub kept: Option<Arc<Kept>>,
}

impl Thrown {
    /// Of which nothing more has to be known.
    pub fn of_attempt(id: u32) -> Self {
        Self { id, classes: SmallVec::new(), message: Box::default(), recorded: None, kept: None }
    }

    /// Whether the number of its attempt says all.
    pub fn is_plain(&self) -> bool {
        self.kept.is_none() && self.id > 0
    }

    pub fn class(&self, layer: usize) -> Class {
        self.classes.get(layer).copied().unwrap_or(Class::Permanent)
    }

    /// Classes as JavaScript writes them: -1 permanent, -2 ignored, -3 worth a retry, else a retry after so many
    /// milliseconds.
    pub fn classes_of(numbers: &[f64]) -> SmallVec<[Class; 2]> {
        numbers.iter().map(|number| class_of(*number)).collect()
    }

    /// The same of a value; -4 is one that is good.
    pub fn unfit_of(numbers: &[f64]) -> SmallVec<[Option<Class>; 2]> {
        numbers.iter().map(|number| (*number != -4.0).then(|| class_of(*number))).collect()
    }
}

fn class_of(number: f64) -> Class {
    match number {
        -1.0 => Class::Permanent,
        -2.0 => Class::Ignore,
        -3.0 => Class::Retry,
        ms => Duration::try_from_secs_f64(ms / 1_000.0).map_or(Class::Permanent, Class::RetryAfter),
    }
}

impl fmt::Display for Thrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Something JavaScript keeps for as long as this is there: a loader, or the error it ended with.
pub struct Kept {
    pub number: u32,
    pub queue: Arc<Queue>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kept({})", self.number)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        crate::executor::forget(&self.queue, self.number);
    }
}
