//! For tests of what the SDK makes of each reply: a script plays the server, and the clock is driven.

use std::time::Duration;

use resil_wire::command::Reply;

use crate::backend::Backend;
use crate::backend::scripted::Scripted;
use crate::client::{Client, ConnectSettings};
use crate::clock::Clock;
use crate::error::Error;

const STEP: Duration = Duration::from_millis(100);

pub(crate) fn scripted(replies: impl IntoIterator<Item = Result<Reply, Error>>) -> (Clock, Scripted, Client) {
    let (clock, script) = (Clock::driven(), Scripted::new());
    script.lines.lock().replies.extend(replies);
    let options = ConnectSettings::new("memory://").clock(clock.clone());
    let client = Client::with_backend(Backend::Scripted(script.clone()), options);
    (clock, script, client)
}

/// The subcommand and the token (or whatever is in its place) of everything that was asked.
pub(crate) fn asked(script: &Scripted) -> Vec<(String, Vec<u8>)> {
    let lines = script.lines.lock();
    let token = |words: &Vec<Vec<u8>>| words.get(3).cloned().unwrap_or_default();
    lines.asked.iter().map(|words| (String::from_utf8_lossy(&words[1]).into_owned(), token(words))).collect()
}

/// Lets every task go as far as it can.
pub(crate) async fn settle() {
    for _ in 0..40 {
        tokio::task::yield_now().await;
    }
}

/// Time passes, in small steps, and every task woken by one goes as far as it can before the next.
pub(crate) async fn drive(clock: &Clock, span: Duration) {
    settle().await;
    let end = clock.now() + span;
    while clock.now() < end {
        clock.advance(STEP);
        settle().await;
    }
}
