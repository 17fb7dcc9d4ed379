//! Workers: messages from a queue, handled, and settled through a ledger.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use std::time::Duration;
//! use resil::dead_letters::{DeadLettersSettings, Letter};
//! use resil::worker::{LedgerSource, WorkError, WorkerSettings};
//!
//! let client = resil::connect("memory://").await?;
//! let ledger = client.dead_letters("orders", DeadLettersSettings::new())?;
//! ledger.fail(&Letter::of("shop", "42").payload("7 pieces"), "the bank did not reply").await?;
//!
//! let worker = client.worker("orders", WorkerSettings::new())?;
//! let stop = worker.stopper();
//! let source = LedgerSource::new(&client, "orders")?; // or RabbitMQ, a Redis stream, an outbox in Postgres
//! let report = worker
//!     .run(source, move |message| {
//!         let stop = stop.clone();
//!         async move {
//!             assert_eq!(message.payload(), "7 pieces");
//!             stop.cancel();
//!             Ok::<(), WorkError>(())
//!         }
//!     })
//!     .await?;
//! assert_eq!(report.done, 1);
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```
//!
//! # The way of one message
//! ```text
//! source ──▶ known to the ledger? ──▶ upcast ──▶ handler, under the policy, with a deadline ──▶ verdict
//!   ▲           │ yes: acknowledge                                                               │
//!   │           ▼                                                        done ── acknowledge ◀───┤
//!   └── give back: not tried ◀──────────────────────────── FAIL, safe, then acknowledge ◀────────┘
//! ```
//! - Nothing is acknowledged before its outcome is safe: the handler returned, or the ledger has the failure, on as many replicas as
//!   [`WorkerSettings::replicas`] says, and on disk if [`WorkerSettings::fsync`] does. While the ledger is away, full, or not safe, the message is held and the worker takes nothing.
//! - Retries wait in the ledger, not here and not in the queue. The worker takes them from there, beside its source.
//! - A message that the source may have delivered before is looked up in the ledger first.
//! - A message that those who took it did not survive goes to the ledger uncounted; the ledger gives it out alone, and counts.
//! - Delivery is at least once. For effects that happen once: [`once`](crate::idempotency), or `ProcessedEvents` in the transaction of the effect.
//!
//! # The map
//! `source`: the trait. `looping`: taking, pausing, the end. `state`: what is known of it. `handling`: one message. `verdict`: what an error means. `upcast`: older forms.
//! `ledger`, `streams`, `rabbit/`, `postgres/`: the sources, and the publishers beside them. `any`, `foreign`, `local`: what other languages need.

mod acknowledging;
mod any;
mod feed;
mod foreign;
mod handling;
pub mod headers;
mod leading;
mod ledger;
mod letters;
mod local;
mod looping;
mod message;
mod outgoing;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "amqp")]
pub mod rabbit;
mod source;
mod state;
#[cfg(feature = "redis")]
pub mod streams;
mod upcast;
mod verdict;

use std::error::Error as StdError;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub use self::any::{AnyPublisher, AnyReceipt, AnySource, SourceSettings};
pub use self::foreign::{ForeignError, OutgoingSettings, VerdictSettings};
pub use self::headers::Headers;
pub use self::ledger::LedgerSource;
pub use self::message::WorkerMessage;
pub use self::outgoing::OutgoingMessage;
#[cfg(any(feature = "amqp", feature = "redis"))]
pub use self::outgoing::PublishError;
#[cfg(any(feature = "amqp", feature = "redis"))]
pub(crate) use self::outgoing::{ATTEMPTS, PublisherMeters};
pub use self::source::{FailedWhere, GivenUpBy, Incoming, IncomingMessage, Source, SourceError, SourceHealth};
pub use self::state::{WorkerHealth, WorkerReport};
pub use self::upcast::Upcasters;
pub use self::verdict::{WorkError, WorkVerdict};
use crate::backend::safety::{Safety, WantedReplicas};
use crate::client::Client;
use crate::dead_letters::{DeadLetters, DeadLettersSettings};
use crate::error::Error;
use crate::keys;
use crate::policy::{Backoff, Jitter, Policy};
use crate::settings::setters;
use crate::settings::span_text::{self, check_number, check_span};

/// Pauses before another attempt to connect, or to publish: 500 ms, doubled, at most 5 s, so that a source is there again soon after its broker;
/// with full jitter.
pub(crate) const RECONNECT: Backoff = Backoff {
    initial: Duration::from_millis(500),
    max: Duration::from_secs(5),
    multiplier: 2.0,
    jitter: Jitter::Full,
    min: Duration::from_millis(10),
};

/// How a worker works. Omitted fields have their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct WorkerSettings {
    /// How many messages are handled at once: 1 to 1,000; 5 by default.
    pub workers: u32,
    /// How long a handler may take: 10 ms to 1 day; 5 min by default. Then it is cancelled, and the message is dead.
    #[serde(with = "span_text")]
    pub deadline: Duration,
    /// How long a handler may still take when the worker stops: up to 1 day; 25 s by default. Then it is cancelled, and the message goes back.
    #[serde(with = "span_text")]
    pub drain: Duration,
    /// A message that was delivered more often than this goes to the ledger unhandled and uncounted, which gives it out alone: 1 to 1,000; 3 by default.
    pub crashes: u32,
    /// A failure is acknowledged at the source only when so many replicas of the ledger have it. By default one, if the ledger's primary has
    /// any replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// The same: only when the primary has it on its disk (WAITAOF: Redis 7.2, or Valkey, with `appendonly yes`). Off by default.
    pub fsync: bool,
    /// Messages of one aggregate are handled in the order of their source, also behind one that failed. Off by default.
    pub ordered: bool,
    /// Takes the retries of the ledger too. On by default; off where another process does.
    pub retries: bool,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            workers: 5,
            deadline: Duration::from_secs(300),
            drain: Duration::from_secs(25),
            crashes: 3,
            replicas: None,
            fsync: false,
            ordered: false,
            retries: true,
        }
    }
}

setters! {
    WorkerSettings { workers: u32, deadline: Duration, drain: Duration, crashes: u32, fsync: bool, ordered: bool, retries: bool }
    { replicas: u32 }
}

impl WorkerSettings {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn validate(&self) -> Result<(), Error> {
        let day = Duration::from_secs(86_400);
        check_number("workers", self.workers, 1, 1_000)?;
        check_span("deadline", self.deadline, Duration::from_millis(10), day)?;
        check_span("drain", self.drain, Duration::ZERO, day)?;
        check_number("crashes", self.crashes, 1, 1_000)
    }

    /// How safe a failure must be.
    fn safety(&self) -> Safety {
        Safety { replicas: self.replicas.map_or(WantedReplicas::OneIfAny, WantedReplicas::AtLeast), fsync: self.fsync }
    }
}

impl Client {
    /// A worker on the queue of this name. Failures go to the ledger of the same name.
    pub fn worker(&self, name: &str, settings: WorkerSettings) -> Result<Worker, Error> {
        keys::check_name(name)?;
        settings.validate()?;
        let ledger = self.dead_letters(name, DeadLettersSettings::new().concurrency(settings.workers))?;
        let ledger = ledger.with_safety(settings.safety())?;
        Ok(Worker {
            client: self.clone(),
            name: name.into(),
            settings,
            ledger,
            classify: Arc::new(WorkVerdict::of),
            upcasters: Upcasters::new(),
            policy: None,
            stop: CancellationToken::new(),
            state: Arc::new(state::WorkerState::new(self.clock().clone())),
        })
    }
}

type JudgeError = dyn Fn(&(dyn StdError + 'static)) -> WorkVerdict + Send + Sync;

/// Handles the messages of one queue. Clones are one worker.
#[derive(Clone)]
pub struct Worker {
    client: Client,
    name: Arc<str>,
    settings: WorkerSettings,
    ledger: DeadLetters,
    classify: Arc<JudgeError>,
    upcasters: Upcasters,
    policy: Option<Policy>,
    stop: CancellationToken,
    state: Arc<state::WorkerState>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("name", &self.name).field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Worker {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn settings(&self) -> &WorkerSettings {
        &self.settings
    }

    /// Where its failures go.
    pub fn ledger(&self) -> &DeadLetters {
        &self.ledger
    }

    /// Says what errors mean, for those that the default ([`WorkVerdict::of`]) knows too little of.
    #[must_use]
    pub fn classify(
        mut self,
        classify: impl Fn(&(dyn StdError + 'static)) -> WorkVerdict + Send + Sync + 'static,
    ) -> Self {
        self.classify = Arc::new(classify);
        self
    }

    /// Messages of older forms are brought up to date before they are handled.
    #[must_use]
    pub fn upcasters(mut self, upcasters: Upcasters) -> Self {
        self.upcasters = upcasters;
        self
    }

    /// Handlers run under this policy. What it retries is retried at once, before the ledger hears of it.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Cancel it to stop the worker, as a shutdown of the client does.
    pub fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// How it is.
    pub fn health(&self) -> WorkerHealth {
        self.state.look(&self.name, self.client.is_away())
    }

    /// Handles messages until it is [stopped](Self::stopper) or the client shuts down. Then nothing more is taken, what was fetched goes back,
    /// and what is running is waited for: see [`WorkerSettings::drain`].
    ///
    /// Dropping this future drops handlers; their messages are delivered again.
    pub async fn run<S, F, Fut>(&self, source: S, handler: F) -> Result<WorkerReport, Error>
    where
        S: Source,
        F: Fn(Arc<WorkerMessage>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), WorkError>> + Send + 'static,
    {
        looping::run(self.clone(), source, handler).await
    }
}

#[cfg(test)]
#[path = "tests/worker.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/scripted.rs"]
mod scripted;
