//! What memory promises. Time is driven: hours pass in no time, and nothing here sleeps.

mod crowds;
mod keys;
mod queues;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use resil_wire::command::{Allowed, Command, Reply};
use resil_wire::lock::Acquired;
use resil_wire::reply::Value;

use super::Memory;
use crate::clock::Clock;
use crate::error::Error;

type Replying = Pin<Box<dyn Future<Output = Result<Reply, Error>> + Send>>;

/// A command as words with spaces between them.
fn words(text: &str) -> Vec<Vec<u8>> {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn with_command<R>(words: &[Vec<u8>], act: impl FnOnce(&Command<'_>) -> R) -> R {
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    act(&Command::parse(&words, Allowed::default()).expect("a command"))
}

fn call(memory: &Memory, text: &str) -> Result<Reply, Error> {
    with_command(&words(text), |command| memory.call(command))
}

/// The reply in short, as `redis-cli` would show it on one line.
fn reply(memory: &Memory, text: &str) -> String {
    call(memory, text).map_or_else(|error| error.to_string(), |reply| shown(&reply))
}

fn shown(reply: &Reply) -> String {
    fn show(value: &Value) -> String {
        match value {
            Value::Integer(number) => number.to_string(),
            Value::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::Null => "nil".to_owned(),
            Value::Array(all) => all.iter().map(show).collect::<Vec<_>>().join(" "),
            Value::Map(pairs) => pairs
                .iter()
                .map(|(name, value)| format!("{}={}", show(name), show(value)))
                .collect::<Vec<_>>()
                .join(" "),
        }
    }
    show(&Value::written(|sink| reply.write(sink)))
}

/// A call that waits.
fn waits(memory: &Arc<Memory>, text: &str) -> Replying {
    let (memory, words) = (Arc::clone(memory), words(text));
    Box::pin(async move {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let command = Command::parse(&words, Allowed::default()).expect("a command");
        memory.wait(&command).await
    })
}

/// Polls it until it waits in the queue.
async fn queued(memory: &Arc<Memory>, text: &str) -> Replying {
    let mut replying = waits(memory, text);
    assert!(is_pending(&mut replying).await, "it waits: {text}");
    replying
}

async fn is_pending(replying: &mut Replying) -> bool {
    std::future::poll_fn(|context| std::task::Poll::Ready(replying.as_mut().poll(context).is_pending())).await
}

/// The reply, which must come without the clock being driven on.
async fn answered(replying: Replying) -> String {
    let reply = tokio::time::timeout(Duration::from_secs(20), replying).await.expect("it is answered in time");
    reply.map_or_else(|error| error.to_string(), |reply| shown(&reply))
}

fn fence_of(reply: &Reply) -> u64 {
    match reply {
        Reply::Acquired(Acquired::Granted { fence, .. }) => *fence,
        other => panic!("not granted: {other:?}"),
    }
}

fn driven() -> (Arc<Memory>, Clock) {
    let clock = Clock::driven();
    (Arc::new(Memory::new(clock.clone())), clock)
}

/// Drives the clock on once the task that serves waiters sleeps by it.
async fn advance(clock: &Clock, span: Duration) {
    for _ in 0..1_000 {
        if clock.next_wake().is_some() {
            break;
        }
        tokio::task::yield_now().await;
    }
    clock.advance(span);
}

const MS: Duration = Duration::from_millis(1);
