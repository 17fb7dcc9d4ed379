//! What the essays of this folder promise, reported by scripts and by a bad network, on a clock that is driven.

pub(crate) mod faulty;
mod network;
mod properties;
mod scripted;

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Backend;
use crate::backend::memory::Memory;
use crate::client::{Client, ConnectSettings};
use crate::clock::Clock;
use faulty::{Fate, Fates, Faulty};

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Lets every task do what it can without time passing.
pub(super) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Lets time pass, in steps small enough for sleepers to be woken in order.
pub(super) async fn pass(clock: &Clock, span: Duration) {
    let step = (span / 200).max(ms(1));
    let mut left = span;
    while !left.is_zero() {
        let now = step.min(left);
        clock.advance(now);
        settle().await;
        left -= now;
    }
}

/// What `task` comes to, for which time passes by the millisecond, at most `within`.
pub(super) async fn finish<T>(clock: &Clock, task: tokio::task::JoinHandle<T>, within: Duration) -> T {
    let begun = clock.now();
    settle().await;
    while !task.is_finished() {
        assert!(clock.now() - begun <= within, "it should have finished within {within:?}");
        clock.advance(ms(1));
        settle().await;
    }
    task.await.expect("no panic")
}

pub(super) fn client_of(backend: Backend, clock: &Clock) -> Client {
    Client::with_backend(backend, ConnectSettings::new("memory://").name("service").clock(clock.clone()))
}

/// Clients of one server, each behind a network of its own.
pub(super) struct Fleet {
    pub clock: Clock,
    pub memory: Arc<Memory>,
}

impl Fleet {
    pub fn new() -> Self {
        let clock = Clock::driven();
        Self { memory: Arc::new(Memory::new(clock.clone())), clock }
    }

    pub fn client(&self, fates: Fates) -> (Client, Faulty) {
        let faulty = Faulty::new(Arc::clone(&self.memory), self.clock.clone(), fates);
        (client_of(Backend::Faulty(faulty.clone()), &self.clock), faulty)
    }

    /// One whose network takes no time.
    pub fn good_client(&self) -> (Client, Faulty) {
        self.client(Box::new(|_| Fate::default()))
    }
}

pub(super) fn is(words: &[Vec<u8>], verb: &str) -> bool {
    words.get(1).is_some_and(|word| word == verb.as_bytes())
}

pub(super) fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}
