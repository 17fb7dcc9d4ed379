//! Tokens, and the lease a token holds: what idempotent work and single flights have in common.
//!
//! A token names one attempt, never a process: asking again with it is asking for the same answer again, so a lost reply
//! costs nothing. [`hold`] keeps its lease alive while the work runs. It renews at a third of the lease, trusts only
//! `sent + lease - drift` by the monotonic clock, and returns when the lease can no longer be trusted.

use std::time::Duration;

use resil_wire::answer::{Answer, Renewed};
use resil_wire::command::Command;
use resil_wire::holding::Bind;
use resil_wire::idempotency::RenewCall;

use crate::client::Client;
use crate::clock::Moment;
use crate::error::Error;
pub(crate) use crate::holding::{from_ms, span, trusted_until};

/// Why a lease counts as lost that no server said was lost.
pub(crate) const LAPSED_HERE: &str = "its lease ended before the server confirmed a renewal";

/// Names of processes are cut here, so that a token always fits.
const NAME_BYTES_MAX: usize = 128;

/// Whose lease it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Idempotency,
    Flight,
}

/// One attempt's name: who, and a number nobody else draws.
pub(crate) fn fresh_token(client: &Client) -> String {
    let name = shortened(&client.inner().options.name, NAME_BYTES_MAX);
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
pub(crate) fn odd(answer: &Answer) -> Error {
    Error::Internal(format!("the server answered something else: {}", shortened(&format!("{answer:?}"), 80)))
}

/// A lease that is to be kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tenure<'a> {
    pub client: &'a Client,
    pub kind: Kind,
    pub key: &'a str,
    pub token: &'a str,
    pub lease: Duration,
    pub until: Moment,
}

/// Renews until the lease is lost, and says why it was. `renewed` is told how long each renewal may be trusted.
pub(crate) async fn hold(tenure: Tenure<'_>, renewed: impl Fn(Moment)) -> &'static str {
    let Tenure { client, kind, key, token, lease, mut until } = tenure;
    let clock = client.clock();
    let mut pause = lease / 3;
    loop {
        clock.sleep(pause.min(until.saturating_sub(clock.now()))).await;
        let sent = clock.now();
        if sent >= until {
            return LAPSED_HERE;
        }
        let bind = if kind == Kind::Flight { client.backend().bind() } else { Bind::None };
        let call = RenewCall { key: key.as_bytes(), token: token.as_bytes(), lease: span(lease), bind };
        let command = match kind {
            Kind::Idempotency => Command::IdempRenew(call),
            Kind::Flight => Command::FlightRenew(call),
        };
        let answer = tokio::select! {
            biased;
            answer = client.backend().call(&command) => answer,
            () = clock.sleep(until.saturating_sub(sent)) => return LAPSED_HERE,
        };
        pause = match answer {
            Ok(Answer::Renewed(Renewed::Granted { .. })) => {
                until = trusted_until(sent, lease);
                renewed(until);
                lease / 3
            }
            Ok(Answer::Renewed(Renewed::Lost(reason))) => return reason.text(),
            // Perhaps it was renewed, perhaps not: asked again soon, for as long as the lease can be trusted.
            Ok(_) | Err(_) => lease / 10,
        };
    }
}
