//! What the broker delivers, as a message of a worker.

use std::sync::Arc;

use bytes::Bytes;
use lapin::message::Delivery;
use lapin::types::{AMQPValue, FieldTable};

use super::settling::Settling;
use super::source::RabbitReceipt;
use crate::worker::headers::{AGGREGATE, Headers, KIND, SCHEMA, fresh_id};
use crate::worker::source::{GivenUpBy, Incoming, IncomingMessage};

pub(super) fn is_of_stream(delivery: &Delivery) -> bool {
    delivery.properties.headers().as_ref().is_some_and(|table| table.inner().contains_key("x-stream-offset"))
}

pub(super) fn incoming(
    delivery: Delivery,
    queue: &str,
    settling: &Arc<Settling>,
    is_dead: bool,
) -> Incoming<RabbitReceipt> {
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
        is_suspect: false,
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
