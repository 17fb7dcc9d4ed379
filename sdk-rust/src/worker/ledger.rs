//! The ledger as a source: what failed and is due again.
//!
//! Messages are leased, and the lease is renewed while one is here. Only as many are taken as can be begun soon: what a crash leaves behind
//! was leased, too, and counts as a lapse.

use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::RECONNECT;
use super::feed::{Feed, Feeder, feed};
use super::headers::Headers;
use super::source::{FailedWhere, HealthCell, Incoming, IncomingMessage, Source, SourceError, SourceHealth};
use crate::client::Client;
use crate::dead_letters::{DeadLetters, DeadLettersSettings, FailureNote, TakenLetter};
use crate::error::Error;

/// How long one question waits for messages.
const WAIT: Duration = Duration::from_secs(20);

/// Takes what is due from a ledger.
#[derive(Debug)]
pub struct LedgerSource {
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
        Self { ledger, feed, health, _fetching: AbortOnDropHandle::new(task) }
    }
}

async fn fetch(client: Client, ledger: DeadLetters, feeder: Feeder<TakenLetter>, health: HealthCell) {
    let mut delays = RECONNECT.delays();
    while feeder.has_capacity().await {
        let count = u32::try_from(feeder.free()).unwrap_or(u32::MAX).max(1);
        let taken = tokio::select! {
            biased;
            () = feeder.closed.cancelled() => return,
            taken = ledger.take(count, WAIT) => taken,
        };
        let pause = match taken {
            Ok(batch) => {
                health.connected();
                delays = RECONNECT.delays();
                let pause = if batch.letters.is_empty() { batch.pause() } else { Duration::ZERO };
                for letter in batch.letters {
                    // What is refused is dropped, and goes back.
                    let _ = feeder.push(incoming(letter)).await;
                }
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
    };
    Incoming { message, receipt: letter }
}

fn told(error: Error) -> SourceError {
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
        receipt.done().await.map_err(told)
    }

    async fn give_back(&self, receipt: TakenLetter, delay: Duration) -> Result<(), SourceError> {
        receipt.give_back(delay).await.map_err(told)
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

    async fn close(&self) {
        for left in self.feed.close().await {
            if let Err(error) = left.receipt.give_back(Duration::ZERO).await {
                tracing::warn!(%error, ledger = self.ledger.name(), "a message could not be given back");
            }
        }
    }
}
