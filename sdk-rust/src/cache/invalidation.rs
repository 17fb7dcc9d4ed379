//! Saying that what is cached is out of date: after a commit, or when an event says so.

use std::pin::pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use resil_wire::command::{Command, Reply};
use resil_wire::single_flight::InvalidateCall;
use tokio::task::JoinHandle;

use super::Cached;
use crate::error::Error;
use crate::idempotency::token::odd;

const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_LAST: Duration = Duration::from_secs(5);

/// What is left of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    Nothing,
    Stale,
}

impl Cached {
    /// What is known of `key`, or being loaded, is out of date. Call it **after** the change is committed: before, a load can
    /// still read the old. True if anything was known.
    ///
    /// A call of [`get`](Self::get) in this process after this returned never sees what was loaded before, and the same
    /// holds for every process but for replies that were already on their way, and small local tiers, which forget by their own
    /// ttl. An error means that the other processes were not told: their values live on until their ttl.
    pub async fn invalidate(&self, key: &str) -> Result<bool, Error> {
        self.invalidate_leaving(key, Leaves::Nothing).await
    }

    /// As [`invalidate`](Self::invalidate), but the value may still be served as stale, for as long as it could have been.
    pub async fn invalidate_soft(&self, key: &str) -> Result<bool, Error> {
        self.invalidate_leaving(key, Leaves::Stale).await
    }

    async fn invalidate_leaving(&self, key: &str, leaves: Leaves) -> Result<bool, Error> {
        let core = &self.0;
        // Before: a caller that comes while the server is asked does not join what began before. After: nor what began between.
        core.table.forget(key);
        let server_key = core.server_key(key);
        let call = InvalidateCall { key: server_key.as_bytes(), soft: leaves == Leaves::Stale };
        let command = Command::FlightInvalidate(call);
        let mut answer = core.client.backend().call(&command).await;
        if matches!(&answer, Err(error) if error.says_away()) {
            answer = core.client.backend().call(&command).await;
        }
        core.table.forget(key);
        match answer? {
            Reply::Number(number) => Ok(number == 1),
            other => Err(odd(&other)),
        }
    }

    /// Invalidates every key that `keys` says, in the background, until it ends, the client closes, or the task is aborted.
    /// The number of keys invalidated comes out of the task.
    ///
    /// While the server is away a key is tried again, until its value would have gone by itself; the stream is not
    /// read on meanwhile. As tokio's own `spawn`, this has to be called inside of a runtime.
    pub fn invalidate_on(&self, keys: impl Stream<Item = String> + Send + 'static) -> JoinHandle<u64> {
        let cached = self.clone();
        let inner = self.0.client.inner();
        let closing = inner.closing.clone();
        inner.tasks.spawn(async move {
            let mut keys = pin!(keys);
            let mut invalidated = 0;
            loop {
                let key = tokio::select! {
                    biased;
                    () = closing.cancelled() => return invalidated,
                    key = keys.next() => key,
                };
                let Some(key) = key else { return invalidated };
                tokio::select! {
                    biased;
                    is_told = cached.insist(&key) => invalidated += u64::from(is_told),
                    () = closing.cancelled() => return invalidated,
                }
            }
        })
    }

    /// False if the server could not be told before the value went by itself.
    async fn insist(&self, key: &str) -> bool {
        let (settings, clock) = (&self.0.settings, self.0.client.clock());
        let gone_at = clock.now() + settings.ttl.max(settings.negative_ttl) + settings.stale;
        let mut pause = PAUSE_FIRST;
        loop {
            match self.invalidate(key).await {
                Ok(_) => return true,
                Err(error) if error.says_away() && clock.now() < gone_at => {}
                Err(error) => {
                    tracing::warn!(%error, name = &*self.0.meters.name, "a key could not be invalidated");
                    return false;
                }
            }
            clock.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_LAST);
        }
    }
}
