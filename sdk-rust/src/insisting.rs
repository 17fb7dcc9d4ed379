//! Giving back what the server may have given to nobody.
//!
//! A call without a reply may have been read. What it was granted hangs on the shared connection, and lasts for as long as that lives, which may be days.
//! So it is given back in the background, until the server replies.
//!
//! - The pauses are 50 ms, doubled, at most a second. Of all that a client has to give back one is tried at a time: a server in trouble is not asked by
//!   thousands at once, and once it replies the others follow without a pause.
//! - It ends when the connection is replaced, because everything on it has ended then, and with the client, which it does not keep alive. While the server is
//!   away it goes on: a connection that only fell silent is the shared one again when the server speaks.
//! - At most [`PENDING_MAX`] are pending; what comes on top of them is tried once.

use std::sync::Arc;
use std::time::Duration;

use resil_wire::command::{Command, Reply};
use resil_wire::holding::Bind;
use tokio::sync::{Mutex, Semaphore};

use crate::client::{Client, WeakClient};
use crate::error::Error;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Each keeps a key and a token.
pub(crate) const PENDING_MAX: usize = 1_000;

/// What all of them share that one client has.
#[derive(Debug)]
pub(crate) struct PendingGiveBacks {
    /// How many may still be pending.
    free: Arc<Semaphore>,
    turn: Arc<Mutex<()>>,
}

impl Default for PendingGiveBacks {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(PENDING_MAX)), turn: Arc::default() }
    }
}

/// Speaks for a client that may be dropped meanwhile.
pub(crate) struct Insisting {
    weak: WeakClient,
    /// While it is not waiting.
    client: Option<Client>,
    bound_to: Bind,
}

impl Insisting {
    pub fn new(client: &Client) -> Self {
        Self { weak: client.downgrade(), client: Some(client.clone()), bound_to: client.backend().bind() }
    }

    /// Says it until the server replies, or it does not matter any more.
    pub async fn say(&mut self, command: &Command<'_>) -> Result<Reply, Error> {
        let (mut free, mut turn, mut pause) = (None, None, FIRST_PAUSE);
        loop {
            let client = self.client()?;
            let failed = match client.backend().call(command).await {
                Err(error @ (Error::BackendUnavailable(_) | Error::Timeout { .. })) if self.matters(&client) => error,
                reply => {
                    self.client = Some(client);
                    return reply;
                }
            };
            let (clock, closing) = (client.clock().clone(), client.inner().closing.clone());
            let PendingGiveBacks { free: all, turn: turns } = &client.inner().insisting;
            if free.is_none() {
                free = Arc::clone(all).try_acquire_owned().ok();
            }
            if free.is_none() {
                tracing::debug!(error = %failed, "too much is to be given back already: this ends with its connection");
                return Err(failed);
            }
            let turns = Arc::clone(turns);
            drop(client);
            let waiting = async {
                match turn.take().or_else(|| Arc::clone(&turns).try_lock_owned().ok()) {
                    Some(ours) => {
                        clock.sleep(pause).await;
                        (ours, (pause * 2).min(LONGEST_PAUSE))
                    }
                    // The one before had a reply, or what it said did not matter any more.
                    None => (turns.lock_owned().await, pause),
                }
            };
            tokio::select! {
                biased;
                () = closing.cancelled() => return Err(Error::ShuttingDown),
                (ours, next_pause) = waiting => (turn, pause) = (Some(ours), next_pause),
            }
        }
    }

    /// False: the client is closed, or gone.
    pub async fn sleep(&mut self, span: Duration) -> bool {
        let Ok(client) = self.client() else { return false };
        let (clock, closing) = (client.clock().clone(), client.inner().closing.clone());
        self.client = Some(client);
        tokio::select! {
            biased;
            () = closing.cancelled() => false,
            () = clock.sleep(span) => true,
        }
    }

    fn client(&mut self) -> Result<Client, Error> {
        self.client.take().or_else(|| self.weak.upgrade()).ok_or(Error::ShuttingDown)
    }

    /// Whether the connection may still be there that the grant hangs on.
    fn matters(&mut self, client: &Client) -> bool {
        match client.backend().bind() {
            Bind::None => !client.backend().is_cluster() && client.backend().why_away().is_some(),
            bind => {
                if self.bound_to == Bind::None {
                    self.bound_to = bind;
                }
                self.bound_to == bind
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/insisting.rs"]
mod tests;
