//! What to connect to, as whom, and what is there.

use lapin::uri::{AMQPUri, AMQPUserInfo};
use serde::Deserialize;

use super::super::WorkerSettings;
use crate::error::Error;
use crate::settings::setters;
use crate::settings::span_text::check_number;

/// Seconds between heartbeats: a broker that is silent for twice as long is gone.
const HEARTBEAT_S: u16 = 10;
/// How long a connection may take, in milliseconds.
const CONNECT_MS: u64 = 5_000;

/// Of more deliveries that come back at once RabbitMQ 3.10 forgets the order: it keeps them in a map, which is sorted up to here.
const IN_ORDER_MAX: u16 = 32;

/// What kind of queue is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueKind {
    /// Replicated, durable, and it counts deliveries.
    #[default]
    Quorum,
    /// For brokers without quorum queues. Nothing counts deliveries.
    Classic,
    /// Nothing is declared: the queue must be there.
    AsItIs,
}

/// Messages of an exchange that go to the queue.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RabbitBinding {
    pub exchange: String,
    /// `direct`, `fanout`, `topic` or `headers`.
    pub exchange_kind: String,
    pub routing_key: String,
}

/// A queue, and how it is used. Omitted fields have their defaults.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default = "RabbitSettings::unnamed")]
pub struct RabbitSettings {
    /// `amqp://user:password@host:port/vhost`, or `amqps://`.
    pub url: String,
    pub queue: String,
    /// Whom the source connects as, if not as the URL says.
    pub consumer: Option<(String, String)>,
    /// Whom the publisher connects as, if not as the URL says.
    pub producer: Option<(String, String)>,
    /// Messages that are fetched ahead, for each worker: 1 to 1,000; 10 by default.
    pub prefetch: u16,
    /// How many workers share the source: 1 to 1,000; 5 by default. All of them together fetch `workers` x `prefetch` ahead.
    pub workers: u16,
    pub queue_kind: QueueKind,
    /// How often the broker delivers a message that nobody settles before it gives it up: 1 to 10,000; 20 by default.
    pub delivery_limit: u32,
    pub bindings: Vec<RabbitBinding>,
    /// One consumer at a time gets messages, which keeps their order. Off by default. At most 32 are fetched ahead then.
    pub single_active: bool,
}

/// Without the passwords.
impl std::fmt::Debug for RabbitSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitSettings")
            .field("queue", &self.queue)
            .field("prefetch", &self.prefetch)
            .finish_non_exhaustive()
    }
}

setters! { RabbitSettings { prefetch: u16, workers: u16, queue_kind: QueueKind, delivery_limit: u32, single_active: bool } }

impl RabbitSettings {
    pub fn new(url: impl Into<String>, queue: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            queue: queue.into(),
            consumer: None,
            producer: None,
            prefetch: 10,
            workers: 5,
            queue_kind: QueueKind::Quorum,
            delivery_limit: 20,
            bindings: Vec::new(),
            single_active: false,
        }
    }

    /// What omitted fields have. Without a queue, which has no default.
    fn unnamed() -> Self {
        Self::new("amqp://127.0.0.1", "")
    }

    /// By the environment. `handler` is the name of the handler, such as `BALANCE_CREATE`:
    ///
    /// | variable | meaning |
    /// | --- | --- |
    /// | `RABBITMQ_URL`, or `RABBITMQ_HOST`, `_PORT` (or `_PORT_AMQP`), `_VHOST`, `_DEFAULT_USER`, `_DEFAULT_PASS` | where, and the producer |
    /// | `RABBITMQ_CONSUMER_USER`, `RABBITMQ_CONSUMER_PASS` | whom the source connects as |
    /// | `RABBITMQ_NUMBERS_OF_WORKERS`, `RABBITMQ_NUMBERS_OF_PREFETCH` | 5 and 10 by default |
    /// | `RABBITMQ_{handler}_QUEUE` | the queue |
    pub fn from_env(handler: &str) -> Result<Self, Error> {
        Self::from_lookup(handler, |name| std::env::var(name).ok())
    }

    /// The same by any other lookup.
    pub fn from_lookup(handler: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let said = |name: &str| lookup(&format!("RABBITMQ_{name}")).filter(|text| !text.is_empty());
        let number = |name: &str, default: u16| match said(name) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| Error::invalid(format!("RABBITMQ_{name}"), format!("must be a number, got {text}"))),
        };
        let queue = said(&format!("{handler}_QUEUE"))
            .ok_or_else(|| Error::invalid(format!("RABBITMQ_{handler}_QUEUE"), "must name the queue"))?;
        let url = said("URL").unwrap_or_else(|| {
            let host = said("HOST").unwrap_or_else(|| "127.0.0.1".to_owned());
            let port = said("PORT_AMQP").or_else(|| said("PORT")).unwrap_or_else(|| "5672".to_owned());
            let vhost = said("VHOST").map(|vhost| escaped(&vhost)).unwrap_or_else(|| "%2f".to_owned());
            format!("amqp://{host}:{port}/{vhost}")
        });
        let user = |name: &str, password: &str| {
            let password = said(password).or_else(|| said(&format!("{password}WORD"))).unwrap_or_default();
            said(name).map(|name| (name, password))
        };
        let settings = Self {
            consumer: user("CONSUMER_USER", "CONSUMER_PASS"),
            producer: user("PRODUCER_USER", "PRODUCER_PASS").or_else(|| user("DEFAULT_USER", "DEFAULT_PASS")),
            prefetch: number("NUMBERS_OF_PREFETCH", 10)?,
            workers: number("NUMBERS_OF_WORKERS", 5)?,
            ..Self::new(url, queue)
        };
        settings.validate()?;
        Ok(settings)
    }

    /// Sets [`consumer`](Self#structfield.consumer).
    #[must_use]
    pub fn consumer(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.consumer = Some((user.into(), password.into()));
        self
    }

    /// Sets [`producer`](Self#structfield.producer).
    #[must_use]
    pub fn producer(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.producer = Some((user.into(), password.into()));
        self
    }

    /// Messages for `routing_key` at `exchange` go to the queue, too.
    #[must_use]
    pub fn bind(
        mut self,
        exchange: impl Into<String>,
        exchange_kind: impl Into<String>,
        routing_key: impl Into<String>,
    ) -> Self {
        let (exchange, exchange_kind, routing_key) = (exchange.into(), exchange_kind.into(), routing_key.into());
        self.bindings.push(RabbitBinding { exchange, exchange_kind, routing_key });
        self
    }

    /// As many workers as these settings say.
    pub fn worker_settings(&self) -> WorkerSettings {
        WorkerSettings::new().workers(u32::from(self.workers))
    }

    pub fn validate(&self) -> Result<(), Error> {
        check_number("prefetch", self.prefetch, 1, 1_000)?;
        check_number("workers", self.workers, 1, 1_000)?;
        check_number("deliveryLimit", self.delivery_limit, 1, 10_000)?;
        // Beside it there are names that are made of it.
        check_number("queue", self.queue.len(), 1, 200)?;
        self.uri(None).map(drop)
    }

    /// What the source fetches ahead.
    pub(super) fn total_prefetch(&self) -> u16 {
        let total = self.prefetch.saturating_mul(self.workers);
        if self.single_active { total.min(IN_ORDER_MAX) } else { total }
    }

    pub(super) fn uri(&self, user: Option<&(String, String)>) -> Result<AMQPUri, Error> {
        let mut uri: AMQPUri =
            self.url.parse().map_err(|_| Error::invalid("url", "must be amqp://user:password@host:port/vhost"))?;
        if let Some((username, password)) = user {
            uri.authority.userinfo = AMQPUserInfo { username: username.clone(), password: password.clone() };
        }
        uri.query.heartbeat.get_or_insert(HEARTBEAT_S);
        uri.query.connection_timeout.get_or_insert(CONNECT_MS);
        Ok(uri)
    }
}

/// For the path of a URL.
fn escaped(text: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    text.bytes()
        .map(|byte| if is_plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") })
        .collect()
}

#[cfg(test)]
#[path = "../tests/rabbit_settings.rs"]
mod tests;
