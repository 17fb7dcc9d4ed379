//! How long values are kept, and who loads them.

use std::time::Duration;

use resil_core::limits::EARLY_MAX;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::health::Away;
use crate::settings::setters;
use crate::settings::span_text::{self, check_number, check_span};

const DAY: Duration = Duration::from_secs(86_400);
/// By how many percent a ttl can be shorter.
const JITTER_MAX: u32 = 50;

/// What the others hear of a loader's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnLoadError {
    /// Its words: all who wait get them, and so does everybody who comes within the error's ttl.
    #[default]
    Share,
    /// Nothing: after [`CacheSettings::retry`] one of them tries.
    Propagate,
}

/// How long values are kept, and who loads them. Omitted fields have their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CacheSettings {
    /// How long a value is fresh. 60 s by default. With zero, those who wait get it and nothing is kept.
    #[serde(with = "span_text")]
    pub ttl: Duration,
    /// How long it is known that there is no such value. 30 s by default.
    #[serde(with = "span_text")]
    pub negative_ttl: Duration,
    /// How long past its ttl a value is served while one caller loads it anew. Zero by default.
    #[serde(with = "span_text")]
    pub stale: Duration,
    /// How long after an error no caller tries again (callers get the stale value, or the error). 1 s by default. With zero,
    /// those who wait get the error and the next caller tries.
    #[serde(with = "span_text")]
    pub error_ttl: Duration,
    /// How long after a load that crashed, timed out, or failed under [`OnLoadError::Propagate`] no caller tries again. 1 s by
    /// default; with zero, the next one tries at once.
    #[serde(with = "span_text")]
    pub retry: Duration,
    pub on_error: OnLoadError,
    /// How long a load may take, and how long a caller waits for another process' load. 1 ms to 10 min; 3 s by default.
    #[serde(with = "span_text")]
    pub load_timeout: Duration,
    /// How long a process that fell silent while it loads is waited for: 10 ms to 1 day. It is renewed meanwhile. 2 s by default:
    /// less than callers wait, so that a lead whose leader never heard of it fails nobody.
    #[serde(with = "span_text")]
    pub lease: Duration,
    /// Serves values for that long without asking the server. What other processes invalidate is heard of at once; while
    /// that is not possible nothing is served so. Zero, the default, turns this off.
    #[serde(with = "span_text")]
    pub local_ttl: Duration,
    /// How many values the local tier holds at most. 1,024 by default.
    pub local_size: usize,
    /// In the last so many percent of its ttl a value is loaded anew by one caller, while everybody has the fresh one: 1 to
    /// 99. Zero, the default, turns this off.
    pub early: u32,
    /// Ttls are shorter at random by up to so many percent, so that what was loaded together is not over together: 0 to 50.
    /// Zero by default.
    pub jitter: u32,
    /// How long callers in the process that loads wait for a value while there is a stale one. Then they get the stale one, and the load
    /// goes on. Zero by default: they get the stale one at once.
    #[serde(with = "span_text")]
    pub soft_timeout: Duration,
    /// While the server cannot be reached: `Local` (the default) loads once per key and process, `Open` lets every caller load,
    /// `Closed` refuses.
    pub when_away: Away,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(60),
            negative_ttl: Duration::from_secs(30),
            stale: Duration::ZERO,
            error_ttl: Duration::from_secs(1),
            retry: Duration::from_secs(1),
            on_error: OnLoadError::default(),
            load_timeout: Duration::from_secs(3),
            lease: Duration::from_secs(2),
            local_ttl: Duration::ZERO,
            local_size: 1_024,
            early: 0,
            jitter: 0,
            soft_timeout: Duration::ZERO,
            when_away: Away::Local,
        }
    }
}

setters! {
    CacheSettings {
        ttl: Duration, negative_ttl: Duration, stale: Duration, error_ttl: Duration, retry: Duration, on_error: OnLoadError,
        load_timeout: Duration, lease: Duration, local_ttl: Duration, local_size: usize, early: u32, jitter: u32,
        soft_timeout: Duration, when_away: Away,
    }
}

impl CacheSettings {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn validate(&self) -> Result<(), Error> {
        for (field, given) in [
            ("ttl", self.ttl),
            ("negativeTtl", self.negative_ttl),
            ("stale", self.stale),
            ("errorTtl", self.error_ttl),
            ("retry", self.retry),
            ("localTtl", self.local_ttl),
            ("softTimeout", self.soft_timeout),
        ] {
            check_span(field, given, Duration::ZERO, 366 * DAY)?;
        }
        check_span("loadTimeout", self.load_timeout, Duration::from_millis(1), Duration::from_secs(600))?;
        check_span("lease", self.lease, Duration::from_millis(10), DAY)?;
        check_number("early", self.early, 0, EARLY_MAX)?;
        check_number("jitter", self.jitter, 0, JITTER_MAX)?;
        check_number("localSize", self.local_size, 1, usize::MAX)
    }
}
