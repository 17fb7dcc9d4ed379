//! Cache-aside with a version check: every value carries the version of what it was made from.
//!
//! A value is stored behind its version (eight bytes, the highest first), under `resil:vcache:<name>:{<key>}`.
//!
//! # What holds
//! - A load that began before an invalidation is never kept, whatever its version: the server voids it.
//! - While a newer version is known (fresh or stale, in the server or in the small tier), an older one that a lagging
//!   source returns does not replace it: the newer one is served as stale until its stale time is over.
//! - [`get_at_least`](VersionedCached::get_at_least) returns that version or a newer one, or an error; what is older is
//!   invalidated and loaded anew, once.
//!
//! # What does not
//! Once nothing is known any more (after a hard invalidation, or when the times are over) an old version can come back from
//! a source that lags. A caller that knows the version to expect should ask for it.

use std::fmt::Display;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::request::{LoaderError, Request};
use super::tier::Rule;
use super::{CacheEntry, Cached, CallOptions, Loaded};
use crate::error::{Error, Failure};

const VERSION_BYTES: usize = size_of::<u64>();

/// A value and its version: a row's counter, or anything else that grows with every change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned {
    pub version: u64,
    pub bytes: Bytes,
}

/// `None` if it is too short to have one.
pub(super) fn version_of(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk::<VERSION_BYTES>().map(|version| u64::from_be_bytes(*version))
}

pub(super) fn written(version: u64, value: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(VERSION_BYTES + value.len());
    bytes.extend_from_slice(&version.to_be_bytes());
    bytes.extend_from_slice(value);
    bytes.freeze()
}

pub(super) fn too_old(cache: &str) -> Error {
    let message = "what was loaded is older than the version that was asked for".to_owned();
    Error::LoadFailed { name: cache.into(), message }
}

fn read(mut bytes: Bytes) -> Result<Versioned, Error> {
    let no_version = || Error::Internal("a cached value has no version".to_owned());
    let version = version_of(&bytes).ok_or_else(no_version)?;
    Ok(Versioned { version, bytes: bytes.split_off(VERSION_BYTES) })
}

/// See [`CachedBuilder::build_versioned`](super::CachedBuilder::build_versioned). Cheap to clone; clones share their flights.
#[derive(Debug, Clone)]
pub struct VersionedCached(pub(super) Cached);

impl VersionedCached {
    /// As [`Cached::get`], of whatever version is known.
    pub async fn get<L, Fut, E>(&self, key: &str, loader: L) -> Result<Loaded<Versioned>, Failure<Arc<E>>>
    where
        L: FnOnce(String) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Option<Versioned>, E>> + Send + 'static,
        E: Display + Send + Sync + 'static,
    {
        self.get_at_least(key, 0, loader).await
    }

    /// As [`Cached::get`], of that version or a newer one. An older one that is cached is invalidated and loaded anew. If
    /// the loader brings an older one, too, it is `LOAD_FAILED`: the source lags behind.
    pub async fn get_at_least<L, Fut, E>(
        &self,
        key: &str,
        version: u64,
        loader: L,
    ) -> Result<Loaded<Versioned>, Failure<Arc<E>>>
    where
        L: FnOnce(String) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Option<Versioned>, E>> + Send + 'static,
        E: Display + Send + Sync + 'static,
    {
        let loader = |key| {
            let loading = loader(key);
            async move {
                let loaded = loading.await.map_err(LoaderError::Theirs)?;
                Ok(loaded.map(|Versioned { version, bytes }| CacheEntry::new(written(version, &bytes))))
            }
        };
        let request = Request::new(CallOptions::default(), loader);
        let loaded = self.0.fetch(key, Rule::AtLeast(version), None, &request).await?;
        let loaded = loaded.try_map(read).map_err(Failure::Resil)?;
        // Where everybody loads alone nobody has checked it.
        match loaded.value() {
            Some(found) if found.version < version => Err(too_old(&self.0.0.meters.name).into()),
            _ => Ok(loaded),
        }
    }

    /// For a binding.
    #[doc(hidden)]
    pub fn give_up_on(&self, gave_up: fn(&dyn std::any::Any) -> bool) {
        self.0.give_up_on(gave_up);
    }

    /// As [`Cached::invalidate`].
    pub async fn invalidate(&self, key: &str) -> Result<bool, Error> {
        self.0.invalidate(key).await
    }

    /// As [`Cached::invalidate_soft`].
    pub async fn invalidate_soft(&self, key: &str) -> Result<bool, Error> {
        self.0.invalidate_soft(key).await
    }
}
