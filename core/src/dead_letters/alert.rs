//! Alerts: what an operator must look at. Each is stored until it is seen, and comes once per crossing.
//!
//! | kind | severity | when |
//! | --- | --- | --- |
//! | many | warning | more than ten deaths of a type since the last such alert was seen |
//! | spike | critical | deaths of a type in these five minutes above ten times the usual; once per five minutes |
//! | aggregate | critical | the third death under one aggregate |
//! | stopped | warning | a redrive stopped by itself |
//! | full | critical | the ledger passed 80 percent of its entries or bytes |

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::limits::{MANY_DEATHS, SPIKE_BUCKET, SPIKE_BUCKETS, SPIKE_FACTOR};
use crate::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertKind {
    Many,
    Spike,
    Aggregate,
    Stopped,
    Full,
}

impl AlertKind {
    pub const ALL: [Self; 5] = [Self::Many, Self::Spike, Self::Aggregate, Self::Stopped, Self::Full];

    /// The inverse of [`Self::text`].
    pub fn from_text(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.text().as_bytes() == text)
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::Many => "many",
            Self::Spike => "spike",
            Self::Aggregate => "aggregate",
            Self::Stopped => "stopped",
            Self::Full => "full",
        }
    }

    pub fn severity(self) -> &'static str {
        match self {
            Self::Many | Self::Stopped => "warning",
            Self::Spike | Self::Aggregate | Self::Full => "critical",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    pub id: u64,
    pub kind: AlertKind,
    /// The type, the aggregate or the case it is about.
    pub subject: Box<[u8]>,
    pub count: u64,
    pub at: Instant,
    pub is_seen: bool,
}

/// One governance action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    pub id: u64,
    pub at: Instant,
    pub user: Box<[u8]>,
    pub actor: Box<[u8]>,
    pub correlation: Box<[u8]>,
    pub action: Box<[u8]>,
}

/// The deaths of one type, for its alerts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deaths {
    /// Since the last `many` was seen.
    pub since_seen: u64,
    /// An alert `many` is out and has not been seen.
    pub many_is_out: bool,
    /// The bucket that last raised `spike`.
    pub spiked: Option<i64>,
    /// Buckets with deaths, the latest last: number, count. Those without are not kept.
    pub buckets: VecDeque<(i64, u64)>,
}

/// The five minutes an instant falls into.
pub fn bucket(at: Instant) -> i64 {
    at.as_us().div_euclid(SPIKE_BUCKET.as_us())
}

impl Deaths {
    pub fn add(&mut self, at: Instant) {
        self.since_seen += 1;
        let now = bucket(at);
        match self.buckets.back_mut() {
            // A clock that was set back counts into the latest.
            Some((latest, count)) if *latest >= now => *count += 1,
            _ => self.buckets.push_back((now, 1)),
        }
        let latest = self.buckets.back().map_or(now, |(latest, _)| *latest);
        while self.buckets.front().is_some_and(|(number, _)| *number < latest - SPIKE_BUCKETS) {
            self.buckets.pop_front();
        }
    }

    /// True if this death is one too many since the last look.
    pub fn is_many(&self) -> bool {
        self.since_seen > MANY_DEATHS && !self.many_is_out
    }

    /// The deaths of the latest bucket, if they are far above the usual: ten times the mean of the buckets before it, or of one
    /// death, the greater of the two.
    pub fn spike(&self) -> Option<u64> {
        let (latest, count) = *self.buckets.back()?;
        let before: u64 = self.buckets.iter().rev().skip(1).map(|(_, count)| count).sum();
        let buckets = SPIKE_BUCKETS.cast_unsigned();
        // count > factor * max(1, before / buckets), without rounding.
        let is_above = count.saturating_mul(buckets) > before.max(buckets).saturating_mul(SPIKE_FACTOR);
        (is_above && self.spiked != Some(latest)).then_some(count)
    }
}
