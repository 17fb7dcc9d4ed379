//! What a worker says to the test, and the words it waits for.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// What one who is inside is to do: end well with a value, or fail.
#[derive(Deserialize)]
pub struct Word {
    #[serde(default)]
    pub value: Value,
    #[serde(default)]
    pub fail: bool,
}

/// An error of the worker's own function.
#[derive(Debug)]
pub struct OwnError;

impl std::fmt::Display for OwnError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("asked to fail")
    }
}

#[derive(Default)]
pub struct Stage {
    inside: Mutex<HashMap<u64, oneshot::Sender<Word>>>,
}

impl Stage {
    pub fn say(&self, line: &Value) {
        let mut output = std::io::stdout().lock();
        // A test that is gone has no more words for us either.
        let _ = writeln!(output, "{line}").and_then(|()| output.flush());
    }

    /// Says that `tag` is inside, and waits there for its word.
    pub async fn inside(&self, tag: u64, seen: Value) -> Result<Value, OwnError> {
        let (sender, word) = oneshot::channel();
        self.inside.lock().unwrap_or_else(PoisonError::into_inner).insert(tag, sender);
        self.say(&json!({ "tag": tag, "inside": seen }));
        match word.await {
            Ok(Word { fail: false, value }) => Ok(value),
            _ => Err(OwnError),
        }
    }

    pub fn give(&self, tag: u64, word: Word) {
        let waiting = self.inside.lock().unwrap_or_else(PoisonError::into_inner).remove(&tag);
        if let Some(waiting) = waiting {
            let _ = waiting.send(word);
        }
    }
}
