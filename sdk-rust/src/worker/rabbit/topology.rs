//! What is declared on the broker, again after every reconnect: the same said twice is the same.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};

use super::link::{RabbitLink, reply_code, told};
use super::settings::{QueueKind, RabbitBinding, RabbitSettings};
use crate::worker::SourceError;

/// The queue is there with other arguments.
const PRECONDITION_FAILED: u16 = 406;
/// The user may use it, and may not declare it.
const ACCESS_REFUSED: u16 = 403;

pub(super) fn dead_queue(queue: &str) -> String {
    format!("{queue}.dead")
}

fn exchange_kind(name: &str) -> ExchangeKind {
    match name {
        "direct" => ExchangeKind::Direct,
        "fanout" => ExchangeKind::Fanout,
        "topic" => ExchangeKind::Topic,
        "headers" => ExchangeKind::Headers,
        other => ExchangeKind::Custom(other.to_owned()),
    }
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

fn arguments(settings: &RabbitSettings) -> FieldTable {
    let mut table = FieldTable::default();
    table.insert("x-dead-letter-exchange".into(), text(&format!("{}.dlx", settings.queue)));
    if settings.single_active {
        table.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
    }
    if settings.queue_kind == QueueKind::Quorum {
        table.insert("x-queue-type".into(), text("quorum"));
        table.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(i64::from(settings.delivery_limit)));
        // What is given up is not lost on its way.
        table.insert("x-dead-letter-strategy".into(), text("at-least-once"));
        table.insert("x-overflow".into(), text("reject-publish"));
    }
    table
}

fn dead_arguments(settings: &RabbitSettings) -> FieldTable {
    let mut table = FieldTable::default();
    if settings.queue_kind == QueueKind::Quorum {
        table.insert("x-queue-type".into(), text("quorum"));
    }
    table
}

/// Declares all of it, each part for itself: a queue that is there with other arguments still gets its bindings. Whether there is a queue of what the
/// broker gave up.
pub(super) async fn declare(link: &RabbitLink, settings: &RabbitSettings) -> Result<bool, SourceError> {
    if settings.queue_kind == QueueKind::AsItIs {
        return Ok(false);
    }
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let (queue, dlx, dead) = (&settings.queue, format!("{}.dlx", settings.queue), dead_queue(&settings.queue));
    let mut declaring = Declaring { link, queue, channel: link.open_channel().await? };
    declaring
        .part(async |channel| {
            channel.exchange_declare(dlx.as_str().into(), ExchangeKind::Fanout, durable, FieldTable::default()).await
        })
        .await?;
    declaring.part(async |channel| declare_queue(channel, &dead, dead_arguments(settings)).await).await?;
    let has_dead = declaring.has(&dead).await?;
    if has_dead {
        declaring.part(async |channel| bind(channel, &dead, &dlx, "").await).await?;
    }
    declaring.part(async |channel| declare_queue(channel, queue, arguments(settings)).await).await?;
    // Without it there is nothing to consume.
    is_there(&declaring.channel, queue).await.map_err(told)?;
    for RabbitBinding { exchange, exchange_kind: kind, routing_key } in &settings.bindings {
        let name = exchange.as_str();
        declaring
            .part(async |channel| {
                channel.exchange_declare(name.into(), exchange_kind(kind), durable, FieldTable::default()).await
            })
            .await?;
        declaring.part(async |channel| bind(channel, queue, name, routing_key).await).await?;
    }
    let _ = declaring.channel.close(200, "declared".into()).await;
    Ok(has_dead)
}

/// A channel that is opened again where the broker closes it because of what it was told.
struct Declaring<'a> {
    link: &'a RabbitLink,
    queue: &'a str,
    channel: Channel,
}

impl Declaring<'_> {
    /// What is there with other arguments, or may not be declared by this user, is used as it is.
    async fn part(&mut self, declare: impl AsyncFnOnce(&Channel) -> lapin::Result<()>) -> Result<(), SourceError> {
        match declare(&self.channel).await {
            Ok(()) => Ok(()),
            Err(error) if matches!(reply_code(&error), Some(PRECONDITION_FAILED | ACCESS_REFUSED)) => {
                tracing::warn!(%error, queue = self.queue, "what the broker has is used as it is");
                self.channel = self.link.open_channel().await?;
                Ok(())
            }
            Err(error) => Err(told(error)),
        }
    }

    async fn has(&mut self, queue: &str) -> Result<bool, SourceError> {
        let is_there = is_there(&self.channel, queue).await.is_ok();
        if !is_there {
            self.channel = self.link.open_channel().await?;
        }
        Ok(is_there)
    }
}

async fn declare_queue(channel: &Channel, name: &str, arguments: FieldTable) -> lapin::Result<()> {
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(name.into(), durable, arguments).await.map(drop)
}

async fn is_there(channel: &Channel, name: &str) -> lapin::Result<()> {
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(name.into(), passive, FieldTable::default()).await.map(drop)
}

async fn bind(channel: &Channel, queue: &str, exchange: &str, routing_key: &str) -> lapin::Result<()> {
    let options = QueueBindOptions::default();
    channel.queue_bind(queue.into(), exchange.into(), routing_key.into(), options, FieldTable::default()).await
}
