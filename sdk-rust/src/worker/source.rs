//! Where messages come from: one trait, which every source implements and one suite of tests holds them to.
//!
//! A source fetches ahead, in a task of its own, and reconnects for ever: [`Source::next`] never fails, it waits. What it hands out comes
//! with a receipt, with which the message is settled at its source, once. What was fetched and not begun goes back when it closes.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::headers::Headers;
use crate::client::Client;
use crate::dead_letters::{FailVerdict, FailureNote};
use crate::error::Error;
use crate::health::Notice;
use crate::settings::moment_text;

/// A place that messages come from. Cancelling any of its futures loses no message: it is delivered again.
pub trait Source: Send + Sync + 'static {
    /// What settles one message.
    type Receipt: Send + Sync + 'static;

    /// What it is called in ids, logs and metrics: the queue, the stream, the table.
    fn name(&self) -> &str;

    /// If it is a ledger: its name.
    fn ledger(&self) -> Option<&str> {
        None
    }

    /// The next message. Waits while there is none, and while the source is away; `None` once it is closed.
    fn next(&self) -> impl Future<Output = Option<Incoming<Self::Receipt>>> + Send;

    /// The message is settled, and not delivered again.
    fn acknowledge(&self, receipt: Self::Receipt) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// How many acknowledgements are worth sending together. One: each is sent when its message is settled.
    fn acknowledges_at_once(&self) -> usize {
        1
    }

    /// The messages are settled: as many results as receipts, in their order.
    fn acknowledge_all(
        &self,
        receipts: Vec<Self::Receipt>,
    ) -> impl Future<Output = Vec<Result<(), SourceError>>> + Send {
        futures_util::future::join_all(receipts.into_iter().map(|receipt| self.acknowledge(receipt)))
    }

    /// The message was not tried: it is delivered again, after `delay` if the source can wait.
    fn give_back(
        &self,
        receipt: Self::Receipt,
        delay: Duration,
    ) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Records a failure where the message is, if that is a ledger.
    fn fail(
        &self,
        receipt: Self::Receipt,
        _note: &FailureNote,
    ) -> impl Future<Output = FailedWhere<Self::Receipt>> + Send {
        async { FailedWhere::Elsewhere(receipt) }
    }

    /// Whether the message is not ours any more: it will be delivered again, so there is no use in handling it.
    fn is_stale(&self, _receipt: &Self::Receipt) -> bool {
        false
    }

    /// Cancelled when the message stops being ours while it is handled.
    fn lost(&self, _receipt: &Self::Receipt) -> Option<CancellationToken> {
        None
    }

    fn health(&self) -> SourceHealth;

    /// The worker is paused: nothing more is fetched, and what was not begun goes back, for others to take. Said about once a second for as long as the
    /// pause lasts.
    fn pause(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The pause is over.
    fn resume(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Fetches no more, and gives back what was not begun. What is running can still be settled. May be called twice.
    fn close(&self) -> impl Future<Output = ()> + Send;

    /// Disconnects, after everything is settled.
    fn end(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// What became of a failure.
#[derive(Debug)]
pub enum FailedWhere<R> {
    /// The source recorded it, or could not.
    Here(Result<FailVerdict, Error>),
    /// It is to be recorded in the ledger of the worker, and then acknowledged.
    Elsewhere(R),
}

/// A message, and what settles it.
#[derive(Debug)]
pub struct Incoming<R> {
    pub message: IncomingMessage,
    pub receipt: R,
}

/// A message as its source has it.
#[derive(Clone, Default)]
pub struct IncomingMessage {
    /// `source/id`: the same one is the same message, in the ledger and for whatever is done once.
    pub id: String,
    /// Whether the id is the message's own. Where it has none, one is made for each delivery, and a message that is delivered twice cannot
    /// be known.
    pub has_own_id: bool,
    pub payload: Bytes,
    pub headers: Headers,
    pub kind: Option<String>,
    pub source: Option<String>,
    pub aggregate: Option<String>,
    pub schema: Option<u32>,
    /// Failures that counted.
    pub attempt: u32,
    /// How often it was delivered, this time included, as far as the source knows.
    pub deliveries: u32,
    /// The source may have delivered it before.
    pub is_redelivered: bool,
    /// The broker gave it up, and why.
    pub given_up: Option<GivenUpBy>,
    /// Those who took it may have crashed because of it: nothing else of the worker is handled beside it.
    pub is_suspect: bool,
}

/// Without payload and headers: messages are written to logs.
impl std::fmt::Debug for IncomingMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IncomingMessage")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("source", &self.source)
            .field("schema", &self.schema)
            .field("attempt", &self.attempt)
            .field("deliveries", &self.deliveries)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// Why a broker moved a message away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GivenUpBy {
    /// It was delivered too often. Those who took it crashed, which need not be its fault.
    DeliveryLimit,
    /// Any other reason, as the broker calls it.
    Broker(String),
}

/// A source could not settle a message, which will be delivered again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SourceError(pub String);

/// How a source is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceHealth {
    pub is_connected: bool,
    /// Why not, in a sentence without passwords.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when it is so.
    #[serde(with = "moment_text")]
    pub since: SystemTime,
    /// How often it was connected.
    pub connections: u64,
}

/// What a source says of itself before its first attempt.
const NOT_YET: &str = "it was not connected yet";

/// Where a source, or a publisher, notes how it is. One that has a broker says in the log, and to those who listen, when that is away and
/// when it is back: once for each time.
#[derive(Debug, Clone)]
pub(crate) struct HealthCell(Arc<HealthShared>);

#[derive(Debug)]
struct HealthShared {
    health: Mutex<SourceHealth>,
    /// The client and the broker; `None` for a ledger, whose server the client speaks of itself.
    broker: Option<(Client, BrokerAddress)>,
}

/// What is read or written, and where. There is no user and no password in it.
#[derive(Debug, Clone)]
pub(crate) struct BrokerAddress {
    /// A queue, stream or table.
    pub name: Arc<str>,
    /// `host:port`
    pub address: String,
}

impl HealthCell {
    /// Of a ledger.
    pub fn new() -> Self {
        Self::with(None)
    }

    pub fn of(client: &Client, name: &str, address: String) -> Self {
        Self::with(Some((client.clone(), BrokerAddress { name: name.into(), address })))
    }

    fn with(broker: Option<(Client, BrokerAddress)>) -> Self {
        let reason = Some(NOT_YET.to_owned());
        let health = SourceHealth { is_connected: false, reason, since: SystemTime::now(), connections: 0 };
        Self(Arc::new(HealthShared { health: Mutex::new(health), broker }))
    }

    pub fn connected(&self) {
        let mut health = self.0.health.lock();
        if health.is_connected {
            return;
        }
        let is_back = health.reason.as_deref() != Some(NOT_YET);
        let connections = health.connections + 1;
        *health = SourceHealth { is_connected: true, reason: None, since: SystemTime::now(), connections };
        drop(health);
        if let (true, Some((client, BrokerAddress { name, address }))) = (is_back, &self.0.broker) {
            tracing::info!(address, name = &**name, "the broker is back");
            client.notify(&Notice::SourceBack { name: Arc::clone(name), address: address.clone() });
        }
    }

    /// True if that is new: it was connected until now, or this is its first attempt. A mistyped host must not be silent.
    pub fn away(&self, reason: impl Into<String>) -> bool {
        let reason = reason.into();
        let is_change = self.note_away(reason.clone());
        if let (true, Some((client, BrokerAddress { name, address }))) = (is_change, &self.0.broker) {
            tracing::warn!(address, name = &**name, reason, "the broker is away, and is tried again");
            client.notify(&Notice::SourceAway { name: Arc::clone(name), address: address.clone(), reason });
        }
        is_change
    }

    /// It was closed, as its user wants it: nothing to be said.
    #[cfg(feature = "amqp")]
    pub fn closed(&self) {
        self.note_away("it was closed".to_owned());
    }

    fn note_away(&self, reason: String) -> bool {
        let mut health = self.0.health.lock();
        let was_connected = health.is_connected;
        let is_change = was_connected || health.reason.as_deref() == Some(NOT_YET);
        health.reason = Some(reason);
        if was_connected {
            (health.is_connected, health.since) = (false, SystemTime::now());
        }
        is_change
    }

    pub fn look(&self) -> SourceHealth {
        self.0.health.lock().clone()
    }
}
