//! One queue that is consumed, on a connection of its own: how its consumer begins, is cancelled, and ends without losing what it acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Consumer};
use parking_lot::Mutex;

use super::link::{RabbitLink, source_error};
use super::settling::Settling;
use crate::worker::headers::fresh_id;
use crate::worker::source::SourceError;

/// How long a consumer that is cancelled, or closes, waits for its queue.
const HAND_ON_BOUND: Duration = Duration::from_secs(3);
/// A channel hands on 32 frames before it keeps any. This many need not be looked after.
const NEVER_KEPT: u64 = 16;
/// A consumer that is there for its reply alone takes no message that another would take.
const LAST_OF_ALL: i32 = -1_000;
/// Said of a consumer whose deliveries end.
pub(super) const CANCELLED: &str = "the broker cancelled the consumer";

/// A queue that is consumed, and its connection.
#[derive(Debug)]
pub(super) struct ConsumedQueue {
    pub queue: String,
    pub prefetch: u16,
    pub link: RabbitLink,
    pub consumer: Mutex<Option<OpenConsumer>>,
}

/// What is consumed now.
#[derive(Debug, Clone)]
pub(super) struct OpenConsumer {
    channel: Channel,
    tag: String,
    settling: Arc<Settling>,
    /// By us: the end of its deliveries is not reported.
    is_cancelled: Arc<AtomicBool>,
}

impl ConsumedQueue {
    /// On a channel of its own, with its own prefetch.
    pub async fn consume(&self) -> Result<(Consumer, Arc<Settling>), SourceError> {
        self.consumer.lock().take();
        let (channel, settling) = (self.link.open_channel().await?, Arc::new(Settling::default()));
        let consumer = self.consume_on(channel, &settling).await?;
        Ok((consumer, settling))
    }

    async fn consume_on(&self, channel: Channel, settling: &Arc<Settling>) -> Result<Consumer, SourceError> {
        channel.basic_qos(self.prefetch, BasicQosOptions::default()).await.map_err(source_error)?;
        let tag = format!("resil-{}", fresh_id());
        let options = BasicConsumeOptions { no_ack: false, ..BasicConsumeOptions::default() };
        let queue = self.queue.as_str();
        let consuming = channel.basic_consume(queue.into(), tag.as_str().into(), options, FieldTable::default());
        let consumer = consuming.await.map_err(source_error)?;
        let (settling, is_cancelled) = (Arc::clone(settling), Arc::default());
        *self.consumer.lock() = Some(OpenConsumer { channel, tag, settling, is_cancelled });
        Ok(consumer)
    }

    /// After a pause, on the same channel: what was not begun before is still here.
    pub async fn consume_again(&self) -> Result<Consumer, SourceError> {
        let paused = self.consumer.lock().clone();
        let OpenConsumer { channel, settling, .. } = paused.ok_or_else(|| SourceError(CANCELLED.to_owned()))?;
        self.consume_on(channel, &settling).await
    }

    /// Its channel stays: what is running is acknowledged on it.
    pub async fn cancel(&self) {
        let consumer = self.consumer.lock().clone();
        if let Some(OpenConsumer { channel, tag, settling, is_cancelled }) = consumer {
            is_cancelled.store(true, Ordering::SeqCst);
            let sent = settling.sent();
            let cancelled = tokio::time::timeout(HAND_ON_BOUND, cancel(&channel, &tag)).await;
            if matches!(cancelled, Ok(Ok(()))) {
                settling.note_handed_on(sent);
            }
        }
    }

    /// Whether its deliveries end because they are not wanted any more.
    pub fn is_cancelled(&self) -> bool {
        self.consumer.lock().as_ref().is_some_and(|consumer| consumer.is_cancelled.load(Ordering::SeqCst))
    }

    /// Disconnects, once the queue has what was sent to the channel.
    pub async fn end(&self) {
        let consumer = self.consumer.lock().take();
        if let Some(OpenConsumer { channel, settling, .. }) = consumer
            && settling.maybe_kept() > NEVER_KEPT
        {
            let handed_on = tokio::time::timeout(HAND_ON_BOUND, self.hand_on(&channel)).await;
            if !matches!(handed_on, Ok(Ok(()))) {
                tracing::debug!(queue = self.queue, "the last acknowledgements may be lost; those messages come again");
            }
        }
        self.link.close().await;
    }

    /// Makes the channel hand on all that it keeps. A queue takes a new consumer in its turn, behind what was sent to it before, and the reply comes after
    /// that. The consumer takes one message at most, if nobody else wants it, which goes back with the channel.
    async fn hand_on(&self, channel: &Channel) -> lapin::Result<()> {
        channel.basic_qos(1, BasicQosOptions::default()).await?;
        let (tag, mut last) = (format!("resil-{}", fresh_id()), FieldTable::default());
        last.insert("x-priority".into(), AMQPValue::LongInt(LAST_OF_ALL));
        let queue = self.queue.as_str();
        let _unread =
            channel.basic_consume(queue.into(), tag.as_str().into(), BasicConsumeOptions::default(), last).await?;
        cancel(channel, &tag).await
    }
}

/// Cancels a consumer, and returns when the channel keeps nothing of what was sent before.
///
/// The broker confirms a cancel before the queue has it, and waits for the queue then. So the first question is answered when the queue has stored all
/// that it was sent, and has notified the channel. The second is answered after the channel has read that, and handed on what it kept.
async fn cancel(channel: &Channel, tag: &str) -> lapin::Result<()> {
    channel.basic_cancel(tag.into(), BasicCancelOptions::default()).await?;
    for _ in 0..2 {
        channel.basic_qos(1, BasicQosOptions::default()).await?;
    }
    Ok(())
}
