//! Several keys at once. What the server knows comes in one reply for up to a hundred keys; only what is missing, stale or soon to be
//! loaded anew is asked for key by key, because somebody has to lead.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use resil_core::limits::MGET_KEYS_MAX;
use resil_wire::command::{Command, Reply};
use resil_wire::single_flight::{FlightMgetCall, Joined, SeenMany};

use super::request::{LoaderError, Request};
use super::table::{FoundIn, Landing};
use super::{CacheEntry, Cached, CallOptions, Loaded, Rule};
use crate::backend::Backend;
use crate::error::Failure;
use crate::idempotency::token::from_ms;

impl Cached {
    /// The values of several keys, in their order, asked for at once; `loader` is called for each that nobody has.
    pub async fn get_many<L, Fut, E>(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<str>>,
        loader: L,
    ) -> Result<Vec<Loaded>, Failure<Arc<E>>>
    where
        L: Fn(String) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Result<Option<Bytes>, E>> + Send + 'static,
        E: Display + Send + Sync + 'static,
    {
        let loader = move |key| {
            let loading = loader(key);
            async move { loading.await.map(|bytes| bytes.map(CacheEntry::new)) }
        };
        self.get_many_with(keys, CallOptions::default(), loader).await
    }

    /// As [`get_many`](Self::get_many), with options for these keys, and a loader that says what is special about what it brings.
    pub async fn get_many_with<L, Fut, E>(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<str>>,
        options: CallOptions,
        loader: L,
    ) -> Result<Vec<Loaded>, Failure<Arc<E>>>
    where
        L: Fn(String) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Result<Option<CacheEntry>, E>> + Send + 'static,
        E: Display + Send + Sync + 'static,
    {
        options.validate()?;
        let keys: Vec<_> = keys.into_iter().collect();
        let keys: Vec<&str> = keys.iter().map(AsRef::as_ref).collect();
        let known = self.known_of(&keys).await;
        let get = |(key, known)| {
            let (loader, options) = (loader.clone(), options.clone());
            async move {
                let loader = move |key| {
                    let loading = loader(key);
                    async move { loading.await.map_err(LoaderError::Theirs) }
                };
                self.fetch(key, Rule::Plain, known, &Request::new(options, loader)).await
            }
        };
        try_join_all(keys.into_iter().zip(known).map(get)).await
    }

    /// What the server knows of these keys and may be served as it is. A server that does not reply knows nothing.
    async fn known_of(&self, keys: &[&str]) -> Vec<Option<Landing>> {
        let mut known = vec![None; keys.len()];
        let (core, table) = (&self.0, &self.0.table);
        // One key is a JOIN, and in memory a JOIN costs no message.
        if keys.len() < 2
            || matches!(core.client.backend(), Backend::Memory(_))
            || core.client.patience().is_cancelled()
        {
            return known;
        }
        let (local, now) = (core.local(), core.client.clock().now());
        let mut parts: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, key) in keys.iter().enumerate() {
            known[index] = table.kept(key, Rule::Plain, local, now);
            if known[index].is_none() {
                parts.entry(&table.layout.part(key).name_key).or_default().push(index);
            }
        }
        let began = table.invalidations();
        let value_key = |key: &str| table.layout.part(key).value_key(key);
        let asked = parts.iter().flat_map(|(name, of)| of.chunks(MGET_KEYS_MAX).map(move |of| (name, of)));
        let replies = asked.map(|(name, of)| async move {
            let values: Vec<String> = of.iter().map(|index| value_key(keys[*index])).collect();
            let values = values.iter().map(|key| key.as_bytes()).collect();
            let call = FlightMgetCall { name: name.as_bytes(), keys: values };
            (of, core.client.backend().call(&Command::FlightMget(call)).await)
        });
        for (of, reply) in join_all(replies).await {
            let Ok(Reply::SeenMany(SeenMany(seen))) = reply else { continue };
            let now = core.client.clock().now();
            for (index, seen) in of.iter().zip(seen) {
                let Some((content, age_ms, fresh_ms)) = seen.and_then(|seen| self.fresh(seen)) else { continue };
                let (age, fresh) = (from_ms(age_ms), from_ms(fresh_ms));
                table.keep_seen(began, keys[*index], local, content.as_ref(), age, fresh, now);
                let source = FoundIn::Known;
                known[*index] = Some(match content {
                    Some(bytes) => Landing::Found { bytes, age: Some(age), stale: false, source },
                    None => Landing::Empty { source },
                });
            }
        }
        known
    }

    /// What needs nobody to load it: its content, its age, and how long it is fresh, in milliseconds.
    fn fresh(&self, seen: Joined) -> Option<(Option<Bytes>, i64, i64)> {
        let settings = &self.0.settings;
        match seen {
            Joined::Value { bytes, age_ms, fresh_ms } => {
                let (ttl_ms, early) = (age_ms.saturating_add(fresh_ms), i64::from(settings.early));
                // In the last part of its ttl one caller loads it anew: JOIN says which.
                let is_late =
                    early > 0 && fresh_ms.saturating_mul(100) <= ttl_ms.saturating_mul(early).saturating_add(100);
                (!is_late).then(|| (Some(Bytes::from_owner(bytes)), age_ms, fresh_ms))
            }
            Joined::Empty { age_ms } => {
                let ttl_ms = i64::try_from(settings.negative_ttl.as_millis()).unwrap_or(i64::MAX);
                Some((None, age_ms, ttl_ms.saturating_sub(age_ms).max(0)))
            }
            _ => None,
        }
    }
}
