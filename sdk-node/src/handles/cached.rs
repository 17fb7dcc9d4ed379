//! Values that are loaded once.
//!
//! A load belongs to a task of the runtime, because it goes on when the caller who started it gives up. Its function runs as a
//! call of its own on the thread of JavaScript, which keeps the function under a number until nobody can start it any more.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use metrics::Counter;
use napi::bindgen_prelude::{BigInt, Buffer, Either, Uint32Array};
use napi_derive::napi;
use parking_lot::Mutex;
use resil::cache::{self, CacheEntry, CallOptions, Glance, Loaded, Versioned};
use resil::{Error, Failure};
use serde::de::IgnoredAny;
use tokio::sync::oneshot;

use crate::client::Client;
use crate::convert::{bigint, makes, methods, millis, number, run_with, settings};
use crate::edge::shared_number;
use crate::executor::attempt::{Call, Detail, Settled};
use crate::executor::queue::Message;
use crate::executor::{Outcome, Word, queue};
use crate::thrown::{Kept, Thrown};

/// With the epoch of its local tier, as JavaScript sees it.
#[napi]
pub struct Cached(pub(crate) cache::Cached, Arc<AtomicU32>);

impl Cached {
    fn of(cached: cache::Cached) -> Self {
        let epoch = cached.epoch();
        cached.give_up_on(is_gone);
        Self(cached, epoch)
    }
}

#[napi]
pub struct VersionedCached(pub(crate) cache::VersionedCached);

impl VersionedCached {
    fn of(cached: cache::VersionedCached) -> Self {
        cached.give_up_on(is_gone);
        Self(cached)
    }
}

/// What was found.
#[napi(object, object_from_js = false)]
pub struct Found {
    /// Text, if it is JSON: a buffer costs several times as much as a short text.
    pub value: Either<String, Buffer>,
    /// `null` if only the server could know.
    pub age_ms: Option<f64>,
    pub stale: bool,
    pub version: Option<BigInt>,
}

/// How a load fails: by its function, or by ours.
type LoadFailure = Failure<Thrown>;

/// The thread of the loader ended, or the loader gave up: that is no reply for others.
fn is_gone(error: &dyn Any) -> bool {
    matches!(error.downcast_ref::<LoadFailure>(), Some(Failure::Resil(Error::Cancelled)))
}

/// Has JavaScript run the loader that it keeps. Dropped, that is aborted.
async fn load(kept: &Kept) -> Result<Option<Bytes>, LoadFailure> {
    let (done, loaded) = oneshot::channel();
    kept.queue.post(Message::Load(kept.number, done));
    loaded.await.unwrap_or(Err(Failure::Resil(Error::Cancelled))).map(|done| done.bytes)
}

/// A load, as a call of its own on the thread of JavaScript.
pub async fn run_load(call: Call, number: u32, mut done: oneshot::Sender<Settled>) -> Outcome {
    let attempt = call.attempt(Some(Detail { kept: Some(number), ..Detail::default() }));
    tokio::select! {
        biased;
        settled = attempt => drop(done.send(settled)),
        () = done.closed() => {}
    }
    Outcome::Attempt(0)
}

/// All who share a load share its failure.
fn shared(failure: Failure<Arc<LoadFailure>>) -> LoadFailure {
    match failure {
        Failure::Inner(inner) => Failure::clone(&inner),
        Failure::Resil(error) => Failure::Resil(error),
        Failure::Exhausted { attempts, last } => Failure::Exhausted { attempts, last: Box::new(shared(*last)) },
    }
}

fn found<T>(loaded: Loaded<T>, is_json: bool, write: impl FnOnce(T) -> (Bytes, Option<u64>)) -> Option<Found> {
    match loaded {
        Loaded::NotFound => None,
        Loaded::Found { value, age, stale } => {
            let (bytes, version) = write(value);
            let value = match std::str::from_utf8(&bytes) {
                Ok(text) if is_json => Either::A(text.to_owned()),
                _ => Either::B(Buffer::from(bytes.to_vec())),
            };
            Some(Found { value, age_ms: age.map(millis), stale, version: version.map(bigint) })
        }
    }
}

/// What a loader brought, as JavaScript writes it: whether it is kept, the length of its options, these as JSON, and the value.
fn entry(mut written: Bytes) -> Result<CacheEntry, LoadFailure> {
    const HEAD: usize = 1 + size_of::<u32>();
    let odd = || Failure::Resil(Error::Internal("a loader's value is not written as an entry".to_owned()));
    let head: [u8; HEAD] = *written.first_chunk().ok_or_else(odd)?;
    let [keep, length @ ..] = head;
    let value_at = HEAD + u32::from_be_bytes(length) as usize;
    if value_at > written.len() {
        return Err(odd());
    }
    let bytes = written.split_off(value_at);
    let said = std::str::from_utf8(&written[HEAD..]).map_err(|_| odd())?;
    let CallOptions { ttl, tags, .. } = settings(said)?;
    Ok(CacheEntry { bytes, ttl, tags, keep: keep != 0 })
}

/// The loader that JavaScript keeps, for one flight.
fn loader(
    kept: &Arc<Kept>,
) -> impl FnOnce(String) -> BoxFuture<'static, Result<Option<CacheEntry>, LoadFailure>> + Send + use<> {
    let kept = Arc::clone(kept);
    move |_| async move { load(&kept).await?.map(entry).transpose() }.boxed()
}

/// Whether JavaScript can read it.
fn is_readable(loaded: &Loaded, is_json: bool) -> bool {
    let is_read = |bytes: &Bytes| serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
    !is_json || loaded.value().is_none_or(is_read)
}

/// What was loaded; if it is not JSON where it should be (another program wrote it), it is loaded anew.
async fn readable(
    cached: &cache::Cached,
    key: &str,
    options: CallOptions,
    kept: &Arc<Kept>,
    is_json: bool,
    loaded: Loaded,
) -> Result<Loaded, LoadFailure> {
    if is_readable(&loaded, is_json) {
        return Ok(loaded);
    }
    cached.invalidate(key).await?;
    let loaded = cached.get_with(key, options, loader(kept)).await.map_err(shared)?;
    match is_readable(&loaded, is_json) {
        true => Ok(loaded),
        false => Err(Failure::Resil(Error::Internal("a value is not JSON".to_owned()))),
    }
}

fn plain(loaded: Loaded, is_json: bool) -> Option<Found> {
    found(loaded, is_json, |bytes| (bytes, None))
}

/// The loader that JavaScript keeps under this number.
fn kept(number: u32) -> napi::Result<Kept> {
    Ok(Kept { number, queue: queue()? })
}

#[napi]
impl Cached {
    /// `number`: under which JavaScript keeps the loader. `said`: the options of this call.
    #[napi]
    pub fn get(&self, key: String, number: u32, said: String, is_json: bool) -> napi::Result<Word> {
        let (cached, kept) = (self.0.clone(), Arc::new(kept(number)?));
        run_with(|_| async move {
            let options: CallOptions = settings(&said)?;
            let loaded = cached.get_with(&key, options.clone(), loader(&kept)).await.map_err(shared)?;
            readable(&cached, &key, options, &kept, is_json, loaded).await.map(|loaded| plain(loaded, is_json))
        })
    }

    #[napi]
    pub fn refresh(&self, key: String, number: u32, said: String, is_json: bool) -> napi::Result<Word> {
        let (cached, kept) = (self.0.clone(), Arc::new(kept(number)?));
        run_with(|_| async move {
            let options: CallOptions = settings(&said)?;
            let loaded = cached.refresh_with(&key, options.clone(), loader(&kept)).await.map_err(shared)?;
            readable(&cached, &key, options, &kept, is_json, loaded).await.map(|loaded| plain(loaded, is_json))
        })
    }

    /// Of distinct keys, with the number of the loader of each.
    #[napi]
    pub fn get_many(&self, keys: Vec<String>, numbers: Vec<u32>, said: String, is_json: bool) -> napi::Result<Word> {
        let cached = self.0.clone();
        let numbers = numbers.into_iter().map(|number| kept(number).map(Arc::new));
        let loaders: HashMap<_, _> = keys.iter().cloned().zip(numbers.collect::<napi::Result<Vec<_>>>()?).collect();
        run_with(|_| async move {
            let options: CallOptions = settings(&said)?;
            let loaders = Arc::new(loaders);
            let of_keys = Arc::clone(&loaders);
            let load = move |key: String| {
                let kept = of_keys.get(&key).cloned();
                async move {
                    let Some(kept) = kept else { return Ok(None) };
                    loader(&kept)(key).await
                }
            };
            let all = cached.get_many_with(&keys, options.clone(), load).await.map_err(shared)?;
            let mut found = Vec::with_capacity(all.len());
            for (key, loaded) in keys.iter().zip(all) {
                let loaded = match loaders.get(key) {
                    Some(kept) => readable(&cached, key, options.clone(), kept, is_json, loaded).await?,
                    None => loaded,
                };
                found.push(plain(loaded, is_json));
            }
            Ok(found)
        })
    }
}

/// What the local tier has.
#[napi(object, object_from_js = false)]
pub struct Glanced {
    pub value: Buffer,
    pub age_ms: f64,
    /// How long it may be kept, as long as the epoch is this one.
    pub left_ms: f64,
    pub epoch: u32,
}

/// Gets of one cache that JavaScript answered.
struct Answered {
    /// As many as there were, over and over from 0. JavaScript alone writes it.
    count: Arc<AtomicU32>,
    /// Where it stood when it was last looked at.
    counted: u32,
    counter: Counter,
}

static ANSWERED: Mutex<Vec<Answered>> = Mutex::new(Vec::new());

/// Before anybody reads what was counted.
pub fn count_answered() {
    ANSWERED.lock().retain_mut(|Answered { count, counted, counter }| {
        let now = count.load(Ordering::Relaxed);
        counter.increment(now.wrapping_sub(std::mem::replace(counted, now)).into());
        // Else JavaScript has let go of it.
        Arc::strong_count(count) > 1
    });
}

#[napi]
impl Cached {
    /// How many values the local tier holds at most; 0: there is none.
    #[napi]
    pub fn local_size(&self) -> f64 {
        self.0.local_size() as f64
    }

    /// Looks at the local tier, and nowhere else.
    #[napi]
    pub fn glance(&self, key: String) -> Option<Glanced> {
        let Glance { bytes, age, left, epoch } = self.0.glance(&key, &self.1)?;
        Some(Glanced { value: Buffer::from(bytes.to_vec()), age_ms: millis(age), left_ms: millis(left), epoch })
    }

    /// The epoch of the local tier, as it is at any time. To be asked for once: no two arrays may have the same memory.
    #[napi]
    pub fn epoch(&self) -> Uint32Array {
        shared_number(&self.1)
    }

    /// The epoch ends, as with an invalidation: JavaScript looks whether it sees that.
    #[napi]
    pub fn end_epoch(&self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }

    /// Where JavaScript counts the gets that it replies.
    #[napi]
    pub fn answered(&self) -> Uint32Array {
        count_answered();
        let count = Arc::default();
        let shown = shared_number(&count);
        ANSWERED.lock().push(Answered { count, counted: 0, counter: self.0.local_gets() });
        shown
    }
}

methods! { Cached(cached) {
    set(key: String, value: Buffer, said: String) => {
        let value = Bytes::from(value.to_vec());
        cached.set(&key, value, settings(&said)?).await
    };
    invalidate(key: String) => cached.invalidate(&key).await;
    invalidate_soft(key: String) => cached.invalidate_soft(&key).await;
    invalidate_eventually(key: String) => cached.invalidate_eventually(&key).await;
    invalidate_many(keys: Vec<String>) => cached.invalidate_many(keys).await.map(|known| known as f64);
    invalidate_tag(tag: String) => cached.invalidate_tag(&tag).await;
    clear() => cached.clear().await;
} }

/// Eight bytes of version, the highest first, then the value: as JavaScript writes it.
fn versioned(mut bytes: Bytes) -> Option<Versioned> {
    let version = u64::from_be_bytes(*bytes.first_chunk()?);
    Some(Versioned { version, bytes: bytes.split_off(size_of::<u64>()) })
}

#[napi]
impl VersionedCached {
    #[napi]
    pub fn get(&self, key: String, least: BigInt, loader: u32) -> napi::Result<Word> {
        let (cached, kept) = (self.0.clone(), kept(loader)?);
        run_with(|_| async move {
            let least = number("atLeast", &least)?;
            let loader = move |_| async move { load(&kept).await.map(|bytes| bytes.and_then(versioned)) };
            let loaded = cached.get_at_least(&key, least, loader).await.map_err(shared)?;
            Ok(found(loaded, false, |value| (value.bytes, Some(value.version))))
        })
    }
}

methods! { VersionedCached(cached) {
    invalidate(key: String) => cached.invalidate(&key).await;
    invalidate_soft(key: String) => cached.invalidate_soft(&key).await;
} }

makes! {
    cached(cache::CacheSettings) -> Cached = Cached::of;
    versioned_cached(cache::CacheSettings) -> VersionedCached = VersionedCached::of;
}
