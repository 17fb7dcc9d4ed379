//! Values that are loaded once.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::in_camel_case;
use crate::cache::{self, Cached, CachedBuilder, OnError, VersionedCached};
use crate::client::Client;
use crate::error::Error;
use crate::health::Away;
use crate::policy::span_text::optional;

/// See [`CachedBuilder`] for what each means, and what holds if it is not said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CacheSettings {
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Duration>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub negative_ttl: Option<Duration>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub stale: Option<Duration>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub error_ttl: Option<Duration>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub retry: Option<Duration>,
    /// `share` or `passOn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub load_timeout: Option<Duration>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub lease: Option<Duration>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub local_ttl: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_away: Option<Away>,
}

impl CacheSettings {
    pub fn validate(&self) -> Result<(), Error> {
        self.over(cache::Settings::default()).check().map_err(in_camel_case)
    }

    /// Values that are loaded once, on these terms, checked; `name` says what they are.
    pub fn cached(&self, client: &Client, name: &str) -> Result<Cached, Error> {
        self.builder(client, name).build().map_err(in_camel_case)
    }

    /// The same with versions.
    pub fn versioned(&self, client: &Client, name: &str) -> Result<VersionedCached, Error> {
        self.builder(client, name).build_versioned().map_err(in_camel_case)
    }

    fn builder(&self, client: &Client, name: &str) -> CachedBuilder {
        let mut builder = client.cached(name);
        builder.settings = self.over(builder.settings);
        builder
    }

    fn over(&self, usual: cache::Settings) -> cache::Settings {
        cache::Settings {
            ttl: self.ttl.unwrap_or(usual.ttl),
            negative_ttl: self.negative_ttl.unwrap_or(usual.negative_ttl),
            stale: self.stale.unwrap_or(usual.stale),
            error_ttl: self.error_ttl.unwrap_or(usual.error_ttl),
            retry: self.retry.unwrap_or(usual.retry),
            on_error: self.on_error.unwrap_or(usual.on_error),
            load_timeout: self.load_timeout.unwrap_or(usual.load_timeout),
            lease: self.lease.unwrap_or(usual.lease),
            local_ttl: self.local_ttl.unwrap_or(usual.local_ttl),
            local_size: self.local_size.unwrap_or(usual.local_size),
            away: self.when_away.unwrap_or(usual.away),
        }
    }
}
