//! A source, and a publisher, of a kind that is known only when it runs: other languages name it in their settings.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use resil::settings::{Dialect, Numbers, Spelling};
//! use resil::worker::SourceSettings;
//! let python = Dialect { spelling: Spelling::Snake, numbers: Numbers::Seconds };
//! let client = resil::connect("memory://").await?;
//! let settings = SourceSettings::read(&python, serde_json::json!({ "type": "ledger", "name": "orders" }))?;
//! let source = settings.open(&client)?;
//! # drop(source); Ok::<(), resil::Error>(()) }).unwrap();
//! ```

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::foreign::OutgoingSettings;
use super::ledger::LedgerSource;
use super::outgoing::OutgoingMessage;
#[cfg(feature = "postgres")]
use super::postgres::{OutboxReceipt, OutboxSettings, OutboxSource};
#[cfg(feature = "amqp")]
use super::rabbit::{RabbitPublisher, RabbitReceipt, RabbitSettings, RabbitSource};
use super::source::{FailedWhere, Incoming, Source, SourceError, SourceHealth};
#[cfg(feature = "redis")]
use super::streams::{StreamPublisher, StreamReceipt, StreamSettings, StreamSource};
use crate::client::Client;
use crate::dead_letters::{FailureNote, TakenLetter};
use crate::error::Error;
use crate::settings::{Dialect, InPart, Settings};

/// Which source, and how it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceSettings {
    /// The ledger of this name.
    Ledger(String),
    #[cfg(feature = "redis")]
    Stream(StreamSettings),
    #[cfg(feature = "amqp")]
    Rabbit(RabbitSettings),
    #[cfg(feature = "postgres")]
    Outbox(OutboxSettings),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedLedger {
    name: String,
}

impl Settings for NamedLedger {
    fn validate(&self) -> Result<(), Error> {
        crate::keys::check_name(&self.name)
    }
}

/// By the variables of the environment.
#[cfg(feature = "amqp")]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FromEnv {
    env: String,
}

#[cfg(feature = "amqp")]
impl Settings for FromEnv {
    fn validate(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// The kinds that this build has.
fn known() -> String {
    let known = [
        Some("ledger"),
        cfg!(feature = "redis").then_some("stream"),
        cfg!(feature = "amqp").then_some("rabbit"),
        cfg!(feature = "postgres").then_some("outbox"),
    ];
    known.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A kind, and what else was said.
fn typed(said: Value) -> Result<(String, Map<String, Value>), Error> {
    let Value::Object(mut said) = said else {
        return Err(Error::invalid("source", "must be an object with a type"));
    };
    match said.remove("type") {
        Some(Value::String(kind)) => Ok((kind, said)),
        _ => Err(Error::invalid("source.type", format!("must be one of {}", known()))),
    }
}

#[cfg(feature = "amqp")]
fn rabbit(dialect: &Dialect, said: Map<String, Value>) -> Result<RabbitSettings, Error> {
    if said.contains_key("env") {
        let FromEnv { env } = dialect.read(Value::Object(said)).in_part("source")?;
        // Names of variables are spelled the same in every language.
        return RabbitSettings::from_env(&env).map_err(|error| Error::InvalidArgument(error.to_string()));
    }
    dialect.read(Value::Object(said)).in_part("source")
}

impl SourceSettings {
    /// Of what was said in another language: its `type` (`ledger`, `stream`, `rabbit` or `outbox`), and the fields of its settings. Those of
    /// RabbitMQ can come from the environment: `env` names the handler.
    pub fn read(dialect: &Dialect, said: Value) -> Result<Self, Error> {
        let (kind, said) = typed(said)?;
        match kind.as_str() {
            "ledger" => {
                let NamedLedger { name } = dialect.read(Value::Object(said)).in_part("source")?;
                Ok(Self::Ledger(name))
            }
            #[cfg(feature = "redis")]
            "stream" => dialect.read(Value::Object(said)).in_part("source").map(Self::Stream),
            #[cfg(feature = "amqp")]
            "rabbit" => rabbit(dialect, said).map(Self::Rabbit),
            #[cfg(feature = "postgres")]
            "outbox" => dialect.read(Value::Object(said)).in_part("source").map(Self::Outbox),
            other => Err(Error::invalid("source.type", format!("must be one of {}, got {other:?}", known()))),
        }
    }

    /// Connects in the background, for ever. To be called on a tokio runtime.
    pub fn open(self, client: &Client) -> Result<AnySource, Error> {
        match self {
            Self::Ledger(name) => LedgerSource::new(client, &name).map(AnySource::Ledger),
            #[cfg(feature = "redis")]
            Self::Stream(settings) => StreamSource::new(client, settings).map(AnySource::Stream),
            #[cfg(feature = "amqp")]
            Self::Rabbit(settings) => RabbitSource::new(client, settings).map(AnySource::Rabbit),
            #[cfg(feature = "postgres")]
            Self::Outbox(settings) => OutboxSource::new(client, settings).map(AnySource::Outbox),
        }
    }
}

macro_rules! any {
    ($($(#[$when:meta])? $kind:ident($source:ty, $receipt:ty),)*) => {
        /// A source of any kind.
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum AnySource {
            $($(#[$when])? $kind($source),)*
        }

        /// What settles a message of it.
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum AnyReceipt {
            $($(#[$when])? $kind($receipt),)*
        }

        /// A receipt of another source, which no worker hands in.
        fn not_ours() -> SourceError {
            SourceError("the receipt is of another source".to_owned())
        }

        impl Source for AnySource {
            type Receipt = AnyReceipt;

            fn name(&self) -> &str {
                match self {
                    $($(#[$when])? Self::$kind(source) => source.name(),)*
                }
            }

            fn ledger(&self) -> Option<&str> {
                match self {
                    $($(#[$when])? Self::$kind(source) => source.ledger(),)*
                }
            }

            async fn next(&self) -> Option<Incoming<AnyReceipt>> {
                match self {
                    $($(#[$when])? Self::$kind(source) => {
                        let Incoming { message, receipt } = source.next().await?;
                        Some(Incoming { message, receipt: AnyReceipt::$kind(receipt) })
                    })*
                }
            }

            async fn acknowledge(&self, receipt: AnyReceipt) -> Result<(), SourceError> {
                match (self, receipt) {
                    $($(#[$when])? (Self::$kind(source), AnyReceipt::$kind(receipt)) => source.acknowledge(receipt).await,)*
                    #[allow(unreachable_patterns, reason = "a build may have one kind alone")]
                    _ => Err(not_ours()),
                }
            }

            fn acknowledges_at_once(&self) -> usize {
                match self {
                    $($(#[$when])? Self::$kind(source) => source.acknowledges_at_once(),)*
                }
            }

            async fn acknowledge_all(&self, receipts: Vec<AnyReceipt>) -> Vec<Result<(), SourceError>> {
                match self {
                    $($(#[$when])? Self::$kind(source) => {
                        let count = receipts.len();
                        let ours = receipts.into_iter().filter_map(|receipt| match receipt {
                            AnyReceipt::$kind(receipt) => Some(receipt),
                            #[allow(unreachable_patterns, reason = "a build may have one kind alone")]
                            _ => None,
                        });
                        let ours: Vec<_> = ours.collect();
                        if ours.len() < count {
                            return vec![Err(not_ours()); count];
                        }
                        source.acknowledge_all(ours).await
                    })*
                }
            }

            async fn give_back(&self, receipt: AnyReceipt, delay: Duration) -> Result<(), SourceError> {
                match (self, receipt) {
                    $($(#[$when])? (Self::$kind(source), AnyReceipt::$kind(receipt)) => source.give_back(receipt, delay).await,)*
                    #[allow(unreachable_patterns, reason = "a build may have one kind alone")]
                    _ => Err(not_ours()),
                }
            }

            async fn fail(&self, receipt: AnyReceipt, note: &FailureNote) -> FailedWhere<AnyReceipt> {
                match (self, receipt) {
                    $($(#[$when])? (Self::$kind(source), AnyReceipt::$kind(receipt)) => {
                        match source.fail(receipt, note).await {
                            FailedWhere::Here(error) => FailedWhere::Here(error),
                            FailedWhere::Elsewhere(receipt) => FailedWhere::Elsewhere(AnyReceipt::$kind(receipt)),
                        }
                    })*
                    #[allow(unreachable_patterns, reason = "a build may have one kind alone")]
                    (_, receipt) => FailedWhere::Elsewhere(receipt),
                }
            }

            fn is_stale(&self, receipt: &AnyReceipt) -> bool {
                match (self, receipt) {
                    $($(#[$when])? (Self::$kind(source), AnyReceipt::$kind(receipt)) => source.is_stale(receipt),)*
                    #[allow(unreachable_patterns, reason = "a build may have one kind alone")]
                    _ => true,
                }
            }

            fn lost(&self, receipt: &AnyReceipt) -> Option<CancellationToken> {
                match (self, receipt) {
                    $($(#[$when])? (Self::$kind(source), AnyReceipt::$kind(receipt)) => source.lost(receipt),)*
                    #[allow(unreachable_patterns, reason = "a build may have one kind alone")]
                    _ => None,
                }
            }

            fn health(&self) -> SourceHealth {
                match self {
                    $($(#[$when])? Self::$kind(source) => source.health(),)*
                }
            }

            async fn pause(&self) {
                match self {
                    $($(#[$when])? Self::$kind(source) => source.pause().await,)*
                }
            }

            async fn resume(&self) {
                match self {
                    $($(#[$when])? Self::$kind(source) => source.resume().await,)*
                }
            }

            async fn close(&self) {
                match self {
                    $($(#[$when])? Self::$kind(source) => source.close().await,)*
                }
            }

            async fn end(&self) {
                match self {
                    $($(#[$when])? Self::$kind(source) => source.end().await,)*
                }
            }
        }
    };
}

any! {
    Ledger(LedgerSource, TakenLetter),
    #[cfg(feature = "redis")]
    Stream(StreamSource, StreamReceipt),
    #[cfg(feature = "amqp")]
    Rabbit(RabbitSource, RabbitReceipt),
    #[cfg(feature = "postgres")]
    Outbox(OutboxSource, OutboxReceipt),
}

/// A publisher to a queue or a stream. Cheap to clone.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum AnyPublisher {
    #[cfg(feature = "redis")]
    Stream(StreamPublisher),
    /// And its queue.
    #[cfg(feature = "amqp")]
    Rabbit(RabbitPublisher, String),
}

impl AnyPublisher {
    /// To where a source of the same settings reads. To be called on a tokio runtime.
    #[allow(unused_variables, reason = "a build may have none")]
    pub fn new(client: &Client, dialect: &Dialect, said: Value) -> Result<Self, Error> {
        let settings = SourceSettings::read(dialect, said)?;
        match settings {
            #[cfg(feature = "redis")]
            SourceSettings::Stream(settings) => {
                StreamPublisher::new(client, &settings.stream, settings.url.as_deref()).map(Self::Stream)
            }
            #[cfg(feature = "amqp")]
            SourceSettings::Rabbit(settings) => {
                RabbitPublisher::new(client, &settings).map(|publisher| Self::Rabbit(publisher, settings.queue))
            }
            _ => Err(Error::invalid("type", "must be one that can be published to: rabbit, stream")),
        }
    }

    /// Returns when the broker has it. After [`Error::BackendUnavailable`] it may be sent again, under the same id.
    #[allow(unused_variables, reason = "a build may have none")]
    pub async fn publish(&self, message: &OutgoingMessage, how: &OutgoingSettings) -> Result<(), Error> {
        match self {
            #[cfg(feature = "redis")]
            Self::Stream(publisher) => publisher.publish(message).await.map_err(publish_failed),
            #[cfg(feature = "amqp")]
            Self::Rabbit(publisher, queue) => {
                let exchange = how.exchange.as_deref().unwrap_or_default();
                let routing_key = how.routing_key.as_deref().unwrap_or(queue);
                publisher.publish(exchange, routing_key, message).await.map_err(|error| match error {
                    super::PublishError::NotConfirmed { .. } if !publisher.health().is_connected => {
                        Error::BackendUnavailable("the broker cannot be reached, and health() says why; the message may be sent again, under the same id")
                    }
                    error => publish_failed(error),
                })
            }
        }
    }

    pub fn health(&self) -> SourceHealth {
        match self {
            #[cfg(feature = "redis")]
            Self::Stream(publisher) => publisher.health(),
            #[cfg(feature = "amqp")]
            Self::Rabbit(publisher, _) => publisher.health(),
        }
    }

    /// Disconnects. What is being sent fails.
    pub async fn close(&self) {
        match self {
            #[cfg(feature = "redis")]
            Self::Stream(_) => {}
            #[cfg(feature = "amqp")]
            Self::Rabbit(publisher, _) => publisher.close().await,
        }
    }
}

/// As errors that every language knows.
#[cfg(any(feature = "amqp", feature = "redis"))]
fn publish_failed(error: super::PublishError) -> Error {
    use super::PublishError;
    match error {
        PublishError::NotConfirmed { .. } => {
            Error::BackendUnavailable("the broker did not confirm the message; it may be sent again, under the same id")
        }
        PublishError::Closed => Error::ShuttingDown,
        PublishError::Unroutable { .. } | PublishError::Invalid(_) => Error::InvalidArgument(error.to_string()),
    }
}
