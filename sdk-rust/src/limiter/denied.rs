//! Keys that were refused a moment ago, and until when: what makes a flood of denied calls free.
//!
//! # The promise
//! It never grants, and never denies what the server would grant, as far as this process can know: a denial is kept for
//! no longer than its `retry_after`, counted from before the question was sent, and no longer than [`BELIEVED_MAX`]; it
//! holds for its cost and above, under the limit it was made with; and a refund through this client ends it, also one that
//! overtakes the denial's reply. (A refund by another process, or a key that an operator deleted, is seen after
//! [`BELIEVED_MAX`] at the latest, also under a limit per day.)
//!
//! # The state
//! Sixteen maps of at most [`SHARD_MAX`] keys. A full one lets go of any key for a new one: that costs a round trip.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use super::limit::Shape;
use super::verdict::{DecidedBy, Verdict};
use crate::clock::Moment;

const SHARDS: usize = 16;
const SHARD_MAX: usize = 1_024;
/// How long the server is believed to say the same, however long its `retry_after` is: one question per key and so many seconds
/// is as good as none.
pub(super) const BELIEVED_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Denied {
    hasher: RandomState,
    shards: [Mutex<DenialShard>; SHARDS],
}

#[derive(Debug, Default)]
struct DenialShard {
    denials: HashMap<Box<[u8]>, Denial, RandomState>,
    /// How often anything was ended by a refund: a reply that was asked for before is not believed.
    refunds: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Denial {
    /// Costs from this on are denied.
    pub cost: u32,
    asked_at: Moment,
    /// Until when that is not asked again: not after it can be had.
    believed_until: Moment,
    /// What the server said.
    verdict: Verdict,
    /// Of the limit it was denied under.
    shape: u64,
}

/// Where a question stood among the refunds when it was asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct RefundsSeen(u64);

impl Default for Denied {
    fn default() -> Self {
        Self { hasher: RandomState::default(), shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Denied {
    /// What distinguishes one limit from another.
    pub fn shape_id(&self, shape: &Shape) -> u64 {
        self.hasher.hash_one(shape)
    }

    fn shard(&self, key: &[u8]) -> &Mutex<DenialShard> {
        &self.shards[(self.hasher.hash_one(key) >> 40) as usize % SHARDS]
    }

    /// The denial of `cost` cells that still holds; or where the question stands that must now be asked.
    #[allow(clippy::result_large_err, reason = "a flood of denied calls is not to allocate")]
    pub fn look(&self, key: &[u8], shape: u64, cost: u32, now: Moment) -> Result<RefundsSeen, Denial> {
        let mut shard = self.shard(key).lock();
        if !shard.denials.is_empty()
            && let Some(denial) = shard.denials.get(key)
        {
            if denial.believed_until <= now {
                shard.denials.remove(key);
            } else if denial.shape == shape && cost >= denial.cost {
                return Err(denial.clone());
            }
        }
        Ok(RefundsSeen(shard.refunds))
    }

    /// Remembers a denial, unless a refund came in between.
    pub fn remember(&self, key: &[u8], shape: u64, asked: RefundsSeen, denial: Denial) {
        let mut shard = self.shard(key).lock();
        if shard.refunds != asked.0 {
            return;
        }
        if shard.denials.len() >= SHARD_MAX
            && !shard.denials.contains_key(key)
            && let Some(other) = shard.denials.keys().next().cloned()
        {
            shard.denials.remove(&other);
        }
        shard.denials.insert(key.into(), Denial { shape, ..denial });
    }

    /// Cells were given back.
    pub fn forget(&self, key: &[u8]) {
        let mut shard = self.shard(key).lock();
        shard.refunds += 1;
        shard.denials.remove(key);
    }
}

impl Denial {
    /// Of a question that was asked at `asked_at`. `None` if there is nothing to wait for.
    pub fn of(cost: u32, asked_at: Moment, verdict: &Verdict) -> Option<Self> {
        let wait = verdict.retry_after.filter(|wait| !wait.is_zero())?;
        let believed_until = asked_at.saturating_add(wait.min(BELIEVED_MAX));
        let verdict = Verdict { granted: 0, ..verdict.clone() };
        Some(Self { cost, asked_at, believed_until, verdict, shape: 0 })
    }

    /// What it says at `now`.
    pub fn verdict(&self, now: Moment) -> Verdict {
        self.verdict.later(now.saturating_sub(self.asked_at), DecidedBy::DenyCache)
    }
}

#[cfg(test)]
#[path = "tests/denied.rs"]
mod tests;
