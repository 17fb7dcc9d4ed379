//! The outbox: messages that were written in the transaction of what they tell of.
//!
//! ```text
//! row ──claim: FOR UPDATE SKIP LOCKED──▶ claimed until …, renewed ──acknowledge──▶ deleted
//!  ▲                                        │ the claim ends, or it is given back
//!  └────────────────────────────────────────┘
//! ```
//! A claim is a row's own fields and not a lock: no transaction is open while a handler runs.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::Mutex as AsyncMutex;
use tokio_postgres::{Client as PostgresClient, GenericClient, Row};
use tokio_util::task::AbortOnDropHandle;

use super::connect;
use super::tls::PostgresWay;
use crate::client::Client;
use crate::error::Error;
use crate::settings::setters;
use crate::settings::span_text::{self, check_number, check_span};
use crate::telemetry;
use crate::worker::feed::{Feed, Feeder, feed};
use crate::worker::headers::{Headers, fresh_id};
use crate::worker::source::{HealthCell, Incoming, IncomingMessage, Source, SourceError, SourceHealth};
use crate::worker::{OutgoingMessage, RECONNECT};

/// How long Postgres may take for one statement.
const BOUND: Duration = Duration::from_secs(5);
/// After which it gives up by itself: nobody reads what comes later, and a table that is locked for an hour must not gather statements that wait for it.
const STATEMENT_TIMEOUT: &str = "SET statement_timeout = 4500";
/// How many acknowledgements one statement has, at most.
const ACKNOWLEDGED_AT_ONCE: u32 = 100;

/// The table, and how messages get into it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Outbox {
    table: String,
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

/// An outbox, and how it is read.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default = "OutboxSettings::unnamed")]
pub struct OutboxSettings {
    pub url: String,
    #[serde(rename = "table")]
    pub outbox: Outbox,
    /// How many messages are claimed ahead: 1 to 10,000; 10 by default.
    pub prefetch: u32,
    /// How long a claim lasts, once its process falls silent: 100 ms to 1 day; 30 s by default.
    #[serde(with = "span_text")]
    pub claim: Duration,
    /// How often an empty outbox is looked at: 10 ms to 1 h; 500 ms by default.
    #[serde(with = "span_text")]
    pub poll: Duration,
}

/// Without the URL, which may hold a password.
impl std::fmt::Debug for OutboxSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutboxSettings")
            .field("outbox", &self.outbox)
            .field("claim", &self.claim)
            .finish_non_exhaustive()
    }
}

setters! { OutboxSettings { outbox: Outbox, prefetch: u32, claim: Duration, poll: Duration } }

impl OutboxSettings {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            outbox: Outbox::default(),
            prefetch: 10,
            claim: Duration::from_secs(30),
            poll: Duration::from_millis(500),
        }
    }

    /// What omitted fields have. Without a URL, which has no default.
    fn unnamed() -> Self {
        Self::new("")
    }

    pub fn validate(&self) -> Result<(), Error> {
        if !PostgresWay::is_valid(&self.url) || self.url.is_empty() {
            let allowed = "must be postgres://user:password@host:port/database, also with sslmode and sslrootcert";
            return Err(Error::invalid("url", allowed));
        }
        check_number("prefetch", self.prefetch, 1, 10_000)?;
        check_span("claim", self.claim, Duration::from_millis(100), Duration::from_secs(86_400))?;
        check_span("poll", self.poll, Duration::from_millis(10), Duration::from_secs(3_600))
    }
}

/// What settles a message of an outbox.
#[derive(Debug)]
pub struct OutboxReceipt {
    position: i64,
    /// Not later than it was claimed.
    claimed: Instant,
}

/// Claims messages of an outbox.
#[derive(Debug)]
pub struct OutboxSource {
    shared: Arc<OutboxShared>,
    feed: Feed<OutboxReceipt>,
    _claiming: AbortOnDropHandle<()>,
}

struct OutboxShared {
    settings: OutboxSettings,
    /// Names this source, and its claims.
    claimer: String,
    connection: AsyncMutex<Option<Arc<PostgresClient>>>,
    health: HealthCell,
    /// Claimed, and not settled.
    in_hand: Mutex<HashSet<i64>>,
    /// When what is in hand was last renewed.
    renewed: Mutex<Instant>,
}

impl std::fmt::Debug for OutboxShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutboxShared").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl OutboxSource {
    /// Connects in the background, for ever. To be called on a tokio runtime.
    pub fn new(client: &Client, settings: OutboxSettings) -> Result<Self, Error> {
        settings.validate()?;
        let (feeder, feed) = feed(settings.prefetch as usize);
        let shared = Arc::new(OutboxShared {
            claimer: format!("{}-{}", client.inner().name, &fresh_id()[..8]),
            connection: AsyncMutex::default(),
            health: HealthCell::new(),
            in_hand: Mutex::default(),
            renewed: Mutex::new(Instant::now()),
            settings,
        });
        let task = tokio::spawn(claim_on(client.clone(), Arc::clone(&shared), feeder));
        Ok(Self { shared, feed, _claiming: AbortOnDropHandle::new(task) })
    }
}

/// Claims, renews, and reconnects for ever.
async fn claim_on(client: Client, shared: Arc<OutboxShared>, feeder: Feeder<OutboxReceipt>) {
    let connections = telemetry::worker_connections(&shared.settings.outbox.table.as_str().into());
    let mut delays = RECONNECT.delays();
    let step = shared.settings.poll.min(shared.settings.claim / 3);
    loop {
        let turn = async {
            if shared.renewed.lock().elapsed() >= shared.settings.claim / 3 {
                shared.renew().await?;
            }
            match tokio::time::timeout(step, feeder.has_much_capacity()).await {
                Ok(true) => shared.claim(&feeder).await,
                Ok(false) => Ok(None),
                Err(_) => Ok(Some(Duration::ZERO)),
            }
        };
        let pause = match turn.await {
            Ok(None) => return,
            Ok(Some(pause)) => {
                if !shared.health.look().is_connected {
                    connections.increment(1);
                }
                shared.health.connected();
                delays = RECONNECT.delays();
                pause
            }
            Err(error) => {
                if shared.health.away(error.0.clone()) {
                    tracing::warn!(%error, table = shared.settings.outbox.table, "an outbox cannot be read; it is tried again");
                }
                delays.next(&client.inner().options.random)
            }
        };
        tokio::select! {
            biased;
            () = feeder.closed.cancelled() => return,
            () = client.clock().sleep(pause) => {}
        }
    }
}

impl OutboxShared {
    async fn connection(&self) -> Result<Arc<PostgresClient>, SourceError> {
        let mut current = self.connection.lock().await;
        if let Some(connection) = current.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(Arc::clone(connection));
        }
        let connection = Arc::new(bounded(connect(&self.settings.url)).await?);
        bounded(connection.batch_execute(STATEMENT_TIMEOUT)).await?;
        *current = Some(Arc::clone(&connection));
        Ok(connection)
    }

    async fn execute(
        &self,
        statement: &str,
        values: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<u64, SourceError> {
        let connection = self.connection().await?;
        let changed = bounded(connection.execute(statement, values)).await;
        self.forget_if(&changed).await;
        changed
    }

    /// A connection that does not answer is not asked again.
    async fn forget_if<T>(&self, answer: &Result<T, SourceError>) {
        if answer.is_err() {
            self.connection.lock().await.take();
        }
    }

    /// How long to wait before the next time. `None`: it was closed.
    async fn claim(&self, feeder: &Feeder<OutboxReceipt>) -> Result<Option<Duration>, SourceError> {
        let table = &self.settings.outbox.table;
        let claim = format!(
            "WITH due AS (
    SELECT position FROM {table}
    WHERE due_at <= now() AND (claimed_until IS NULL OR claimed_until < now())
    ORDER BY position LIMIT $3 FOR UPDATE SKIP LOCKED)
UPDATE {table} AS outbox
SET claimed_by = $1, claimed_until = now() + make_interval(secs => $2), deliveries = deliveries + 1
FROM due WHERE outbox.position = due.position
RETURNING outbox.position, outbox.id, outbox.type, outbox.aggregate, outbox.schema, outbox.headers, outbox.payload, outbox.deliveries"
        );
        let (free, lease) = (feeder.free().max(1) as i64, self.settings.claim.as_secs_f64());
        let connection = self.connection().await?;
        let began = Instant::now();
        let claimed = bounded(connection.query(&claim, &[&self.claimer, &lease, &free])).await;
        self.forget_if(&claimed).await;
        let read = claimed?.iter().map(|row| Ok((row.try_get(0)?, message(row, table)?))).collect();
        let read: Result<Vec<(i64, IncomingMessage)>, tokio_postgres::Error> = read;
        let mut read =
            read.map_err(|error| SourceError(format!("{table} is not as its migration made it: {error}")))?;
        read.sort_by_key(|(position, _)| *position);
        let is_empty = read.is_empty();
        for (position, message) in read {
            self.in_hand.lock().insert(position);
            let receipt = OutboxReceipt { position, claimed: began };
            if let Err(refused) = feeder.push(Incoming { message, receipt }).await {
                let _ = self.give_back(refused.receipt, Duration::ZERO).await;
            }
        }
        let is_closed = feeder.closed.is_cancelled();
        Ok((!is_closed).then_some(if is_empty { self.settings.poll } else { Duration::ZERO }))
    }

    /// Which of these were ours, and are gone.
    async fn delete(&self, positions: &[i64]) -> Result<HashSet<i64>, SourceError> {
        let table = &self.settings.outbox.table;
        let delete = format!("DELETE FROM {table} WHERE position = ANY($1) AND claimed_by = $2 RETURNING position");
        let connection = self.connection().await?;
        let deleted = bounded(connection.query(&delete, &[&positions, &self.claimer])).await;
        self.forget_if(&deleted).await;
        Ok(deleted?.iter().map(|row| row.get(0)).collect())
    }

    async fn renew(&self) -> Result<(), SourceError> {
        let (positions, began): (Vec<i64>, _) = (self.in_hand.lock().iter().copied().collect(), Instant::now());
        if !positions.is_empty() {
            let renew = format!(
                "UPDATE {} SET claimed_until = now() + make_interval(secs => $2) WHERE claimed_by = $1 AND position = ANY($3) RETURNING position",
                self.settings.outbox.table
            );
            let connection = self.connection().await?;
            let lease = self.settings.claim.as_secs_f64();
            let renewed = bounded(connection.query(&renew, &[&self.claimer, &lease, &positions])).await;
            self.forget_if(&renewed).await;
            let ours: HashSet<i64> = renewed?.iter().map(|row| row.get(0)).collect();
            // The others were claimed by another while this was silent.
            let is_lost = |position: &i64| positions.contains(position) && !ours.contains(position);
            self.in_hand.lock().retain(|position| !is_lost(position));
        }
        *self.renewed.lock() = began;
        Ok(())
    }

    /// Whether another may have claimed it. Then it is let go, for its claim to end.
    fn is_lost(&self, receipt: &OutboxReceipt) -> bool {
        let mut in_hand = self.in_hand.lock();
        if receipt.claimed.max(*self.renewed.lock()).elapsed() >= self.settings.claim {
            in_hand.remove(&receipt.position);
        }
        !in_hand.contains(&receipt.position)
    }

    /// It is not counted: nobody has tried it.
    async fn give_back(&self, receipt: OutboxReceipt, delay: Duration) -> Result<(), SourceError> {
        let give_back = format!(
            "UPDATE {} SET claimed_by = NULL, claimed_until = NULL, deliveries = deliveries - 1, due_at = greatest(due_at, now() + make_interval(secs => $3))
WHERE position = $1 AND claimed_by = $2",
            self.settings.outbox.table
        );
        self.in_hand.lock().remove(&receipt.position);
        self.execute(&give_back, &[&receipt.position, &self.claimer, &delay.as_secs_f64()]).await.map(drop)
    }
}

async fn bounded<T>(answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, SourceError> {
    match tokio::time::timeout(BOUND, answer).await {
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
        Err(_) => Err(SourceError("Postgres did not answer in time".to_owned())),
    }
}

/// A table that somebody made by hand may have other types.
fn message(row: &Row, table: &str) -> Result<IncomingMessage, tokio_postgres::Error> {
    let deliveries = u32::try_from(row.try_get::<_, i32>(7)?).unwrap_or(1);
    let headers = row.try_get::<_, Option<&str>>(5)?;
    Ok(IncomingMessage {
        id: format!("{table}/{}", row.try_get::<_, &str>(1)?),
        has_own_id: true,
        payload: Bytes::copy_from_slice(row.try_get(6)?),
        headers: headers.map(|text| Headers::from_bytes(text.as_bytes())).unwrap_or_default(),
        kind: row.try_get(2)?,
        source: Some(table.to_owned()),
        aggregate: row.try_get(3)?,
        schema: row.try_get::<_, Option<i32>>(4)?.and_then(|schema| u32::try_from(schema).ok()),
        attempt: 0,
        deliveries,
        is_redelivered: deliveries > 1,
        given_up: None,
    })
}

impl Source for OutboxSource {
    type Receipt = OutboxReceipt;

    fn name(&self) -> &str {
        &self.shared.settings.outbox.table
    }

    async fn next(&self) -> Option<Incoming<OutboxReceipt>> {
        self.feed.next().await
    }

    async fn acknowledge(&self, receipt: OutboxReceipt) -> Result<(), SourceError> {
        self.acknowledge_all(vec![receipt]).await.pop().unwrap_or(Ok(()))
    }

    fn acknowledges_at_once(&self) -> usize {
        self.shared.settings.prefetch.min(ACKNOWLEDGED_AT_ONCE) as usize
    }

    /// One statement for all.
    async fn acknowledge_all(&self, receipts: Vec<OutboxReceipt>) -> Vec<Result<(), SourceError>> {
        let positions: Vec<i64> = receipts.iter().map(|receipt| receipt.position).collect();
        let deleted = self.shared.delete(&positions).await;
        let mut in_hand = self.shared.in_hand.lock();
        let settled = positions.iter().map(|position| {
            in_hand.remove(position);
            match &deleted {
                Ok(deleted) if deleted.contains(position) => Ok(()),
                Ok(_) => Err(SourceError("another has claimed it".to_owned())),
                Err(error) => Err(error.clone()),
            }
        });
        settled.collect()
    }

    async fn give_back(&self, receipt: OutboxReceipt, delay: Duration) -> Result<(), SourceError> {
        self.shared.give_back(receipt, delay).await
    }

    /// Its claim was lost while it waited here.
    fn is_stale(&self, receipt: &OutboxReceipt) -> bool {
        self.shared.is_lost(receipt)
    }

    fn health(&self) -> SourceHealth {
        self.shared.health.look()
    }

    async fn close(&self) {
        for left in self.feed.close().await {
            let _ = self.shared.give_back(left.receipt, Duration::ZERO).await;
        }
    }
}
