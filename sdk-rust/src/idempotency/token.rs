//! Tokens: what idempotent work and single flights have in common.
//!
//! A token names one attempt, never a process: asking again with it is asking for the same answer again, so a lost reply
//! costs nothing. Its lease is kept by [`leases`](crate::leases).

use resil_wire::command::Reply;

use crate::client::Client;
use crate::error::Error;
pub(crate) use crate::holding::{from_ms, span};

/// Names of processes are cut here, so that a token always fits.
const NAME_BYTES_MAX: usize = 128;

/// One attempt's name: who, and a number nobody else draws.
pub(crate) fn fresh_token(client: &Client) -> String {
    let name = shortened(&client.inner().name, NAME_BYTES_MAX);
    format!("{name}:{:032x}", rand::random::<u128>())
}

/// At most `bytes_max` bytes of `text`, cut between two characters.
pub(crate) fn shortened(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// What a server says that answers something else than it was asked.
pub(crate) fn odd(answer: &Reply) -> Error {
    Error::Internal(format!("the server answered something else: {}", shortened(&format!("{answer:?}"), 80)))
}
