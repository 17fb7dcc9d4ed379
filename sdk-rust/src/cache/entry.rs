//! What a loader brings beside the bytes, and how one get differs from the others.

use std::time::Duration;

use bytes::Bytes;
use resil_core::limits::{TAG_MAX, TAGS_MAX};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::settings::setters;
use crate::settings::span_text::{self, check_span};

/// The longest ttl.
const TTL_MAX: Duration = Duration::from_secs(366 * 86_400);

/// A value as a loader brings it: its bytes, and what is special about it.
///
/// ```
/// # use std::time::Duration;
/// use resil::cache::CacheEntry;
///
/// let user = CacheEntry::new("Ada").ttl(Duration::from_secs(5)).tag("team:7");
/// let guess = CacheEntry::new("perhaps").do_not_keep();
/// # assert!(user != guess);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEntry {
    pub bytes: Bytes,
    /// How long it is fresh; `None`: as the call, or else the settings, say.
    pub ttl: Option<Duration>,
    /// What it depends on: [`invalidate_tag`](super::Cached::invalidate_tag) makes it out of date. At most 16, of 1 to 256 bytes each.
    pub tags: Vec<String>,
    /// False: those who wait get it, and nothing is kept.
    pub keep: bool,
}

impl CacheEntry {
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), ttl: None, tags: Vec::new(), keep: true }
    }

    /// How long it is fresh.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// One thing more that it depends on.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Those who wait get it, and nothing is kept.
    #[must_use]
    pub fn do_not_keep(mut self) -> Self {
        self.keep = false;
        self
    }
}

impl From<Bytes> for CacheEntry {
    fn from(bytes: Bytes) -> Self {
        Self::new(bytes)
    }
}

/// How one call differs from the settings of its cache. Omitted options are those of the settings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CallOptions {
    /// How long what is loaded, or set, is fresh.
    #[serde(with = "span_text::optional")]
    pub ttl: Option<Duration>,
    /// What it depends on, beside the tags of the [`CacheEntry`].
    pub tags: Vec<String>,
    /// How long to wait for a load before a stale value is served.
    #[serde(with = "span_text::optional")]
    pub soft_timeout: Option<Duration>,
}

setters! { CallOptions { tags: Vec<String> } { ttl: Duration, soft_timeout: Duration } }

impl CallOptions {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn validate(&self) -> Result<(), Error> {
        check_ttl("ttl", self.ttl)?;
        check_ttl("softTimeout", self.soft_timeout)?;
        check_tags(&self.tags)
    }
}

pub(super) fn check_ttl(field: &str, given: Option<Duration>) -> Result<(), Error> {
    given.map_or(Ok(()), |given| check_span(field, given, Duration::ZERO, TTL_MAX))
}

pub(super) fn check_tags(tags: &[String]) -> Result<(), Error> {
    if tags.len() > TAGS_MAX {
        return Err(Error::invalid("tags", format!("must be at most {TAGS_MAX}, got {}", tags.len())));
    }
    match tags.iter().find(|tag| tag.is_empty() || tag.len() > TAG_MAX) {
        Some(tag) => Err(Error::invalid("tags", format!("must have 1 to {TAG_MAX} bytes each, got {}", tag.len()))),
        None => Ok(()),
    }
}
