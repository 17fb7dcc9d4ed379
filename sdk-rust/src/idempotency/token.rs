//! Tokens: what idempotent work and single flights have in common.
//!
//! A token names one attempt, never a process: asking again with it is asking for the same reply again, so a lost reply
//! costs nothing. Its lease is kept by [`leases`](crate::leases).

use resil_wire::command::Reply;

use crate::client::Client;
use crate::error::Error;
pub(crate) use crate::holding::{from_ms, span};

/// Names of processes are cut here, so that a token always fits.
const NAME_BYTES_MAX: usize = 128;
/// Of the number, in hexadecimal.
const NUMBER_DIGITS: usize = 32;

/// One attempt's name: who, and a number nobody else draws.
pub(crate) fn fresh_token(client: &Client) -> String {
    let name = shortened(&client.inner().name, NAME_BYTES_MAX);
    let mut token = String::with_capacity(name.len() + 1 + NUMBER_DIGITS);
    token.push_str(name);
    token.push(':');
    // By hand: every get of a cache has a token, and `format!` takes ten times as long.
    for byte in rand::random::<u128>().to_be_bytes() {
        token.push(digit(byte >> 4));
        token.push(digit(byte & 15));
    }
    token
}

fn digit(nibble: u8) -> char {
    char::from(b"0123456789abcdef"[usize::from(nibble)])
}

/// At most `bytes_max` bytes of `text`, cut between two characters.
pub(crate) fn shortened(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// What a server says that replies something else than it was asked.
pub(crate) fn odd(reply: &Reply) -> Error {
    Error::Internal(format!("the server answered something else: {}", shortened(&format!("{reply:?}"), 80)))
}
