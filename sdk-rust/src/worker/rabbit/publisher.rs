//! The publisher: confirmed, mandatory, at most five attempts under one id, and a look at the connection every second, so that it is there again
//! before anybody sends: a service that is not ready gets no traffic, and traffic must not be what makes it ready.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::link::{RabbitLink, address_of, is_without_exchange, size_limit, source_error};
use super::settings::RabbitSettings;
use crate::client::Client;
use crate::error::Error;
use crate::worker::source::{HealthCell, SourceError, SourceHealth};
use crate::worker::{ATTEMPTS, OutgoingMessage, PublishError, PublisherMeters, RECONNECT};

/// How long one attempt may take.
const ATTEMPT_BOUND: Duration = Duration::from_secs(5);
/// How often the connection is looked at, and made again if it is not there: readiness comes back soon after the broker.
const MONITOR: Duration = Duration::from_secs(1);
const PERSISTENT: u8 = 2;
const NO_EXCHANGE: &str = "NO_EXCHANGE";
/// Half of the frames that brokers take by default.
const HEADERS_MAX: usize = 65_536;
/// However a broker is configured. By default RabbitMQ 3 takes a quarter of it, and RabbitMQ 4 16 MiB.
const PAYLOAD_MAX: u64 = 512 * 1024 * 1024;

/// Sends messages to a broker. Cheap to clone; all clones share a connection.
#[derive(Debug, Clone)]
pub struct RabbitPublisher(Arc<RabbitOut>);

#[derive(Debug)]
struct RabbitOut {
    shared: Arc<OutShared>,
    _monitor: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct OutShared {
    client: Client,
    link: RabbitLink,
    health: HealthCell,
    meters: PublisherMeters,
    closed: CancellationToken,
    /// The largest message that the broker takes, once it refused a larger one, and on which connection that was.
    largest: Mutex<Option<(u64, u64)>>,
}

/// What became of an attempt that the broker answered.
enum Answered {
    Confirmed,
    Returned(String),
    /// It takes so many bytes at most.
    TooLarge(u64),
}

impl RabbitPublisher {
    /// Connects in the background, for ever. To be called on a tokio runtime.
    pub fn new(client: &Client, settings: &RabbitSettings) -> Result<Self, Error> {
        settings.validate()?;
        let uri = settings.uri(settings.producer.as_ref())?;
        let shared = Arc::new(OutShared {
            client: client.clone(),
            health: HealthCell::of(client, &settings.queue, address_of(&uri)),
            link: RabbitLink::new(uri, format!("{} publishes", client.inner().name)),
            meters: PublisherMeters::new(&settings.queue.as_str().into()),
            closed: CancellationToken::new(),
            largest: Mutex::default(),
        });
        let monitor = tokio::spawn(monitor(Arc::clone(&shared)));
        Ok(Self(Arc::new(RabbitOut { shared, _monitor: AbortOnDropHandle::new(monitor) })))
    }

    /// How the connection is. For readiness: it recovers without traffic.
    pub fn health(&self) -> SourceHealth {
        self.0.shared.health.look()
    }

    /// Sends a message, and returns when the broker has it. It is sent up to five times, always under its id, with pauses of 500 ms, doubled, with
    /// full jitter.
    ///
    /// [`PublishError::Unroutable`]: no queue takes it. [`PublishError::NotConfirmed`]: it may have arrived; sending it again is safe.
    /// [`PublishError::Invalid`]: no attempt helps, for example because the broker takes no message of this size. The first such message closes the
    /// channel, and what others were sending on it is sent again; while the connection lasts the next one is not sent.
    pub async fn publish(
        &self,
        exchange: &str,
        routing_key: &str,
        message: &OutgoingMessage,
    ) -> Result<(), PublishError> {
        let shared = &self.0.shared;
        if exchange.len() > 255 || routing_key.len() > 255 || !(1..=200).contains(&message.id.len()) {
            let limits = "an exchange and a routing key have at most 255 bytes, an id from 1 to 200";
            return Err(PublishError::Invalid(limits.to_owned()));
        }
        let headers = message.all_headers();
        // Headers are one frame, and the broker closes the connection after one that is too long.
        let bytes: usize = headers.iter().map(|(name, text)| name.len() + text.len() + 6).sum();
        if bytes > HEADERS_MAX || headers.iter().any(|(name, _)| name.len() > 255) {
            let limits = format!("the name of a header has at most 255 bytes, all headers together {HEADERS_MAX}");
            return Err(PublishError::Invalid(limits));
        }
        let mut delays = RECONNECT.delays();
        let mut attempts = 0;
        loop {
            if shared.closed.is_cancelled() {
                return Err(PublishError::Closed);
            }
            shared.check_size(message)?;
            attempts += 1;
            let connection = AtomicU64::new(shared.link.number());
            let attempt = shared.attempt(exchange, routing_key, message, &connection);
            let last = match tokio::time::timeout(ATTEMPT_BOUND, attempt).await {
                Ok(Ok(Answered::Confirmed)) => {
                    shared.meters.confirmed.increment(1);
                    return Ok(());
                }
                Ok(Ok(Answered::TooLarge(limit))) => {
                    shared.meters.failed.increment(1);
                    *shared.largest.lock() = Some((shared.link.number(), limit));
                    return Err(too_large(message, limit));
                }
                Ok(Ok(Answered::Returned(reason))) => {
                    shared.meters.unroutable.increment(1);
                    let (exchange, routing_key) = (exchange.to_owned(), routing_key.to_owned());
                    return Err(PublishError::Unroutable { exchange, routing_key, reason });
                }
                Ok(Err(error)) => error.0,
                Err(_) => {
                    // Nothing comes through it, perhaps. What others wait for on it goes on.
                    shared.link.forget_if(connection.into_inner()).await;
                    "the broker did not confirm in time".to_owned()
                }
            };
            if attempts == ATTEMPTS {
                shared.meters.failed.increment(1);
                return Err(PublishError::NotConfirmed { attempts, last });
            }
            shared.meters.retried.increment(1);
            tokio::select! {
                biased;
                () = shared.closed.cancelled() => return Err(PublishError::Closed),
                () = shared.client.clock().sleep(delays.next(&shared.client.inner().options.random)) => {}
            }
        }
    }

    /// Disconnects. What is being sent fails.
    pub async fn close(&self) {
        self.0.shared.closed.cancel();
        self.0.shared.health.closed();
        self.0.shared.link.close().await;
    }
}

fn too_large(message: &OutgoingMessage, limit: u64) -> PublishError {
    let bytes = message.payload.len();
    PublishError::Invalid(format!(
        "the message has {bytes} bytes, and the broker takes at most {limit} (max_message_size)"
    ))
}

async fn monitor(shared: Arc<OutShared>) {
    loop {
        let connection = AtomicU64::new(shared.link.number());
        if tokio::time::timeout(ATTEMPT_BOUND, shared.channel(&connection)).await.is_err() {
            shared.health.away("the broker did not reply in time");
            shared.link.forget_if(connection.into_inner()).await;
        }
        tokio::select! {
            biased;
            () = shared.closed.cancelled() => return,
            () = shared.client.clock().sleep(MONITOR) => {}
        }
    }
}

impl OutShared {
    /// Which connection it is on is in `connection` then.
    async fn channel(&self, connection: &AtomicU64) -> Result<Channel, SourceError> {
        let confirmed = async |channel: &Channel| {
            channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(source_error)
        };
        let mut channel = self.link.ensure_channel(connection, confirmed).await;
        if channel.is_ok()
            && let Some(trouble) = self.link.trouble().await
        {
            channel = Err(SourceError(trouble.to_owned()));
        }
        match &channel {
            Ok(_) => self.health.connected(),
            Err(error) => {
                self.health.away(error.0.clone());
            }
        }
        channel
    }

    fn check_size(&self, message: &OutgoingMessage) -> Result<(), PublishError> {
        // Another connection may be one to another broker.
        let known = self.largest.lock().filter(|(connection, _)| *connection == self.link.number());
        let limit = known.map_or(PAYLOAD_MAX, |(_, limit)| limit);
        if message.payload.len() as u64 > limit { Err(too_large(message, limit)) } else { Ok(()) }
    }

    async fn attempt(
        &self,
        exchange: &str,
        routing_key: &str,
        message: &OutgoingMessage,
        connection: &AtomicU64,
    ) -> Result<Answered, SourceError> {
        let channel = self.channel(connection).await?;
        let mut table = FieldTable::default();
        for (name, text) in message.all_headers().iter() {
            table.insert(name.into(), AMQPValue::LongString(text.into()));
        }
        let mut properties = BasicProperties::default()
            .with_message_id(message.id.as_str().into())
            .with_delivery_mode(PERSISTENT)
            .with_content_type("application/json".into())
            .with_headers(table);
        if let Some(kind) = message.kind.as_deref().filter(|kind| kind.len() <= 255) {
            properties = properties.with_type(kind.into());
        }
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let sent = channel.basic_publish(exchange.into(), routing_key.into(), options, &message.payload, properties);
        let confirmed = async { sent.await?.await };
        let confirmed = match confirmed.await {
            Err(error) if is_without_exchange(&error, exchange) => {
                return Ok(Answered::Returned(NO_EXCHANGE.to_owned()));
            }
            Err(error) => match size_limit(&error, message.payload.len()) {
                Some(limit) => return Ok(Answered::TooLarge(limit)),
                None => return Err(source_error(error)),
            },
            Ok(confirmed) => confirmed,
        };
        match confirmed {
            Confirmation::Ack(None) => Ok(Answered::Confirmed),
            Confirmation::Ack(Some(returned)) => Ok(Answered::Returned(returned.reply_text.as_str().to_owned())),
            Confirmation::Nack(_) => Err(SourceError("the broker refused it".to_owned())),
            Confirmation::NotRequested => Err(SourceError("the channel does not confirm".to_owned())),
        }
    }
}
