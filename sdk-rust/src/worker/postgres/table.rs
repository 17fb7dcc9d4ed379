//! The table of an outbox: its columns, and how a message gets into it.

use serde::Deserialize;
use tokio_postgres::GenericClient;

use crate::error::Error;
use crate::worker::OutgoingMessage;

/// The table, and how messages get into it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Outbox {
    pub(super) table: String,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { table: "resil_outbox".to_owned() }
    }
}

impl TryFrom<String> for Outbox {
    type Error = Error;

    fn try_from(table: String) -> Result<Self, Error> {
        Self::new(&table)
    }
}

impl Outbox {
    /// Letters, digits and `_`, also with a schema before: `shop.outbox`.
    pub fn new(table: &str) -> Result<Self, Error> {
        let is_name = |part: &str| {
            !part.is_empty()
                && part.len() <= 50
                && !part.starts_with(|first: char| first.is_ascii_digit())
                && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        };
        if table.split('.').count() > 2 || !table.split('.').all(is_name) {
            return Err(Error::invalid("table", "must be made of lower case letters, digits and _"));
        }
        Ok(Self { table: table.to_owned() })
    }

    /// What makes the table. It may be run again.
    pub fn migration(&self) -> String {
        let (table, index) = (&self.table, self.table.replace('.', "_"));
        format!(
            "CREATE TABLE IF NOT EXISTS {table} (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL UNIQUE,
    type text,
    aggregate text,
    schema integer,
    headers text,
    payload bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    due_at timestamptz NOT NULL DEFAULT now(),
    claimed_by text,
    claimed_until timestamptz,
    deliveries integer NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS {index}_by_due ON {table} (due_at, position);
"
        )
    }

    /// What adds a message: its id, type, aggregate, schema, headers (JSON) and payload. An id that is there already is not added again.
    pub fn insert(&self) -> String {
        format!(
            "INSERT INTO {} (id, type, aggregate, schema, headers, payload) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING",
            self.table
        )
    }

    /// Adds a message in the transaction of what it tells of. An id that is there already is not added again.
    pub async fn add(
        &self,
        transaction: &impl GenericClient,
        message: &OutgoingMessage,
    ) -> Result<(), tokio_postgres::Error> {
        let headers = message.headers.to_bytes().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let schema = message.schema.map(|schema| i32::try_from(schema).unwrap_or(i32::MAX));
        let payload = &message.payload[..];
        transaction
            .execute(&self.insert(), &[&message.id, &message.kind, &message.aggregate, &schema, &headers, &payload])
            .await
            .map(drop)
    }
}
