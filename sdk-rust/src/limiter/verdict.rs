//! What a limit says, and who said it.

use std::time::Duration;

use resil_core::rate_limit::Quota;
use resil_core::rate_limit::Reading;
use resil_wire::gcra::{LimitReply, Numbers};
use serde::Serialize;

use super::limit::Shape;
use super::millis;
use crate::settings::span_text;

/// Where the verdict comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecidedBy {
    Server,
    /// The server had denied it, and the time it named is not over.
    DenyCache,
    /// The machine in this process: the server is away.
    Local,
    /// Nobody: the server is away, and the limit says [`Away::Open`](crate::Away::Open).
    AwayOpen,
}

/// One tier of a limit, as it is after the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TierVerdict {
    /// So many per `period`.
    pub limit: u32,
    #[serde(with = "span_text")]
    pub period: Duration,
    /// What it holds when it is full: its burst, by default the limit.
    pub capacity: u32,
    pub remaining: u32,
    /// As in [`Verdict::retry_after`], as far as this tier is concerned.
    #[serde(with = "span_text::optional")]
    pub retry_after: Option<Duration>,
    #[serde(with = "span_text")]
    pub reset_after: Duration,
}

/// What came of a question. Where the limit has several tiers, its numbers are those of the one that binds: of a refusal the one that
/// has to be waited for longest, of a grant the one with the least left; of equals the one that was named first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// Cells that were taken (by a refund: given back; by a peek: there to be taken).
    pub granted: u32,
    /// The rate: so many per `period`.
    pub limit: u32,
    #[serde(with = "span_text")]
    pub period: Duration,
    /// What can be had at once when it is full: the burst, by default the limit.
    pub capacity: u32,
    /// What is left there. Not known to be more than this if nobody was asked.
    pub remaining: u32,
    /// How long until what was refused can be had, by a caller that is alone; zero if nothing was refused. `None`: never, it costs
    /// more than the limit holds.
    #[serde(with = "span_text::optional")]
    pub retry_after: Option<Duration>,
    /// How long until it is full again.
    #[serde(with = "span_text")]
    pub reset_after: Duration,
    pub decided_by: DecidedBy,
    /// Each tier of a limit that has several, in the order in which they were named. Empty if it has one: the verdict says it all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<TierVerdict>,
    /// Which of the tiers binds, counted from 0.
    pub binding: usize,
}

impl Verdict {
    pub fn is_granted(&self) -> bool {
        self.granted > 0
    }

    /// Each tier, also of a limit that has only one.
    pub fn each_tier(&self) -> Vec<TierVerdict> {
        if !self.tiers.is_empty() {
            return self.tiers.clone();
        }
        let Self { limit, period, capacity, remaining, retry_after, reset_after, .. } = *self;
        vec![TierVerdict { limit, period, capacity, remaining, retry_after, reset_after }]
    }

    /// How long it takes to fill from empty to [`capacity`](Self::capacity): so many in so long is the quota in HTTP headers. For a
    /// limit without a burst that is its period.
    pub fn window(&self) -> Duration {
        window(self.limit, self.period, self.capacity)
    }

    /// What memory says.
    #[inline(always)]
    pub(super) fn of(granted: u32, quota: &Quota, reading: &Reading) -> Self {
        Self {
            granted,
            limit: quota.limit(),
            period: Duration::from_micros(quota.period().as_us().unsigned_abs()),
            capacity: reading.capacity,
            remaining: reading.remaining,
            retry_after: millis(reading.retry_after.ms()),
            reset_after: millis(reading.reset_after.ceil_ms()).unwrap_or_default(),
            decided_by: DecidedBy::Server,
            tiers: Vec::new(),
            binding: 0,
        }
    }

    /// What was answered to a caller that asked for a limit of this `shape`.
    pub(super) fn read(reply: &LimitReply, shape: &Shape, decided_by: DecidedBy) -> Self {
        // The numbers of the reply are those of the first tier that has them: of equals the first one binds.
        let binding = reply.tiers.iter().position(|tier| *tier == reply.binding).unwrap_or(0);
        let tiers =
            reply.tiers.iter().enumerate().map(|(index, numbers)| TierVerdict::read(numbers, shape.rate(index)));
        let tiers = if reply.tiers.len() > 1 { tiers.collect() } else { Vec::new() };
        TierVerdict::read(&reply.binding, shape.rate(binding)).speaks(cells(reply.granted), decided_by, tiers, binding)
    }

    /// The same of one tier.
    pub(super) fn of_one(granted: i64, numbers: &Numbers, rate: (u32, Duration), decided_by: DecidedBy) -> Self {
        TierVerdict::read(numbers, rate).speaks(cells(granted), decided_by, Vec::new(), 0)
    }

    /// The same `elapsed` later, if nothing was taken or given back meanwhile.
    pub(super) fn later(&self, elapsed: Duration, decided_by: DecidedBy) -> Self {
        let mut later = self.clone();
        later.decided_by = decided_by;
        later.retry_after = later.retry_after.map(|wait| wait.saturating_sub(elapsed));
        later.reset_after = later.reset_after.saturating_sub(elapsed);
        for tier in &mut later.tiers {
            tier.retry_after = tier.retry_after.map(|wait| wait.saturating_sub(elapsed));
            tier.reset_after = tier.reset_after.saturating_sub(elapsed);
        }
        later
    }
}

impl TierVerdict {
    fn read(numbers: &Numbers, (limit, period): (u32, Duration)) -> Self {
        Self {
            limit,
            period,
            capacity: cells(numbers.capacity),
            remaining: cells(numbers.remaining),
            retry_after: millis(numbers.retry_after_ms),
            reset_after: millis(numbers.reset_after_ms).unwrap_or_default(),
        }
    }

    /// The verdict of the tier that binds.
    pub(super) fn speaks(self, granted: u32, decided_by: DecidedBy, tiers: Vec<Self>, binding: usize) -> Verdict {
        let Self { limit, period, capacity, remaining, retry_after, reset_after } = self;
        Verdict { granted, limit, period, capacity, remaining, retry_after, reset_after, decided_by, tiers, binding }
    }

    /// See [`Verdict::window`].
    pub fn window(&self) -> Duration {
        window(self.limit, self.period, self.capacity)
    }
}

fn window(limit: u32, period: Duration, capacity: u32) -> Duration {
    if limit == capacity || limit == 0 {
        return period;
    }
    let us = period.as_micros().saturating_mul(capacity.into()) / u128::from(limit);
    Duration::from_micros(u64::try_from(us).unwrap_or(u64::MAX))
}

fn cells(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}
