//! What is counted of a cache: gets, each once by where its reply came from, and loads.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Histogram};

use super::table::{FoundIn, Landing};
use crate::telemetry;

#[derive(Debug)]
pub(crate) struct CacheMeters {
    pub name: Arc<str>,
    gets: [Counter; 5],
    loads: [Counter; 4],
    load_seconds: Histogram,
}

/// Where the reply to a get came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GetFrom {
    Local,
    Hit,
    Stale,
    Miss,
    Error,
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
        // In the order of the variants.
        let gets = ["local", "hit", "stale", "miss", "error"].map(|outcome| telemetry::cache_gets(&name, outcome));
        let loads = ["found", "not_found", "error", "timeout"].map(|outcome| telemetry::cache_loads(&name, outcome));
        Self { gets, loads, load_seconds: telemetry::cache_load_seconds(&name), name }
    }

    /// A get was answered.
    pub(super) fn got(&self, landing: &Landing) {
        let from = match landing {
            Landing::Found { stale: true, .. } => GetFrom::Stale,
            Landing::Found { source, .. } | Landing::Empty { source } => match source {
                FoundIn::LocalTier => GetFrom::Local,
                FoundIn::Known => GetFrom::Hit,
                FoundIn::Load => GetFrom::Miss,
            },
            Landing::Void(landing) => return self.got(landing),
            // Counted by what its own load brings.
            Landing::EachAlone => return,
            Landing::LoadError { .. } | Landing::Failed(_) => GetFrom::Error,
        };
        self.gets[from as usize].increment(1);
    }

    /// Of gets that are answered by the local tier.
    pub(super) fn local_gets(&self) -> Counter {
        self.gets[GetFrom::Local as usize].clone()
    }

    /// A get that had to load by itself was answered.
    pub(super) fn got_alone(&self, load: Load) {
        let is_miss = matches!(load, Load::Found | Load::NotFound);
        self.gets[if is_miss { GetFrom::Miss } else { GetFrom::Error } as usize].increment(1);
    }

    /// A get was given up on: its flights vanished.
    pub(super) fn vanished(&self) {
        self.gets[GetFrom::Error as usize].increment(1);
    }

    pub(super) fn loaded(&self, load: Load, took: Duration) {
        self.loads[load as usize].increment(1);
        self.load_seconds.record(took);
    }
}
