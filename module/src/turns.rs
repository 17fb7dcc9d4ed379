//! How many replies to calls that waited are sent at once. What goes beyond a turn's share is put off, in its order.
//!
//! - Small ones: [`TURN`] in a millisecond. The server's own part in each, which writes to a socket, is the larger one.
//! - Large ones: as far as the clients before have taken theirs (`wake-budget`), or have had a second to do so. Those that do not
//!   read are then left to the server's own limits. Small ones do not wait for large ones.

use std::collections::{HashSet, VecDeque};

use resil_core::waited::WaiterId;
use resil_core::waited::session::ClientId;
use resil_core::{Instant, Span};

use crate::clients::Listed;
use crate::edge::blocking::Handle;
use crate::{clock, config};

/// How many replies are sent in a millisecond.
const TURN: usize = 100;
const TURN_LASTS: Span = Span::from_ms(1);

/// Replies up to this size are not worth counting.
const SMALL: usize = 4096;

/// How often, a millisecond apart, clients are asked whether they have taken their replies.
const TRIES: u32 = 1_000;

#[derive(Default)]
pub struct Turns {
    /// Small replies that are put off, in their order. Some have been sent meanwhile.
    small: VecDeque<WaiterId>,
    large: VecDeque<WaiterId>,
    /// How many replies were sent in this turn, and when that began.
    sent: usize,
    turn: Option<Instant>,
    /// The clients that last got a large reply, and what of those replies is not yet on its way.
    slice: Vec<ClientId>,
    slice_bytes: usize,
    /// Those of them whose reply the server has not written yet.
    unwritten: HashSet<Handle>,
    tries: u32,
}

impl Turns {
    /// Nothing is put off.
    pub fn is_idle(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    /// True if a reply of `bytes` has to wait, for whatever reason: it is remembered.
    pub fn puts_off(&mut self, id: WaiterId, bytes: usize, must_wait: bool) -> bool {
        let may_go = !must_wait
            && if bytes > SMALL {
                self.large.is_empty() && self.can_send(bytes)
            } else {
                self.small.is_empty() && self.has_some_left()
            };
        if !may_go {
            if bytes > SMALL { &mut self.large } else { &mut self.small }.push_back(id);
        }
        !may_go
    }

    /// A blocked client is sent a reply of `bytes`.
    pub fn sent(&mut self, client: ClientId, handle: Handle, bytes: usize) {
        self.sent_one();
        if bytes > SMALL {
            self.slice.push(client);
            self.unwritten.insert(handle);
            self.slice_bytes += bytes;
            self.tries = 0;
        }
    }

    pub fn sent_one(&mut self) {
        self.sent += 1;
    }

    /// The server has written the reply, or its client is gone.
    pub fn written(&mut self, handle: &Handle) {
        self.unwritten.remove(handle);
    }

    /// A new turn.
    pub fn begin(&mut self) {
        (self.sent, self.turn) = (0, None);
    }

    /// The next small reply of this turn.
    pub fn next_small(&mut self) -> Option<WaiterId> {
        if self.sent >= TURN { None } else { self.small.pop_front() }
    }

    /// True if it is time to see who has taken a large reply.
    pub fn may_look(&self) -> bool {
        !self.large.is_empty() && self.unwritten.is_empty()
    }

    pub fn to_look_at(&self) -> Vec<ClientId> {
        self.slice.clone()
    }

    /// How the clients of [`to_look_at`](Self::to_look_at) are, as far as they are there.
    pub fn have_not_taken(&mut self, clients: &[Listed]) {
        self.tries += 1;
        let behind = clients.iter().filter(|client| client.unsent > 0 && self.tries <= TRIES);
        let behind: Vec<_> = behind.map(|client| (client.id, client.unsent)).collect();
        self.slice_bytes = behind.iter().map(|(_, unsent)| usize::try_from(*unsent).unwrap_or(usize::MAX)).sum();
        self.slice = behind.into_iter().map(|(client, _)| client).collect();
    }

    /// The next large reply, if it can be sent.
    pub fn next_large(&mut self, bytes: impl FnOnce(WaiterId) -> usize) -> Option<WaiterId> {
        let id = *self.large.front()?;
        if self.can_send(bytes(id)) { self.large.pop_front() } else { None }
    }

    fn can_send(&self, bytes: usize) -> bool {
        self.slice.is_empty() || self.slice_bytes.saturating_add(bytes) <= config::wake_budget()
    }

    /// True if one more reply may be sent in this turn.
    fn has_some_left(&mut self) -> bool {
        let now = clock::now();
        if self.turn.is_none_or(|turn| turn.until(now) >= TURN_LASTS || turn > now) {
            (self.sent, self.turn) = (0, Some(now));
        }
        self.sent < TURN
    }
}
