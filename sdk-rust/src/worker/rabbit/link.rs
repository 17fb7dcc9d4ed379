//! A connection to the broker with a channel: both are made again when they are needed and are not there.

use std::time::Duration;

use lapin::uri::AMQPUri;
use lapin::{Channel, Connection, ConnectionProperties};
use tokio::sync::Mutex;

use super::super::source::SourceError;

/// How long a broker may take to say goodbye.
const CLOSE_BOUND: Duration = Duration::from_secs(5);

/// A broker without memory or disk takes nothing from publishers. What is sent meanwhile would wait here, and arrive as often as it was sent.
pub(super) const BLOCKED: &str = "the broker blocks publishers: it is short of memory or disk";

/// lapin's own recovery is off: it knows the topology of one channel, and gives up.
pub(super) struct RabbitLink {
    uri: AMQPUri,
    name: String,
    opened: Mutex<Option<(Connection, Option<Channel>)>>,
}

impl std::fmt::Debug for RabbitLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitLink").field("name", &self.name).finish_non_exhaustive()
    }
}

pub(super) fn told(error: lapin::Error) -> SourceError {
    SourceError(error.to_string())
}

/// The broker closed the channel because there is no such exchange.
pub(super) fn is_without_exchange(error: &lapin::Error, exchange: &str) -> bool {
    const NOT_FOUND: u16 = 404;
    // The channel is that of all who publish: it may have been closed because of another's exchange.
    reply_code(error) == Some(NOT_FOUND) && error.to_string().contains(&format!("no exchange '{exchange}'"))
}

/// The code that the broker closed a channel with.
pub(super) fn reply_code(error: &lapin::Error) -> Option<u16> {
    match error.kind() {
        lapin::ErrorKind::ProtocolError(error) => Some(error.get_id()),
        _ => None,
    }
}

impl RabbitLink {
    /// `name` is shown by the broker.
    pub fn new(uri: AMQPUri, name: String) -> Self {
        Self { uri, name, opened: Mutex::default() }
    }

    /// A new channel, on the connection if it is there, else on a new one.
    pub async fn open_channel(&self) -> Result<Channel, SourceError> {
        let mut opened = self.opened.lock().await;
        Self::channel_on(&mut opened, &self.uri, &self.name).await
    }

    /// The channel, if it is open; else a new one, made ready by `prepare`.
    pub async fn ensure_channel(
        &self,
        prepare: impl AsyncFn(&Channel) -> Result<(), SourceError>,
    ) -> Result<Channel, SourceError> {
        let mut opened = self.opened.lock().await;
        if let Some((connection, Some(channel))) = &*opened
            && connection.status().connected()
            && channel.status().connected()
        {
            return Ok(channel.clone());
        }
        let channel = Self::channel_on(&mut opened, &self.uri, &self.name).await?;
        prepare(&channel).await?;
        if let Some((_, current)) = &mut *opened {
            *current = Some(channel.clone());
        }
        Ok(channel)
    }

    async fn channel_on(
        opened: &mut Option<(Connection, Option<Channel>)>,
        uri: &AMQPUri,
        name: &str,
    ) -> Result<Channel, SourceError> {
        let is_connected = opened.as_ref().is_some_and(|(connection, _)| connection.status().connected());
        if !is_connected {
            *opened = None;
            let properties = ConnectionProperties::default().with_connection_name(name.to_owned().into());
            let connection = Connection::connect_uri(uri.clone(), properties).await.map_err(told)?;
            *opened = Some((connection, None));
        }
        match opened {
            Some((connection, _)) => connection.create_channel().await.map_err(told),
            None => Err(SourceError("not connected".to_owned())),
        }
    }

    /// Why nothing can be published now, if that is so.
    pub async fn trouble(&self) -> Option<&'static str> {
        match &*self.opened.lock().await {
            Some((connection, Some(channel))) if connection.status().connected() && channel.status().connected() => {
                connection.status().blocked().then_some(BLOCKED)
            }
            _ => Some("the connection was lost"),
        }
    }

    /// The next channel gets a new connection.
    pub async fn forget(&self) {
        self.opened.lock().await.take();
    }

    /// In order, if the broker answers in time; else the connection is dropped.
    pub async fn close(&self) {
        let closing = async {
            let opened = self.opened.lock().await.take();
            if let Some((connection, _)) = opened {
                let _ = connection.close(200, "bye".into()).await;
            }
        };
        let _ = tokio::time::timeout(CLOSE_BOUND, closing).await;
    }
}
