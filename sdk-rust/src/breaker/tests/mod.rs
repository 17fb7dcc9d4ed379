//! What a breaker says to a server, and what it does when replies are late or lost.

mod asking;
mod batches;
mod promises;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use resil_wire::command::Command;
use tokio::sync::Semaphore;

use super::permit::Way;
use super::{Breaker, BreakerSettings, CountingMode, Force, State, Transition};
use crate::backend::Backend;
use crate::backend::memory::Memory;
use crate::backend::scripted::{Replying, Scripted};
use crate::client::{Client, ConnectSettings};
use crate::clock::Clock;
use crate::error::{Code, Error, Failure};
use crate::health::{Away, Status};

/// What happens to the next commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Arrives,
    RequestIsLost,
    ReplyIsLost,
}

/// A server that is memory behind a line that can lose things.
#[derive(Clone)]
struct Server {
    scripted: Scripted,
    fate: Arc<Mutex<Fate>>,
    clock: Clock,
}

const GONE: Error = Error::BackendUnavailable("gone");

impl Server {
    fn new() -> Self {
        let clock = Clock::driven();
        Self::with_memory(Arc::new(Memory::new(clock.clone())), clock)
    }

    fn with_memory(memory: Arc<Memory>, clock: Clock) -> Self {
        let (scripted, fate) = (Scripted::new(), Arc::new(Mutex::new(Fate::Arrives)));
        let line = Arc::clone(&fate);
        let reply = move |command: &Command<'_>| {
            let fate = *line.lock();
            if fate == Fate::RequestIsLost {
                return Err(GONE);
            }
            let reply = memory.call(command);
            if fate == Fate::ReplyIsLost { Err(GONE) } else { reply }
        };
        scripted.lines.lock().by = Some(Replying(Box::new(reply)));
        Self { scripted, fate, clock }
    }

    fn client(&self) -> Client {
        let options = ConnectSettings::new("memory://").clock(self.clock.clone()).name("tester");
        Client::with_backend(Backend::Scripted(self.scripted.clone()), options)
    }

    fn breaker(&self, options: BreakerSettings) -> Breaker {
        self.client().breaker("b", options).unwrap()
    }

    fn set(&self, fate: Fate) {
        *self.fate.lock() = fate;
    }

    /// The subcommands that were asked, and forgets them.
    fn asked(&self) -> Vec<String> {
        let asked = std::mem::take(&mut self.scripted.lines.lock().asked);
        asked.iter().map(|words| String::from_utf8_lossy(&words[1]).into_owned()).collect()
    }

    fn asked_words(&self) -> Vec<String> {
        let asked = std::mem::take(&mut self.scripted.lines.lock().asked);
        let line =
            |words: &Vec<Vec<u8>>| words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ");
        asked.iter().map(line).collect()
    }
}

async fn let_tasks_run() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

async fn fail(breaker: &Breaker) -> Result<(), Failure<&'static str>> {
    breaker.call(async || Err("down")).await
}

async fn succeed(breaker: &Breaker) -> Result<(), Failure<&'static str>> {
    breaker.call(async || Ok(())).await
}

fn trips_at(failures: u32) -> BreakerSettings {
    BreakerSettings::new().consecutive_failures(failures).open_for(Duration::from_secs(10))
}

fn never_trips() -> BreakerSettings {
    BreakerSettings::new().consecutive_failures(0).failure_rate(100).min_calls(1_000_000).window_calls(10_000)
}
