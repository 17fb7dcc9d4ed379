//! Running somebody else's code so that its panic is an error and nothing more.
//!
//! Whatever panics (making the future, polling it, dropping it) panics inside the poll of one caught future. The panic
//! keeps its text and loses the rest. The process's panic hook still runs, so the place is still reported where the
//! service wants it.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

/// More than this of a panic's text is cut off: it goes into errors, logs and replies.
const PANIC_TEXT_MAX: usize = 1024;

/// How it ended.
#[derive(Debug)]
pub(crate) enum Ended<R> {
    Returned(R),
    Panicked(String),
    /// The token was cancelled before it returned. It was dropped.
    Cancelled,
}

/// Makes the future and runs it to its end, or until `cancel`.
pub(crate) async fn run<Fut: Future>(cancel: &CancellationToken, make: impl FnOnce() -> Fut) -> Ended<Fut::Output> {
    // The loser of the race is dropped inside the caught future, too: a destructor may panic as well.
    let race = async move {
        tokio::select! {
            biased;
            output = async move { make().await } => Ended::Returned(output),
            () = cancel.cancelled() => Ended::Cancelled,
        }
    };
    match AssertUnwindSafe(race).catch_unwind().await {
        Ok(ended) => ended,
        Err(payload) => Ended::Panicked(panic_text(payload)),
    }
}

/// What a panic had to say.
pub(crate) fn panic_text(payload: Box<dyn Any + Send>) -> String {
    let mut text = if let Some(text) = payload.downcast_ref::<&'static str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "no text".to_owned()
    };
    // A payload may be anything, even something that panics when it is dropped.
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    if text.len() > PANIC_TEXT_MAX {
        let end = (0..=PANIC_TEXT_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
#[path = "tests/isolate.rs"]
mod tests;
