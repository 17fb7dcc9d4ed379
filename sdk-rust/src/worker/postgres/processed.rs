//! Events whose effect happens once: a row in the transaction of the effect says that it did.
//!
//! Two deliveries at once are safe: the second insert waits for the first transaction, and finds the row or not.

use std::time::Duration;

use tokio_postgres::{Error, GenericClient};

/// The events that one consumer has processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessedEvents {
    consumer: String,
}

impl ProcessedEvents {
    /// What makes the table. It may be run again.
    pub const MIGRATION: &'static str = "\
CREATE TABLE IF NOT EXISTS processed_events (
    consumer text NOT NULL,
    event_id text NOT NULL,
    processed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, event_id)
);
CREATE INDEX IF NOT EXISTS processed_events_by_age ON processed_events (processed_at);
";

    /// What adds an event of a consumer. It was not processed before if this inserts a row.
    pub const INSERT: &'static str =
        "INSERT INTO processed_events (consumer, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";

    /// `consumer` names what the effect is: one event may have one in each of several.
    pub fn new(consumer: impl Into<String>) -> Self {
        Self { consumer: consumer.into() }
    }

    /// True if the event was not processed before. The row goes with `transaction`: roll it back, and the event was not processed.
    pub async fn is_first(&self, transaction: &impl GenericClient, event_id: &str) -> Result<bool, Error> {
        Ok(transaction.execute(Self::INSERT, &[&self.consumer, &event_id]).await? == 1)
    }

    /// Forgets what was processed longer ago than `age`, at most `limit` events. How many. Keep them for longer than anything can be delivered
    /// again: redrives included.
    pub async fn forget(&self, client: &impl GenericClient, age: Duration, limit: i64) -> Result<u64, Error> {
        let delete = "\
DELETE FROM processed_events WHERE (consumer, event_id) IN (
    SELECT consumer, event_id FROM processed_events
    WHERE consumer = $1 AND processed_at < now() - make_interval(secs => $2) ORDER BY processed_at LIMIT $3)";
        client.execute(delete, &[&self.consumer, &age.as_secs_f64(), &limit]).await
    }
}
