//! What is counted of a cache: gets, each once by where its answer came from, and loads.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Histogram};

use super::table::{FoundIn, Landing};
use crate::telemetry;

#[derive(Debug)]
pub(crate) struct CacheMeters {
    local: Counter,
    hits: Counter,
    stale: Counter,
    misses: Counter,
    errors: Counter,
    found: Counter,
    not_found: Counter,
    load_errors: Counter,
    timeouts: Counter,
    load_seconds: Histogram,
}

/// What a load came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    Found,
    NotFound,
    Error,
    Timeout,
}

impl CacheMeters {
    pub fn new(name: &str) -> Self {
        let name: Arc<str> = name.into();
        let gets = |outcome| telemetry::cache_gets(&name, outcome);
        let loads = |outcome| telemetry::cache_loads(&name, outcome);
        Self {
            local: gets("local"),
            hits: gets("hit"),
            stale: gets("stale"),
            misses: gets("miss"),
            errors: gets("error"),
            found: loads("found"),
            not_found: loads("not_found"),
            load_errors: loads("error"),
            timeouts: loads("timeout"),
            load_seconds: telemetry::cache_load_seconds(&name),
        }
    }

    /// A get was answered.
    pub(super) fn got(&self, landing: &Landing) {
        let counter = match landing {
            Landing::Found { stale: true, .. } => &self.stale,
            Landing::Found { source, .. } | Landing::Empty { source } => match source {
                FoundIn::LocalTier => &self.local,
                FoundIn::Known => &self.hits,
                FoundIn::Load => &self.misses,
            },
            Landing::Void(landing) => return self.got(landing),
            // Counted by what its own load brings.
            Landing::EachAlone => return,
            Landing::LoadError { .. } | Landing::Failed(_) => &self.errors,
        };
        counter.increment(1);
    }

    /// A get that had to load by itself was answered.
    pub(super) fn got_alone(&self, load: Load) {
        match load {
            Load::Found | Load::NotFound => self.misses.increment(1),
            Load::Error | Load::Timeout => self.errors.increment(1),
        }
    }

    /// A get was given up on: its flights vanished.
    pub(super) fn vanished(&self) {
        self.errors.increment(1);
    }

    pub(super) fn loaded(&self, load: Load, took: Duration) {
        let counter = match load {
            Load::Found => &self.found,
            Load::NotFound => &self.not_found,
            Load::Error => &self.load_errors,
            Load::Timeout => &self.timeouts,
        };
        counter.increment(1);
        self.load_seconds.record(took);
    }
}
