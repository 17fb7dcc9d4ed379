//! Redis Streams: a source on a consumer group, and a publisher.
//!
//! ```text
//! XREADGROUP > ──▶ in hand, kept fresh by XCLAIM … JUSTID ──▶ XACK
//!                     │ the process dies, or falls silent for `reclaim`
//!                     ▼
//!                  XAUTOCLAIM by another consumer: redelivered, counted by the server
//! ```
//! A message that is given back goes to the consumer `resil-returned`, idle for as long as another may take it, and its count is set back.
//! What is acknowledged stays in the stream, which other groups may read, unless [`StreamSettings::delete`] says otherwise.
//!
//! An entry of a publisher here has the fields `id`, `payload`, `type`, `aggregate`, `schema` and `headers` (JSON). An entry without `payload` is
//! handled as JSON of all its fields.

mod entries;
mod link;
mod publisher;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::cmd;
use serde::Deserialize;
use tokio_util::task::AbortOnDropHandle;

use self::entries::{EntryId, StreamEntry, read_all_pending, read_claimed, read_pending, read_read};
use self::link::StreamLink;
pub use self::publisher::StreamPublisher;
use super::RECONNECT;
use super::feed::{Feed, Feeder, feed};
use super::headers::fresh_id;
use super::source::{HealthCell, Incoming, Source, SourceError, SourceHealth};
use crate::client::Client;
use crate::error::Error;
use crate::settings::setters;
use crate::settings::span_text::{self, check_number, check_span};
use crate::telemetry;

/// The consumer that has entries that were given back.
const RETURNED: &str = "resil-returned";
/// How long one question waits for messages, and how often it is looked for those that others left behind.
const BLOCK: Duration = Duration::from_secs(1);
/// How many messages that others left behind are taken over with one command.
const CLAIM_AT_ONCE: usize = 100;
/// Where a look at them begins, and ends.
const FROM_THE_START: &str = "0-0";
/// How many messages are given back with one write.
const GIVEN_BACK_AT_ONCE: usize = 100;
/// How many acknowledgements one command has, at most.
const ACKNOWLEDGED_AT_ONCE: u32 = 100;
/// Pending entries that are looked at beyond those in hand.
const PENDING_BESIDE: usize = 1_000;

/// A stream, and how it is read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default = "StreamSettings::unnamed")]
pub struct StreamSettings {
    pub stream: String,
    /// The consumer group; it is made if it is not there. `resil` by default.
    pub group: String,
    /// How many messages one read fetches: 1 to 10,000; 10 by default. The next read begins when no more than as many wait here.
    pub prefetch: u32,
    /// How long a consumer may be silent before its messages are another's: 100 ms to 1 day; 30 s by default.
    #[serde(with = "span_text")]
    pub reclaim: Duration,
    /// What is acknowledged is deleted from the stream. Off by default.
    pub delete: bool,
    /// By default that of the client.
    pub url: Option<String>,
}

setters! { StreamSettings { prefetch: u32, reclaim: Duration, delete: bool } }

impl StreamSettings {
    pub fn new(stream: impl Into<String>) -> Self {
        Self {
            stream: stream.into(),
            group: "resil".to_owned(),
            prefetch: 10,
            reclaim: Duration::from_secs(30),
            delete: false,
            url: None,
        }
    }

    /// What omitted fields have. Without a stream, which has no default.
    fn unnamed() -> Self {
        Self::new("")
    }

    /// Sets [`group`](Self#structfield.group).
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = group.into();
        self
    }

    /// Sets [`url`](Self#structfield.url): of one server, of a cluster (`redis+cluster://`) or of sentinels (`redis+sentinel://`).
    #[must_use]
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    pub fn validate(&self) -> Result<(), Error> {
        if self.stream.is_empty() {
            return Err(Error::invalid("stream", "must name the stream"));
        }
        check_number("prefetch", self.prefetch, 1, 10_000)?;
        check_span("reclaim", self.reclaim, Duration::from_millis(100), Duration::from_secs(86_400))
    }
}

/// What settles a message of a stream.
#[derive(Debug)]
pub struct StreamReceipt {
    entry_id: EntryId,
    deliveries: u32,
    /// Not later than it was delivered.
    delivered: Instant,
}

/// Reads a stream as one consumer of its group.
#[derive(Debug)]
pub struct StreamSource {
    shared: Arc<StreamShared>,
    feed: Feed<StreamReceipt>,
    fetching: Mutex<Option<AbortOnDropHandle<()>>>,
}

#[derive(Debug)]
struct StreamShared {
    settings: StreamSettings,
    consumer: String,
    link: StreamLink,
    health: HealthCell,
    /// Of the connection that reads, which can be woken by it. 0: not known.
    reader: AtomicU64,
    /// Fetched, and not settled.
    in_hand: Mutex<HashSet<EntryId>>,
    /// When what is in hand was last kept from others.
    freshened: Mutex<Instant>,
}

impl StreamSource {
    /// Connects in the background, for ever. To be called on a tokio runtime.
    pub fn new(client: &Client, settings: StreamSettings) -> Result<Self, Error> {
        settings.validate()?;
        let url = settings.url.clone().unwrap_or_else(|| client.inner().options.url.clone());
        let link = StreamLink::new(&url, &settings.stream)?;
        let shared = Arc::new(StreamShared {
            health: HealthCell::of(client, &settings.stream, link.address()),
            link,
            consumer: format!("{}-{}", client.inner().name, &fresh_id()[..8]),
            reader: AtomicU64::new(0),
            in_hand: Mutex::default(),
            freshened: Mutex::new(Instant::now()),
            settings,
        });
        // What one read fetches, while as many are handled.
        let (feeder, feed) = feed(shared.settings.prefetch as usize * 2);
        let task = tokio::spawn(fetch(client.clone(), Arc::clone(&shared), feeder));
        Ok(Self { shared, feed, fetching: Mutex::new(Some(AbortOnDropHandle::new(task))) })
    }

    async fn give_back_fetched(&self, fetched: &[Incoming<StreamReceipt>]) {
        if let Err(error) = self.shared.give_back_all(fetched).await {
            let stream = &self.shared.settings.stream;
            tracing::debug!(%error, stream, "messages could not be given back; they will be reclaimed");
        }
    }
}

/// Reads, reclaims and keeps fresh, and reconnects for ever.
async fn fetch(client: Client, shared: Arc<StreamShared>, feeder: Feeder<StreamReceipt>) {
    let connections = telemetry::worker_connections(&shared.settings.stream.as_str().into());
    let mut delays = RECONNECT.delays();
    loop {
        let error = match shared.open().await {
            Ok(mut reading) => {
                if !shared.health.look().is_connected {
                    connections.increment(1);
                }
                shared.health.connected();
                delays = RECONNECT.delays();
                match shared.read(&mut reading, &feeder).await {
                    Ok(()) => return,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        shared.health.away(error.0);
        shared.link.forget();
        let delay = delays.next(&client.inner().options.random);
        tokio::select! {
            biased;
            () = feeder.closed.cancelled() => return,
            () = client.clock().sleep(delay) => {}
        }
    }
}

impl StreamShared {
    /// A connection of its own for reading, because that blocks it; and the group.
    async fn open(&self) -> Result<redis::aio::MultiplexedConnection, SourceError> {
        let StreamSettings { stream, group, .. } = &self.settings;
        let mut made = cmd("XGROUP");
        made.arg("CREATE").arg(stream).arg(group).arg("0").arg("MKSTREAM");
        match self.link.ask(&made).await {
            Ok(_) => {}
            Err(error) if error.0.contains("BUSYGROUP") => {}
            Err(error) => return Err(error),
        }
        let mut reading = self.link.open().await?;
        let named = link::ask_on(&mut reading, cmd("CLIENT").arg("ID"), BLOCK * 6).await;
        let reader = match named {
            Ok(redis::Value::Int(id)) => u64::try_from(id).unwrap_or(0),
            // A user that may not ask is woken by the end of its read.
            _ => 0,
        };
        self.reader.store(reader, Ordering::Relaxed);
        Ok(reading)
    }

    /// Until it is closed, or an error.
    async fn read(
        &self,
        reading: &mut redis::aio::MultiplexedConnection,
        feeder: &Feeder<StreamReceipt>,
    ) -> Result<(), SourceError> {
        let StreamSettings { stream, group, reclaim, .. } = &self.settings;
        let (look_every, fresh_every) = (BLOCK.min(*reclaim / 2), *reclaim / 3);
        let mut looked = None::<Instant>;
        let mut cursor = FROM_THE_START.to_owned();
        loop {
            if feeder.closed.is_cancelled() {
                return Ok(());
            }
            if self.freshened.lock().elapsed() >= fresh_every {
                self.freshen().await?;
            }
            let is_free = tokio::time::timeout(look_every.min(fresh_every), feeder.has_much_capacity()).await;
            match is_free {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(_) => continue,
            }
            // All that others left behind comes before what is new: it is older.
            if looked.is_none_or(|looked| looked.elapsed() >= look_every) {
                cursor = self.reclaim(&cursor, feeder).await?;
                if cursor == FROM_THE_START {
                    looked = Some(Instant::now());
                }
                continue;
            }
            let mut read = cmd("XREADGROUP");
            let block = look_every.min(fresh_every).as_millis().max(1) as u64;
            read.arg("GROUP").arg(group).arg(&self.consumer).arg("COUNT").arg(self.settings.prefetch);
            read.arg("BLOCK").arg(block).arg("STREAMS").arg(stream).arg(">");
            let asked = Instant::now();
            let reply = link::ask_on(reading, &read, BLOCK * 6).await?;
            self.hand_over(read_read(reply).into_iter().map(|entry| (entry, 1)).collect(), asked, feeder).await;
        }
    }

    /// Takes over some of what others left behind. Where to look next; [`FROM_THE_START`] when all was looked at.
    async fn reclaim(&self, cursor: &str, feeder: &Feeder<StreamReceipt>) -> Result<String, SourceError> {
        let StreamSettings { stream, group, reclaim, .. } = &self.settings;
        let count = feeder.free().clamp(1, CLAIM_AT_ONCE);
        let mut claim = cmd("XAUTOCLAIM");
        claim.arg(stream).arg(group).arg(&self.consumer).arg(reclaim.as_millis() as u64).arg(cursor);
        claim.arg("COUNT").arg(count);
        let asked = Instant::now();
        let (next, entries) = read_claimed(self.link.ask(&claim).await?);
        let mut claimed = Vec::new();
        for entry in entries {
            if self.in_hand.lock().contains(&entry.id) {
                continue;
            }
            let mut pending = cmd("XPENDING");
            pending.arg(stream).arg(group).arg(entry.id).arg(entry.id).arg(1);
            let deliveries = read_pending(self.link.ask(&pending).await?).unwrap_or(2);
            claimed.push((entry, deliveries.max(2)));
        }
        self.hand_over(claimed, asked, feeder).await;
        Ok(next)
    }

    /// What is here is not idle. What another took over, because this was silent, is let go.
    async fn freshen(&self) -> Result<(), SourceError> {
        let StreamSettings { stream, group, .. } = &self.settings;
        let (ids, began): (Vec<EntryId>, _) = (self.in_hand.lock().iter().copied().collect(), Instant::now());
        if !ids.is_empty() {
            let mut pending = cmd("XPENDING");
            // Some more than those in hand: replies that were lost on their way are pending, too.
            pending.arg(stream).arg(group).arg("-").arg("+").arg(ids.len() + PENDING_BESIDE).arg(&self.consumer);
            let ours = read_all_pending(self.link.ask(&pending).await?);
            let (ours, lost): (Vec<EntryId>, Vec<EntryId>) = ids.into_iter().partition(|id| ours.contains(id));
            for some in ours.chunks(1_000) {
                let mut claim = cmd("XCLAIM");
                claim.arg(stream).arg(group).arg(&self.consumer).arg(0).arg(some);
                self.link.ask(claim.arg("JUSTID")).await?;
            }
            let mut in_hand = self.in_hand.lock();
            for id in &lost {
                in_hand.remove(id);
            }
        }
        *self.freshened.lock() = began;
        Ok(())
    }

    /// Whether another may have taken it over. Then it is let go, and is delivered again.
    fn is_lost(&self, receipt: &StreamReceipt) -> bool {
        let mut in_hand = self.in_hand.lock();
        if receipt.delivered.max(*self.freshened.lock()).elapsed() >= self.settings.reclaim {
            in_hand.remove(&receipt.entry_id);
        }
        !in_hand.contains(&receipt.entry_id)
    }

    async fn hand_over(&self, entries: Vec<(StreamEntry, u32)>, delivered: Instant, feeder: &Feeder<StreamReceipt>) {
        self.in_hand.lock().extend(entries.iter().map(|(entry, _)| entry.id));
        let incoming = entries.into_iter().map(|(entry, deliveries)| {
            let receipt = StreamReceipt { entry_id: entry.id, deliveries, delivered };
            Incoming { message: entry.message(&self.settings.stream, deliveries), receipt }
        });
        // What is not given back is reclaimed.
        let _ = self.give_back_all(&feeder.push_all(incoming.collect()).await).await;
    }

    /// Not what another may have taken over: it is delivered again anyway.
    async fn give_back(&self, receipt: &StreamReceipt, delay: Duration) -> Result<(), SourceError> {
        if self.is_lost(receipt) {
            return Ok(());
        }
        self.in_hand.lock().remove(&receipt.entry_id);
        self.link.ask(&self.giving_back(receipt, delay)).await.map(drop)
    }

    fn giving_back(&self, receipt: &StreamReceipt, delay: Duration) -> redis::Cmd {
        let idle = self.settings.reclaim.saturating_sub(delay).as_millis() as u64;
        let mut claim = cmd("XCLAIM");
        claim.arg(&self.settings.stream).arg(&self.settings.group).arg(RETURNED).arg(0).arg(receipt.entry_id);
        claim.arg("IDLE").arg(idle).arg("RETRYCOUNT").arg(receipt.deliveries - 1).arg("JUSTID");
        claim
    }

    /// What was fetched and not begun, many with one write. Whatever becomes of the writes, none of it is kept from others any more.
    async fn give_back_all(&self, all: &[Incoming<StreamReceipt>]) -> Result<(), SourceError> {
        let ours: Vec<&StreamReceipt> =
            all.iter().map(|incoming| &incoming.receipt).filter(|receipt| !self.is_lost(receipt)).collect();
        {
            let mut in_hand = self.in_hand.lock();
            for receipt in &ours {
                in_hand.remove(&receipt.entry_id);
            }
        }
        for some in ours.chunks(GIVEN_BACK_AT_ONCE) {
            let mut commands = redis::pipe();
            for receipt in some {
                commands.add_command(self.giving_back(receipt, Duration::ZERO));
            }
            self.link.ask_all(&commands).await?;
        }
        Ok(())
    }
}

impl Source for StreamSource {
    type Receipt = StreamReceipt;

    fn name(&self) -> &str {
        &self.shared.settings.stream
    }

    async fn next(&self) -> Option<Incoming<StreamReceipt>> {
        self.feed.next().await
    }

    async fn acknowledge(&self, receipt: StreamReceipt) -> Result<(), SourceError> {
        self.acknowledge_all(vec![receipt]).await.pop().unwrap_or(Ok(()))
    }

    fn acknowledges_at_once(&self) -> usize {
        self.shared.settings.prefetch.min(ACKNOWLEDGED_AT_ONCE) as usize
    }

    /// One command for all, and one more where they are deleted.
    async fn acknowledge_all(&self, receipts: Vec<StreamReceipt>) -> Vec<Result<(), SourceError>> {
        let StreamShared { settings, link, in_hand, .. } = &*self.shared;
        let ids: Vec<EntryId> = receipts.iter().map(|receipt| receipt.entry_id).collect();
        let mut commands = redis::pipe();
        commands.cmd("XACK").arg(&settings.stream).arg(&settings.group).arg(&ids);
        if settings.delete {
            commands.cmd("XDEL").arg(&settings.stream).arg(&ids);
        }
        let acknowledged = link.ask_all(&commands).await;
        let mut in_hand = in_hand.lock();
        for id in &ids {
            in_hand.remove(id);
        }
        vec![acknowledged; ids.len()]
    }

    async fn give_back(&self, receipt: StreamReceipt, delay: Duration) -> Result<(), SourceError> {
        self.shared.give_back(&receipt, delay).await
    }

    fn is_stale(&self, receipt: &StreamReceipt) -> bool {
        self.shared.is_lost(receipt)
    }

    fn health(&self) -> SourceHealth {
        self.shared.health.look()
    }

    async fn pause(&self) {
        self.give_back_fetched(&self.feed.hold(|_| true)).await;
    }

    async fn resume(&self) {
        self.feed.release();
    }

    async fn close(&self) {
        let left = self.feed.close().await;
        let reader = self.shared.reader.swap(0, Ordering::Relaxed);
        if reader != 0 {
            // It may be waiting for messages, for as long as a read does.
            let mut wake = cmd("CLIENT");
            let _ = self.shared.link.ask(wake.arg("UNBLOCK").arg(reader)).await;
        }
        self.give_back_fetched(&left).await;
    }

    /// The consumer leaves the group, if nothing of it is pending: its pending messages would go with it.
    async fn end(&self) {
        let fetching = self.fetching.lock().take();
        if let Some(fetching) = fetching {
            let _ = fetching.await;
        }
        let StreamShared { settings, link, consumer, .. } = &*self.shared;
        let mut pending = cmd("XPENDING");
        pending.arg(&settings.stream).arg(&settings.group).arg("-").arg("+").arg(1).arg(consumer);
        let is_empty = matches!(link.ask(&pending).await, Ok(redis::Value::Array(rows)) if rows.is_empty());
        if is_empty {
            let mut leave = cmd("XGROUP");
            let _ = link.ask(leave.arg("DELCONSUMER").arg(&settings.stream).arg(&settings.group).arg(consumer)).await;
        }
    }
}
