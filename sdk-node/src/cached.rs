//! Values that are loaded once.
//!
//! A load runs in a task of the runtime, so that no caller's end is its end; its function runs on the thread of
//! JavaScript, which is told by letter. JavaScript keeps the function under a number until it is started, or until
//! nobody can start it any more.

use std::sync::Arc;

use bytes::Bytes;
use napi::bindgen_prelude::{BigInt, Buffer, Env};
use napi_derive::napi;
use resil::cache::{self, Loaded, Versioned};
use resil::settings::CacheSettings;
use resil::{Error, Failure};
use serde_json::value::RawValue;

use crate::client::Client;
use crate::convert::{bigint, millis, now, number, ours, ours_with, settings};
use crate::executor::desk::{Desk, Detail};
use crate::executor::mailbox::Mailbox;
use crate::executor::{Word, mailbox};
use crate::thrown::{Kept, Thrown};

#[napi]
pub struct Cached(cache::Cached);

#[napi]
pub struct VersionedCached(cache::VersionedCached);

#[napi]
impl Client {
    #[napi]
    pub fn cached(&self, env: Env, name: String, said: String) -> napi::Result<Cached> {
        let make = || settings::<CacheSettings>(&said)?.cached(&self.0, &name);
        now(&env, make()).map(Cached)
    }

    #[napi]
    pub fn versioned(&self, env: Env, name: String, said: String) -> napi::Result<VersionedCached> {
        let make = || settings::<CacheSettings>(&said)?.versioned(&self.0, &name);
        now(&env, make()).map(VersionedCached)
    }
}

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

/// Runs the function that JavaScript keeps.
async fn load(mailbox: Arc<Mailbox>, kept: Kept) -> Result<Option<Bytes>, LoadFailure> {
    let attempt = Desk::of_load(&mailbox).attempt_with(Detail { kept: Some(kept.number), ..Detail::default() });
    let done = attempt.await;
    drop(kept);
    done.map(|done| done.bytes)
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

#[napi]
impl Cached {
    /// As JSON, which is checked when it comes back. `number`: under which JavaScript keeps the loader.
    #[napi]
    pub fn get_json(&self, key: String, number: u32) -> napi::Result<Word> {
        let (cached, mailbox) = (self.0.clone(), mailbox()?);
        let kept = Kept { number, mailbox: Arc::clone(&mailbox) };
        ours_with(|_| async move {
            let loader = move |_| async move {
                let bytes = load(mailbox, kept).await?;
                bytes.map(|bytes| json(&bytes)).transpose()
            };
            let loaded = cached.get_json(&key, loader).await.map_err(shared)?;
            let text = |value: Box<RawValue>| (Bytes::from(String::from(Box::<str>::from(value))), None);
            Ok(found(loaded, text))
        })
    }

    #[napi]
    pub fn get_bytes(&self, key: String, number: u32) -> napi::Result<Word> {
        let (cached, mailbox) = (self.0.clone(), mailbox()?);
        let kept = Kept { number, mailbox: Arc::clone(&mailbox) };
        ours_with(|_| async move {
            let loaded = cached.get(&key, move |_| load(mailbox, kept)).await.map_err(shared)?;
            Ok(found(loaded, |bytes| (bytes, None)))
        })
    }

    #[napi]
    pub fn invalidate(&self, key: String) -> napi::Result<Word> {
        let cached = self.0.clone();
        ours(async move { cached.invalidate(&key).await })
    }

    #[napi]
    pub fn invalidate_soft(&self, key: String) -> napi::Result<Word> {
        let cached = self.0.clone();
        ours(async move { cached.invalidate_soft(&key).await })
    }
}

/// Eight bytes of version, the highest first, then the value: as JavaScript hands it over.
fn versioned(mut bytes: Bytes) -> Option<Versioned> {
    let version = u64::from_be_bytes(*bytes.first_chunk()?);
    Some(Versioned { version, bytes: bytes.split_off(size_of::<u64>()) })
}

#[napi]
impl VersionedCached {
    #[napi]
    pub fn get(&self, env: Env, key: String, least: BigInt, number_: u32) -> napi::Result<Word> {
        let least = now(&env, number("atLeast", &least))?;
        let (cached, mailbox) = (self.0.clone(), mailbox()?);
        let kept = Kept { number: number_, mailbox: Arc::clone(&mailbox) };
        ours_with(|_| async move {
            let loader = move |_| async move {
                let bytes = load(mailbox, kept).await?;
                Ok::<_, LoadFailure>(bytes.and_then(versioned))
            };
            let loaded = cached.get_at_least(&key, least, loader).await.map_err(shared)?;
            Ok(found(loaded, |value| (value.bytes, Some(value.version))))
        })
    }

    #[napi]
    pub fn invalidate(&self, key: String) -> napi::Result<Word> {
        let cached = self.0.clone();
        ours(async move { cached.invalidate(&key).await })
    }

    #[napi]
    pub fn invalidate_soft(&self, key: String) -> napi::Result<Word> {
        let cached = self.0.clone();
        ours(async move { cached.invalidate_soft(&key).await })
    }
}
