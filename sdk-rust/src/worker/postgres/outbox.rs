//! The outbox: messages that were written in the transaction of what they tell of.
//!
//! ```text
//! row ──claim: FOR UPDATE SKIP LOCKED──▶ claimed until …, renewed ──acknowledge──▶ deleted
//!  ▲                                        │ the claim ends, or it is given back
//!  └────────────────────────────────────────┘
//! ```
//! A claim is a row's own fields and not a lock: no transaction is open while a handler runs.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::Mutex as AsyncMutex;
use tokio_postgres::{Client as PostgresClient, Row};
use tokio_util::task::AbortOnDropHandle;

use super::table::Outbox;
use super::tls::PostgresWay;
use super::{bounded, connect, verdict_of};
use crate::client::Client;
use crate::dead_letters::FailureClass;
use crate::error::Error;
use crate::settings::setters;
use crate::settings::span_text::{self, check_number, check_span};
use crate::telemetry;
use crate::worker::RECONNECT;
use crate::worker::feed::{Feed, Feeder, feed};
use crate::worker::headers::{Headers, fresh_id};
use crate::worker::source::{HealthCell, Incoming, IncomingMessage, Source, SourceError, SourceHealth};
use crate::worker::verdict::WorkVerdict;

/// After which it gives up by itself: nobody reads what comes later, and a table that is locked for an hour must not gather statements that wait for it.
const STATEMENT_TIMEOUT: &str = "SET statement_timeout = 4500";
/// How many acknowledgements one statement has, at most.
const ACKNOWLEDGED_AT_ONCE: u32 = 100;

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
    /// Why nothing can be acknowledged, and since when, while that is so: messages can still be claimed, and are handled again and again.
    refused: Mutex<Option<(String, SystemTime)>>,
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
            health: HealthCell::of(client, &settings.outbox.table, PostgresWay::address(&settings.url)),
            in_hand: Mutex::default(),
            renewed: Mutex::new(Instant::now()),
            refused: Mutex::default(),
            settings,
        });
        let task = tokio::spawn(claim_on(client.clone(), Arc::clone(&shared), feeder));
        Ok(Self { shared, feed, _claiming: AbortOnDropHandle::new(task) })
    }
}

/// What a turn of the task that claims found.
enum ClaimTurn {
    Closed,
    /// Nothing may be claimed now, and nothing had to be renewed: how Postgres is is not known.
    NotAsked,
    /// How long to wait before the next turn.
    Answered(Duration),
}

/// Claims, renews, and reconnects for ever.
async fn claim_on(client: Client, shared: Arc<OutboxShared>, feeder: Feeder<OutboxReceipt>) {
    let connections = telemetry::worker_connections(&shared.settings.outbox.table.as_str().into());
    let mut delays = RECONNECT.delays();
    let step = shared.settings.poll.min(shared.settings.claim / 3);
    loop {
        let turn = async {
            let is_due = shared.renewed.lock().elapsed() >= shared.settings.claim / 3;
            let is_renewed = is_due && shared.renew().await?;
            match tokio::time::timeout(step, feeder.has_much_capacity()).await {
                Ok(true) => shared.claim(&feeder).await,
                Ok(false) => Ok(ClaimTurn::Closed),
                Err(_) if is_renewed => Ok(ClaimTurn::Answered(Duration::ZERO)),
                Err(_) => Ok(ClaimTurn::NotAsked),
            }
        };
        let pause = match turn.await {
            Ok(ClaimTurn::Closed) => return,
            Ok(ClaimTurn::NotAsked) => continue,
            Ok(ClaimTurn::Answered(pause)) => {
                if !shared.health.look().is_connected {
                    connections.increment(1);
                }
                shared.health.connected();
                delays = RECONNECT.delays();
                pause
            }
            Err(error) => {
                shared.health.away(error.0);
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

    /// A connection that does not reply is not asked again.
    async fn forget_if<T>(&self, reply: &Result<T, SourceError>) {
        if reply.is_err() {
            self.connection.lock().await.take();
        }
    }

    async fn claim(&self, feeder: &Feeder<OutboxReceipt>) -> Result<ClaimTurn, SourceError> {
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
        Ok(match feeder.closed.is_cancelled() {
            true => ClaimTurn::Closed,
            false => ClaimTurn::Answered(if is_empty { self.settings.poll } else { Duration::ZERO }),
        })
    }

    /// Which of these were ours, and are gone.
    async fn delete(&self, positions: &[i64]) -> Result<HashSet<i64>, SourceError> {
        let table = &self.settings.outbox.table;
        let delete = format!("DELETE FROM {table} WHERE position = ANY($1) AND claimed_by = $2 RETURNING position");
        let connection = self.connection().await?;
        // A reply that was lost says nothing: the rows may be gone, and no other reply may come for hours.
        let mut is_refused = false;
        let deleting = async {
            let deleted = connection.query(&delete, &[&positions, &self.claimer]).await;
            deleted.inspect_err(|error| is_refused = is_refusal(error))
        };
        let deleted = bounded(deleting).await;
        if deleted.is_ok() || is_refused {
            self.note_refused(deleted.as_ref().err());
        }
        self.forget_if(&deleted).await;
        Ok(deleted?.iter().map(|row| row.get(0)).collect())
    }

    fn note_refused(&self, error: Option<&SourceError>) {
        let mut refused = self.refused.lock();
        match error {
            None => *refused = None,
            Some(error) => {
                let reason = format!("messages cannot be acknowledged: {error}");
                let since = refused.as_ref().map(|(_, since)| *since);
                if since.is_none() {
                    tracing::warn!(%error, table = self.settings.outbox.table, "an outbox takes no acknowledgements; its messages are handled again");
                }
                *refused = Some((reason, since.unwrap_or_else(SystemTime::now)));
            }
        }
    }

    /// Whether there was anything to renew.
    async fn renew(&self) -> Result<bool, SourceError> {
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
        Ok(!positions.is_empty())
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

/// The database has said no. Not that it goes away or has no room, which the next claim learns, too.
fn is_refusal(error: &tokio_postgres::Error) -> bool {
    let is_external = verdict_of(error) == Some(WorkVerdict::Retry(FailureClass::External));
    error.as_db_error().is_some() && !is_external
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
        is_suspect: false,
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
        let health = self.shared.health.look();
        match self.shared.refused.lock().clone() {
            Some((reason, since)) if health.is_connected => {
                SourceHealth { is_connected: false, reason: Some(reason), since, ..health }
            }
            _ => health,
        }
    }

    async fn pause(&self) {
        for fetched in self.feed.hold(|_| true) {
            let _ = self.shared.give_back(fetched.receipt, Duration::ZERO).await;
        }
    }

    async fn resume(&self) {
        self.feed.release();
    }

    async fn close(&self) {
        for left in self.feed.close().await {
            let _ = self.shared.give_back(left.receipt, Duration::ZERO).await;
        }
    }
}
