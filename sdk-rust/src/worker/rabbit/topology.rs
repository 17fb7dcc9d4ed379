//! What is declared on the broker, again after every reconnect: the same said twice is the same.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};

use super::link::{RabbitLink, reply_code, told};
use super::settings::{QueueKind, RabbitSettings};
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

/// Declares all of it. Whether there is a queue of what the broker gave up.
pub(super) async fn declare(link: &RabbitLink, settings: &RabbitSettings) -> Result<bool, SourceError> {
    if settings.queue_kind == QueueKind::AsItIs {
        return Ok(false);
    }
    let channel = link.open_channel().await?;
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let declared = async {
        let (dlx, dead) = (format!("{}.dlx", settings.queue), dead_queue(&settings.queue));
        channel.exchange_declare(dlx.as_str().into(), ExchangeKind::Fanout, durable, FieldTable::default()).await?;
        declare_queue(&channel, &dead, dead_arguments(settings)).await?;
        bind(&channel, &dead, &dlx, "").await?;
        declare_queue(&channel, &settings.queue, arguments(settings)).await?;
        for binding in &settings.bindings {
            let kind = exchange_kind(&binding.exchange_kind);
            channel.exchange_declare(binding.exchange.as_str().into(), kind, durable, FieldTable::default()).await?;
            bind(&channel, &settings.queue, &binding.exchange, &binding.routing_key).await?;
        }
        Ok::<_, lapin::Error>(())
    };
    match declared.await {
        Ok(()) => {
            let _ = channel.close(200, "declared".into()).await;
            Ok(true)
        }
        Err(error) if matches!(reply_code(&error), Some(PRECONDITION_FAILED | ACCESS_REFUSED)) => {
            // The broker closed that channel.
            tracing::warn!(%error, queue = settings.queue, "what the broker has is used as it is");
            let channel = link.open_channel().await?;
            is_there(&channel, &settings.queue).await.map_err(told)?;
            let has_dead = is_there(&channel, &dead_queue(&settings.queue)).await.is_ok();
            let _ = channel.close(200, "looked".into()).await;
            Ok(has_dead)
        }
        Err(error) => Err(told(error)),
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
