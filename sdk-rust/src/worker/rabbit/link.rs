//! A connection to the broker with a channel: both are made again when they are needed and are not there.

use std::sync::atomic::{AtomicU64, Ordering};
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
    /// Counts connections.
    number: AtomicU64,
}

impl std::fmt::Debug for RabbitLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitLink").field("name", &self.name).finish_non_exhaustive()
    }
}

/// For the log: host and port, and never the user.
pub(super) fn address_of(uri: &AMQPUri) -> String {
    format!("{}:{}", uri.authority.host, uri.authority.port)
}

pub(super) fn source_error(error: lapin::Error) -> SourceError {
    SourceError(error.to_string())
}

/// The broker closed the channel because there is no such exchange.
pub(super) fn is_without_exchange(error: &lapin::Error, exchange: &str) -> bool {
    const NOT_FOUND: u16 = 404;
    // The channel is that of all who publish: it may have been closed because of another's exchange.
    reply_code(error) == Some(NOT_FOUND) && error.to_string().contains(&format!("no exchange '{exchange}'"))
}

/// The size that the broker takes at most, if it closed the channel because of a message of `bytes`.
pub(super) fn size_limit(error: &lapin::Error, bytes: usize) -> Option<u64> {
    const PRECONDITION_FAILED: u16 = 406;
    if reply_code(error) != Some(PRECONDITION_FAILED) {
        return None;
    }
    // The channel is that of all who publish: it may have been closed because of another's message.
    limit_in(&error.to_string(), bytes)
}

/// "message size 9 is larger than configured max size 8", or "than max size 8".
fn limit_in(text: &str, bytes: usize) -> Option<u64> {
    let (_, named) = text.split_once(&format!("message size {bytes} is larger than "))?;
    let (_, limit) = named.split_once("max size ")?;
    limit.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
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
        Self { uri, name, opened: Mutex::default(), number: AtomicU64::new(0) }
    }

    /// A new channel, on the connection if it is there, else on a new one.
    pub async fn open_channel(&self) -> Result<Channel, SourceError> {
        let mut opened = self.opened.lock().await;
        self.connect(&mut opened).await?;
        channel_on(&opened).await
    }

    /// The channel, if it is open; else a new one, made ready by `prepare`. Notes in `connection` which one it is on, as soon as that is known: a caller
    /// that gives up waiting knows which one does not reply.
    pub async fn ensure_channel(
        &self,
        connection: &AtomicU64,
        prepare: impl AsyncFn(&Channel) -> Result<(), SourceError>,
    ) -> Result<Channel, SourceError> {
        let mut opened = self.opened.lock().await;
        connection.store(self.number(), Ordering::Relaxed);
        if let Some((connection, Some(channel))) = &*opened
            && connection.status().connected()
            && channel.status().connected()
        {
            return Ok(channel.clone());
        }
        self.connect(&mut opened).await?;
        connection.store(self.number(), Ordering::Relaxed);
        let channel = channel_on(&opened).await?;
        prepare(&channel).await?;
        if let Some((_, current)) = &mut *opened {
            *current = Some(channel.clone());
        }
        Ok(channel)
    }

    /// A new connection, if there is none.
    async fn connect(&self, opened: &mut Option<(Connection, Option<Channel>)>) -> Result<(), SourceError> {
        let is_connected = opened.as_ref().is_some_and(|(connection, _)| connection.status().connected());
        if !is_connected {
            *opened = None;
            let properties = ConnectionProperties::default().with_connection_name(self.name.clone().into());
            let connection = Connection::connect_uri(self.uri.clone(), properties).await.map_err(source_error)?;
            *opened = Some((connection, None));
            self.number.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
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

    /// Of the latest connection.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// The same, if it is still this connection. Its channels keep it for those who use them.
    pub async fn forget_if(&self, number: u64) {
        let mut opened = self.opened.lock().await;
        // One that the broker blocks replies, later: what is sent on another would arrive twice.
        let is_blocked = opened.as_ref().is_some_and(|(connection, _)| connection.status().blocked());
        if self.number() == number && !is_blocked {
            opened.take();
        }
    }

    /// In order, if the broker replies in time; else the connection is dropped.
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

async fn channel_on(opened: &Option<(Connection, Option<Channel>)>) -> Result<Channel, SourceError> {
    match opened {
        Some((connection, _)) => connection.create_channel().await.map_err(source_error),
        None => Err(SourceError("not connected".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::limit_in;

    #[test]
    fn a_brokers_limit_is_read_from_its_refusal() {
        let said = |kind: &str| {
            format!(
                "protocol error: AMQP soft error: PRECONDITION-FAILED: PRECONDITION_FAILED - message size 90 is larger than {kind}max size 80"
            )
        };
        assert_eq!(limit_in(&said("configured "), 90), Some(80));
        assert_eq!(limit_in(&said(""), 90), Some(80));
        assert_eq!(limit_in(&said(""), 9), None, "another's");
        assert_eq!(limit_in("PRECONDITION_FAILED - unknown delivery tag 90", 90), None);
    }
}
