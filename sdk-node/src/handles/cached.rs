//! Values that are loaded once.
//!
//! A load belongs to a task of the runtime, because it goes on when the caller who started it gives up. Its function runs as a
//! call of its own on the thread of JavaScript, which keeps the function under a number until nobody can start it any more.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use napi::bindgen_prelude::{BigInt, Buffer};
use napi_derive::napi;
use resil::cache::{self, CacheEntry, CallOptions, Loaded, Versioned};
use resil::{Error, Failure};
use serde::de::IgnoredAny;
use tokio::sync::oneshot;

use crate::client::Client;
use crate::convert::{bigint, makes, methods, millis, number, run_with, settings};
use crate::executor::attempt::{Call, Detail, Settled};
use crate::executor::queue::Message;
use crate::executor::{Outcome, Word, queue};
use crate::thrown::{Kept, Thrown};

#[napi]
pub struct Cached(pub(crate) cache::Cached);

#[napi]
pub struct VersionedCached(pub(crate) cache::VersionedCached);

/// What was found.
#[napi(object, object_from_js = false)]
pub struct Found {
    pub value: Buffer,
    /// `null` if only the server could know.
    pub age_ms: Option<f64>,
    pub stale: bool,
    pub version: Option<BigInt>,
}

/// How a load fails: by its function, or by ours.
type LoadFailure = Failure<Thrown>;

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

fn found<T>(loaded: Loaded<T>, write: impl FnOnce(T) -> (Bytes, Option<u64>)) -> Option<Found> {
    match loaded {
        Loaded::NotFound => None,
        Loaded::Found { value, age, stale } => {
            let (bytes, version) = write(value);
            let value = Buffer::from(bytes.to_vec());
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

fn plain(loaded: Loaded) -> Option<Found> {
    found(loaded, |bytes| (bytes, None))
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
            readable(&cached, &key, options, &kept, is_json, loaded).await.map(plain)
        })
    }

    #[napi]
    pub fn refresh(&self, key: String, number: u32, said: String, is_json: bool) -> napi::Result<Word> {
        let (cached, kept) = (self.0.clone(), Arc::new(kept(number)?));
        run_with(|_| async move {
            let options: CallOptions = settings(&said)?;
            let loaded = cached.refresh_with(&key, options.clone(), loader(&kept)).await.map_err(shared)?;
            readable(&cached, &key, options, &kept, is_json, loaded).await.map(plain)
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
                found.push(plain(match loaders.get(key) {
                    Some(kept) => readable(&cached, key, options.clone(), kept, is_json, loaded).await?,
                    None => loaded,
                }));
            }
            Ok(found)
        })
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
            Ok(found(loaded, |value| (value.bytes, Some(value.version))))
        })
    }
}

methods! { VersionedCached(cached) {
    invalidate(key: String) => cached.invalidate(&key).await;
    invalidate_soft(key: String) => cached.invalidate_soft(&key).await;
} }

makes! {
    cached(cache::CacheSettings) -> Cached = Cached;
    versioned_cached(cache::CacheSettings) -> VersionedCached = VersionedCached;
}
