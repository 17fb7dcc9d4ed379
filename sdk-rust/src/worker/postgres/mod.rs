//! Postgres: an outbox table as a source, and events that are processed once.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use resil::worker::postgres::{Outbox, OutboxSettings, OutboxSource, ProcessedEvents, connect};
//! use resil::worker::{OutgoingMessage, WorkError, WorkerSettings};
//!
//! let client = resil::connect("redis://127.0.0.1").await?;
//! let url = "postgres://shop@127.0.0.1/shop";
//! let mut shop = connect(url).await?;
//! shop.batch_execute(&Outbox::default().migration()).await?;
//! shop.batch_execute(ProcessedEvents::MIGRATION).await?;
//!
//! // The order and its event: both, or neither.
//! let order = shop.transaction().await?;
//! order.execute("INSERT INTO orders (id, pieces) VALUES (42, 7)", &[]).await?;
//! Outbox::default().add(&order, &OutgoingMessage::new("7 pieces").kind("order.placed")).await?;
//! order.commit().await?;
//!
//! let worker = client.worker("orders", WorkerSettings::new())?;
//! let outbox = OutboxSource::new(&client, OutboxSettings::new(url))?;
//! worker.run(outbox, move |message| async move {
//!     let mut stock = connect(url).await?;
//!     let effect = stock.transaction().await?;
//!     if ProcessedEvents::new("stock").is_first(&effect, message.id()).await? {
//!         effect.execute("UPDATE stock SET pieces = pieces - 7", &[]).await?;
//!     }
//!     effect.commit().await?;
//!     Ok(())
//! }).await?;
//! # Ok(()) }
//! ```

mod outbox;
mod processed;
mod table;
mod tls;

use std::future::Future;
use std::time::Duration;

use tokio_postgres::Client as PostgresClient;
use tokio_postgres::error::SqlState;

pub use self::outbox::{OutboxReceipt, OutboxSettings, OutboxSource};
pub use self::processed::ProcessedEvents;
pub use self::table::Outbox;
use self::tls::PostgresWay;
use super::source::SourceError;
use super::verdict::WorkVerdict;
use crate::dead_letters::FailureClass;

/// Connects, and keeps the connection in a task of its own. To be called on a tokio runtime.
///
/// TLS is used if the server has it. `sslmode` and `sslrootcert` in the URL say more, as with libpq: `?sslmode=verify-full` checks that the
/// certificate is signed by a root of the system, or by one in the file `sslrootcert`, and is for this host.
pub async fn connect(url: &str) -> Result<PostgresClient, tokio_postgres::Error> {
    let PostgresWay { config, tls } = PostgresWay::parse(url)?;
    let (client, connection) = config.connect(tls).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to Postgres ended");
        }
    });
    Ok(client)
}

/// What an error of Postgres means for a message, by the class of its state.
pub(super) fn verdict_of(error: &tokio_postgres::Error) -> Option<WorkVerdict> {
    if error.is_closed() {
        return Some(WorkVerdict::Retry(FailureClass::External));
    }
    of_state(error.code()?.code())
}

/// By the five characters of an SQLSTATE.
pub(super) fn of_state(state: &str) -> Option<WorkVerdict> {
    Some(match state.get(..2)? {
        // Connections, resources, an operator's doing.
        "08" | "53" | "57" | "58" => WorkVerdict::Retry(FailureClass::External),
        // Deadlocks and serialization: another attempt may pass.
        "40" | "55" => WorkVerdict::Retry(FailureClass::Transient),
        // Data that does not fit, constraints, users that may not.
        "22" | "23" | "28" => WorkVerdict::Permanent,
        "42" if state == SqlState::INSUFFICIENT_PRIVILEGE.code() => WorkVerdict::Permanent,
        _ => return None,
    })
}

/// How long Postgres may take for one statement.
const BOUND: Duration = Duration::from_secs(5);

pub(super) async fn bounded<T>(
    reply: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, SourceError> {
    match tokio::time::timeout(BOUND, reply).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            let of_server = error.as_db_error().map(|said| said.message().to_owned());
            // Without its cause it says "error connecting to server" of everything.
            let with_cause = || match std::error::Error::source(&error) {
                Some(cause) => format!("{error}: {cause}"),
                None => error.to_string(),
            };
            Err(SourceError(of_server.unwrap_or_else(with_cause)))
        }
        Err(_) => Err(SourceError("Postgres did not reply in time".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::{FailureClass, SqlState, WorkVerdict, of_state};

    #[test]
    fn states_of_postgres_are_distinguished() {
        assert_eq!(of_state(SqlState::UNIQUE_VIOLATION.code()), Some(WorkVerdict::Permanent));
        assert_eq!(of_state(SqlState::INSUFFICIENT_PRIVILEGE.code()), Some(WorkVerdict::Permanent));
        assert_eq!(of_state(SqlState::INVALID_PASSWORD.code()), Some(WorkVerdict::Permanent));
        let external = Some(WorkVerdict::Retry(FailureClass::External));
        assert_eq!(of_state(SqlState::TOO_MANY_CONNECTIONS.code()), external);
        assert_eq!(of_state(SqlState::ADMIN_SHUTDOWN.code()), external);
        let transient = Some(WorkVerdict::Retry(FailureClass::Transient));
        assert_eq!(of_state(SqlState::T_R_DEADLOCK_DETECTED.code()), transient);
        assert_eq!(of_state(SqlState::UNDEFINED_TABLE.code()), None);
    }
}
