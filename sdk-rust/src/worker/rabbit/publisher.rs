//! The publisher: confirmed, mandatory, at most five attempts under one id, and a look at the connection every second, so that it is there again
//! before anybody sends: a service that is not ready gets no traffic, and traffic must not be what makes it ready.

use std::sync::Arc;
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::link::{RabbitLink, is_without_exchange, told};
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
}

impl RabbitPublisher {
    /// Connects in the background, for ever. To be called on a tokio runtime.
    pub fn new(client: &Client, settings: &RabbitSettings) -> Result<Self, Error> {
        settings.validate()?;
        let uri = settings.uri(settings.producer.as_ref())?;
        let shared = Arc::new(OutShared {
            client: client.clone(),
            link: RabbitLink::new(uri, format!("{} publishes", client.inner().name)),
            health: HealthCell::new(),
            meters: PublisherMeters::new(&settings.queue.as_str().into()),
            closed: CancellationToken::new(),
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
            attempts += 1;
            let attempt = tokio::time::timeout(ATTEMPT_BOUND, shared.attempt(exchange, routing_key, message)).await;
            let last = match attempt {
                Ok(Ok(None)) => {
                    shared.meters.confirmed.increment(1);
                    return Ok(());
                }
                Ok(Ok(Some(reason))) => {
                    shared.meters.unroutable.increment(1);
                    let (exchange, routing_key) = (exchange.to_owned(), routing_key.to_owned());
                    return Err(PublishError::Unroutable { exchange, routing_key, reason });
                }
                Ok(Err(error)) => error.0,
                Err(_) => "the broker did not confirm in time".to_owned(),
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
        self.0.shared.health.away("it was closed");
        self.0.shared.link.close().await;
    }
}

async fn monitor(shared: Arc<OutShared>) {
    loop {
        if tokio::time::timeout(ATTEMPT_BOUND, shared.channel()).await.is_err() {
            shared.health.away("the broker did not answer in time");
        }
        tokio::select! {
            biased;
            () = shared.closed.cancelled() => return,
            () = shared.client.clock().sleep(MONITOR) => {}
        }
    }
}

impl OutShared {
    async fn channel(&self) -> Result<Channel, SourceError> {
        let confirmed =
            async |channel: &Channel| channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(told);
        let mut channel = self.link.ensure_channel(confirmed).await;
        if channel.is_ok()
            && let Some(trouble) = self.link.trouble().await
        {
            channel = Err(SourceError(trouble.to_owned()));
        }
        match &channel {
            Ok(_) => self.health.connected(),
            Err(error) => {
                if self.health.away(error.0.clone()) {
                    tracing::warn!(%error, "a broker cannot be published to; it is tried again");
                }
            }
        }
        channel
    }

    /// Why it came back, if it did.
    async fn attempt(
        &self,
        exchange: &str,
        routing_key: &str,
        message: &OutgoingMessage,
    ) -> Result<Option<String>, SourceError> {
        let channel = self.channel().await?;
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
            Err(error) if is_without_exchange(&error, exchange) => return Ok(Some(NO_EXCHANGE.to_owned())),
            confirmed => confirmed.map_err(told)?,
        };
        match confirmed {
            Confirmation::Ack(None) => Ok(None),
            Confirmation::Ack(Some(returned)) => Ok(Some(returned.reply_text.as_str().to_owned())),
            Confirmation::Nack(_) => Err(SourceError("the broker refused it".to_owned())),
            Confirmation::NotRequested => Err(SourceError("the channel does not confirm".to_owned())),
        }
    }
}
