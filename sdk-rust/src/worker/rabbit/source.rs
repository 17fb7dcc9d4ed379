//! The source: consumes a queue, and what the broker gave up beside it.
//!
//! ```text
//! connect ─▶ declare ─▶ qos ─▶ consume ─▶ deliveries ──▶ feed
//!    ▲                                        │ channel or connection ends
//!    └──────── full jitter, for ever ◀────────┘   (the attempts count from 1 again after a success)
//! ```

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use lapin::{Acker, Consumer};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::consumed::{CANCELLED, ConsumedQueue};
use super::delivery::{incoming, is_of_stream};
use super::link::{RabbitLink, address_of, source_error};
use super::settings::RabbitSettings;
use super::settling::{Settling, acknowledge_all, give_back};
use super::topology::{DeclaredQueue, dead_queue, declare};
use crate::client::Client;
use crate::error::Error;
use crate::telemetry;
use crate::worker::RECONNECT;
use crate::worker::feed::{Feed, Feeder, feed};
use crate::worker::source::{GivenUpBy, HealthCell, Incoming, IncomingMessage, Source, SourceError, SourceHealth};

/// What was given up is moved a few at a time.
const DEAD_PREFETCH: u16 = 10;
/// How many messages are handed over, and acknowledged, together.
const AT_ONCE: usize = 100;
/// How long connecting and declaring may take.
const OPEN_BOUND: Duration = Duration::from_secs(5);
const OF_STREAM: &str = "the queue is a stream: read it as a stream, or give the worker a queue of its own";

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
    has_warned_of_ids: AtomicBool,
    /// Others may have the queue meanwhile.
    is_paused: AtomicBool,
}

impl RabbitSource {
    /// Connects in the background, for ever. To be called on a tokio runtime.
    pub fn new(client: &Client, settings: RabbitSettings) -> Result<Self, Error> {
        settings.validate()?;
        let uri = settings.uri(settings.consumer.as_ref())?;
        let address = address_of(&uri);
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
            health: HealthCell::of(client, &settings.queue, address),
            has_warned_of_ids: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
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
        // A pause outlives its connection.
        tokio::select! {
            biased;
            () = feeder.closed.cancelled() => return,
            () = feeder.released() => {}
        }
        let error = tokio::select! {
            biased;
            () = feeder.closed.cancelled() => return,
            opened = in_time(&shared.fresh.link, shared.open()) => match opened {
                Ok((fresh, settling, declared)) => {
                    connections.increment(1);
                    shared.health.connected();
                    delays = RECONNECT.delays();
                    if declared.has_dead && consuming_dead.is_none() {
                        let dead = consume_dead(client.clone(), Arc::clone(&shared), give_up.clone());
                        let task = tokio::spawn(feeder.closed.clone().run_until_cancelled_owned(dead));
                        consuming_dead = Some(AbortOnDropHandle::new(task));
                    }
                    match shared.pump(fresh, settling, declared, &mut given_up, &feeder).await {
                        Some(error) => error,
                        None => return,
                    }
                }
                Err(error) => error,
            }
        };
        shared.health.away(error.0);
        let delay = delays.next(&client.inner().options.random);
        tokio::select! {
            biased;
            () = feeder.closed.cancelled() => return,
            () = client.clock().sleep(delay) => {}
        }
    }
}

/// Hands over what the broker gave up, and reconnects until it is closed.
async fn consume_dead(client: Client, shared: Arc<RabbitShared>, give_up: mpsc::Sender<Incoming<RabbitReceipt>>) {
    let (queue, mut delays) = (&shared.dead.queue, RECONNECT.delays());
    let (mut has_failed, mut is_warned) = (false, false);
    loop {
        let error = match in_time(&shared.dead.link, shared.dead.consume()).await {
            Ok((mut consumer, settling)) => loop {
                match consumer.next().await {
                    Some(Ok(delivery)) => {
                        (delays, has_failed, is_warned) = (RECONNECT.delays(), false, false);
                        let incoming = incoming(delivery, &shared.settings.queue, &settling, true);
                        if give_up.send(incoming).await.is_err() {
                            return;
                        }
                    }
                    Some(Err(error)) => break source_error(error),
                    None if shared.dead.is_cancelled() => return,
                    None => break SourceError(CANCELLED.to_owned()),
                }
            },
            Err(error) => error,
        };
        // While the broker is away that has been said already; here it is noticed before, now and then.
        let is_alone = std::mem::replace(&mut has_failed, true) && shared.health.look().is_connected;
        if is_alone && !std::mem::replace(&mut is_warned, true) {
            tracing::warn!(%error, queue, "what the broker gave up cannot be consumed; it is tried again");
        }
        client.clock().sleep(delays.next(&client.inner().options.random)).await;
    }
}

/// A broker that starts may accept, and not reply.
async fn in_time<T>(
    link: &RabbitLink,
    opening: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    match tokio::time::timeout(OPEN_BOUND, opening).await {
        Ok(opened) => opened,
        Err(_) => {
            link.forget().await;
            Err(SourceError("the broker did not reply in time".to_owned()))
        }
    }
}

impl RabbitShared {
    /// Where order matters the consumer stays until its connection is closed: the queue then takes back all that was not acknowledged, in its
    /// order, before the next consumer gets anything. One that is cancelled has a successor at once, which gets what comes behind.
    async fn closed(&self) {
        if self.settings.single_active {
            std::future::pending::<()>().await;
        }
    }

    /// Whether another consumes the queue. Asked on a channel of its own.
    async fn has_others(&self) -> bool {
        let asking = async {
            let channel = self.fresh.link.open_channel().await.ok()?;
            let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            let queue = self.settings.queue.as_str();
            let found = channel.queue_declare(queue.into(), passive, FieldTable::default()).await.ok()?;
            let _ = channel.close(200, "asked".into()).await;
            Some(found.consumer_count())
        };
        tokio::time::timeout(OPEN_BOUND, asking).await.ok().flatten().is_some_and(|consumers| consumers > 1)
    }

    /// The pause is over: the next deliveries. `None`: it was closed.
    async fn resumed(&self, feeder: &Feeder<RabbitReceipt>) -> Option<Result<Consumer, SourceError>> {
        tokio::select! {
            biased;
            () = feeder.closed.cancelled() => None,
            () = feeder.released() => Some(self.fresh.consume_again().await),
        }
    }

    /// Logged when it begins to matter, once: two deliveries of one message cannot be distinguished from two messages.
    fn note_without_id(&self, message: &IncomingMessage) {
        if message.is_redelivered && !message.has_own_id && !self.has_warned_of_ids.swap(true, Ordering::Relaxed) {
            let queue = &self.settings.queue;
            tracing::warn!(
                queue,
                "a message without message_id was delivered again: it has another id now, so what it did before is not known"
            );
        }
    }

    /// Its deliveries, and what there is.
    async fn open(&self) -> Result<(Consumer, Arc<Settling>, DeclaredQueue), SourceError> {
        self.fresh.consumer.lock().take();
        let declared = declare(&self.fresh.link, &self.settings).await?;
        let (consumer, settling) = self.fresh.consume().await?;
        Ok((consumer, settling, declared))
    }

    /// Hands over what is delivered. Why it ended; `None` if it was closed.
    async fn pump(
        &self,
        mut fresh: Consumer,
        settling: Arc<Settling>,
        declared: DeclaredQueue,
        given_up: &mut mpsc::Receiver<Incoming<RabbitReceipt>>,
        feeder: &Feeder<RabbitReceipt>,
    ) -> Option<SourceError> {
        // What came when nothing was fetched any more, because of a pause or an end.
        let mut kept: Vec<Incoming<RabbitReceipt>> = Vec::new();
        let ended = loop {
            let (mut all, mut ended, mut is_cancelled) = (Vec::new(), None, false);
            let mut delivered = tokio::select! {
                biased;
                () = feeder.closed.cancelled() => break None,
                Some(dead) = given_up.recv() => {
                    all.push(dead);
                    None
                }
                () = feeder.released(), if !kept.is_empty() => {
                    all.append(&mut kept);
                    None
                }
                delivered = fresh.next() => Some(delivered),
            };
            // What came with it is handed over with it.
            while let Some(next) = delivered {
                match next {
                    Some(Ok(delivery)) if is_of_stream(&delivery) => ended = Some(SourceError(OF_STREAM.to_owned())),
                    Some(Ok(delivery)) => {
                        let mut incoming = incoming(delivery, &self.settings.queue, &settling, false);
                        self.note_without_id(&incoming.message);
                        if declared.may_lose(incoming.message.deliveries) {
                            incoming.message.given_up.get_or_insert(GivenUpBy::DeliveryLimit);
                        }
                        all.push(incoming);
                    }
                    Some(Err(error)) => ended = Some(source_error(error)),
                    None if self.fresh.is_cancelled() => is_cancelled = true,
                    None => ended = Some(SourceError(CANCELLED.to_owned())),
                }
                if ended.is_some() || is_cancelled || all.len() >= AT_ONCE {
                    break;
                }
                delivered = fresh.next().now_or_never();
            }
            kept.extend(feeder.push_all(all).await);
            if ended.is_some() {
                break ended;
            }
            if is_cancelled {
                // The broker does not deliver these here again.
                let (back, stays) = kept.drain(..).partition(may_go_back);
                give_back_all(back).await;
                kept = stays;
                fresh = match self.resumed(feeder).await {
                    Some(Ok(consumer)) => consumer,
                    Some(Err(error)) => break Some(error),
                    None => break None,
                };
            } else if !kept.is_empty() && !feeder.closed.is_cancelled() && !self.fresh.is_cancelled() {
                // The pause began while this was about to consume.
                self.fresh.cancel().await;
            }
        };
        if ended.is_none() {
            self.closed().await;
        }
        give_back_all(kept).await;
        ended
    }
}

/// RabbitMQ counts what goes back, and a message that was returned too often looks like one that kills its workers. So a pause gives it back once.
fn may_go_back(fetched: &Incoming<RabbitReceipt>) -> bool {
    fetched.message.deliveries <= 1
}

async fn give_back_all(all: Vec<Incoming<RabbitReceipt>>) {
    for left in all {
        let _ = give_back(left.receipt).await;
    }
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
        // With the connection, and in order.
        if self.shared.settings.single_active && self.feed.is_closed() {
            return Ok(());
        }
        give_back(receipt).await
    }

    fn is_stale(&self, receipt: &RabbitReceipt) -> bool {
        !receipt.acker.usable()
    }

    fn health(&self) -> SourceHealth {
        self.shared.health.look()
    }

    /// Only where another consumes the queue: here it would be counted for nothing. The consumer is cancelled first: else the broker would deliver what
    /// goes back here again. Where order matters it stays here.
    async fn pause(&self) {
        let shared = &self.shared;
        let is_alone = shared.settings.single_active || self.feed.is_closed() || !shared.has_others().await;
        if is_alone || shared.is_paused.swap(true, Ordering::SeqCst) {
            return;
        }
        let fetched = self.feed.hold(may_go_back);
        shared.fresh.cancel().await;
        give_back_all(fetched).await;
    }

    async fn resume(&self) {
        if self.shared.is_paused.swap(false, Ordering::SeqCst) {
            self.feed.release();
        }
    }

    /// The consumer is cancelled before the feed is closed: what is still on its way arrives, and goes back with the others.
    async fn close(&self) {
        if self.shared.settings.single_active {
            self.feed.close().await;
            self.shared.dead.cancel().await;
            return;
        }
        let held = self.feed.hold_until_closed();
        let giving_back = async {
            self.shared.fresh.cancel().await;
            give_back_all(held).await;
            give_back_all(self.feed.close().await).await;
        };
        tokio::join!(giving_back, self.shared.dead.cancel());
    }

    async fn end(&self) {
        let consuming = self.consuming.lock().take();
        tokio::join!(self.shared.fresh.end(), self.shared.dead.end());
        drop(consuming);
    }
}
