//! The ledger as a source: what failed and is due again.
//!
//! Messages are leased, and the lease is renewed while one is here. Only as many are taken as can be begun soon: what a crash leaves behind
//! was leased, too, and counts as a lapse.
//!
//! # Suspects
//! A message that a taker did not survive may have killed it. It is handed over when everything else that was taken here is settled, and nothing more
//! is taken until it is settled, too: if it kills this process, it lapses alone.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::RECONNECT;
use super::feed::{Feed, Feeder, feed};
use super::headers::Headers;
use super::source::{FailedWhere, HealthCell, Incoming, IncomingMessage, Source, SourceError, SourceHealth};
use crate::client::Client;
use crate::dead_letters::{DeadLetters, DeadLettersSettings, FailureNote, TakenLetter, TakenMessage};
use crate::error::Error;

/// How long one question waits for messages.
const WAIT: Duration = Duration::from_secs(20);
/// How often it is looked, while there is a suspect, whether messages are settled.
const LOOK: Duration = Duration::from_millis(10);
/// How the failure ends of a message that was delivered too often to be handled beside others.
pub(super) const NOBODY_SETTLED_IT: &str = ", and nobody settled it";

/// Takes what is due from a ledger.
#[derive(Debug)]
pub struct LedgerSource {
    client: Client,
    ledger: DeadLetters,
    feed: Feed<TakenLetter>,
    health: HealthCell,
    _fetching: AbortOnDropHandle<()>,
}

impl LedgerSource {
    /// The ledger of this name. To be called on a tokio runtime.
    pub fn new(client: &Client, name: &str) -> Result<Self, Error> {
        Ok(Self::of(client, client.dead_letters(name, DeadLettersSettings::new())?, 5))
    }

    pub(super) fn of(client: &Client, ledger: DeadLetters, at_once: usize) -> Self {
        let (feeder, feed) = feed(at_once);
        let health = HealthCell::new();
        let fetching = fetch(client.clone(), ledger.clone(), feeder, health.clone());
        // Under the name of the worker that asks: questions of a drain are let in, too.
        let inside = crate::shutdown::gate::inside();
        let task = tokio::spawn(crate::shutdown::gate::scope(inside, fetching));
        let client = client.clone();
        Self { client, ledger, feed, health, _fetching: AbortOnDropHandle::new(task) }
    }
}

async fn fetch(client: Client, ledger: DeadLetters, feeder: Feeder<TakenLetter>, health: HealthCell) {
    let mut delays = RECONNECT.delays();
    let mut here = TakenHere { client: &client, feeder: &feeder, taken: Vec::new() };
    while feeder.has_capacity().await {
        let count = u32::try_from(feeder.free()).unwrap_or(u32::MAX).max(1);
        let taken = tokio::select! {
            biased;
            () = feeder.closed.cancelled() => return,
            () = feeder.held() => continue,
            taken = ledger.take(count, WAIT) => taken,
        };
        let pause = match taken {
            Ok(batch) => {
                health.connected();
                delays = RECONNECT.delays();
                let pause = if batch.letters.is_empty() { batch.pause() } else { Duration::ZERO };
                here.hand_over(batch.letters).await;
                pause
            }
            Err(Error::ShuttingDown) => return,
            Err(error) => {
                if health.away(error.to_string()) {
                    tracing::warn!(%error, ledger = ledger.name(), "the ledger cannot be asked for messages");
                }
                delays.next(&client.inner().options.random)
            }
        };
        tokio::select! {
            biased;
            () = feeder.closed.cancelled() => return,
            () = client.clock().sleep(pause) => {}
        }
    }
}

/// What was taken, and may not be settled.
struct TakenHere<'a> {
    client: &'a Client,
    feeder: &'a Feeder<TakenLetter>,
    taken: Vec<Weak<TakenMessage>>,
}

impl TakenHere<'_> {
    /// What cannot be handed over is dropped, and goes back.
    async fn hand_over(&mut self, letters: Vec<TakenLetter>) {
        let (mut suspects, others): (Vec<_>, Vec<_>) = letters.into_iter().partition(is_suspect);
        for letter in others {
            self.push(letter).await;
        }
        // The others of its kind go back: if it kills this process, they were not here.
        for letter in suspects.split_off(suspects.len().min(1)) {
            if let Err(error) = letter.give_back(Duration::ZERO).await {
                tracing::warn!(%error, "a message could not be given back");
            }
        }
        if let Some(suspect) = suspects.pop()
            && self.all_settled().await
        {
            self.push(suspect).await;
            self.all_settled().await;
        }
        self.taken.retain(|message| message.strong_count() > 0);
    }

    async fn push(&mut self, letter: TakenLetter) {
        self.taken.push(Arc::downgrade(&letter.message()));
        let _ = self.feeder.push(incoming(letter)).await;
    }

    /// A message is there until it is settled. False: it is closed.
    async fn all_settled(&self) -> bool {
        while self.taken.iter().any(|message| message.strong_count() > 0) {
            tokio::select! {
                biased;
                () = self.feeder.closed.cancelled() => return false,
                () = self.client.clock().sleep(LOOK) => {}
            }
        }
        true
    }
}

fn is_suspect(letter: &TakenLetter) -> bool {
    letter.lapses() > 0 || letter.error().is_some_and(|error| error.ends_with(NOBODY_SETTLED_IT))
}

fn incoming(letter: TakenLetter) -> Incoming<TakenLetter> {
    let message = IncomingMessage {
        id: letter.id().into_owned(),
        has_own_id: true,
        payload: letter.payload().map(Bytes::copy_from_slice).unwrap_or_default(),
        headers: Headers::from_bytes(letter.headers()),
        kind: letter.kind().map(|text| text.into_owned()),
        source: letter.source().map(|text| text.into_owned()),
        aggregate: letter.aggregate().map(|text| text.into_owned()),
        schema: letter.schema(),
        attempt: letter.attempt(),
        deliveries: 1,
        // It is in the ledger, and ours.
        is_redelivered: false,
        given_up: None,
        is_suspect: is_suspect(&letter),
    };
    Incoming { message, receipt: letter }
}

fn source_error(error: Error) -> SourceError {
    SourceError(error.to_string())
}

impl Source for LedgerSource {
    type Receipt = TakenLetter;

    fn name(&self) -> &str {
        self.ledger.name()
    }

    fn ledger(&self) -> Option<&str> {
        Some(self.ledger.name())
    }

    async fn next(&self) -> Option<Incoming<TakenLetter>> {
        self.feed.next().await
    }

    async fn acknowledge(&self, receipt: TakenLetter) -> Result<(), SourceError> {
        receipt.done().await.map_err(source_error)
    }

    async fn give_back(&self, receipt: TakenLetter, delay: Duration) -> Result<(), SourceError> {
        receipt.give_back(delay).await.map_err(source_error)
    }

    async fn fail(&self, receipt: TakenLetter, note: &FailureNote) -> FailedWhere<TakenLetter> {
        FailedWhere::Here(receipt.fail(note.clone()).await)
    }

    fn is_stale(&self, receipt: &TakenLetter) -> bool {
        receipt.lost().is_cancelled()
    }

    fn lost(&self, receipt: &TakenLetter) -> Option<CancellationToken> {
        Some(receipt.lost().clone())
    }

    fn health(&self) -> SourceHealth {
        self.health.look()
    }

    /// What cannot be given back would lapse.
    async fn pause(&self) {
        if self.client.is_away() {
            return;
        }
        give_back_all(self.feed.hold(|_| true), self.ledger.name()).await;
    }

    async fn resume(&self) {
        self.feed.release();
    }

    async fn close(&self) {
        give_back_all(self.feed.close().await, self.ledger.name()).await;
    }
}

async fn give_back_all(all: Vec<Incoming<TakenLetter>>, ledger: &str) {
    for left in all {
        if let Err(error) = left.receipt.give_back(Duration::ZERO).await {
            tracing::warn!(%error, ledger, "a message could not be given back");
        }
    }
}
