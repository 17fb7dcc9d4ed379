//! Values that are loaded once.
//!
//! A load belongs to a task of the runtime, because it goes on when the caller who started it gives up. Its function runs as a
//! call of its own on the thread of JavaScript, which keeps the function under a number until nobody can start it any more.

use std::sync::Arc;

use bytes::Bytes;
use napi::bindgen_prelude::{BigInt, Buffer};
use napi_derive::napi;
use resil::cache::{self, Loaded, Versioned};
use resil::{Error, Failure};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::client::Client;
use crate::convert::{bigint, makes, methods, millis, number, run_with};
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
async fn load(kept: Kept) -> Result<Option<Bytes>, LoadFailure> {
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

fn json(bytes: &Bytes) -> Result<Box<RawValue>, LoadFailure> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    RawValue::from_string(text)
        .map_err(|error| Failure::Resil(Error::Internal(format!("a value is not JSON: {error}"))))
}

/// The loader that JavaScript keeps under this number.
fn kept(number: u32) -> napi::Result<Kept> {
    Ok(Kept { number, queue: queue()? })
}

#[napi]
impl Cached {
    /// As JSON, which is checked when it comes back. `number`: under which JavaScript keeps the loader.
    #[napi]
    pub fn get_json(&self, key: String, number: u32) -> napi::Result<Word> {
        let (cached, kept) = (self.0.clone(), kept(number)?);
        run_with(|_| async move {
            let loader = move |_| async move { load(kept).await?.map(|bytes| json(&bytes)).transpose() };
            let loaded = cached.get_json(&key, loader).await.map_err(shared)?;
            let text = |value: Box<RawValue>| (Bytes::from(String::from(Box::<str>::from(value))), None);
            Ok(found(loaded, text))
        })
    }

    #[napi]
    pub fn get_bytes(&self, key: String, number: u32) -> napi::Result<Word> {
        let (cached, kept) = (self.0.clone(), kept(number)?);
        run_with(|_| async move {
            let loaded = cached.get(&key, move |_| load(kept)).await.map_err(shared)?;
            Ok(found(loaded, |bytes| (bytes, None)))
        })
    }
}

methods! { Cached(cached) {
    invalidate(key: String) => cached.invalidate(&key).await;
    invalidate_soft(key: String) => cached.invalidate_soft(&key).await;
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
            let loader = move |_| async move { load(kept).await.map(|bytes| bytes.and_then(versioned)) };
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
