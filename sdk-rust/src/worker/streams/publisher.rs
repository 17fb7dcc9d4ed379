//! Sends messages to a stream: at most five attempts, under one id.

use std::sync::Arc;

use redis::cmd;

use super::super::source::{HealthCell, SourceHealth};
use super::super::{ATTEMPTS, OutgoingMessage, PublishError, PublisherMeters, RECONNECT};
use super::link::StreamLink;
use crate::client::Client;
use crate::error::Error;

/// Sends messages to a stream. Cheap to clone.
#[derive(Debug, Clone)]
pub struct StreamPublisher(Arc<StreamOut>);

#[derive(Debug)]
struct StreamOut {
    client: Client,
    stream: String,
    link: StreamLink,
    health: HealthCell,
    meters: PublisherMeters,
}

impl StreamPublisher {
    /// On the server of the client, or of `url`, which may be a cluster.
    pub fn new(client: &Client, stream: &str, url: Option<&str>) -> Result<Self, Error> {
        let url = url.unwrap_or(&client.inner().options.url);
        let link = StreamLink::new(url, stream)?;
        Ok(Self(Arc::new(StreamOut {
            client: client.clone(),
            stream: stream.to_owned(),
            health: HealthCell::of(client, stream, link.address()),
            link,
            meters: PublisherMeters::new(&stream.into()),
        })))
    }

    pub fn health(&self) -> SourceHealth {
        self.0.health.look()
    }

    /// Returns when the server has the message. After an error it may be sent again, under the same id: consumers that do things once
    /// know it.
    pub async fn publish(&self, message: &OutgoingMessage) -> Result<(), PublishError> {
        let StreamOut { client, stream, link, health, meters } = &*self.0;
        let mut add = cmd("XADD");
        add.arg(stream);
        add.arg("*").arg("id").arg(&message.id).arg("payload").arg(&message.payload[..]);
        for (name, text) in [("type", &message.kind), ("aggregate", &message.aggregate)] {
            if let Some(text) = text {
                add.arg(name).arg(text);
            }
        }
        if let Some(schema) = message.schema {
            add.arg("schema").arg(schema);
        }
        if let Some(headers) = message.headers.to_bytes() {
            add.arg("headers").arg(&headers[..]);
        }
        let mut delays = RECONNECT.delays();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let last = match link.ask(&add).await {
                Ok(_) => {
                    health.connected();
                    meters.confirmed.increment(1);
                    return Ok(());
                }
                Err(error) => error.0,
            };
            health.away(last.clone());
            if attempts == ATTEMPTS {
                meters.failed.increment(1);
                return Err(PublishError::NotConfirmed { attempts, last });
            }
            meters.retried.increment(1);
            client.clock().sleep(delays.next(&client.inner().options.random)).await;
        }
    }
}
