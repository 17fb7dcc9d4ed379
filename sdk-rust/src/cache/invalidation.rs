//! Saying that what is cached is out of date: after a commit, or when an event says so.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use futures_util::{Stream, StreamExt};
use resil_wire::command::{Command, Reply};
use resil_wire::single_flight::{Brought, ClearCall, InvalidateCall, SetCall};
use tokio::task::JoinHandle;

use super::entry::check_tags;
use super::{Cached, CallOptions};
use crate::error::Error;
use crate::idempotency::token::{odd, span};

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
    /// holds for every process but for replies that were already on their way, and local tiers, which hear of it within
    /// milliseconds. An error means that the invalidation may not have reached the others: their values live on until their ttl.
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
        let part = core.table.layout.part(key);
        let (value_key, under) = (part.value_key(key), Some(part.name_key.as_bytes()));
        let call = InvalidateCall { key: value_key.as_bytes(), soft: leaves == Leaves::Stale, under };
        let invalidated_now = self.say(&Command::FlightInvalidate(call)).await;
        core.table.forget(key);
        Ok(invalidated_now? == 1)
    }

    /// Asks twice if the first reply was lost: to say it again does no harm.
    async fn say(&self, command: &Command<'_>) -> Result<i64, Error> {
        let backend = self.0.client.backend();
        let mut reply = backend.call(command).await;
        if matches!(&reply, Err(error) if error.says_away()) {
            reply = backend.call(command).await;
        }
        match reply? {
            Reply::Number(number) => Ok(number),
            other => Err(odd(&other)),
        }
    }

    /// As [`invalidate`](Self::invalidate), for several keys at once. Returns of how many anything was known. After an error some may
    /// not have got it.
    pub async fn invalidate_many(&self, keys: impl IntoIterator<Item = impl AsRef<str>>) -> Result<usize, Error> {
        let keys: Vec<_> = keys.into_iter().collect();
        let known = try_join_all(keys.iter().map(|key| self.invalidate(key.as_ref()))).await?;
        Ok(known.into_iter().filter(|known| *known).count())
    }

    /// Everything that was kept with this tag is out of date, and so is every load under way that is to be kept with it. It costs
    /// the same however many they are. In a cluster it goes to each of the 16 parts of the cache.
    pub async fn invalidate_tag(&self, tag: &str) -> Result<(), Error> {
        check_tags(&[tag.to_owned()])?;
        self.clear_where(Some(tag)).await
    }

    /// Everything under this name is out of date, and so is every load under way.
    pub async fn clear(&self) -> Result<(), Error> {
        self.clear_where(None).await
    }

    async fn clear_where(&self, tag: Option<&str>) -> Result<(), Error> {
        let table = &self.0.table;
        table.forget_all();
        let tell = async |name_key: &str| {
            let tags = tag.into_iter().map(str::as_bytes).collect();
            let call = ClearCall { name: name_key.as_bytes(), tags, soft: false };
            self.say(&Command::FlightClear(call)).await
        };
        let invalidated_now = try_join_all(table.layout.name_keys().map(tell)).await;
        table.forget_all();
        invalidated_now.map(drop)
    }

    /// Keeps a value that is known without a load: it was just written, say. A load under way is void, and who waits for it gets
    /// this. Call it **after** the change is committed. Of two that set the same key at the same time either may be the last: where that
    /// matters, [`invalidate`](Self::invalidate).
    pub async fn set(&self, key: &str, value: impl Into<Bytes>, options: CallOptions) -> Result<(), Error> {
        options.validate()?;
        let (core, value) = (&self.0, value.into());
        core.table.forget(key);
        let part = core.table.layout.part(key);
        let value_key = part.value_key(key);
        let ttl = core.jittered(options.ttl.unwrap_or(core.settings.ttl));
        let call = SetCall {
            key: value_key.as_bytes(),
            ttl: span(ttl),
            under: Some(part.name_key.as_bytes()),
            tags: options.tags.iter().map(|tag| tag.as_bytes()).collect(),
            brought: Brought::Value { bytes: &value, stale: span(core.settings.stale) },
        };
        let invalidated_now = self.say(&Command::FlightSet(call)).await;
        core.table.forget(key);
        invalidated_now.map(drop)
    }

    /// Invalidates every key that `keys` says, in the background, until it ends, the client closes, or the task is aborted.
    /// The number of keys invalidated comes out of the task.
    ///
    /// While the server is away a key is tried again, as [`invalidate_eventually`](Self::invalidate_eventually) does; the stream is not
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
                match cached.invalidate_eventually(&key).await {
                    Ok(is_dropped) => invalidated += u64::from(is_dropped),
                    Err(error) => {
                        tracing::warn!(%error, name = &*cached.0.meters.name, "a key could not be invalidated");
                    }
                }
            }
        })
    }

    /// As [`invalidate`](Self::invalidate), and while the server is away it is tried again, until a value with the ttl of the settings would
    /// have gone by itself. True if the server knows; false if that time was over before. Other errors are returned at once.
    pub async fn invalidate_eventually(&self, key: &str) -> Result<bool, Error> {
        let (settings, client) = (&self.0.settings, &self.0.client);
        let (clock, closing) = (client.clock(), &client.inner().closing);
        let gone_at = clock.now() + settings.ttl.max(settings.negative_ttl) + settings.stale;
        let mut pause = PAUSE_FIRST;
        loop {
            match self.invalidate(key).await {
                Ok(_) => return Ok(true),
                Err(error) if !error.says_away() => return Err(error),
                Err(error) if clock.now() >= gone_at => {
                    tracing::warn!(%error, name = &*self.0.meters.name, "a key was not invalidated before its time was over");
                    return Ok(false);
                }
                Err(_) => {}
            }
            tokio::select! {
                biased;
                () = closing.cancelled() => return Err(Error::ShuttingDown),
                () = clock.sleep(pause) => {}
            }
            pause = (pause * 2).min(PAUSE_LAST);
        }
    }
}
