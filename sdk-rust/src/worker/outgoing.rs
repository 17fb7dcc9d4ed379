//! A message on its way out, whatever carries it.

use bytes::Bytes;

use super::headers::{AGGREGATE, HEADER_ID, Headers, KIND, SCHEMA, fresh_id};
use super::message::WorkerMessage;

/// A message to be sent. Its id stays the same however often it is sent, so that consumers know it again.
#[derive(Debug, Clone)]
pub struct OutgoingMessage {
    pub id: String,
    pub payload: Bytes,
    pub headers: Headers,
    pub kind: Option<String>,
    pub aggregate: Option<String>,
    pub schema: Option<u32>,
}

impl OutgoingMessage {
    /// With an id of its own, and a `HeaderID`.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        let headers = [(HEADER_ID, fresh_id())].into_iter().collect();
        Self { id: fresh_id(), payload: payload.into(), headers, kind: None, aggregate: None, schema: None }
    }

    /// Names it: 1 to 200 bytes.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    #[must_use]
    pub fn aggregate(mut self, aggregate: impl Into<String>) -> Self {
        self.aggregate = Some(aggregate.into());
        self
    }

    #[must_use]
    pub fn schema(mut self, schema: u32) -> Self {
        self.schema = Some(schema);
        self
    }

    #[must_use]
    pub fn header(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.headers.set(name, text);
        self
    }

    /// It is sent because of `message`: it gets the same trace, with a span of its own, and the same `HeaderID`.
    #[must_use]
    pub fn caused_by(mut self, message: &WorkerMessage) -> Self {
        for (name, text) in message.caused().iter() {
            self.headers.set(name, text);
        }
        self
    }

    /// The headers, with what a queue has no place of its own for.
    #[cfg_attr(not(any(feature = "amqp", feature = "postgres")), allow(dead_code, reason = "streams have fields"))]
    pub(crate) fn all_headers(&self) -> Headers {
        let mut headers = self.headers.clone();
        let said = [
            (KIND, self.kind.clone()),
            (AGGREGATE, self.aggregate.clone()),
            (SCHEMA, self.schema.map(|schema| schema.to_string())),
        ];
        for (name, text) in said {
            if let Some(text) = text {
                headers.set(name, text);
            }
        }
        headers
    }
}

#[cfg(any(feature = "amqp", feature = "redis"))]
mod publishing {
    use std::sync::Arc;

    use metrics::Counter;

    use crate::telemetry;

    /// How often a message is sent before its publisher gives up.
    pub(crate) const ATTEMPTS: u32 = 5;

    /// Why a message may not have been sent.
    #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
    #[non_exhaustive]
    pub enum PublishError {
        /// No queue takes it: the broker returned it.
        #[error("no queue takes messages for {exchange:?} with the key {routing_key:?}: {reason}")]
        Unroutable { exchange: String, routing_key: String, reason: String },
        /// It may or may not have arrived. Sending it again, under the same id, is safe.
        #[error("not confirmed after {attempts} attempts: {last}")]
        NotConfirmed { attempts: u32, last: String },
        #[error("{0}")]
        Invalid(String),
        #[error("the publisher is closed")]
        Closed,
    }

    /// What is counted of a publisher.
    #[derive(Debug)]
    pub(crate) struct PublisherMeters {
        pub confirmed: Counter,
        #[cfg_attr(not(feature = "amqp"), allow(dead_code))] // only RabbitMQ returns messages
        pub unroutable: Counter,
        pub failed: Counter,
        pub retried: Counter,
    }

    impl PublisherMeters {
        pub fn new(name: &Arc<str>) -> Self {
            Self {
                confirmed: telemetry::published(name, "confirmed"),
                unroutable: telemetry::published(name, "unroutable"),
                failed: telemetry::published(name, "failed"),
                retried: telemetry::published(name, "retried"),
            }
        }
    }
}
#[cfg(any(feature = "amqp", feature = "redis"))]
pub use publishing::PublishError;
#[cfg(any(feature = "amqp", feature = "redis"))]
pub(crate) use publishing::{ATTEMPTS, PublisherMeters};
