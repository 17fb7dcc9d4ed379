//! The connection to the server that has a stream: made when it is needed, forgotten after an error that another connection may not have.

use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value};

use super::super::source::SourceError;
use crate::backend::redis::key_server::KeyServer;
use crate::error::Error;

/// How long a command, and a connection, may take.
const BOUND: Duration = Duration::from_secs(3);

/// Another server has the stream now, or may have it.
const ELSEWHERE: [&str; 6] = ["MOVED", "ASK", "READONLY", "CLUSTERDOWN", "LOADING", "MASTERDOWN"];

#[derive(Debug)]
pub(super) struct StreamLink {
    server: KeyServer,
    shared: Mutex<Option<MultiplexedConnection>>,
}

impl StreamLink {
    pub fn new(url: &str, stream: &str) -> Result<Self, Error> {
        if url.starts_with("memory://") {
            let allowed = "redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://";
            return Err(Error::InvalidArgument(format!("the URL of a stream must begin with {allowed}")));
        }
        Ok(Self { server: KeyServer::new(url, stream)?, shared: Mutex::default() })
    }

    /// For the log, without user and password.
    pub fn address(&self) -> String {
        self.server.address()
    }

    /// A new connection.
    pub async fn open(&self) -> Result<MultiplexedConnection, SourceError> {
        match tokio::time::timeout(BOUND, self.server.connect()).await {
            Ok(connection) => connection.map_err(|error| SourceError(error.to_string())),
            Err(_) => Err(SourceError("the server did not reply in time".to_owned())),
        }
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
        let reply = tokio::time::timeout(BOUND, ask(connection)).await;
        match reply {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                // What the server says leaves the connection as it is, unless it is not the server for this any more.
                if error.code().is_none_or(|code| ELSEWHERE.contains(&code)) {
                    self.forget();
                }
                Err(source_error(error))
            }
            Err(_) => {
                self.forget();
                Err(SourceError("the server did not reply in time".to_owned()))
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
        Ok(reply) => reply.map_err(source_error),
        Err(_) => Err(SourceError("the server did not reply in time".to_owned())),
    }
}

fn source_error(error: redis::RedisError) -> SourceError {
    SourceError(error.to_string())
}
