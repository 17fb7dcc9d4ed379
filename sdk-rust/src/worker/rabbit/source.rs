//! The source: consumes a queue, and what the broker gave up beside it.
//!
//! ```text
//! connect ─▶ declare ─▶ qos ─▶ consume ─▶ deliveries ──▶ feed
//!    ▲                                        │ channel or connection ends
//!    └──────── full jitter, for ever ◀────────┘   (the attempts count from 1 again after a success)
//! ```

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Acker, Channel, Consumer};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::link::{RabbitLink, told};
use super::settings::RabbitSettings;
use super::settling::{Settling, acknowledge_all, give_back};
use super::topology::{dead_queue, declare};
use crate::client::Client;
use crate::error::Error;
use crate::telemetry;
use crate::worker::RECONNECT;
use crate::worker::feed::{Feed, Feeder, feed};
use crate::worker::headers::{AGGREGATE, Headers, KIND, SCHEMA, fresh_id};
use crate::worker::source::{GivenUpBy, HealthCell, Incoming, IncomingMessage, Source, SourceError, SourceHealth};

/// What was given up is moved a few at a time.
const DEAD_PREFETCH: u16 = 10;
/// How many messages are handed over, and acknowledged, together.
const AT_ONCE: usize = 100;
/// How long connecting and declaring may take.
const OPEN_BOUND: Duration = Duration::from_secs(5);
const CANCELLED: &str = "the broker cancelled the consumer";

/// What settles a message of a queue.
#[derive(Debug)]
pub struct RabbitReceipt {
    pub(super) acker: Acker,
    pub(super) tag: u64,
    pub(super) settling: Arc<Settling>,
}

/// Consumes a queue.
#[derive(Debug)]
pub struct RabbitSource {
    shared: Arc<RabbitShared>,
    feed: Feed<RabbitReceipt>,
    consuming: Mutex<Option<AbortOnDropHandle<()>>>,
}

#[derive(Debug)]
struct RabbitShared {
    settings: RabbitSettings,
    fresh: ConsumedQueue,
    /// What the broker gave up. A message that no client can read ends its connection whenever it is delivered, so this one has its own.
    dead: ConsumedQueue,
    health: HealthCell,
}

/// A queue that is consumed, and its connection.
#[derive(Debug)]
struct ConsumedQueue {
    queue: String,
    prefetch: u16,
    link: RabbitLink,
    consumer: Mutex<Option<(Channel, String)>>,
}

impl RabbitSource {
    /// Connects in the background, for ever. To be called on a tokio runtime.
    pub fn new(client: &Client, settings: RabbitSettings) -> Result<Self, Error> {
        settings.validate()?;
        let uri = settings.uri(settings.consumer.as_ref())?;
        let consumed = |queue: String, prefetch: u16| ConsumedQueue {
            link: RabbitLink::new(uri.clone(), format!("{} consumes {queue}", client.inner().name)),
            queue,
            prefetch,
            consumer: Mutex::default(),
        };
        let (feeder, feed) = feed(usize::from(settings.total_prefetch()));
        let shared = Arc::new(RabbitShared {
            fresh: consumed(settings.queue.clone(), settings.total_prefetch()),
            dead: consumed(dead_queue(&settings.queue), DEAD_PREFETCH),
            health: HealthCell::new(),
            settings,
        });
        let task = tokio::spawn(consume(client.clone(), Arc::clone(&shared), feeder));
        Ok(Self { shared, feed, consuming: Mutex::new(Some(AbortOnDropHandle::new(task))) })
    }
}

async fn consume(client: Client, shared: Arc<RabbitShared>, feeder: Feeder<RabbitReceipt>) {
    let queue = &shared.settings.queue;
    let connections = telemetry::worker_connections(&queue.as_str().into());
    let mut delays = RECONNECT.delays();
    let (give_up, mut given_up) = mpsc::channel(1);
    let mut consuming_dead = None;
    loop {
        let error = tokio::select! {
            biased;
            () = feeder.closed.cancelled() => return,
            opened = in_time(&shared.fresh.link, shared.open()) => match opened {
                Ok((fresh, has_dead)) => {
                    connections.increment(1);
                    shared.health.connected();
                    delays = RECONNECT.delays();
                    if has_dead && consuming_dead.is_none() {
                        let task = tokio::spawn(consume_dead(client.clone(), Arc::clone(&shared), give_up.clone()));
                        consuming_dead = Some(AbortOnDropHandle::new(task));
                    }
                    match shared.pump(fresh, &mut given_up, &feeder).await {
                        Some(error) => error,
                        None => return,
                    }
                }
                Err(error) => error,
            }
        };
        if shared.health.away(error.0.clone()) {
            tracing::warn!(%error, queue, "a queue cannot be consumed; it is tried again");
        }
        let delay = delays.next(&client.inner().options.random);
        tokio::select! {
            biased;
            () = feeder.closed.cancelled() => return,
            () = client.clock().sleep(delay) => {}
        }
    }
}

/// Hands over what the broker gave up, and reconnects for ever.
async fn consume_dead(client: Client, shared: Arc<RabbitShared>, give_up: mpsc::Sender<Incoming<RabbitReceipt>>) {
    let (queue, mut delays, mut is_warned) = (&shared.dead.queue, RECONNECT.delays(), false);
    loop {
        let error = match in_time(&shared.dead.link, shared.dead.consume()).await {
            Ok(mut consumer) => {
                let settling = Arc::new(Settling::default());
                loop {
                    match consumer.next().await {
                        Some(Ok(delivery)) => {
                            (delays, is_warned) = (RECONNECT.delays(), false);
                            let incoming = incoming(delivery, &shared.settings.queue, &settling, true);
                            if give_up.send(incoming).await.is_err() {
                                return;
                            }
                        }
                        Some(Err(error)) => break told(error),
                        None => break SourceError(CANCELLED.to_owned()),
                    }
                }
            }
            Err(error) => error,
        };
        if !std::mem::replace(&mut is_warned, true) {
            tracing::warn!(%error, queue, "what the broker gave up cannot be consumed; it is tried again");
        }
        client.clock().sleep(delays.next(&client.inner().options.random)).await;
    }
}

/// A broker that starts may accept, and not answer.
async fn in_time<T>(
    link: &RabbitLink,
    opening: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    match tokio::time::timeout(OPEN_BOUND, opening).await {
        Ok(opened) => opened,
        Err(_) => {
            link.forget().await;
            Err(SourceError("the broker did not answer in time".to_owned()))
        }
    }
}

impl ConsumedQueue {
    /// On a channel of its own, with its own prefetch.
    async fn consume(&self) -> Result<Consumer, SourceError> {
        self.consumer.lock().take();
        let channel = self.link.open_channel().await?;
        channel.basic_qos(self.prefetch, BasicQosOptions::default()).await.map_err(told)?;
        let tag = format!("resil-{}", fresh_id());
        let options = BasicConsumeOptions { no_ack: false, ..BasicConsumeOptions::default() };
        let queue = self.queue.as_str();
        let consuming = channel.basic_consume(queue.into(), tag.as_str().into(), options, FieldTable::default());
        let consumer = consuming.await.map_err(told)?;
        *self.consumer.lock() = Some((channel, tag));
        Ok(consumer)
    }

    /// Its channel stays: what is running is acknowledged on it.
    async fn cancel(&self) {
        let consumer = self.consumer.lock().clone();
        if let Some((channel, tag)) = consumer {
            let _ = channel.basic_cancel(tag.as_str().into(), BasicCancelOptions::default()).await;
        }
    }

    async fn end(&self) {
        self.consumer.lock().take();
        self.link.close().await;
    }
}

impl RabbitShared {
    /// Its deliveries, and whether there is a queue of what the broker gave up.
    async fn open(&self) -> Result<(Consumer, bool), SourceError> {
        self.fresh.consumer.lock().take();
        let has_dead = declare(&self.fresh.link, &self.settings).await?;
        Ok((self.fresh.consume().await?, has_dead))
    }

    /// Hands over what is delivered. Why it ended; `None` if it was closed.
    async fn pump(
        &self,
        mut fresh: Consumer,
        given_up: &mut mpsc::Receiver<Incoming<RabbitReceipt>>,
        feeder: &Feeder<RabbitReceipt>,
    ) -> Option<SourceError> {
        let settling = Arc::new(Settling::default());
        loop {
            let (mut all, mut ended) = (Vec::new(), None);
            let mut delivered = tokio::select! {
                biased;
                () = feeder.closed.cancelled() => return None,
                Some(dead) = given_up.recv() => {
                    all.push(dead);
                    None
                }
                delivered = fresh.next() => Some(delivered),
            };
            // What came with it is handed over with it.
            while let Some(next) = delivered {
                match next {
                    Some(Ok(delivery)) => all.push(incoming(delivery, &self.settings.queue, &settling, false)),
                    Some(Err(error)) => ended = Some(told(error)),
                    None => ended = Some(SourceError(CANCELLED.to_owned())),
                }
                if ended.is_some() || all.len() >= AT_ONCE {
                    break;
                }
                delivered = fresh.next().now_or_never();
            }
            let refused = feeder.push_all(all).await;
            if !refused.is_empty() {
                for refused in refused {
                    let _ = give_back(refused.receipt).await;
                }
                return None;
            }
            if ended.is_some() {
                return ended;
            }
        }
    }
}

fn incoming(delivery: Delivery, queue: &str, settling: &Arc<Settling>, is_dead: bool) -> Incoming<RabbitReceipt> {
    let Delivery { redelivered, properties, data, acker, delivery_tag: tag, .. } = delivery;
    settling.begin(tag);
    let table = properties.headers().clone().unwrap_or_default();
    let mut headers: Headers = texts_of(&table).collect();
    let own_id = properties.message_id().as_ref().map(|id| id.as_str().to_owned()).filter(|id| !id.is_empty());
    let has_own_id = own_id.is_some();
    let kind = headers.remove(KIND).or_else(|| properties.kind().as_ref().map(|kind| kind.as_str().to_owned()));
    let returns = match table.inner().get("x-delivery-count") {
        Some(value) => number(value),
        // A classic queue says only that it is not the first time.
        None => u32::from(redelivered),
    };
    let message = IncomingMessage {
        id: format!("{queue}/{}", own_id.unwrap_or_else(fresh_id)),
        has_own_id,
        payload: Bytes::from(data),
        kind,
        source: Some(queue.to_owned()),
        aggregate: headers.remove(AGGREGATE),
        schema: headers.remove(SCHEMA).and_then(|text| text.parse().ok()),
        headers,
        attempt: 0,
        deliveries: returns.saturating_add(1),
        is_redelivered: redelivered,
        given_up: is_dead.then(|| given_up(&table)),
    };
    Incoming { message, receipt: RabbitReceipt { acker, tag, settling: Arc::clone(settling) } }
}

/// Why the broker gave it up, by the latest of its deaths.
fn given_up(table: &FieldTable) -> GivenUpBy {
    let latest = match table.inner().get("x-death") {
        Some(AMQPValue::FieldArray(deaths)) => deaths.as_slice().first().cloned(),
        _ => None,
    };
    let reason = match &latest {
        Some(AMQPValue::FieldTable(death)) => death.inner().get("reason").and_then(text_of),
        _ => None,
    };
    match reason.as_deref() {
        Some("delivery_limit") => GivenUpBy::DeliveryLimit,
        other => GivenUpBy::Broker(other.unwrap_or("unknown").to_owned()),
    }
}

fn number(value: &AMQPValue) -> u32 {
    let wide = match value {
        AMQPValue::ShortShortInt(number) => i64::from(*number),
        AMQPValue::ShortShortUInt(number) => i64::from(*number),
        AMQPValue::ShortInt(number) => i64::from(*number),
        AMQPValue::ShortUInt(number) => i64::from(*number),
        AMQPValue::LongInt(number) => i64::from(*number),
        AMQPValue::LongUInt(number) => i64::from(*number),
        AMQPValue::LongLongInt(number) => *number,
        _ => 0,
    };
    u32::try_from(wide).unwrap_or(0)
}

fn text_of(value: &AMQPValue) -> Option<String> {
    match value {
        AMQPValue::LongString(text) => Some(String::from_utf8_lossy(text.as_bytes()).into_owned()),
        AMQPValue::ShortString(text) => Some(text.as_str().to_owned()),
        AMQPValue::Boolean(is) => Some(is.to_string()),
        AMQPValue::LongLongInt(number) => Some(number.to_string()),
        AMQPValue::LongInt(number) => Some(number.to_string()),
        AMQPValue::LongUInt(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Headers that are texts and numbers. What the broker adds by itself is left out.
fn texts_of(table: &FieldTable) -> impl Iterator<Item = (String, String)> {
    let is_own = |name: &str| !matches!(name, "x-delivery-count" | "x-death") && !name.starts_with("x-first-death");
    let own = table.inner().iter().filter(move |(name, _)| is_own(name.as_str()));
    own.filter_map(|(name, value)| Some((name.as_str().to_owned(), text_of(value)?))).collect::<Vec<_>>().into_iter()
}

impl Source for RabbitSource {
    type Receipt = RabbitReceipt;

    fn name(&self) -> &str {
        &self.shared.settings.queue
    }

    async fn next(&self) -> Option<Incoming<RabbitReceipt>> {
        self.feed.next().await
    }

    async fn acknowledge(&self, receipt: RabbitReceipt) -> Result<(), SourceError> {
        self.acknowledge_all(vec![receipt]).await.pop().unwrap_or(Ok(()))
    }

    /// While some are sent the broker delivers the others.
    fn acknowledges_at_once(&self) -> usize {
        (usize::from(self.shared.settings.total_prefetch()) / 2).clamp(1, AT_ONCE)
    }

    async fn acknowledge_all(&self, receipts: Vec<RabbitReceipt>) -> Vec<Result<(), SourceError>> {
        acknowledge_all(receipts).await
    }

    /// The broker cannot wait: it delivers again at once.
    async fn give_back(&self, receipt: RabbitReceipt, _delay: Duration) -> Result<(), SourceError> {
        give_back(receipt).await
    }

    fn is_stale(&self, receipt: &RabbitReceipt) -> bool {
        !receipt.acker.usable()
    }

    fn health(&self) -> SourceHealth {
        self.shared.health.look()
    }

    async fn close(&self) {
        tokio::join!(self.shared.fresh.cancel(), self.shared.dead.cancel());
        for left in self.feed.close().await {
            let _ = give_back(left.receipt).await;
        }
    }

    async fn end(&self) {
        self.consuming.lock().take();
        tokio::join!(self.shared.fresh.end(), self.shared.dead.end());
    }
}
