//! What the ledger keeps of a message.

use bytes::Bytes;
use resil_core::limits::HEADERS_MAX;
use sha2::{Digest, Sha256};

use super::headers::{CUT, HEADER_ID, Headers, TRACEPARENT, TRACESTATE};
use super::source::IncomingMessage;
use crate::dead_letters::Letter;

/// As the ledger keeps it: the bytes that were sent.
pub(super) fn letter(message: &IncomingMessage) -> Letter {
    Letter {
        id: message.id.clone(),
        payload: Some(message.payload.clone()),
        headers: stored_headers(&message.headers),
        reference: None,
        kind: message.kind.clone(),
        source: message.source.clone(),
        aggregate: message.aggregate.clone(),
        schema: message.schema,
    }
}

/// All of them, or those that messages are followed by, where the ledger would cut them off.
fn stored_headers(headers: &Headers) -> Option<Bytes> {
    let all = headers.to_bytes()?;
    if all.len() <= HEADERS_MAX {
        return Some(all);
    }
    let followed = [TRACEPARENT, TRACESTATE, HEADER_ID];
    let kept = followed.into_iter().filter_map(|name| Some((name, headers.get(name)?)));
    let kept: Headers = kept.chain([(CUT, "headers")]).collect();
    // What is too long even so is left to the ledger, which cuts it off and says so.
    kept.to_bytes().filter(|kept| kept.len() <= HEADERS_MAX).or(Some(all))
}

/// Of a message whose id another message has in the ledger.
pub(super) fn second_id(message: &IncomingMessage) -> String {
    format!("{}~{}", cut(&message.id, 400), digest(&message.payload))
}

fn digest(payload: &[u8]) -> String {
    Sha256::digest(payload).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}
