//! The connection to the server of a stream: made when it is needed, forgotten after an error.

use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, Value};

use super::super::source::SourceError;
use crate::error::Error;

/// How long a command, and a connection, may take.
const BOUND: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct StreamLink {
    client: redis::Client,
    shared: Mutex<Option<MultiplexedConnection>>,
}

impl StreamLink {
    pub fn new(url: &str) -> Result<Self, Error> {
        let is_plain =
            ["redis://", "rediss://", "unix://", "redis+unix://"].iter().any(|scheme| url.starts_with(scheme));
        if !is_plain {
            let allowed = "redis://, rediss:// or unix://";
            return Err(Error::InvalidArgument(format!("the URL of a stream must begin with {allowed}")));
        }
        if url.starts_with("rediss://") {
            // The first one in the process counts, and any of them will do.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let client = redis::Client::open(url)
            .map_err(|_| Error::InvalidArgument("the URL of a stream cannot be read".to_owned()))?;
        Ok(Self { client, shared: Mutex::default() })
    }

    /// A new connection.
    pub async fn open(&self) -> Result<MultiplexedConnection, SourceError> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(Some(BOUND));
        self.client.get_multiplexed_async_connection_with_config(&config).await.map_err(told)
    }

    /// The next command gets a new one.
    pub fn forget(&self) {
        self.shared.lock().take();
    }

    /// On the connection that all share.
    pub async fn ask(&self, command: &Cmd) -> Result<Value, SourceError> {
        self.on_shared(async |mut connection| command.query_async::<Value>(&mut connection).await).await
    }

    /// All of them in one write.
    pub async fn ask_all(&self, commands: &Pipeline) -> Result<(), SourceError> {
        self.on_shared(async |mut connection| commands.query_async::<()>(&mut connection).await).await
    }

    async fn on_shared<T>(
        &self,
        ask: impl AsyncFnOnce(MultiplexedConnection) -> redis::RedisResult<T>,
    ) -> Result<T, SourceError> {
        let known = self.shared.lock().clone();
        let connection = match known {
            Some(connection) => connection,
            None => {
                let connection = self.open().await?;
                self.shared.lock().get_or_insert(connection).clone()
            }
        };
        let answer = tokio::time::timeout(BOUND, ask(connection)).await;
        match answer {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                // What the server says leaves the connection as it is.
                if error.code().is_none() {
                    self.forget();
                }
                Err(told(error))
            }
            Err(_) => {
                self.forget();
                Err(SourceError("the server did not answer in time".to_owned()))
            }
        }
    }
}

/// On this connection, within `bound`.
pub(super) async fn ask_on(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
    bound: Duration,
) -> Result<Value, SourceError> {
    match tokio::time::timeout(bound, command.query_async::<Value>(connection)).await {
        Ok(answer) => answer.map_err(told),
        Err(_) => Err(SourceError("the server did not answer in time".to_owned())),
    }
}

fn told(error: redis::RedisError) -> SourceError {
    SourceError(error.to_string())
}
