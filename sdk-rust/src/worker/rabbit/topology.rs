//! What is declared on the broker, again after every reconnect: the same said twice is the same.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};

use super::link::{RabbitLink, reply_code, source_error};
use super::settings::{QueueKind, RabbitBinding, RabbitSettings};
use crate::worker::SourceError;

/// The queue is there with other arguments.
const PRECONDITION_FAILED: u16 = 406;
/// The user may use it, and may not declare it.
const ACCESS_REFUSED: u16 = 403;

/// The delivery limit that RabbitMQ 4 gives a quorum queue that says none.
const LIMIT_OF_BROKERS: u32 = 20;

/// What waits in the queue of the dead is never given up: from there it would be gone. RabbitMQ 4 takes -1 for no limit, and older ones do not.
const NO_LIMIT: i64 = 1_000_000_000;

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
        table.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(NO_LIMIT));
    }
    table
}

/// What is there.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DeclaredQueue {
    /// There is a queue of what the broker gave up.
    pub has_dead: bool,
    /// After so many returns of a message the broker may give it up, and it would be gone: the queue is another's.
    pub loses_after: Option<u32>,
}

impl DeclaredQueue {
    /// Whether a message that was delivered so often may be gone after another return or two: a stop gives back what was not begun.
    pub fn may_lose(self, deliveries: u32) -> bool {
        self.loses_after.is_some_and(|limit| limit == 0 || deliveries >= limit.max(2))
    }
}

/// Declares all of it, each part for itself: a queue that is there with other arguments still gets its bindings.
pub(super) async fn declare(link: &RabbitLink, settings: &RabbitSettings) -> Result<DeclaredQueue, SourceError> {
    if settings.queue_kind == QueueKind::AsItIs {
        return Ok(DeclaredQueue::default());
    }
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let (queue, dlx, dead) = (&settings.queue, format!("{}.dlx", settings.queue), dead_queue(&settings.queue));
    let mut declaring = Declaring { link, queue, channel: link.open_channel().await?, refused: None };
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
    declaring.refused = None;
    declaring.part(async |channel| declare_queue(channel, queue, arguments(settings)).await).await?;
    // Without it there is nothing to consume.
    if let Err(error) = is_there(&declaring.channel, queue).await {
        let why = declaring.refused.map(|refused| format!("{}; and ", refused.text));
        return Err(SourceError(format!("{}{error}", why.unwrap_or_default())));
    }
    let is_anothers = declaring.refused.as_ref().is_some_and(|refused| refused.code == PRECONDITION_FAILED);
    let loses_after = if is_anothers { declaring.loses_after(settings).await? } else { None };
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
    Ok(DeclaredQueue { has_dead, loses_after })
}

/// What the broker said when it closed a channel.
struct RefusedPart {
    code: u16,
    text: String,
}

/// A channel that is opened again where the broker closes it because of a command.
struct Declaring<'a> {
    link: &'a RabbitLink,
    queue: &'a str,
    channel: Channel,
    /// The latest.
    refused: Option<RefusedPart>,
}

impl Declaring<'_> {
    /// What is there with other arguments, or may not be declared by this user, is used as it is.
    async fn part(&mut self, declare: impl AsyncFnOnce(&Channel) -> lapin::Result<()>) -> Result<(), SourceError> {
        let Err(error) = declare(&self.channel).await else { return Ok(()) };
        match reply_code(&error) {
            Some(code @ (PRECONDITION_FAILED | ACCESS_REFUSED)) => {
                tracing::warn!(%error, queue = self.queue, "what the broker has is used as it is");
                self.refused = Some(RefusedPart { code, text: error.to_string() });
                self.channel = self.link.open_channel().await?;
                Ok(())
            }
            _ => Err(source_error(error)),
        }
    }

    /// Of a queue that is there with other arguments: asked by declaring a quorum queue that drops what it gives up, which the broker compares with it.
    async fn loses_after(&mut self, settings: &RabbitSettings) -> Result<Option<u32>, SourceError> {
        let mut asked = FieldTable::default();
        asked.insert("x-queue-type".into(), text("quorum"));
        asked.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(i64::from(settings.delivery_limit)));
        let queue = self.queue;
        self.refused = None;
        self.part(async |channel| declare_queue(channel, queue, asked.clone()).await).await?;
        let Some(refused) = self.refused.take() else { return Ok(Some(settings.delivery_limit)) };
        match differs(&refused.text) {
            Some(("x-queue-type", Some("stream"))) => {
                let why = "is a stream: read it as a stream, or give the worker a queue of its own";
                Err(SourceError(format!("the queue {queue} {why}")))
            }
            Some(("x-delivery-limit", limit)) => {
                let limit = limit.and_then(|limit| limit.parse().ok()).unwrap_or(LIMIT_OF_BROKERS);
                tracing::warn!(
                    queue,
                    limit,
                    "the broker drops what it gives up of this queue: it goes to the ledger before that"
                );
                Ok(Some(limit))
            }
            // Of a classic queue nothing is given up for its deliveries, and with an exchange for what is dead nothing is lost.
            _ => Ok(None),
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

/// The first argument that the broker found to differ, and what it is.
fn differs(text: &str) -> Option<(&str, Option<&str>)> {
    let (_, named) = text.split_once("inequivalent arg '")?;
    let (name, rest) = named.split_once('\'')?;
    let (_, current) = rest.split_once("but current is ")?;
    let value =
        current.strip_prefix("the value ").unwrap_or(current).strip_prefix('\'').and_then(|text| text.split_once('\''));
    Some((name, value.map(|(value, _)| value)))
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
